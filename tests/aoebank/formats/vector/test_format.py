"""Format D: contract, the strings inside, the names of its files."""

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

from aoebank import Record, RecordError
from aoebank.formats.vector.format import VectorFormat
from aoebank.testing.format_tests import FormatTests

FORMAT = VectorFormat()
NAME = sample_bank_files.VECTOR.name
READING = FormatReading(FORMAT, NAME)
parse, codes = READING.parse, READING.codes
EXAMPLE = sample_bank_files.VECTOR.read_bytes()
FEATURE = "[[1, [[0, 0]], [24, 1], [], 9, [1]]]"
SCHEMA = json.loads((sample_bank_files.ROOT / "schemas/vector/1.json").read_text(encoding="utf-8"))


def bank(answer: Any, feature: str = FEATURE) -> str:
    return json.dumps({feature: answer}, indent=4)


def only_record(answer: Any) -> Record:
    return FORMAT.record(parse(bank(answer)), 0)


class TestContract(FormatTests):
    format = FORMAT
    file_name = NAME
    example = EXAMPLE


class TestContractOfTemplatesAndNames(FormatTests):
    format = FORMAT
    file_name = "dynamic_Ascend910_AiCore_32_v002.json"
    example = json.dumps(
        {
            "[[1, [], 9, []]]": "tmpl",
            "[[2, [], 9, []]]": '["tmpl", 0]',
            "[[3, [], 9, []]]": '[[0, 1], 12.50, "kernel@op@[1]"]',
            "no list": "[[1], 1e2]",
        }
    ).encode()


def test_identity_is_the_text_of_the_feature() -> None:
    record = only_record("[[1, 2], 77]")
    assert record.key == FEATURE
    assert record.workload == json.loads(FEATURE)
    assert (record.strategy, record.cost_us) == ([1, 2], 77)


@pytest.mark.parametrize(
    "answer",
    ["tmpl", '["tmpl", 0]', "[[1], 5]", '[[1], 5, "k@o@s"]', "[[1], -1]", "[[1], 2.50]", "[1, 0]"],
)
def test_answers_are_written_as_they_were_read(answer: str) -> None:
    record = only_record(answer)
    data = FORMAT.serialize(parse(FORMAT.empty), {record.key: replace(record, origin=None)})
    assert json.loads(data) == {FEATURE: answer}


def test_new_file_is_indented_as_cann_writes_it() -> None:
    records = [only_record("[[1], 5]"), replace(only_record("tmpl"), key="[[2]]")]
    data = FORMAT.serialize(parse(FORMAT.empty), {record.key: record for record in records})
    assert data.decode() == json.dumps({FEATURE: "[[1], 5]", "[[2]]": "tmpl"}, indent=4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (bank("[[1], 5]"), []),
        (bank("tmpl"), []),
        ("", ["AB110"]),
        ("[]", ["AB201"]),
        (bank(7), ["AB206"]),
        (bank(["tmpl", 0]), ["AB206"]),
        (bank("temp"), ["AB103"]),
        (bank("[1"), ["AB103"]),
        (bank("[1]"), ["AB206"]),
        (bank("[1, 2, 3, 4]"), ["AB206"]),
        (bank("{}"), ["AB206"]),
        (bank('[[1], "2"]'), ["AB206"]),
        (bank("[[1], true]"), ["AB206"]),
        (bank("[[1], 2, 3]"), ["AB206"]),
        (bank("[[1], 0]"), ["AB402"]),
        (bank("[[1], -1]"), ["AB402"]),
        (bank("tmpl", ""), ["AB404"]),
        (bank("tmpl")[:-2] + "," + bank("tmpl")[1:], ["AB301"]),
    ],
)
def test_findings(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def test_string_without_an_answer_cannot_be_read_and_says_where() -> None:
    with pytest.raises(RecordError, match=r"v001.*\.json:2:\d+: .*string holds no JSON"):
        only_record("temp")


def test_last_of_two_equal_features_is_used() -> None:
    parsed = parse(f'{{"{FEATURE}": "tmpl", "{FEATURE}": "[[1], 5]"}}')
    assert parsed.find(FEATURE) == 1


# -- schema and fuzz --------------------------------------------------------------------------

answers = st.sampled_from(["tmpl", '["tmpl", 0]', "[[1], 5]", '[[1], 5, "k"]'])
anything = st.sampled_from([None, True, 7, 2.5, [], {}, [1], {"a": 1}])


@given(st.dictionaries(st.sampled_from([FEATURE, "", "x"]), answers | anything) | anything)
def test_published_schema_and_fast_checks_agree(value: Any) -> None:
    is_valid = Draft202012Validator(SCHEMA).is_valid(value)
    assert is_valid == (not {*codes(json.dumps(value))} & {"AB201", "AB206", "AB404"})


@given(st.text(max_size=30))
def test_any_text_as_an_answer_never_raises(answer: str) -> None:
    parsed = parse(bank(answer))
    found = [*FORMAT.check(parsed)]
    assert found or len([*parsed.iter_records()]) == 1


def test_bank_of_a_user_comes_back_byte_for_byte(shared_data: Path) -> None:
    (path,) = (shared_data / "modelzoo").glob("*_v001_*.json")
    parsed = FORMAT.parse(path.read_bytes(), path)
    assert len(parsed) == 141
    assert [*parsed.findings, *FORMAT.check(parsed)] == []
    records = {record.key: record for record in parsed.iter_records()}
    assert FORMAT.serialize(parsed, {}) == parsed.data
    assert FORMAT.serialize(parsed, records) == parsed.data
    rewritten = {key: replace(record, origin=None) for key, record in records.items()}
    assert FORMAT.serialize(parsed, rewritten) == parsed.data  # every answer spelled anew
