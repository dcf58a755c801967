"""docs/resolve.md says what the code does: programs, places, failures, warnings, options."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support import golden_harness

from aoebank import Reader
from aoebank.model.resolution import HAZARDS, Failure
from aoebank.storage.readers.places import HOME, Place
from aoebank.storage.readers.rules import RULES
from aoebank.storage.readers.soc_versions import SOC_ALTERNATIVES

TEXT = (Path(__file__).resolve().parents[2] / "docs/resolve.md").read_text(encoding="utf-8")
WORDS = {
    Failure.STOP: "stops",
    Failure.SILENT: "ignored silently",
    Failure.WARN: "ignored with a warning",
    Failure.NEXT: "next place",
    Failure.UNKNOWN: "not documented",
}


def row(reader: Reader, table: int) -> list[str]:
    rows = re.findall(rf"^\| `{reader}`.*\|$", TEXT, re.MULTILINE)
    assert len(rows) == 2
    cells = [cell.strip() for cell in rows[table].strip("|").split("|")]
    for number, cell in enumerate(cells):
        other = re.fullmatch(r"as `([a-z-]+)`", cell)
        if other:
            cells[number] = row(Reader(other[1]), table)[number]
    return cells


def words_of(place: Place) -> str:
    return "/".join(part for part in (place.source, place.folder) if part)


@pytest.mark.parametrize("reader", Reader)
def test_places_are_documented_in_order(reader: Reader) -> None:
    rules = RULES[reader]
    _, format_, custom, default, built_in = row(reader, 0)
    named = [words_of(place) for place in rules.custom if place.source != HOME]
    folders = [place.folder for place in rules.custom if place.source == HOME]
    assert format_ == rules.format
    assert re.findall(r"`([^`]+)`", custom) == named
    assert re.findall(r"`([^`]+)`", default) == (folders or [RULES[reader].custom[-1].folder])
    documented = [folder.split("/<short")[0] for folder in re.findall(r"`([^`]+)`", built_in)]
    assert documented == [
        place.folder.removeprefix("../") or place.source for place in rules.built_in
    ]


@pytest.mark.parametrize("reader", Reader)
def test_what_a_missing_path_does_is_documented(reader: Reader) -> None:
    first = RULES[reader].custom[0]
    assert first.missing is not None
    assert row(reader, 1)[1].startswith(WORDS[first.missing])


@pytest.mark.parametrize("reader", Reader)
def test_what_a_forbidden_directory_does_is_documented(reader: Reader) -> None:
    first = RULES[reader].custom[0]
    needs = first.named_needs | first.root_needs | first.files_needs
    expected = WORDS[first.denied] if needs else "not looked at"
    assert row(reader, 1)[2].startswith(expected)


def test_every_warning_is_documented() -> None:
    assert dict(re.findall(r"^\| `(AR\d{3})` \| (.*) \|$", TEXT, re.MULTILINE)) == HAZARDS


def test_every_option_is_documented() -> None:
    text = golden_harness.run("aoebank", ["resolve", "--help"]).stdout
    options = set(re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)) - {"--help"}
    assert len(options) == 14
    assert all(f"`{option}" in TEXT for option in options)


def test_related_soc_versions_are_documented() -> None:
    for soc, others in SOC_ALTERNATIVES.items():
        for name in (soc, *others):
            short = name.removeprefix("Ascend")
            assert re.search(rf"{short}\b|310B2/3/4", TEXT), name
