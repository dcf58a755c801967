"""Runs killed with -9 at random steps: the union of what they leave is what one run would find.

Measurements are scripted, so it does not matter when a run is killed nor how fast the machine is.
`AOE_KILLS=50 AOE_KILLS_SEED=7 pytest tests/aoe/test_killed_at_steps.py` kills more often, at other
steps.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.engine.convolutions import BLOCK
from support.engine.models import save_model, separate_chains_net
from support.engine.result_files import demand_identities
from support.engine.subgraphs import c2f_network

import aoebank
from aoebank import Bank, Event, Severity

_TESTS = Path(__file__).resolve().parents[1]
_SEED = int(os.environ.get("AOE_KILLS_SEED", "1"))
_FEW, _MANY = int(os.environ.get("AOE_KILLS", "3")), 10
_SEEDS = range(_SEED, _SEED + 4)
"""Of tests with many kills."""
_LIMIT_S = 300


@dataclass(frozen=True)
class Place:
    """A folder with a model, a bank, results and scratch files."""

    root: Path

    def run(self, last_step: int, mode: str = "opat", *words: str) -> int:
        """Tune until a step, 0 for to the end; return the exit code."""
        done = subprocess.run(
            [sys.executable, "-m", "support.engine.killed_tuning", str(last_step), mode, *words],
            cwd=self.root,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, (str(_TESTS), *sys.path))),
                "TMPDIR": str(self.root / "tmp"),
                "XDG_CACHE_HOME": str(self.root / "cache"),
                "AOE_LOCK_PATH": str(self.root / "locks"),
            },
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
        )
        assert done.returncode in (0, 3, -signal.SIGKILL), done.stderr
        return done.returncode

    def draw_step(self, rng: random.Random, *, in_scopes: bool) -> int:
        """Return a random step of a run that came to its end, before kernels are found or after."""
        file = self.root / "scopes"
        first = int(file.read_text()) if in_scopes else 0
        return rng.randrange(first + 1, int((self.root / "steps").read_text()) + 1)

    def graph_records(self) -> list[str]:
        """Return the lines of the bank of subgraphs."""
        (file,) = (self.root / "bank").glob("graph/*/*_l2cache.json")
        return file.read_text().splitlines()

    def keys(self) -> dict[str, list[str]]:
        """Return the keys of the records by bank file, each as often as it is there."""
        bank = Bank(self.root / "bank")
        return {
            file.name: sorted(record.key for record in bank.iter_records(file))
            for file in bank.iter_files()
        }

    def events(self, event: Event) -> set[str]:
        """Return the keys something was noted about."""
        bank = Bank(self.root / "bank")
        found = (e for file in bank.iter_files() for e in bank.iter_provenance(file))
        return {entry.key for entry in found if entry.event is event}

    def demand_sound(self, moment: str) -> None:
        """Look at everything a killed run may have left."""
        found = aoebank.validate([self.root / "bank"]).findings
        errors = [one for one in found if one.severity is Severity.ERROR]
        assert not errors, f"{moment}: {errors}"
        for file in (self.root / "out").glob("aoe_result_*.json"):
            demand_identities(file, moment)


def _make_place(root: Path, mode: str = "opat") -> Place:
    for folder in ("bank", "tmp"):
        (root / folder).mkdir(parents=True)
    save_model(separate_chains_net() if mode == "opat" else c2f_network(3), root / "net.onnx")
    return Place(root)


def _demand_union(root: Path, kills: int, mode: str = "opat", *, seed: int = _SEED) -> None:
    whole, killed = (_make_place(root / name, mode) for name in ("whole", "killed"))
    assert whole.run(0, mode) == 0
    rng, known = random.Random(seed), set[str]()
    for number in range(kills):
        step = whole.draw_step(rng, in_scopes=mode == "sgat" and number % 3 > 0)
        killed.run(step, mode)
        killed.demand_sound(f"kill {number} at step {step}")
        now = {key for keys in killed.keys().values() for key in keys}
        assert known <= now, f"kill {number} at step {step} has lost a record"
        known = now
    assert killed.run(0, mode) == 0
    killed.demand_sound("at the end")
    assert killed.keys() == whole.keys()
    assert killed.events(Event.DROPPED) == whole.events(Event.DROPPED)
    assert not [*(killed.root / "tmp").iterdir()], "scratch files of killed runs"


def test_union_of_a_killed_run_and_the_next_is_what_one_run_finds(tmp_path: Path) -> None:
    _demand_union(tmp_path, 1)


@pytest.mark.slow
def test_union_of_killed_runs_is_what_one_run_finds(tmp_path: Path) -> None:
    _demand_union(tmp_path, _FEW)


@pytest.mark.slow
def test_union_of_killed_subgraph_tunings_is_what_one_run_finds(tmp_path: Path) -> None:
    """Two of three kills come after the forms: while kernels are found, searched and judged."""
    _demand_union(tmp_path, _FEW, "sgat")
    place = Place(tmp_path / "whole")
    (file,) = (place.root / "out").glob("aoe_result_sgat_*.json")
    body = demand_identities(file, "the whole run")
    assert body is not None and body["repo_summary"]["repo_add_num"] > 0
    if BLOCK == 16:  # else the halves of the network are whole blocks, and nothing is left over
        assert any("kernel." in line for line in place.graph_records())
    assert any("convolution-split@" in line for line in place.graph_records())


@pytest.mark.slow
@pytest.mark.parametrize("seed", _SEEDS)
def test_union_of_many_killed_subgraph_tunings_is_what_one_run_finds(
    tmp_path: Path, seed: int
) -> None:
    _demand_union(tmp_path, _MANY, "sgat", seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", _SEEDS)
def test_union_of_many_killed_runs_is_what_one_run_finds(tmp_path: Path, seed: int) -> None:
    _demand_union(tmp_path, _MANY, seed=seed)


@pytest.mark.slow
def test_full_disk_loses_no_record_and_leaves_nothing(tmp_path: Path) -> None:
    """From a random step on no file can be written; the next run has space again."""
    whole, full = _make_place(tmp_path / "whole"), _make_place(tmp_path / "full")
    assert whole.run(0) == 0
    steps, rng = int((whole.root / "steps").read_text()), random.Random(_SEED)
    known, codes = set[str](), []
    for number in range(_FEW):
        step = rng.randrange(1, steps + 1)
        codes.append(full.run(step, "opat", "full"))
        full.demand_sound(f"full disk {number} from step {step} of {steps} on")
        now = {key for keys in full.keys().values() for key in keys}
        assert known <= now, f"full disk {number} at step {step} has lost a record"
        known = now
    assert 3 in codes
    assert full.run(0) == 0
    full.demand_sound("at the end")
    assert full.keys() == whole.keys()
    assert not [*(full.root / "tmp").iterdir()], "scratch files of runs without space"
