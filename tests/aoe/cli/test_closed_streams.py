"""A stream nobody reads, one that is not there, and names that are no text never fail a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engine.models import save_model
from support.engine.scripted_runs import blocks_net
from support.tiers import few_every_day

_TESTS = Path(__file__).resolve().parents[2]
_SCRIPTED = """
import sys
from support.engine.scripted_runs import ScriptedRuns
from aoe.cli.app import main
arguments = ["--framework=5", "--output=out", *(sys.argv[1:] or ["--model=net.onnx"])]
main(arguments, engine=ScriptedRuns().engine)
"""
_LIMIT_S = 300


def _environment(place: Path) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), *sys.path))),
        "HOME": str(place),
        "TUNE_BANK_PATH": "bank",
    }


@pytest.mark.parametrize(
    "redirection",
    few_every_day(["2>&1 | head -n 1", "2> >(true)", ">&- 2>&-"]),
)
def test_run_ends_well_and_writes_all_its_files(redirection: str, tmp_path: Path) -> None:
    save_model(blocks_net([3]), tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -c "$1" {redirection}', sys.executable, _SCRIPTED],
        cwd=tmp_path,
        env=_environment(tmp_path),
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "net_tune.om").exists()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["total_ops"] >= 1


@pytest.mark.slow
def test_model_whose_name_is_no_text_is_tuned_like_any_other(tmp_path: Path) -> None:
    name = os.fsdecode(b"n\xfft")
    save_model(blocks_net([3]), tmp_path / f"{name}.onnx")
    (tmp_path / "bank").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPTED, f"--model={name}.onnx", "--json"],
        cwd=tmp_path,
        env=_environment(tmp_path),
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert len([*(tmp_path / "out").glob("n*_tune.om")]) == 1
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["total_ops"] >= 1
    assert json.loads(done.stdout)["schema"]
