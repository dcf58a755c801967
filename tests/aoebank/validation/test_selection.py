"""Codes and prefixes of codes, the longer one deciding."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoebank import UsageError
from aoebank.model.codes import CODES
from aoebank.model.finding import Location, make_finding
from aoebank.validation.selection import Selection, find_codes, parse_selection


def held(select: list[str], ignore: list[str]) -> set[str]:
    selection = parse_selection(select, ignore)
    return {code for code in CODES if selection.holds(code)}


def test_everything_is_reported_by_default() -> None:
    assert held([], []) == set(CODES)


@pytest.mark.parametrize(
    ("select", "ignore", "inside", "outside"),
    [
        (["AB1"], [], "AB103", "AB201"),
        (["AB103"], [], "AB103", "AB104"),
        ([], ["AB1"], "AB201", "AB103"),
        (["AB1"], ["AB103"], "AB104", "AB103"),
        (["AB103", "AB3"], ["AB1"], "AB103", "AB104"),
        (["AB"], ["AB1"], "AB201", "AB103"),
        (["ab1,ab3"], [], "AB301", "AB201"),
        ([" AB1 , AB2"], [], "AB201", "AB301"),
    ],
)
def test_longer_prefix_decides(
    select: list[str], ignore: list[str], inside: str, outside: str
) -> None:
    assert inside in held(select, ignore)
    assert outside not in held(select, ignore)


def test_tie_of_select_and_ignore_leaves_out() -> None:
    assert held(["AB103"], ["AB103"]) == set()


@pytest.mark.parametrize(("text", "near"), [("AC103", "AB103"), ("AB1033", "AB103")])
def test_unknown_code_names_the_nearest(text: str, near: str) -> None:
    with pytest.raises(UsageError, match="unknown finding code") as caught:
        parse_selection([], [text])
    assert caught.value.hint == f"did you mean {near}?"


@pytest.mark.parametrize("text", ["", "AB1,", "xyzzy"])
def test_text_like_no_code_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_selection([text], [])
    assert caught.value.exit_code == 2


def test_keep_leaves_the_order_alone() -> None:
    findings = [
        make_finding(code, Location(path=Path(code)), "x") for code in ("AB401", "AB103", "AB402")
    ]
    kept = Selection(ignore=("AB103",)).keep(findings)
    assert [finding.code for finding in kept] == ["AB401", "AB402"]


@given(st.text("AB0123456789", max_size=6))
def test_found_codes_start_with_what_was_asked_for(text: str) -> None:
    try:
        found = find_codes(text)
    except UsageError:
        assert not text or not any(code.startswith(text) for code in CODES)
    else:
        assert found == tuple(code for code in CODES if code.startswith(text))
