"""A stream nobody reads, or that is not there, never fails a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.engine.models import save_model
from support.engine.scripted_runs import blocks_net

_TESTS = Path(__file__).resolve().parents[2]
_SCRIPTED = """
import sys
import pytest
from support.engine.scripted_runs import script_runs
script_runs(pytest.MonkeyPatch())
from aoe.cli.app import main
sys.argv = ["aoe", "--model=net.onnx", "--framework=5", "--output=out", *sys.argv[1:]]
main()
"""
_LIMIT_S = 300


@pytest.mark.parametrize(
    "redirection",
    ["2>&1 | head -n 1", "2> >(true)", ">&- 2>&-"],
)
def test_run_ends_well_and_writes_all_its_files(redirection: str, tmp_path: Path) -> None:
    save_model(blocks_net([3]), tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$0" -c "$1" {redirection}', sys.executable, _SCRIPTED],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), *sys.path))),
            "HOME": str(tmp_path),
            "TUNE_BANK_PATH": "bank",
        },
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "net_tune.om").exists()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["total_ops"] >= 1
