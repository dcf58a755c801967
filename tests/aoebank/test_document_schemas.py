"""One schema for each document, and every document there is fits it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator
from support import golden_harness
from support.documents import FOLDER, find_faults
from support.scripts import load_script

from aoebank.cli import COMMANDS, load

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r'"(aoebank\.[a-z_-]+/\d+)"')
ROWS = {"aoebank.rows/1", "aoebank.rows/2"}
ELSEWHERE = {"aoebank.history/1", "aoebank.provenance/1", "aoebank.ls/1", *ROWS}
ANSWERS = [
    case
    for case in golden_harness.cases("aoebank")
    if golden_harness.read_case("aoebank", case).expected.stdout.startswith('{\n  "schema"')
]


def _generator() -> ModuleType:
    return load_script("docs/generate_document_schemas.py")


def _answer(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(golden_harness.read_case("aoebank", case).expected.stdout)
    return found


def _commands() -> Iterator[str]:
    for name in COMMANDS:
        target = load(name)
        members = target.registered_commands if isinstance(target, typer.Typer) else ()
        yield from (f"{name}-{member.name}" for member in members)
        if not members:
            yield name


def test_schemas_are_up_to_date() -> None:
    wanted: Mapping[Path, str] = _generator().schemas()
    assert {path: path.read_text() for path in FOLDER.glob("*.json")} == wanted


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_schema_is_a_schema(path: Path) -> None:
    Draft202012Validator.check_schema(json.loads(path.read_bytes()))


def test_every_name_in_the_code_has_a_schema() -> None:
    texts = [path.read_text() for path in (ROOT / "aoebank").rglob("*.py")]
    named = {name for text in texts for name in NAME.findall(text)} - ELSEWHERE
    published = {f"aoebank.{path.stem.replace('-1', '/1')}" for path in FOLDER.glob("*.json")}
    assert named <= published


@pytest.mark.parametrize("command", sorted(_commands()))
def test_every_command_has_a_schema(command: str) -> None:
    assert (FOLDER / f"{command}-1.json").is_file()


@pytest.mark.parametrize("case", ANSWERS)
def test_answer_fits_its_schema(case: str) -> None:
    assert find_faults(_answer(case)) == []


@pytest.mark.parametrize("case", ANSWERS)
def test_member_more_or_less_does_not_fit(case: str) -> None:
    answer = _answer(case)
    assert find_faults({**answer, "surprise": 1})
    for name in {*answer} - {"schema", "error"}:
        less = deepcopy(answer)
        del less[name]
        if not _is_optional(answer["schema"], name):
            assert find_faults(less), name


def _is_optional(schema: str, name: str) -> bool:
    shapes = _generator().DOCUMENTS[schema.removeprefix("aoebank.")]
    return f"{name}?" in shapes
