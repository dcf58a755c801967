"""`--reload`, an option of AOE: a run that was ended in the middle is gone on with.

Here every run goes on from the bank, so the option says nothing new; these tests hold it to what
it promises in AOE all the same. Measurements are scripted: nothing depends on times.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.engine.models import save_model, separate_chains_net

_TESTS = Path(__file__).resolve().parents[1]
_LIMIT_S = 300
_OPERATORS = 4
_Trial = tuple[str, str]
"""Key of the workload, schedule."""


@dataclass(frozen=True)
class Job:
    """A folder with a model that is tuned there."""

    root: Path

    def run(self, *words: str, workloads: int = 0, calls: int = 0) -> tuple[int, str]:
        """Run `aoe`, up to a workload and a call of it; return its exit code and what it told."""
        done = subprocess.run(
            [
                *(sys.executable, "-m", "support.engine.reloaded_tuning"),
                *(str(workloads), str(calls), "--model=net.onnx", "--trials=3", *words),
            ],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), *sys.path))),
                "TUNE_BANK_PATH": "bank",
                "TMPDIR": str(self.root / "tmp"),
                "XDG_CACHE_HOME": str(self.root / "cache"),
                "AOE_LOCK_PATH": str(self.root / "locks"),
            },
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        return done.returncode, done.stderr

    def killed(self, *, workloads: int, calls: int = 0) -> Set[_Trial]:
        """Run until it is killed; return what it has tried."""
        code, told = self.run(workloads=workloads, calls=calls)
        assert code == -signal.SIGKILL, told
        left = [one.name for one in (self.root / "aoe_workspace").rglob("*") if one.is_file()]
        assert all(name.startswith("aoe_progress_") for name in left)
        return self.tried()

    def reloaded(self, word: str) -> Set[_Trial]:
        """Run to the end, with the option or without it; return what it has tried."""
        code, told = self.run(*[word] if word else [])
        assert code == 0, told
        assert ("--reload is of CANN's AOE" in told) == bool(word)
        return self.tried()

    def tried(self) -> Set[_Trial]:
        """Return what was tried since the last call."""
        file = self.root / "tried"
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return {(key, schedule) for key, schedule in map(json.loads, lines)}


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a folder with a model of four operators and an empty bank."""
    for folder in ("bank", "tmp"):
        (tmp_path / folder).mkdir()
    save_model(separate_chains_net(_OPERATORS), tmp_path / "net.onnx")
    return Job(tmp_path)


def _operators(trials: Set[_Trial]) -> set[str]:
    return {key for key, _ in trials}


@pytest.mark.parametrize(
    "word",
    [
        pytest.param("--reload", marks=pytest.mark.slow),
        "--reload=aoe_workspace/net_20260102030405678",
        pytest.param("", marks=pytest.mark.slow),
    ],
)
def test_reloaded_run_tries_nothing_twice(job: Job, word: str) -> None:
    before = job.killed(workloads=3)
    assert len(_operators(before)) == 2
    after = job.reloaded(word)
    assert not _operators(before) & _operators(after)
    assert len(_operators(before | after)) == _OPERATORS


@pytest.mark.slow
def test_reloaded_run_begins_anew_with_the_operator_it_was_ended_in_alone(job: Job) -> None:
    before = job.killed(workloads=3, calls=1)
    after = job.reloaded("--reload")
    assert len(_operators(before)) == 3
    assert len(_operators(before) & _operators(after)) == 1
    assert len(_operators(before | after)) == _OPERATORS
