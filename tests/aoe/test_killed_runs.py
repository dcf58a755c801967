"""Runs killed with -9 at random moments: what they leave is whole, the next run goes on from it.

`AOE_KILLS=50 AOE_KILLS_SEED=7 pytest tests/aoe/test_killed_runs.py` kills more often, at other
moments.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.engine.models import save_model, two_chains_net
from support.engine.result_files import demand_identities

import aoebank
from aoebank import Bank, Severity

KILLS = int(os.environ.get("AOE_KILLS", "3"))
SEED = int(os.environ.get("AOE_KILLS_SEED", "1"))
LIMIT_S = 300
_LINES = 9
"""Lines of progress a run writes, about; a kill comes at one of them and a little later."""
_LATER_S = 0.6


@dataclass(frozen=True)
class Place:
    """A folder with a model, a bank, results and scratch files."""

    root: Path

    @property
    def scratch(self) -> Path:
        return self.root / "tmp"

    def start(self) -> subprocess.Popen[str]:
        """Begin a run."""
        return subprocess.Popen(
            [
                sys.executable,
                "-c",
                "from aoe.cli.app import main; main()",
                "--model=net.onnx",
                "--input_shape=x:1,16,96,96",
                "--trials=2",
                "--output=out",
            ],
            cwd=self.root,
            env={
                **os.environ,
                "TUNE_BANK_PATH": "bank",
                "TMPDIR": str(self.scratch),
                "AOE_ACCEPT_BUSY": "True",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def results(self) -> list[Path]:
        """Return the result files of all runs, oldest first."""
        return sorted((self.root / "out").glob("aoe_result_opat_*.json"))

    def records(self) -> int:
        """Return how many records the bank has."""
        bank = Bank(self.root / "bank")
        return sum(len(list(bank.iter_records(file))) for file in bank.iter_files())


def _make_place(root: Path) -> Place:
    for folder in ("bank", "tmp"):
        (root / folder).mkdir(parents=True)
    save_model(two_chains_net(), root / "net.onnx")
    return Place(root)


def _run_killed(place: Place, rng: random.Random) -> str:
    """Kill a run at some moment; return what it last said."""
    lines, later_s = rng.randrange(_LINES), rng.uniform(0, _LATER_S)
    seen = ["nothing"]
    with place.start() as process:
        assert process.stderr is not None
        for _ in range(lines):
            seen.append(process.stderr.readline())
        time.sleep(later_s)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=LIMIT_S)
    return f"killed {later_s:.2f} s after {seen[-1]!r}"


def _demand_sound(place: Place, moment: str) -> None:
    """Look at everything a killed run may have left."""
    for file in place.results():
        demand_identities(file, moment)
    found = aoebank.validate([place.root / "bank"]).findings
    assert not [one for one in found if one.severity is Severity.ERROR], f"{moment}: {found}"


def _demand_complete(place: Place) -> None:
    """Tune to the end and see that it went on from what was there, and tidied up."""
    known = place.records()
    for unfinished in (place.root / "out").glob(".*"):
        os.utime(
            unfinished, (1e9, 1e9)
        )  # young ones may belong to a run that is about to lock them
    with place.start() as process:
        _, told = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, told
    _demand_sound(place, "at the end")
    body = demand_identities(place.results()[-1], "at the end")
    assert body is not None
    repo = body["repo_summary"]
    assert body["opat_tuning_result"] == "tuning successful"
    assert repo["repo_reserved_num"] == known
    assert repo["total_num"] == 2
    assert place.records() == known + repo["repo_add_num"]
    assert not [*place.scratch.iterdir()], "scratch files of killed runs"
    assert not [*(place.root / "out").glob(".*")], "unfinished files of killed runs"


@pytest.mark.slow
def test_killed_runs_leave_what_the_next_one_goes_on_from(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    place, number = _make_place(tmp_path / "0"), 0
    for kill in range(KILLS):
        moment = f"kill {kill}: {_run_killed(place, rng)}"
        _demand_sound(place, moment)
        if place.records() == 2 and kill + 1 < KILLS:  # nothing is left to be killed in
            _demand_complete(place)
            number += 1
            place = _make_place(tmp_path / str(number))
    _demand_complete(place)
