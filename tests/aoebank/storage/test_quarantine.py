"""The file of known-bad records: what it says, and what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.version_banks import keep_out

from aoebank import BankFormatError, BankPathError, Quarantine, load_quarantine
from aoebank.formats.registry import FORMATS
from aoebank.model.digest import digest_of
from aoebank.model.quarantine import QuarantineEntry, sorted_entries
from aoebank.storage.quarantine import (
    find_quarantine_root,
    parse_quarantine,
    quarantine_path,
    serialize_quarantine,
)
from aoebank.testing.factories import make_record

TODAY = date(2026, 6, 30)
RECORD = replace(make_record(1), soc_version="Ascend910B2", op_type="Softmax")
PATH = Path("quarantine.jsonl")


def make_entry(**changes: Any) -> QuarantineEntry:
    members = {
        "key": RECORD.key,
        "reason": "aicore error",
        "who": "Ann",
        "when": "2026-01-02T03:04:05Z",
        "soc_version": "Ascend910B2",
        "op_type": "Softmax",
        "format": "unified",
        "strategy_sha256": digest_of(RECORD.strategy),
    }
    return QuarantineEntry(**{**members, **changes})


def _finds(entry: QuarantineEntry, record: Any = RECORD, today: date = TODAY) -> bool:
    return Quarantine((entry,)).find(record, today=today) is entry


# ---- what it keeps out ----


def test_record_it_names_is_found() -> None:
    assert _finds(make_entry())


@pytest.mark.parametrize(
    "change",
    [
        {"key": "other"},
        {"soc_version": "Ascend310"},
        {"op_type": "LRN"},
        {"format": "cube"},
        {"strategy_sha256": "0" * 64},
    ],
)
def test_record_that_differs_in_one_thing_is_not(change: dict[str, Any]) -> None:
    assert not _finds(make_entry(**change))


@pytest.mark.parametrize("name", ["soc_version", "op_type", "format", "strategy_sha256"])
def test_what_an_entry_does_not_name_can_be_anything(name: str) -> None:
    entry = make_entry(**{name: None})
    other = {"soc_version": "x", "op_type": "y", "format": "cube", "strategy_sha256": 0}
    changed = {"strategy": {"tile": 1}} if name == "strategy_sha256" else {name: other[name]}
    assert _finds(entry, replace(RECORD, **changed))


def test_what_a_record_does_not_tell_cannot_differ() -> None:
    assert _finds(make_entry(), replace(RECORD, soc_version=None, op_type=None))


def test_strategy_is_the_same_in_any_spelling() -> None:
    strategy = {"vectorize": True, "tile": [16, 4]}
    assert _finds(make_entry(), replace(RECORD, strategy=strategy))
    assert not _finds(make_entry(), replace(RECORD, strategy={**strategy, "tile": [16.0, 4]}))


@pytest.mark.parametrize(
    ("until", "holds"), [(None, True), (TODAY, True), (date(2026, 6, 29), False)]
)
def test_last_day_is_the_last(until: date | None, holds: bool) -> None:
    assert _finds(make_entry(until=until)) is holds


# ---- the file ----

TEXT = st.text(min_size=1).filter(str.strip)
ENTRIES = st.lists(
    st.builds(
        QuarantineEntry,
        key=TEXT,
        reason=TEXT,
        who=TEXT,
        when=st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-03T03:04:05Z"]),
        soc_version=st.none() | st.sampled_from(["a", "b"]),
        op_type=st.none() | TEXT,
        format=st.none() | st.sampled_from([known.name for known in FORMATS]),
        until=st.none() | st.dates(),
        strategy_sha256=st.none() | st.just("0" * 64),
        ticket=st.none() | TEXT,
        evidence=st.none() | TEXT,
        extra=st.just({}) | st.just({"more": [1]}),
    )
)


@given(ENTRIES)
def test_entries_come_back_in_one_order(entries: list[QuarantineEntry]) -> None:
    data = serialize_quarantine(entries)
    again = parse_quarantine(data, PATH)
    assert again.entries == sorted_entries(entries)
    assert serialize_quarantine(reversed(again.entries)) == data
    assert data.count(b"\n") == len(again)


def test_file_is_one_plain_line_per_entry(tmp_path: Path) -> None:
    keep_out(tmp_path, make_entry(until=TODAY))
    (line,) = quarantine_path(tmp_path).read_text().splitlines()
    assert json.loads(line) == {
        "schema": "aoebank.quarantine_entry/1",
        "soc_version": "Ascend910B2",
        "op_type": "Softmax",
        "format": "unified",
        "key": RECORD.key,
        "strategy_sha256": digest_of(RECORD.strategy),
        "reason": "aicore error",
        "until": "2026-06-30",
        "who": "Ann",
        "when": "2026-01-02T03:04:05Z",
    }


def test_newer_entry_replaces_one_of_the_same_identity() -> None:
    old, new = make_entry(), make_entry(reason="hangs", when="2026-02-02T03:04:05Z")
    assert sorted_entries([new, old]) == (new,)
    assert len(sorted_entries([new, make_entry(strategy_sha256=None)])) == 2


def test_bank_without_quarantine_keeps_nothing_out(tmp_path: Path) -> None:
    assert len(load_quarantine(tmp_path)) == 0
    assert len(load_quarantine(tmp_path / "gone")) == 0
    (tmp_path / "file").touch()
    assert len(load_quarantine(tmp_path / "file")) == 0


def _line(**changes: Any) -> str:
    document = json.loads(serialize_quarantine([make_entry()]))
    document |= changes
    return json.dumps({name: value for name, value in document.items() if value is not None})


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("<<<<<<< HEAD", "not one JSON object"),
        ("{", "not one JSON object"),
        ("[1]", "not one JSON object"),
        ('{"a": 1}', "unknown schema"),
        (_line(schema="aoebank.quarantine_entry/2"), "unknown schema"),
        (_line(key=None), "key is missing"),
        (_line(key=""), "key is missing"),
        (_line(reason=None), "reason is missing"),
        (_line(reason="  "), "a key and a reason"),
        (_line(soc_version=3), "soc_version must be a text"),
        (_line(until="tomorrow"), "until must be a date"),
        (_line(until=20260101), "until must be a date"),
        (_line(format="sqlite"), "format must be one of"),
        (_line(when="yesterday"), "RFC 3339"),
    ],
)
def test_line_that_is_no_entry_is_an_error_and_not_passed_over(
    tmp_path: Path, line: str, words: str
) -> None:
    path = quarantine_path(tmp_path)
    path.parent.mkdir()
    good = serialize_quarantine([make_entry()])
    path.write_bytes(good + line.encode() + b"\n" + good)
    with pytest.raises(BankFormatError, match=words) as caught:
        load_quarantine(tmp_path)
    assert caught.value.line == 2


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf%s", b"%s\r\n\r\n", b"\n\n%s"])
def test_bom_crlf_and_blank_lines_hide_nothing(data: bytes) -> None:
    line = serialize_quarantine([make_entry()]).strip()
    assert len(parse_quarantine(data % line, PATH)) == 1


def test_bytes_that_are_not_utf_8_are_an_error() -> None:
    with pytest.raises(BankFormatError, match="line is not one JSON object"):
        parse_quarantine(b"\xff\n", PATH)


def test_directory_in_its_place_is_one_clear_error(tmp_path: Path) -> None:
    quarantine_path(tmp_path).mkdir(parents=True)
    with pytest.raises(BankPathError, match="is a directory"):
        load_quarantine(tmp_path)


def test_members_of_a_later_version_stay() -> None:
    data = _line(severity="high").encode() + b"\n"
    entries = parse_quarantine(data, PATH)
    assert json.loads(serialize_quarantine(entries)) == json.loads(data)


def test_root_is_found_from_any_depth(tmp_path: Path) -> None:
    root = tmp_path / "bank"
    file = root / "soc" / "unified_bank" / "file.json"
    assert find_quarantine_root(file) is None
    keep_out(root, make_entry())
    assert find_quarantine_root(file) == root
    assert find_quarantine_root(root) == root
    assert find_quarantine_root(tmp_path) is None


def test_entry_without_key_or_reason_cannot_be() -> None:
    for change in ({"key": ""}, {"reason": " "}, {"when": "now"}):
        with pytest.raises(ValueError, match=r"key and a reason|RFC 3339"):
            make_entry(**change)
