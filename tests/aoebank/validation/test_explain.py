"""Every finding code has an explanation, and no explanation is for a code that is gone."""

from __future__ import annotations

import re
from importlib import resources

import pytest

from aoebank.model.codes import CODES, FIXED_CODES
from aoebank.validation.explain import explain, explanations

PAGES = [
    page.read_text(encoding="utf-8")
    for page in resources.files("aoebank").joinpath("explanations").iterdir()
    if page.name.endswith(".md")
]


def test_codes_and_explanations_are_the_same_lists() -> None:
    written = [code for page in PAGES for code in re.findall(r"^## (\S+)$", page, re.MULTILINE)]
    assert sorted(written) == sorted(CODES)
    assert list(explanations()) == list(CODES)


@pytest.mark.parametrize("code", CODES)
def test_every_part_says_something(code: str) -> None:
    explanation = explanations()[code]
    for part in (explanation.meaning, explanation.why, explanation.example, explanation.way_out):
        assert part and part == part.strip()
        assert not part.startswith("-")
    assert (
        explanation.meaning.endswith(".")
        and explanation.why.endswith(".")
        and explanation.way_out.endswith(".")
    )
    assert (explanation.title, explanation.severity) == (CODES[code].title, CODES[code].severity)


def test_fixes_are_told_with_the_codes_they_mend() -> None:
    for fix_class, codes in FIXED_CODES.items():
        assert {explanations()[code].fixed_by for code in codes} <= {fix_class}
    assert explanations()["AB104"].fixed_by is None


def test_prefix_gives_all_its_codes_once() -> None:
    found = [explanation.code for explanation in explain(["AB30", "ab301", "AB3"])]
    assert found == [code for code in CODES if code.startswith("AB3")]


def test_nothing_asked_gives_all() -> None:
    assert [explanation.code for explanation in explain([])] == list(CODES)
