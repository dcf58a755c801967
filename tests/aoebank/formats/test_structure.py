"""Published schemas are what `validate` goes by: shapes, words, and agreement with the readers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support import sample_bank_files
from support.format_structures import SHAPES, STRUCTURES

from aoebank.formats.structure import SCHEMAS, STRUCTURAL, Structure, shape_of
from aoebank.formats.text.problem import Problem

MEMBERS = (
    *("knowledge", "info_dict", "cost_time", "origin", "shape", "tiling", "modelhash"),
    *("modelvalue", "gradientSize", "gradientTime", "feature", "graphID", "strategy", "group"),
    *("cut", "fusionType", "scopeId", "id", "op", "version", "aDtype", "usedCoreNum"),
)
leaves = st.sampled_from([None, True, 7, 2.5, "7", "MatMulV3", [], {}])
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=6)
    ),
    max_leaves=20,
)
# keywords whose verdict depends on a value or on nothing; formats check the former by rules
VALUES = {"const", "exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "pattern"}
NOTES = {"$id", "$schema", "contentMediaType", "default", "description", "title"}
APPLIED = {"$defs", "$ref", "additionalProperties", "allOf", "if", "items", "properties", "then"}
OF_FILES = {"minLength", "not", "oneOf", "propertyNames"}  # above what a record is


def _fresh(structure: Structure) -> Structure:
    return replace(structure)


@pytest.mark.parametrize("name", STRUCTURES)
@given(st.lists(anything, min_size=2, max_size=4))
def test_what_is_known_of_a_shape_holds_for_all_its_values(name: str, values: list[Any]) -> None:
    structure = _fresh(STRUCTURES[name])
    for value in values:
        assert structure.holds(value) == _fresh(structure).holds(value)


def _near(value: Any) -> st.SearchStrategy[Any]:
    """Return values like one that is right, with a part left out or replaced."""
    if isinstance(value, dict):
        members = {name: _near(item) for name, item in value.items()}
        return st.fixed_dictionaries({}, optional=members) | st.just(value) | leaves
    if isinstance(value, list) and value:
        return st.lists(_near(value[0]), max_size=2) | st.just(value) | leaves
    return st.just(value) | leaves


@pytest.mark.parametrize(("structure", "rules", "right"), SHAPES.values(), ids=SHAPES)
@given(data=st.data())
def test_schema_and_reader_take_the_same_records(
    structure: Structure, rules: Callable[[Any], Iterator[Problem]], right: Any, data: Any
) -> None:
    assert structure.holds(right)
    value = data.draw(_near(right) | anything)
    assert structure.holds(value) == (not [*rules(value)])


def test_problems_have_the_words_of_the_format_or_else_those_of_the_schema() -> None:
    structure = _fresh(STRUCTURES["cube"])
    words = Problem(code="AB206", tokens=(), message="in other words")
    assert [*structure.problems({"shape": {}, "tiling": []}, [words])] == []
    assert [*structure.problems({"shape": 1, "tiling": []}, [words])] == [words]
    (own,) = structure.problems({"shape": 1, "tiling": []})
    assert (own.code, own.tokens) == ("AB206", ("shape",))
    (own,) = structure.problems({"shape": {}})
    assert own.code == "AB205"
    assert "'tiling' is a required property" in own.message


def test_rules_are_not_asked_about_a_record_the_schema_takes() -> None:
    def rules() -> Iterator[Problem]:
        raise AssertionError("asked")
        yield

    assert [*STRUCTURES["cube"].problems({"shape": {}, "tiling": []}, rules())] == []


def test_runtime_schema_is_chosen_by_the_operator_not_by_the_shape() -> None:
    line = json.loads(sample_bank_files.RUNTIME_KB.read_bytes().splitlines()[0])
    structure = _fresh(STRUCTURES["runtime_kb"])
    assert structure.holds(line)
    short = {**line, "knowledge": {}}
    assert structure.holds({**short, "op": "Unheard"})
    assert not structure.holds(short)


def test_shape_looks_no_deeper_than_asked() -> None:
    assert shape_of({"a": {"b": 1}}, 1) == shape_of({"a": {"c": ""}}, 1)
    assert shape_of({"a": {"b": 1}}, 2) != shape_of({"a": {"c": ""}}, 2)
    assert shape_of([], 1) != shape_of([1], 1)
    assert shape_of(True, 0) != shape_of(1, 0)


def _keywords(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _keywords(part)
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        yield name
        parts = value.values() if name in ("properties", "$defs") else [value]
        for part in parts:
            yield from _keywords(part) if name not in ("const", "default", "required") else ()


@pytest.mark.parametrize("name", STRUCTURES)
def test_schemas_use_no_keyword_whose_verdict_a_shape_does_not_decide(name: str) -> None:
    schema = json.loads((SCHEMAS / STRUCTURES[name].schema).read_bytes())
    assert {*_keywords(schema)} <= STRUCTURAL | VALUES | NOTES | APPLIED | OF_FILES


def test_reading_a_bank_does_not_load_the_validator() -> None:
    file = sample_bank_files.UNIFIED
    code = (
        "import sys; from pathlib import Path; from aoebank import Bank;"
        f"bank = Bank(Path({str(file.parent)!r}));"
        f"records = [*bank.iter_records(Path({str(file)!r}))];"
        "sys.exit(not records or 'jsonschema' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "path", sorted(SCHEMAS.glob("*/1.json")), ids=lambda path: path.parent.name
)
def test_published_schema_is_itself_valid(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_bytes()))
