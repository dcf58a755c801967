"""The provenance side-car: what is written comes back, one bad line hides no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from aoebank import Event, Provenance
from aoebank.formats.provenance import (
    append_line_break,
    bank_file_of,
    parse_provenance,
    provenance_path,
    serialize_provenance,
)
from aoebank.testing.factories import make_provenance

PATH = Path("bank.json.provenance.jsonl")
KEY = "0123456789abcdef0123456789abcdef"
SCHEMA = json.loads(
    Path(__file__).parents[3].joinpath("schemas/provenance/1.json").read_text(encoding="utf-8")
)

json_objects = st.dictionaries(st.text(), st.none() | st.integers() | st.text(), max_size=3)
ratios = st.floats(min_value=1e-6, max_value=1e6)
entries = st.builds(
    Provenance,
    key=st.text(min_size=1),
    event=st.sampled_from(Event),
    time=st.just("2026-01-02T03:04:05.678Z"),
    engine=st.text(min_size=1),
    fingerprint=json_objects,
    model=json_objects,
    op_names=st.lists(st.text(), max_size=3).map(tuple),
    baseline_us=st.lists(ratios, max_size=3).map(tuple),
    tuned_us=st.lists(ratios, max_size=3).map(tuple),
    speedup=st.none() | ratios,
    speedup_low=st.none() | ratios,
    speedup_high=st.none() | ratios,
    search=json_objects,
    extra=st.dictionaries(st.sampled_from(["host", "notes"]), st.integers()),
)


def line(**changes: Any) -> dict[str, Any]:
    document = json.loads(serialize_provenance(make_provenance(KEY)))
    return {name: value for name, value in {**document, **changes}.items() if value is not ...}


def codes(*documents: object) -> list[str]:
    text = "".join(json.dumps(document) + "\n" for document in documents)
    return [finding.code for finding in parse_provenance(text.encode(), PATH).findings]


def test_side_car_lies_beside_its_bank_file() -> None:
    bank = Path("soc/unified_bank/a_1_AiCore_x.json")
    assert provenance_path(bank) == Path("soc/unified_bank/a_1_AiCore_x.json.provenance.jsonl")
    assert bank_file_of(provenance_path(bank)) == bank


@given(st.lists(entries, max_size=4))
def test_entries_come_back_equal_and_in_order(written: list[Provenance]) -> None:
    log = parse_provenance(b"".join(map(serialize_provenance, written)), PATH)
    assert list(log.entries) == written
    assert log.findings == ()


@given(entries)
def test_every_line_written_fits_the_published_schema(entry: Provenance) -> None:
    Draft202012Validator(SCHEMA).validate(json.loads(serialize_provenance(entry)))


def test_line_of_a_full_entry() -> None:
    entry = make_provenance(KEY, model={"name": "resnet"}, extra={"note": "x"})
    assert serialize_provenance(entry).decode() == (
        '{"schema": "aoebank.provenance/1", "key": "0123456789abcdef0123456789abcdef", '
        '"event": "add", "time": "2026-01-02T03:04:05Z", "engine": "aoe 1.0", '
        '"model": {"name": "resnet"}, "baseline_us": [20.0, 21.0], "tuned_us": [10.0, 10.5], '
        '"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "note": "x"}\n'
    )


def test_torn_last_line_hides_no_other() -> None:
    data = serialize_provenance(make_provenance(KEY)) * 3
    log = parse_provenance(data[:-30], PATH)
    assert len(log.entries) == 2
    assert [(finding.code, finding.location.line) for finding in log.findings] == [("AB111", 3)]


def test_whole_last_line_without_line_end_is_read() -> None:
    log = parse_provenance(serialize_provenance(make_provenance(KEY))[:-1], PATH)
    assert (len(log.entries), log.findings) == (1, ())


def test_line_is_never_appended_to_a_torn_one() -> None:
    assert append_line_break(b'{"to') == b'{"to\n'
    assert append_line_break(b"{}\n") == b"{}\n"
    assert append_line_break(b"") == b""


def test_bad_line_in_the_middle_has_its_line_and_column() -> None:
    good = serialize_provenance(make_provenance(KEY))
    log = parse_provenance(good + b'{"key": }\n' + good, PATH)
    assert len(log.entries) == 2
    place = log.findings[0].location
    assert (log.findings[0].code, place.line, place.column) == ("AB103", 2, 9)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (line(), []),
        (line(more=1), []),
        (line(speedup=...), []),
        ([], ["AB204"]),
        (line(key=...), ["AB205"]),
        (line(key=..., time=...), ["AB205", "AB205"]),
        (line(schema="aoebank.provenance/2"), ["AB208"]),
        (line(event="found"), ["AB404"]),
        (line(time="today"), ["AB404"]),
        (line(speedup=0), ["AB404"]),
        (line(speedup=None), ["AB404"]),
        (line(baseline_us=[1, "2"]), ["AB404"]),
        (line(op_names="a"), ["AB404"]),
        (line(fingerprint=[]), ["AB404"]),
    ],
)
def test_findings_of_a_line(document: object, expected: list[str]) -> None:
    assert codes(document) == expected


def test_blank_lines_and_conflict_markers_are_told_apart_from_bad_json() -> None:
    good = serialize_provenance(make_provenance(KEY))
    data = b"<<<<<<< ours\n" + good + b"=======\n\n" + good + b">>>>>>> theirs\n"
    log = parse_provenance(data, PATH)
    assert sorted(finding.code for finding in log.findings) == ["AB104", "AB104", "AB104", "AB112"]
    assert len(log.entries) == 2


@given(st.binary(max_size=200))
def test_random_bytes_never_raise(data: bytes) -> None:
    parse_provenance(data, PATH)
    parse_provenance(serialize_provenance(make_provenance(KEY)) + data, PATH)


names = st.sampled_from(
    ["schema", "key", "event", "time", "op_names", "tuned_us", "speedup", "search", "engine"]
)
odd: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 2.5, "", "x", [], [1], ["a"], [0], {}, "2026-02-30"]
)


@given(st.dictionaries(names, odd, max_size=3))
def test_published_schema_and_fast_checks_agree(changes: dict[str, Any]) -> None:
    document = line(**changes)
    assert Draft202012Validator(SCHEMA).is_valid(document) == (codes(document) == [])
