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


@pytest.mark.slow
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
        ("1", ("code/train.py",), "AOE_MODE: a training has operators and gradients to tune"),
        ("1,4", ("code/train.py",), "no subgraphs of its own (got 1,4, expected 2, 4 or 2,4)"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    tmp_path: Path, mode: str, arguments: tuple[str, ...], words: str
) -> None:
    done = run(tmp_path, mode, *arguments)
    assert done.returncode == 2 and words in done.stderr and "hint: " in done.stderr
    assert not done.stdout


# ---- a script that imports aoe.torch ----

_IMPORTING = "import sys\nimport aoe.torch\nprint(__name__, sys.argv)\nsys.exit(6)\n"


def _run_itself(folder: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [sys.executable, "train.py", "--epochs", "3"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "TUNE_BANK_PATH": str(folder), **env},
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_script_of_a_group_that_imports_it_is_tuned(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = _run_itself(tmp_path, _IMPORTING, AOE_MODE="4", RANK="0")
    assert done.stdout == "__main__ ['train.py', '--epochs', '3']\n"
    assert done.returncode == 6
    assert "ended after 0 training steps of DistributedDataParallel" in done.stderr


@pytest.mark.parametrize(
    "env", [{}, {"AOE_MODE": "4"}, {"RANK": "0"}, {"AOE_MODE": "2", "RANK": "0"}]
)
def test_import_does_nothing_where_nobody_asks(tmp_path: Path, env: dict[str, str]) -> None:
    done = _run_itself(tmp_path, _IMPORTING, **env)
    assert done.returncode == 6 and done.stdout and not done.stderr


@pytest.mark.slow
def test_group_that_is_there_already_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = (
        "import torch.distributed as dist\n"
        "dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)\n"
        "import aoe.torch\n"
    )
    done = _run_itself(tmp_path, script, AOE_MODE="4", RANK="0")
    assert done.returncode == 1
    assert "the process group was made before aoe.torch was imported" in done.stderr


def test_command_is_not_taken_for_a_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import aoe.torch; print('here')"],
        capture_output=True,
        text=True,
        env={**os.environ, "AOE_MODE": "4", "RANK": "0"},
        timeout=120,
        check=False,
    )
    assert done.stdout == "here\n"
