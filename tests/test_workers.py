"""A test that ends its worker is run again, with all that is left, or fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parent
_ENDS_WORKERS = """
import os
from pathlib import Path

def test_ends_workers():
    runs = Path(__file__).with_name("runs")
    runs.write_text((runs.read_text() if runs.exists() else "") + "x")
    if len(runs.read_text()) <= {crashes}:
        os._exit(1)
"""
_OPTIONS = "-n 1 --dist loadfile --no-loadscope-reorder --max-worker-restart 1"


@pytest.mark.parametrize(
    ("crashes", "code", "counts"), [(1, 1, "1 failed, 4 passed"), (2, 2, "2 failed, 2 passed")]
)
def test_successor_of_the_only_worker_runs_what_is_left(
    tmp_path: Path, crashes: int, code: int, counts: str
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_1.py").write_text("def test_first(): pass\ndef test_second(): pass\n")
    (tmp_path / "test_2.py").write_text(_ENDS_WORKERS.format(crashes=crashes))
    (tmp_path / "test_3.py").write_text("def test_last(): pass\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "support.workers", *_OPTIONS.split()],
        cwd=tmp_path,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        | {"PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, counts in done.stdout) == (code, True), done.stdout
    assert "crashed while running 'test_2.py::test_ends_workers'" in done.stdout
