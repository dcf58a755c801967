"""`--workers` for real: processes of this machine, and a scheduler that loses all it has."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import aoe_exit_code
from support.engine.models import save_model, slow_chain_net

import aoe
from aoe.execute.workers.local import connected, started_workers
from aoe.execute.workers.remote_pool import RemotePool, open_remote_pool
from aoe.tuner.parts import REAL_ENGINE, EngineParts

_LIMIT_S = 60


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the command line that tunes one operator with two trials."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TUNE_BANK_PATH", "bank")
    Path("bank").mkdir()
    save_model(slow_chain_net(channels=16, extent=32), Path("mish.onnx"))
    shape = "--input_shape=x:1,16,32,32"
    return ["--model=mish.onnx", shape, "--trials=2", "--output=out", "--aicore_num=1"]


@contextmanager
def _scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a scheduler as a user does; give its address."""
    file = folder / "scheduler.json"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--no-dashboard"]
    command += ["--host=127.0.0.1", "--port=0", f"--scheduler-file={file}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + _LIMIT_S
            while not file.exists() or not file.read_text():
                assert process.poll() is None and time.monotonic() < end
                time.sleep(0.05)
            yield json.loads(file.read_text())["address"], process
        finally:
            process.kill()


def _losing(scheduler: subprocess.Popen[bytes]) -> EngineParts:
    """Return an engine whose pool loses a worker as it measures first, then its scheduler.

    Nothing is set aside: on a busy machine that would be both workers, before anything is measured.
    """

    @contextmanager
    def opened(*given: Any, **terms: Any) -> Iterator[RemotePool]:
        with open_remote_pool(*given, **terms, connect_s=5) as pool:
            plain, doomed = pool.call, iter(["worker", "scheduler"])

            def call(slot: Any, task: str, **how: Any) -> Any:
                match next(doomed, "") if task == "measure_candidates" else "":
                    case "worker":
                        os.kill(slot.announced.pid, signal.SIGKILL)
                    case "scheduler":
                        scheduler.kill()
                        scheduler.wait()
                return plain(slot, task, **how)

            pool.call, pool.calibrate = call, lambda slot: None  # type: ignore[method-assign]
            yield pool

    return replace(REAL_ENGINE, open_remote_pool=opened)


def test_worker_of_this_machine_tunes(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert aoe_exit_code([*words, "--workers=1"]) == 0
    out, err = capfd.readouterr()
    assert " worker local1 (" in err
    assert " measures, on " in err
    assert "cannot be calibrated" not in err
    assert "[1/1] softplus0: " in err
    assert out.endswith("Aoe process finished\n")
    assert aoe.load("out/mish_tune.om")


def test_run_ends_well_though_a_worker_and_then_the_scheduler_die(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with _scheduler(tmp_path) as (address, process), started_workers(address, 2):
        with connected(address) as client:
            client.wait_for_workers(2, timeout=_LIMIT_S)
        code = aoe_exit_code([*words, f"--workers={address}"], _losing(process))
    out, err = capfd.readouterr()
    assert code == 0, err
    assert err.count(" is gone; what it was doing is done again elsewhere") == 2
    assert "no worker is left to measure on; this machine goes on alone" in err
    assert out.endswith("Aoe process finished\n")
    assert aoe.load("out/mish_tune.om")
