"""`python -m aoe.torch SCRIPT`: the script alone, or tuned where `AOE_MODE` says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = "import sys, own\nprint(__name__, own.VALUE, sys.argv)\nsys.exit(6)\n"


def run(folder: Path, mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m aoe.torch` in a folder with a script and a module beside it."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(SCRIPT)
    (folder / "code" / "own.py").write_text("VALUE = 3\n")
    return subprocess.run(
        [sys.executable, "-m", "aoe.torch", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "AOE_MODE": mode, "TUNE_BANK_PATH": str(folder)},
        timeout=120,
        check=False,
    )


def test_script_runs_alone_without_the_variable(tmp_path: Path) -> None:
    done = run(tmp_path, "", "code/train.py", "--epochs", "3")
    assert done.returncode == 6, done.stderr
    assert done.stdout == "__main__ 3 ['code/train.py', '--epochs', '3']\n"


def test_mode_4_does_what_the_option_script_does(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(tmp_path, "4", "code/train.py", "--json")
    assert done.stdout == "__main__ 3 ['code/train.py', '--json']\n"
    assert done.returncode == 6
    assert "ended after 0 training steps of DistributedDataParallel" in done.stderr
    assert "changes nothing here" not in done.stderr


@pytest.mark.parametrize(
    ("mode", "arguments", "words"),
    [
        ("4", (), "no script (got nothing)"),
        ("", ("other.py",), "no script (got other.py)"),
        ("2", ("code/train.py",), "AOE_MODE: only gradients are tuned"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    tmp_path: Path, mode: str, arguments: tuple[str, ...], words: str
) -> None:
    done = run(tmp_path, mode, *arguments)
    assert done.returncode == 2 and words in done.stderr and "hint: " in done.stderr
    assert not done.stdout
