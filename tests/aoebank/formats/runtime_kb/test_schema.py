"""Format A: the published JSON Schema and the fast checks say the same of every line."""

from __future__ import annotations

import json
import runpy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from support import sample_bank_files
from support.runtime_kb_lines import (
    FIRST,
    codes,
    findings,
    line,
    name_for,
    parse,
    whole_record,
)

from aoebank.formats.runtime_kb.operator_schema import operator_schemas

SCHEMA = json.loads(
    (sample_bank_files.ROOT / "schemas/runtime_kb/1.json").read_text(encoding="utf-8")
)


VALIDATOR = Draft202012Validator(SCHEMA)
# the errors a schema of one line can tell
ERRORS = {"AB113", "AB115", "AB204", "AB205", "AB206", "AB209", "AB405"}

numbers = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False) | st.booleans()
anything = st.sampled_from([None, True, 7, -1, 2.5, "text", [], {}, [1], {"a": 1}])
near_lines = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("id", "info_dict", "knowledge", "op", "version"), anything)
)
# the last and the first numbers outside and inside the C types, and fractions beside them
borders = st.sampled_from(
    [
        sign * (2**bits) + step
        for sign in (1, -1)
        for bits in (7, 8, 31, 32, 63, 64)
        for step in (-1, 0, 1)
    ]
    + [-0.5, -1.5, 255.5, 256.0, 3.5e38, -3.5e38, 1e300, 10**400]
)


def is_without_error(value: Any, op: str = "MatMulV3") -> bool:
    return not {*codes(json.dumps(value), name_for(op))} & ERRORS


def test_published_schema_holds_the_rules_of_every_operator() -> None:
    path = sample_bank_files.ROOT / "docs" / "generate_schemas.py"
    generator = runpy.run_path(str(path))
    assert generator["render"]() == generator["TARGET"].read_text(encoding="utf-8")


@st.composite
def edited_records(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a whole record of an operator with some fields removed, replaced or added."""
    record = whole_record(draw(st.sampled_from([*operator_schemas()])))
    for part in ("info_dict", "knowledge"):
        names = st.sampled_from([*record[part], "more"])
        values = st.sampled_from([...]) | anything | borders
        for name, value in draw(st.dictionaries(names, values, max_size=3)).items():
            if value is ...:
                record[part].pop(name, None)
            else:
                record[part][name] = value
    return record


@given(edited_records())
def test_published_schema_and_fast_checks_agree_about_fields(record: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(record) == is_without_error(record, record["op"])


@pytest.mark.parametrize("op", [*operator_schemas()])
def test_published_schema_and_fast_checks_agree_about_each_missing_field(op: str) -> None:
    for part in ("info_dict", "knowledge"):
        for name in whole_record(op)[part]:
            record = whole_record(op)
            del record[part][name]
            assert VALIDATOR.is_valid(record) == is_without_error(record, op), name


@pytest.mark.parametrize("number", ["1e400", "-1e400", "1e-400", "9" * 400])
def test_published_schema_and_fast_checks_agree_about_numbers_beyond_floats(number: str) -> None:
    for part, name in (("info_dict", "l1_fused_num"), ("knowledge", "baseM")):
        record = whole_record("MatMulV3")
        record[part][name] = "HERE"
        text = json.dumps(record).replace('"HERE"', number)
        found = {*codes(text, name_for("MatMulV3"))}
        assert VALIDATOR.is_valid(json.loads(text)) == (not found & ERRORS)


@given(near_lines | anything)
def test_published_schema_and_fast_checks_agree(value: Any) -> None:
    assert VALIDATOR.is_valid(value) == is_without_error(value)


def test_published_schema_tells_what_is_no_error_as_annotations() -> None:
    rules = {rule["if"]["properties"]["op"]["const"]: rule["then"] for rule in SCHEMA["allOf"]}
    knowledge = rules["Conv2DV2"]["properties"]["knowledge"]
    assert "nBL1" in knowledge["required"]
    assert not {"multiNBL1", "khL1", "mStep", "innerBatch"} & {*knowledge["required"]}
    about = {name: rule.get("description") for name, rule in knowledge["properties"].items()}
    assert about["multiNBL1"] == (
        "ceil(nBL1 / nL0). No known kernel uses weightKStride, which is made of it."
    )
    assert about["khL1"] == "Counts on the DMA path only."
    assert about["mStep"] == "Not taken from records."
    assert knowledge["properties"]["innerBatch"]["default"] == 1


mutations = st.tuples(
    st.sampled_from(["info_dict", "knowledge"]),
    st.sampled_from([*FIRST["info_dict"], *FIRST["knowledge"], "", "x" * 200, "~/\u00e4"]),
    anything | numbers | st.text(max_size=5),
)


@given(st.lists(mutations, max_size=4))
def test_mutated_records_never_raise_and_never_vanish_silently(edits: list[Any]) -> None:
    document = json.loads(line())
    for part, name, value in edits:
        document[part][name] = value
    text = json.dumps(document)
    if "Infinity" in text:
        return
    parsed = parse(text)
    assert len(parsed) == 1 or parsed.findings
    assert all(finding.location.line == 1 for finding in findings(text) if finding.code != "AB114")
