"""Format F: contract, lists that fit together, placeholders, hashes that come twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from support import sample_bank_files
from support.format_reading import FormatReading

from aoebank import RecordError, make_gradient_record
from aoebank.formats.gradient.format import GradientFormat
from aoebank.formats.protocol import find_error
from aoebank.testing.format_tests import FormatTests

FORMAT = GradientFormat()
NAME = sample_bank_files.GRADIENT.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
EXAMPLE = sample_bank_files.GRADIENT.read_bytes()
VALUE: dict[str, Any] = {"gradientSize": [4004, 8192], "gradientTime": [4657707485836, 12]}
SCHEMA = json.loads(
    (sample_bank_files.ROOT / "schemas/gradient/1.json").read_text(encoding="utf-8")
)


def item(**changes: Any) -> dict[str, Any]:
    document = {"modelhash": "7", "modelvalue": VALUE, **changes}
    return {name: value for name, value in document.items() if value is not ...}


def bank(*items: Any) -> str:
    return json.dumps(items)


def lists(sizes: Any, times: Any) -> str:
    return bank(item(modelvalue={"gradientSize": sizes, "gradientTime": times}))


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


class TestContractOfAnIndentedFile(FormatTests):
    format = FORMAT
    file_name = NAME
    example = json.dumps(json.loads(EXAMPLE), indent=2).encode() + b"\n"


def test_identity_is_the_modelhash() -> None:
    record = FORMAT.record(parse(bank(item(modelgraphid=3))), 0)
    assert (record.key, record.strategy, record.extra) == ("7", VALUE, {"modelgraphid": 3})


def test_new_file_is_compact() -> None:
    record = replace(FORMAT.record(parse(bank(item())), 0), origin=None)
    data = FORMAT.serialize(parse(FORMAT.empty), {"7": record})
    line = json.dumps(item(), separators=(",", ":"))
    assert data.decode() == f"[{line}]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bank(item()), []),
        (bank(item(modelgraphid=3)), []),
        ("[]", ["AB115"]),
        ("", ["AB110"]),
        ("{}", ["AB201"]),
        ("[", ["AB103"]),
        ("[] []", ["AB107"]),
        (bank(item())[:-1] + ",]", ["AB103"]),
        (bank(7), ["AB204"]),
        (bank(item(modelhash=...)), ["AB205"]),
        (bank(item(modelhash=7)), ["AB309"]),
        (bank(item(modelhash="x")), ["AB309"]),
        (bank(item(modelvalue=...)), ["AB205"]),
        (bank(item(modelvalue=[])), ["AB206"]),
        (bank(item(modelvalue={})), ["AB205", "AB205"]),
        (lists(1, [1]), ["AB206"]),
        (lists(["1"], [1]), ["AB206"]),
        (lists([True], [1]), ["AB206"]),
        (lists([1, 2], [1]), ["AB213"]),
        (lists([], []), ["AB408"]),
        (lists([0] * 5, [0] * 5), ["AB408"]),
        (lists([1, -1], [1, 1]), ["AB404"]),
        (lists([1], [-1]), ["AB404"]),
        (bank(item(), item()), ["AB312"]),
        (bank(item(mine=1)), ["AB207"]),
        (bank(item()).replace('"modelhash":', '"modelhash": "1", "modelhash":'), ["AB109"]),
    ],
)
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_finding_points_into_the_item_at_fault() -> None:
    parsed = parse(bank(item(modelhash="1"), item(modelvalue={**VALUE, "gradientSize": [1, -1]})))
    (finding,) = FORMAT.check(parsed)
    assert finding.location.pointer == "/1/modelvalue/gradientSize/1"
    assert parsed.data[finding.location.start :].startswith(b"-1")


def test_item_without_a_value_cannot_be_read_and_hides_no_other() -> None:
    parsed = parse(bank(item(modelhash="1"), item(modelvalue=1), item(modelhash="3")))
    assert [record.key for record in parsed.iter_records()] == ["1", "3"]
    with pytest.raises(RecordError, match="/1/modelvalue"):
        FORMAT.record(parsed, 1)


def test_damage_in_a_file_of_one_line_hides_no_other_item() -> None:
    text = bank(item(modelhash="1"), item(modelhash="2"), item(modelhash="3"))
    parsed = parse(text.replace('"2", "modelvalue":', '"2", "modelvalue":,'))
    assert parsed.keys == ["1", "3"]
    assert find_error(parsed) is not None


# -- schema -----------------------------------------------------------------------------------

anything = st.sampled_from([None, True, 7, 2.5, "text", [], {}, [1], {"a": 1}])
numbers = st.lists(st.integers(0, 9) | anything, max_size=2)
values = st.fixed_dictionaries(
    {}, optional={"gradientSize": numbers | anything, "gradientTime": numbers | anything}
)
items = st.fixed_dictionaries(
    {},
    optional={
        "modelhash": st.sampled_from(["7", "0", "00", "x", ""]) | anything,
        "modelvalue": values | anything,
    },
)


@given(st.lists(items | anything, max_size=2) | anything)
def test_published_schema_and_fast_checks_agree(value: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    found = {*codes(json.dumps(value))}
    assert is_valid == (not found & {"AB201", "AB204", "AB205", "AB206", "AB309"})


def test_built_in_bank_comes_back_byte_for_byte(shared_data: Path) -> None:
    (path,) = (shared_data / "cann_banks/gradient").glob("*_gradient_fusion.json")
    parsed = FORMAT.parse(path.read_bytes(), path)
    assert [*parsed.findings, *FORMAT.check(parsed)] == []
    (record,) = parsed.iter_records()
    assert len(record.strategy["gradientSize"]) == 161  # type: ignore[index, call-overload, arg-type]
    assert FORMAT.serialize(parsed, {}) == parsed.data
    assert FORMAT.serialize(parsed, {record.key: replace(record, origin=None)}) == parsed.data


def test_made_record_is_written_as_cann_does() -> None:
    record = make_gradient_record(modelhash="7", sizes_bytes=[4004, 8192], times=[100, 12])
    data = FORMAT.serialize(parse("[]"), {record.key: record})
    assert json.loads(data) == [
        {"modelhash": "7", "modelvalue": {"gradientSize": [4004, 8192], "gradientTime": [100, 12]}}
    ]
    assert codes(data) == []


@pytest.mark.parametrize(
    ("modelhash", "sizes", "times"),
    [
        ("x", [1], [1]),
        ("-1", [1], [1]),
        (str(2**64), [1], [1]),
        ("1", [1], [1, 2]),
        ("1", [], []),
        ("1", [0, 0], [1, 2]),
        ("1", ["a"], [1]),
    ],
)
def test_made_record_is_never_one_that_readers_refuse(
    modelhash: str, sizes: list[Any], times: list[Any]
) -> None:
    with pytest.raises(ValueError):
        make_gradient_record(modelhash=modelhash, sizes_bytes=sizes, times=times)
