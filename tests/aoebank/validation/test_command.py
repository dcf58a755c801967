"""Options of `aoebank validate`, as far as the golden outputs do not show them already."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support import golden_harness
from support.faulty_system import FaultySystem

from aoebank import Bank
from aoebank.testing.factories import make_record

NAME = "x86-64-v4_2_AiCore_Softmax.json"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    Bank(tmp_path).put(tmp_path / NAME, [make_record(cost_us=None)])  # one note
    return tmp_path


def code(*arguments: object) -> int:
    outcome = golden_harness.run("aoebank", ["validate", *map(str, arguments)])
    return outcome.exit_code


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], 0),
        (["--fail-on", "warning"], 0),
        (["--fail-on", "note"], 1),
        (["--strict"], 1),
        (["--strict", "--fail-on", "error"], 1),
        (["--strict", "--ignore", "AB401"], 0),
        (["--strict", "--select", "AB1"], 0),
        (["--fail-on", "sometimes"], 2),
        (["--format", "xml"], 2),
        (["--format", "junit", "--json"], 2),
        (["--fix-class", "bom"], 2),
        (["--fix", "--fix-class", "everything"], 2),
        (["--fix=everything"], 2),
        (["--fix=crlf,everything"], 2),
        (["--fix=order,text"], 0),
    ],
)
def test_exit_code_follows_the_options(bank: Path, options: list[str], expected: int) -> None:
    assert code(bank, *options) == expected


@pytest.mark.parametrize("output", ["text", "json", "sarif", "junit", "github"])
def test_missing_path_is_3_whatever_else_is_found(bank: Path, output: str) -> None:
    assert code(bank, bank / "gone", "--strict", "--format", output) == 3
    assert code(bank / "gone", "--ignore", "AB501", "--format", output) == 3


def test_no_path_is_a_usage_error() -> None:
    assert code() == 2


def test_documents_for_programs_are_alone_on_standard_output(bank: Path) -> None:
    file = bank / NAME
    clean = file.read_bytes()
    for output in ("sarif", "junit"):
        file.write_bytes(clean.replace(b"\n", b"\r\n"))
        outcome = golden_harness.run(
            "aoebank", ["validate", str(bank), str(bank / "gone"), "--fix", "--format", output]
        )
        assert file.read_bytes() == clean
        assert "-{\\r" in outcome.stderr and "gone: no such file" in outcome.stderr
        if output == "sarif":
            assert json.loads(outcome.stdout)["version"] == "2.1.0"
        else:
            assert ElementTree.fromstring(outcome.stdout).tag == "testsuites"


def test_classes_may_be_named_with_fix_itself(bank: Path) -> None:
    file = bank / NAME
    damaged = b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n").replace(b'": [', b'":  [')
    results = []
    for options in (["--fix=bom,text"], ["--fix", "--fix-class", "bom", "--fix-class", "text"]):
        file.write_bytes(damaged)
        code(bank, *options)
        results.append(file.read_bytes())
    assert results[0] == results[1] != damaged
    assert not results[0].startswith(b"\xef")
    odd = bank / "--fix=order"
    odd.mkdir()
    assert code("--", odd) == 0


def test_fix_that_cannot_be_written_is_3_and_told(bank: Path, system: FaultySystem) -> None:
    file = bank / NAME
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    system.before("os.fsync", lambda _: file.write_bytes(b"{}\n"))
    outcome = golden_harness.run("aoebank", ["validate", str(bank), "--fix"])
    assert outcome.exit_code == 3
    assert f"not fixed {file}: crlf" in outcome.stdout
    assert "changed meanwhile" in outcome.stderr


def test_installed_toolkit_is_compared_with(
    bank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "opp" / "built-in" / "data" / "op"
    Bank(root).put(root / NAME, [make_record(cost_us=1.0)])
    Bank(bank).put(bank / NAME, [make_record(cost_us=2.0)])
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path / "opp"))
    outcome = golden_harness.run("aoebank", ["validate", str(bank / NAME)])
    assert "AB510" in outcome.stdout
