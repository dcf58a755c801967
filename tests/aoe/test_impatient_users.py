"""Ctrl-C, once and again, to the process group of a real tuning: it ends at once, nothing is left.

What hangs is scripted, so the moment is known: a kernel that compiles for ever, a candidate that
runs for ever, a model that is judged for ever. Signals go to the whole group, as a terminal sends
them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.engine.models import save_model, two_chains_net

import aoebank
from aoebank import Severity

_TESTS = Path(__file__).resolve().parents[1]
_LIMIT_S = 120.0
_MODES = {"compile": "opat", "measure": "opat", "judge": "sgat"}


def _members(session: int) -> list[str]:
    """Return the command lines of the processes of a session that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and fields[0] != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except (OSError, IndexError):
            continue
    return found


def _wait_until(true: Callable[[], object], what: str) -> None:
    end_s = time.monotonic() + _LIMIT_S
    while not true():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)


def _start(place: Path, moment: str) -> subprocess.Popen[str]:
    for folder in ("bank", "tmp", "home"):
        (place / folder).mkdir()
    save_model(two_chains_net(), place / "net.onnx")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "support.engine.slow_tuning"),
            *("--model=net.onnx", "--output=out", f"--job_type={_MODES[moment]}", "--trials=2"),
            "--input_shape=x:1,16,96,96",
        ],
        cwd=place,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), *sys.path))),
            "HOME": str(place / "home"),
            "TUNE_BANK_PATH": str(place / "bank"),
            "XDG_CACHE_HOME": str(place / "cache"),  # kernels that are there are not compiled
            "TMPDIR": str(place / "tmp"),
            "AOE_LOCK_PATH": str(place / "locks"),
            "AOE_ACCEPT_BUSY": "True",
            "SLOW_AT": moment,
            "SLOW_MARK": str(place / "mark"),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


_PAUSES_S: tuple[tuple[float, ...], ...] = ((), (0.0,), (0.3,), (0.05, 0.0, 0.2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "pauses_s"),
    [(moment, pauses_s) for moment in _MODES for pauses_s in _PAUSES_S],
)
def test_impatient_ctrl_c_ends_a_run_and_leaves_nothing(
    tmp_path: Path, moment: str, pauses_s: tuple[float, ...]
) -> None:
    with _start(tmp_path, moment) as process:
        try:
            _wait_until(
                lambda: (tmp_path / "mark").exists() or process.poll() is not None, "it never began"
            )
            assert process.poll() is None, process.communicate()[1]
            os.killpg(process.pid, signal.SIGINT)
            for pause_s in pauses_s:
                time.sleep(pause_s)
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGINT)
            _, told = process.communicate(timeout=_LIMIT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    _wait_until(lambda: not _members(process.pid), f"still there: {_members(process.pid)}")
    assert not [*(tmp_path / "tmp").iterdir()], told
    findings = aoebank.validate([tmp_path / "bank"]).findings
    assert not [one for one in findings if one.severity is Severity.ERROR]
