"""Every row of `docs/for-aoe-users.toml` is true of the program, and the page says what it says."""

from __future__ import annotations

from typing import Any

import pytest
from support.aoe_contract import ABSENCE, PROBES, Runs
from support.aoe_contract_checks import CHECKS
from support.scripts import load_script

GENERATOR = load_script("docs/generate_for_aoe_users.py")
TABLE: dict[str, list[dict[str, Any]]] = GENERATOR.load_table()
ROWS = [
    pytest.param(kind, row, id=f"{kind} {row['name']}")
    for kind in GENERATOR.KINDS
    for row in TABLE[kind]
]


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_row_is_true_of_the_program(kind: str, row: dict[str, Any], aoe_runs: Runs) -> None:
    word, *arguments = row["probe"]
    PROBES[word](aoe_runs, *arguments)


@pytest.mark.parametrize(("kind", "row"), ROWS)
def test_row_says_what_its_probe_shows(kind: str, row: dict[str, Any]) -> None:
    assert row["state"] in GENERATOR.STATES
    word = row["probe"][0]
    if row["state"] == "here":
        assert word not in ABSENCE, "a probe of absence shows nothing that is here"
    if row["state"] == "not here":
        assert word in ABSENCE or word in ("says", "check"), f"{word} shows that it is here"
    assert row["source"] and (row["text"] or row["state"] == "here")


def test_names_stand_in_the_table_once() -> None:
    for kind in GENERATOR.KINDS:
        names = [row["name"] for row in TABLE[kind]]
        assert len(set(names)) == len(names)


def test_checks_are_all_asked_for() -> None:
    asked = {
        row["probe"][1]
        for kind in GENERATOR.KINDS
        for row in TABLE[kind]
        if row["probe"][0] == "check"
    }
    assert asked == set(CHECKS)


def test_page_is_up_to_date() -> None:
    text = GENERATOR.PAGE.read_text(encoding="utf-8")
    assert text == GENERATOR.page(), "run python docs/generate_for_aoe_users.py"
