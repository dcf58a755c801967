"""Real processes: two runs at once, a killed one, and streams nobody reads."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from support.engine.models import chain_model, save_model

from aoe.device.registry import default_device
from aoe.folders.turns import Turns
from aoe.om.file import read_manifest

_AOE = [sys.executable, "-m", "aoe"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a model that is tuned in seconds."""
    save_model(chain_model(["Exp", "Elu"], (1, 8, 64, 64)), tmp_path / "net.onnx")
    return tmp_path


def _environment(place: Path, name: str) -> dict[str, str]:
    (place / f"bank_{name}").mkdir()
    own = {"TUNE_BANK_PATH": f"bank_{name}", "AOE_LOCK_PATH": str(place / "locks")}
    return {**os.environ, **own}


def _start(place: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*_AOE, "--model=net.onnx", "--trials=2", f"--output={name}"],
        cwd=place,
        env=_environment(place, name),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _check_results(place: Path, name: str) -> None:
    (file,) = (place / name).glob("aoe_result_opat_*.json")
    (report,) = (part["OPAT"] for part in json.loads(file.read_text()) if "OPAT" in part)
    assert report["opat_tuning_result"] == "tuning successful"
    assert read_manifest(place / name / "net_tune.om").name == "net"


@pytest.mark.slow
def test_two_runs_at_once_both_finish(place: Path) -> None:
    runs = {name: _start(place, name) for name in ("one", "two")}
    for name, run in runs.items():
        _, told = run.communicate(timeout=500)
        assert run.returncode == 0, told
        _check_results(place, name)
    assert {file.stat().st_size for file in (place / "locks").iterdir()} == {0}


@pytest.mark.slow
def test_killed_run_holds_nobody_up(place: Path) -> None:
    killed = _start(place, "killed")
    assert killed.stderr is not None
    while "measuring" not in killed.stderr.readline():
        assert killed.poll() is None
    other = _start(place, "other")
    killed.kill()
    killed.communicate()
    _, told = other.communicate(timeout=500)
    assert other.returncode == 0, told
    _check_results(place, "other")


def test_run_whose_limit_ends_while_another_one_measures_says_so(place: Path) -> None:
    """What comes first, the profile of the untuned model, waits no longer than the limit."""
    with Turns(place / "locks", default_device().cores()).measuring():
        run = subprocess.run(
            [*_AOE, "--model=net.onnx", "--tuning_time_limit=3", "--output=out"],
            cwd=place,
            env=_environment(place, "out"),
            check=False,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert run.returncode == 3, run.stderr
    assert "time limit: it was over before the cores were free" in run.stderr
    assert f"pid {os.getpid()}" in run.stderr  # who has them
    assert not [*(place / "out").glob("*.om")]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["2>&1 | head -1", ">&- 2>&-"])
def test_closed_streams_fail_no_run(ending: str, place: Path) -> None:
    command = shlex.join([*_AOE, "--model=net.onnx", "--trials=2", "--output=out"])
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} {ending}"],
        cwd=place,
        env=_environment(place, "out"),
        check=False,
        capture_output=True,
        timeout=500,
    )
    assert run.returncode == 0, run.stderr
    _check_results(place, "out")
