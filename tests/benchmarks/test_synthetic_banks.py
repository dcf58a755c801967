"""The generators of synthetic banks keep what their first lines promise."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from bank_repository import clone_bundle, figures, key_to_blame, write_repository
from make_bank import LAYOUTS, make_bank, runtime_lines

from aoebank.history.blame import blame
from aoebank.selection import RecordFilter
from aoebank.validation.run import validate


@pytest.mark.parametrize("name", LAYOUTS)
def test_synthetic_bank_has_no_finding_but_the_twin_that_cann_writes(
    name: str, tmp_path: Path
) -> None:
    files = make_bank(tmp_path, name, records=60, files=3)
    result = validate([tmp_path])
    expected = {"AB508": len(files)} if name == "cube" else {}
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


@pytest.mark.slow
def test_figures_of_a_bundle_have_a_row_per_command(tmp_path: Path) -> None:
    write_repository(tmp_path / "made", files=80, commits=60)
    bundle = tmp_path / "history.bundle"
    command = ["git", "bundle", "create", "-q", str(bundle), "--branches", "--tags"]
    subprocess.run(command, cwd=tmp_path / "made", check=True)
    top = clone_bundle(bundle, tmp_path / "clone", "v2")
    rows = [*figures(top, ("v1", "v2"), 1, "validate")]
    assert [row.split("|")[1].strip() for row in rows] == [
        "`validate .`",
        "`validate . --baseline git:v1`",
    ]
    assert all(row.count("|") == 6 for row in rows)
