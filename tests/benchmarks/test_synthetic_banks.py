"""The generators of synthetic banks keep what their first lines promise."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import banks
import pytest
from make_bank import LAYOUTS, make_bank, runtime_lines
from source_repository import key_to_blame, write_repository

from aoebank.history.blame import blame
from aoebank.selection import RecordFilter
from aoebank.validation.run import validate


@pytest.mark.parametrize("name", LAYOUTS)
def test_synthetic_bank_has_no_finding_but_the_twin_that_cann_writes(
    name: str, tmp_path: Path
) -> None:
    files = make_bank(tmp_path, name, records=60, files=3)
    result = validate([tmp_path])
    expected = {"AB508": len(files)} if name in ("cube", "metaschedule") else {}
    assert Counter(finding.code for finding in result.findings) == expected
    assert result.records == 60


@pytest.mark.parametrize(("first", "second"), [(67890, 125986), (35338, 142416)])
def test_synthetic_records_never_share_a_hash(first: int, second: int, tmp_path: Path) -> None:
    lines = runtime_lines(range(first, second + 1, second - first), Random(0), 24)
    (tmp_path / "Ascend910B2_24_AiCore_MatMulV3_runtime_kb.json").write_text("\n".join(lines))
    result = validate([tmp_path])
    assert (result.records, result.findings) == (2, ())


def test_two_synthetic_siblings_have_no_finding(tmp_path: Path) -> None:
    make_bank(tmp_path, "runtime_kb", records=300, files=2)
    assert validate([tmp_path]).findings == ()


def test_synthetic_repository_is_the_same_each_time_and_has_banks_with_a_past(
    tmp_path: Path,
) -> None:
    heads = []
    for folder in ("a", "b"):
        write_repository(tmp_path / folder, files=80, commits=150)
        command = ["git", "rev-parse", "HEAD", "v1", "v2"]
        heads.append(subprocess.check_output(command, cwd=tmp_path / folder))
    assert heads[0] == heads[1]
    top = tmp_path / "a"
    (found,) = blame(top, key_to_blame(top), wanted=RecordFilter()).records
    assert found.states


def _rows(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list[str]]:
    """Return the rows an experiment prints, by their titles."""
    banks.main([*words, "--repeat=1"])
    _, _, *rows = capsys.readouterr().out.splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {title.partition(" (")[0]: others for title, *others in cells}


@pytest.mark.parametrize(
    ("experiment", "titles"),
    [
        ("load", ["load 2 files", "load and check"]),
        ("diff_merge", ["`diff`", "`merge`", "`merge --base`"]),
        ("history", ["first snapshot", "nothing changed", "1 % changed", "first read back"]),
    ],
)
def test_experiment_has_its_rows(
    experiment: str, titles: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = _rows(capsys, experiment, "--records=400", "--files=2")
    assert list(rows) == titles
    assert all(len(cells) == 4 for cells in rows.values())


@pytest.mark.slow
def test_questions_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    rows = _rows(capsys, "query", "--records=400")
    assert len(rows) == 3 + len(banks.QUERIES)


@pytest.mark.slow
def test_commands_in_a_bundle_have_a_row_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_repository(tmp_path / "made", files=80, commits=60)
    bundle = tmp_path / "history.bundle"
    command = ["git", "bundle", "create", "-q", str(bundle), "--branches", "--tags"]
    subprocess.run(command, cwd=tmp_path / "made", check=True)
    rows = _rows(capsys, "repository", f"--repository={bundle}", "--only=validate")
    assert list(rows) == ["`validate .`", "`validate . --baseline git:v1`"]


def test_command_that_fails_ends_the_benchmark() -> None:
    with pytest.raises(SystemExit, match="No such command"):
        banks.measure((*banks.AOEBANK, "nothing"))
