"""What every command writes, in full."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer
from support import golden_harness

import aoebank
from aoebank.cli import load

VERSION = (re.compile(rf'"version": "{re.escape(aoebank.__version__)}"'), '"version": "$VERSION"')
# what one option makes of a command has a shape of its own
OTHER_SHAPES = {"--apply": "merge-settlement", "--verify": "log-verify"}
CASES = golden_harness.cases("aoebank")


@pytest.mark.parametrize("case", CASES)
def test_command_writes_what_it_did(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, update_golden: bool
) -> None:
    golden_harness.check_case(
        "aoebank", case, tmp_path, monkeypatch, update=update_golden, substitutions=[VERSION]
    )


@pytest.mark.parametrize("case", [case for case in CASES if case.endswith("-json")])
def test_json_output_is_one_document_with_its_schema(case: str) -> None:
    known = golden_harness.read_case("aoebank", case)
    words = known.command.split()
    document = json.loads(known.expected.stdout)
    verb, below = words[words.index("aoebank") + 1 :][:2]
    if isinstance(load(verb), typer.Typer):
        verb = f"{verb}-{below}"
    other = OTHER_SHAPES.get(next((word for word in words if word in OTHER_SHAPES), ""))
    known_names = (f"aoebank.{verb}/1", f"aoebank.{other}/1")
    assert document["schema"] == known_names[other is not None and "error" not in document]
    assert known.expected.stderr == ""
