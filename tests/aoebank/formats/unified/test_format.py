"""Format B: contract, the rules of its records, bytes left alone, damage survived."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from aoebank import BankFormatError, RecordError, make_unified_record, workload_key
from aoebank.formats.protocol import ParsedFile, find_error, raise_if_broken
from aoebank.formats.unified.format import UnifiedFormat
from aoebank.testing.factories import make_record
from aoebank.testing.format_tests import FormatTests

FORMAT = UnifiedFormat()
NAME = Path("Ascend910B1_24_AiCore_matmul.json")
SCHEMA = json.loads(
    Path(__file__).parents[4].joinpath("schemas/unified/1.json").read_text(encoding="utf-8")
)
INFO: dict[str, Any] = {"op_type": "matmul", "A_shape": [1, 16]}
KEY = hashlib.md5(json.dumps(INFO).encode()).hexdigest()


def parse(text: str | bytes) -> ParsedFile:
    return FORMAT.parse(text.encode() if isinstance(text, str) else text, NAME)


def codes(text: str | bytes) -> list[str]:
    parsed = parse(text)
    return [finding.code for finding in (*parsed.findings, *FORMAT.check(parsed))]


def file_of(*candidates: Any, key: str = KEY) -> str:
    return json.dumps({key: list(candidates)})


def candidate(**changes: Any) -> dict[str, Any]:
    return {"knowledge": {"block": 1}, "info_dict": INFO, "cost_time": 2.5, **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in candidate().items() if key != name}


def write(*records: Any) -> bytes:
    return FORMAT.serialize(parse(FORMAT.empty), {record.key: record for record in records})


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME.name
    example = write(*(make_record(number) for number in range(4)))


class TestContractOfAPrettyPrintedFile(FormatTests):
    format = FORMAT
    file_name = NAME.name
    example = json.dumps(json.loads(TestContract.example), indent=4).encode()


class TestContractOfStringsAndSeveralCandidates(FormatTests):
    format = FORMAT
    file_name = NAME.name
    example = json.dumps(
        {
            hashlib.md5(b"not JSON").hexdigest(): [candidate(info_dict="not JSON")],
            hashlib.md5("[(1, 'ä')]".encode()).hexdigest(): [
                candidate(info_dict="[(1, 'ä')]", knowledge="a, b", origin="me", more=[1])
            ],
            KEY: [candidate(), candidate(cost_time=3, origin="x"), candidate(cost_time=4)],
        },
        ensure_ascii=False,
    ).encode()

    # `more` is a member CANN does not know, which is a note
    def test_example_is_without_findings(self) -> None:
        assert [finding.code for finding in self.all_findings(self.example)] == ["AB207"]

    def all_findings(self, data: bytes) -> list[Any]:
        found = super().all_findings(data)
        is_example = data == self.example
        return found if is_example else [finding for finding in found if finding.code != "AB207"]


def test_key_is_the_md5_of_what_json_dumps_writes() -> None:
    workload: dict[str, Any] = {"b": 1, "a": [1.0, "ä", None, True]}
    assert workload_key(workload) == hashlib.md5(json.dumps(workload).encode()).hexdigest()
    assert workload_key(workload) != workload_key({"a": workload["a"], "b": 1})


def test_layout_of_a_new_file_is_one_record_per_line() -> None:
    record = make_unified_record(workload=INFO, strategy={"x": 1}, cost_us=2.5, origin="aoe")
    line = (
        f'"{KEY}": [{{"knowledge": {{"x": 1}}, "info_dict": {json.dumps(INFO)}, '
        '"cost_time": 2.5, "origin": "aoe"}]'
    )
    assert write(record).decode() == f"{{\n{line}\n}}\n"


def test_record_without_a_time_is_written_as_minus_one_and_read_as_none() -> None:
    data = write(make_record(cost_us=None))
    assert b'"cost_time": -1' in data
    assert next(parse(data).iter_records()).cost_us is None


@pytest.mark.parametrize("cost", [-1, 0, -3.5, 1e999, "1" + "0" * 400])
def test_a_time_that_is_no_time_reads_as_none(cost: object) -> None:
    text = file_of(candidate()).replace("2.5", "1e999" if cost == 1e999 else str(cost))
    assert next(parse(text).iter_records()).cost_us is None


def test_further_candidates_are_alternatives_in_order() -> None:
    record = next(parse(file_of(candidate(), candidate(cost_time=9))).iter_records())
    assert record.cost_us == 2.5
    assert [alternative.cost_us for alternative in record.alternatives] == [9]


def test_unknown_members_survive_a_change_of_the_record() -> None:
    record = next(parse(file_of(candidate(device="x"))).iter_records())
    changed = replace(record, cost_us=1.0)
    assert b'"device": "x"' in write(changed)


def test_spelling_of_numbers_survives_a_change_of_the_record() -> None:
    text = file_of(candidate()).replace('"block": 1', '"block": 1e-4, "id": 18446744073709551615')
    record = next(parse(text).iter_records())
    data = write(replace(record, origin="someone else"))
    assert b'"block": 1e-4, "id": 18446744073709551615' in data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (file_of(candidate()), []),
        (file_of(candidate(origin="aoe")), []),
        (file_of(candidate(info_dict="text"), key=hashlib.md5(b"text").hexdigest()), []),
        ("", ["AB110"]),
        ("[1]", ["AB201"]),
        ("7", ["AB201"]),
        ("{", ["AB103"]),
        ("hello", ["AB103"]),
        ("{} {}", ["AB107"]),
        (json.dumps({KEY: {}}), ["AB202"]),
        (file_of(), ["AB203"]),
        (file_of(7), ["AB204"]),
        (file_of(without("knowledge")), ["AB205"]),
        (file_of(without("info_dict")), ["AB205"]),
        (file_of({}), ["AB205", "AB205"]),
        (file_of(candidate(knowledge=[1])), ["AB206"]),
        (file_of(candidate(info_dict=None)), ["AB206"]),
        (file_of(candidate(cost_time="7")), ["AB206"]),
        (file_of(candidate(cost_time=True)), ["AB206"]),
        (file_of(candidate(origin=1)), ["AB206"]),
        (file_of(candidate(), candidate(cost_time=None)), ["AB206"]),
        (file_of(candidate(spare=1)), ["AB207"]),
        (file_of(candidate(), key=KEY.upper()), ["AB302"]),
        (file_of(candidate(), key="matmul"), ["AB302"]),
        (file_of(candidate(), key="0" * 32), ["AB303"]),
        (file_of(candidate(), candidate(info_dict={})), ["AB304"]),
        (file_of(without("cost_time")), ["AB401"]),
        (file_of(candidate(cost_time=-1)), ["AB401"]),
        (file_of(candidate(cost_time=0)), ["AB402"]),
        (file_of(candidate(cost_time=-2)), ["AB402"]),
        (file_of(candidate(), candidate(cost_time=1)), ["AB403"]),
        (file_of(candidate()).replace('"block": 1', '"block": 1, "block": 2'), ["AB109"]),
        (file_of(candidate()).replace('"block": 1', '"block": NaN'), ["AB103"]),
        ("\ufeff" + file_of(candidate()), ["AB105"]),
        (file_of(candidate()).replace(", ", ",\r\n"), ["AB106"]),
    ],
)
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_bytes_that_are_no_utf8_are_one_finding_and_hide_nothing() -> None:
    data = write(*(make_record(number) for number in range(3)))
    broken = data.replace(b"Softmax", b"Soft\xffmax", 1)
    found = [finding for finding in parse(broken).findings if finding.code == "AB102"]
    assert [(finding.location.line, finding.got) for finding in found] == [(2, "ff")]
    assert len(list(parse(broken).iter_records())) == 3


def test_text_as_spelled_in_the_file_is_a_valid_identity_too() -> None:
    spelled = '{"alpha":1e-4}'
    key = hashlib.md5(spelled.encode()).hexdigest()
    text = f'{{"{key}": [{{"knowledge": {{}}, "info_dict": {spelled}, "cost_time": 1}}]}}'
    assert codes(text) == []


def test_key_that_comes_twice_is_reported_where_readers_pass_over_it() -> None:
    one, two = file_of(candidate())[1:-1], file_of(candidate(cost_time=3))[1:-1]
    parsed = parse(f"{{\n{one},\n{two}\n}}")
    finding = next(FORMAT.check(parsed))
    assert (finding.code, finding.location.line) == ("AB301", 2)
    assert [record.cost_us for record in parsed.iter_records()] == [2.5, 3]
    assert parsed.find(KEY) == 1


def test_replacing_a_key_that_comes_twice_leaves_one() -> None:
    one, two = file_of(candidate())[1:-1], file_of(candidate(cost_time=3))[1:-1]
    parsed = parse(f"{{\n{one},\n{two}\n}}")
    new = make_unified_record(workload=INFO, strategy={}, cost_us=1.0, origin="aoe")
    data = FORMAT.serialize(parsed, {KEY: new})
    assert [record.cost_us for record in parse(data).iter_records()] == [1.0]


def test_finding_points_at_line_column_and_pointer() -> None:
    data = write(make_record(0), make_record(1), make_record(2)).decode()
    text = data.replace('"cost_time": 11.5', '"cost_time": "soon"')
    (finding,) = FORMAT.check(parse(text))
    line = text.splitlines()[2]
    assert finding.location.line == 3
    assert finding.location.column == line.index('"soon"') + 1
    assert finding.location.pointer == f"/{make_record(1).key}/0/cost_time"
    assert text.encode()[finding.location.start :].startswith(b'"soon"')
    assert (finding.got, finding.expected) == ("a string", "a number")


def test_column_counts_characters_where_bytes_are_more() -> None:
    info = {"name": "äöü"}
    text = json.dumps(
        {workload_key(info): [candidate(info_dict=info, cost_time=0)]}, ensure_ascii=False
    )
    (finding,) = FORMAT.check(parse(text))
    assert finding.location.column == text.index("0}") + 1


def test_conflict_markers_are_reported_and_both_sides_are_read() -> None:
    lines = write(make_record(0), make_record(1), make_record(2)).decode().splitlines()
    ours, theirs = lines[2], lines[2].replace("11.5", "11.25")
    text = "\n".join(
        [*lines[:2], "<<<<<<< ours", ours, "=======", theirs, ">>>>>>> theirs", *lines[3:]]
    )
    parsed = parse(text)
    assert [(finding.code, finding.location.line) for finding in parsed.findings] == [
        ("AB104", 3),
        ("AB104", 5),
        ("AB104", 7),
    ]
    assert len(list(parsed.iter_records())) == 4


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda text: text.replace('"cost_time": 11.5', '"cost_time": '), 3),
        (lambda text: text.replace('11.5, "origin": "aoe"}],', '11.5, "origin": "aoe"'), 3),
        (lambda text: text.replace('"Softmax", "shape": [1, 1001]', '"Softmax'), 3),
        (lambda text: text.replace('11.5, "origin": "aoe"}],', '11.5, "origin": "aoe"}]'), 4),
        (lambda text: text.replace('{"op_type": "Softmax", "shape": [1, 1001', "[" * 5000), 3),
    ],
)
def test_one_damaged_record_is_one_finding_and_hides_no_other(damage: Any, line: int) -> None:
    text = damage(write(*(make_record(number) for number in range(4))).decode())
    parsed = parse(text)
    assert [finding.location.line for finding in parsed.findings] == [line]
    assert {make_record(number).key for number in (0, 2, 3)} <= {*parsed.keys}


def test_two_damaged_records_are_two_findings() -> None:
    text = write(*(make_record(number) for number in range(4))).decode()
    text = text.replace("10.5", "").replace("12.5", "")
    assert [finding.location.line for finding in parse(text).findings] == [2, 4]


def test_damage_in_a_file_of_one_line_hides_no_other_record() -> None:
    data = json.dumps(json.loads(write(*(make_record(number) for number in range(3)))))
    assert len(parse(data.replace("10.5", ""))) == 2


def test_record_that_cannot_be_read_says_where_and_why() -> None:
    parsed = parse(file_of(candidate(knowledge=7)))
    with pytest.raises(RecordError, match=r"matmul\.json:1:\d+: /.*/0/knowledge: member knowl"):
        FORMAT.record(parsed, 0)


def test_broken_file_raises_with_a_command_that_tells_more() -> None:
    with pytest.raises(BankFormatError, match="hint: aoebank validate Ascend910B1_24"):
        raise_if_broken(parse('{"a": }'))


def test_new_records_follow_the_line_ends_of_the_file() -> None:
    data = write(make_record(0), make_record(1)).replace(b"\n", b"\r\n")
    out = FORMAT.serialize(parse(data), {make_record(2).key: make_record(2)})
    assert out.count(b"\n") == out.count(b"\r\n") == 5
    crlf_empty = FORMAT.serialize(parse(b"{\r\n}"), {make_record().key: make_record()})
    assert crlf_empty.count(b"\n") == crlf_empty.count(b"\r\n")


operations = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from(["put", "put", "remove"]), st.integers(1, 99)),
    max_size=12,
)


@given(operations)
def test_file_behaves_as_a_dict_and_leaves_other_bytes_alone(
    steps: list[tuple[int, str, int]],
) -> None:
    expected: dict[str, Any] = {}
    data = FORMAT.empty
    for number, verb, tile in steps:
        record = make_record(number, tile=tile)
        before = {stored.key: stored.raw for stored in parse(data).iter_records()}
        data = FORMAT.serialize(parse(data), {record.key: record if verb == "put" else None})
        if verb == "put":
            expected[record.key] = record
        else:
            expected.pop(record.key, None)
        after = {stored.key: stored for stored in parse(data).iter_records()}
        plain = partial(replace, soc_version=None, op_type=None)
        assert {key: plain(stored) for key, stored in after.items()} == expected
        assert all(
            after[key].raw == raw
            for key, raw in before.items()
            if key in after and key != record.key
        )
        assert find_error(parse(data)) is None


anything = st.sampled_from([None, True, 7, 2.5, "text", [], {}, [1], {"a": 1}])
near_candidates = st.fixed_dictionaries(
    {},
    optional={
        "knowledge": anything,
        "info_dict": anything,
        "cost_time": anything,
        "origin": anything,
    },
)
near_files = st.dictionaries(
    st.sampled_from([KEY, KEY.upper(), "", "x" * 32, "0" * 32]),
    st.lists(near_candidates | anything, max_size=2) | anything,
    max_size=2,
)
SCHEMA_CODES = {"AB201", "AB202", "AB203", "AB204", "AB205", "AB206", "AB302"}


@given(near_files | anything)
def test_published_schema_and_fast_checks_agree(value: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    found = set(codes(json.dumps(value)))
    if isinstance(value, dict) and any(key not in (KEY, "0" * 32) for key in value):
        # the name is checked only where a record can be read, so ask for the rest by itself
        assert not is_valid
        assert found
    else:
        assert is_valid == (not found & SCHEMA_CODES)
