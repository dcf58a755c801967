"""Runtimes in processes of their own: turns, failures that are rows, orders that are fair."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from comparison.prepared import PreparedNetwork
from comparison.rounds import COLUMNS, Comparison, RoundSettings, compare, interleaved, rotated
from runtimes import worker
from runtimes.registry import PEERS
from runtimes.runtime import Peer
from support.engine.models import chain_model

SETTINGS = RoundSettings(rounds=3, turn_s=0.001, budget_s=0.0)
_RUNTIMES = {
    "aborting": """
import os
def build(task): os.abort()
""",
    "raising": """
def build(task): raise OSError(f"cannot have {task.options['what']}")
""",
    "late": """
def build(task): return {"built": task.threads}
def load(task):
    runs = iter(range(6))
    return lambda: (next(runs), list(task.inputs.values()))[1], {"loaded": True}
""",
    "wrong": """
def build(task): return {}
def load(task): return lambda: [values[:1] for values in task.inputs.values()], {}
""",
    "echo": """
import sys
def build(task):
    print("noise on standard output")
    (task.folder / "builds").open("a").write("x")
    return {"built": task.threads}
def load(task): return lambda: list(task.inputs.values()), {"loaded": True}
""",
}


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedNetwork:
    """A prepared network whose exact result is its input, and runtimes that know that."""
    home = tmp_path / "more" / "runtimes"
    home.mkdir(parents=True)
    for name, source in _RUNTIMES.items():
        (home / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(home.parent))
    folder = tmp_path / "work" / "net"
    folder.mkdir(parents=True)
    values = np.linspace(-1, 1, 6, dtype=np.float32)
    np.savez(folder / "inputs.npz", x=values)
    np.savez(folder / "reference.npz", values.astype(np.float64))
    return PreparedNetwork(name="net", folder=folder, facts={"sha256": "0"})


def _peer(module: str, **options: str) -> Peer:
    return Peer(title=module, module=module, needs=("numpy", "numpy"), options=options)


def _compare(
    network: PreparedNetwork, peers: dict[str, Peer], versions: dict[str, str] | None = None
) -> dict[str, Any]:
    comparison = Comparison(
        network=network, threads=1, peers=peers, versions=versions or {}, roof=None
    )
    return compare(comparison, SETTINGS, lambda text: None)


def test_failures_are_rows_and_the_others_are_measured(network: PreparedNetwork) -> None:
    missing = Peer(title="m", module="echo", needs=("no_such_package", "such-a-thing"))
    peers = {
        "aborting": _peer("aborting"),
        "raising": _peer("raising", what="this"),
        "wrong": _peer("wrong"),
        "missing": missing,
        "echo": _peer("echo"),
    }
    rows = _compare(network, peers)["peers"]
    assert "SIGABRT" in rows["aborting"]["failure"]
    assert rows["raising"]["failure"] == "OSError: cannot have this"
    assert "another shape" in rows["wrong"]["failure"]
    assert rows["missing"]["failure"] == "not installed (pip install such-a-thing)"
    assert "failure" not in rows["echo"]
    assert len(rows["echo"]["median_us"]) == SETTINGS.rounds
    assert rows["echo"]["facts"] == {"built": 1, "loaded": True}
    assert rows["echo"]["errors"]["largest"] == 0


def test_runtime_that_fails_in_a_round_has_no_samples(network: PreparedNetwork) -> None:
    rows = _compare(network, {"late": _peer("late"), "echo": _peer("echo")})["peers"]
    assert rows["late"]["failure"].startswith("in round 1: ")
    assert "median_us" not in rows["late"]
    assert len(rows["echo"]["median_us"]) == SETTINGS.rounds


def test_runtime_far_behind_has_six_rounds(network: PreparedNetwork) -> None:
    class Process:
        def __init__(self, us: float) -> None:
            self.us = us

        def take_turn(self, seconds: float) -> dict[str, float]:
            return dict.fromkeys(COLUMNS, self.us)

    ready = {"ort": Process(10.0), "slow": Process(99.0), "slower": Process(101.0)}
    settings = RoundSettings(rounds=9, turn_s=1.0, budget_s=0.0)
    found = interleaved(ready, settings, lambda text: None)  # type: ignore[arg-type]
    counts = {name: len(row["median_us"]) for name, row in found.items()}
    assert counts == {"ort": 9, "slow": 9, "slower": 6}


@pytest.mark.parametrize(
    ("call_s", "calls"), [(0.25, 4), (0.5, 3), (2.0, 2), (9.0, 1)], ids=["4", "3", "2", "1"]
)
def test_turn_has_three_calls_unless_they_are_slow(call_s: float, calls: int) -> None:
    now = [0.0]

    def run() -> list[Any]:
        now[0] += call_s
        return []

    assert len(worker.call_for(run, 1.0, clock=lambda: now[0])) == calls


def test_what_was_built_is_kept_for_the_same_version(network: PreparedNetwork) -> None:
    peers = {"echo": _peer("echo")}
    builds = network.folder / "echo-1" / "builds"
    _compare(network, peers, {"echo": "1"})
    _compare(network, peers, {"echo": "1"})
    assert builds.read_text() == "x"
    _compare(network, peers, {"echo": "2"})
    assert builds.read_text() == "xx"


def test_onnx_runtime_is_measured_against_the_exact_result(network: PreparedNetwork) -> None:
    onnx.save(chain_model(["Identity"], [6]), network.model)
    row = _compare(network, {"ort": PEERS["ort"]})["peers"]["ort"]
    assert row["errors"] == {"largest": 0.0, "cosine": pytest.approx(1.0)}
    assert all(us > 0 for us in row["median_us"])
    assert all(0 <= share <= 1 for share in row["others"])


def test_results_that_are_no_numbers_are_wrong_ones(network: PreparedNetwork) -> None:
    values = np.linspace(-1, 1, 6, dtype=np.float32)
    np.savez(network.folder / "reference.npz", *[values.astype(np.float64)] * 2)
    outputs = network.folder / "outputs.npz"
    np.savez(outputs, values, np.where(values < 1, values, np.nan))  # max(0.0, NaN) is 0
    with pytest.raises(ValueError, match="NaN or infinity where float64 has numbers"):
        network.errors(outputs)


def test_no_process_stays_behind(network: PreparedNetwork) -> None:
    _compare(network, {"echo": _peer("echo"), "late": _peer("late")})
    own = [
        path
        for path in Path("/proc").glob("[0-9]*/stat")
        if _parent(path) == os.getpid() and "runtimes.worker" in _command(path)
    ]
    assert not own


def test_orders_are_fair() -> None:
    names = ["a", "b", "c"]
    orders = [rotated(names, number) for number in range(6)]
    assert all(sorted(order) == names for order in orders)
    for place in range(3):
        assert set(Counter(order[place] for order in orders).values()) == {2}
    assert rotated([], 5) == []


def test_built_in_peers_have_modules() -> None:
    folder = Path(__file__).resolve().parents[2] / "benchmarks" / "runtimes"
    assert all((folder / f"{peer.module}.py").exists() for peer in PEERS.values())


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(stat: Path) -> str:
    try:
        return stat.with_name("cmdline").read_text()
    except OSError:
        return ""
