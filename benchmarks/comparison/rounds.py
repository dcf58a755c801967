"""One network on one number of threads: every runtime made ready, then rounds in rotating order."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from comparison.files import write_whole
from comparison.operations import FmaRoof
from comparison.prepared import PreparedNetwork
from comparison.processes import Answer, PeerFailure, RuntimeProcess
from runtimes.registry import BASELINE
from runtimes.runtime import Peer

_BUILD_GRACE_S = 1800.0
_FAR_BEHIND = 10
_FEWEST_ROUNDS = 6  # the fewest whose range is an interval of 95 %
COLUMNS = ("median_us", "least_us", "calls", "busy", "others", "switches")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """How runtimes are compared."""

    rounds: int  # How often each gets its turn
    turn_s: float  # How long a turn lasts, after a warm-up of a fifth of it
    budget_s: float  # Seconds a runtime that searches may search


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What is compared: a network on a number of threads."""

    network: PreparedNetwork  # Its files
    threads: int  # For every runtime
    peers: Mapping[str, Peer]  # By name, in the order of the tables
    # Of each peer, so that what was built by another one is built again.
    versions: Mapping[str, str]
    # Measured in front of the rounds and behind them; None without a C compiler.
    roof: FmaRoof | None


def compare(comparison: Comparison, settings: RoundSettings, say: Say) -> dict[str, Any]:
    """Return the record of a network; a runtime that fails is a row that says so."""
    started = time.monotonic()
    rows: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        ready: dict[str, RuntimeProcess] = {}
        for name, peer in comparison.peers.items():
            rows[name] = {"title": peer.title, "precision": peer.precision}
            say(f"{name} is made ready")
            try:
                ready[name] = _made_ready(comparison, name, settings, stack, rows[name])
            except PeerFailure as failure:
                rows[name]["failure"] = str(failure)
                say(f"{name} failed: {failure}")
        roofs = [_roof(comparison)]
        turns = interleaved(ready, settings, say)
        roofs.append(_roof(comparison))
    for name, found in turns.items():
        rows[name].update(found)
    return {
        "network": comparison.network.name,
        "threads": comparison.threads,
        "settings": {
            "rounds": settings.rounds,
            "turn_s": settings.turn_s,
            "budget_s": settings.budget_s,
        },
        "facts": dict(comparison.network.facts),
        "roof_multiply_adds_per_s": [roof for roof in roofs if roof],
        "seconds": round(time.monotonic() - started, 1),
        "peers": rows,
    }


def rotated(names: Sequence[str], number: int) -> list[str]:
    """Return the order of a round: each begins in turn, and every other round runs backwards."""
    if not names:
        return []
    start = (number // 2) % len(names)
    order = [*names[start:], *names[:start]]
    return order[::-1] if number % 2 else order


def _made_ready(
    comparison: Comparison,
    name: str,
    settings: RoundSettings,
    stack: ExitStack,
    row: dict[str, Any],
) -> RuntimeProcess:
    peer = comparison.peers[name]
    if importlib.util.find_spec(peer.needs[0]) is None:
        raise PeerFailure(f"not installed (pip install {peer.needs[1]})")
    folder = comparison.network.folder / f"{name}-{comparison.threads}"
    task = {"threads": comparison.threads, "budget_s": settings.budget_s}
    row.update(_built(comparison, name, folder, task))
    process = RuntimeProcess("measure", peer, comparison.network, folder=folder, settings=task)
    stack.enter_context(process)
    answer = process.wait_ready()
    row["load_s"] = answer["load_s"]
    row["facts"] = {**row["facts"], **answer["facts"]}
    process.wait_ready()
    process.pause()
    try:
        row["errors"] = comparison.network.errors(process.outputs)
    except ValueError as error:
        raise PeerFailure(f"wrong results: {error}") from error
    return process


def _built(
    comparison: Comparison, name: str, folder: Path, task: Mapping[str, Any]
) -> dict[str, Any]:
    """Build in a process of its own, unless the same was built before."""
    peer = comparison.peers[name]
    key = _digest(comparison, name, task)
    file = folder / "built.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    if known.get("key") == key:
        return {"facts": known["facts"], "build_s": known["build_s"]}
    file.unlink(missing_ok=True)
    timeout_s = _BUILD_GRACE_S + 2 * float(task["budget_s"])
    process = RuntimeProcess("build", peer, comparison.network, folder=folder, settings=task)
    with process:
        answer = process.wait_ready(timeout_s)
    write_whole(file, json.dumps({"key": key, **answer}))
    return answer


def _digest(comparison: Comparison, name: str, task: Mapping[str, Any]) -> str:
    peer = comparison.peers[name]
    parts = {
        "model": comparison.network.facts["sha256"],
        "version": comparison.versions.get(name, ""),
        "options": dict(peer.options),
        "threads": task["threads"],
        "budget_s": task["budget_s"] if peer.has_budget else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def interleaved(
    ready: dict[str, RuntimeProcess], settings: RoundSettings, say: Say
) -> dict[str, dict[str, Any]]:
    """Give everyone a turn in every round; who fails has no samples, the others go on.

    Who is ten times as slow as the baseline has its turn in the first six rounds only.
    """
    turns: dict[str, list[Answer]] = {name: [] for name in ready}
    found: dict[str, dict[str, Any]] = {}
    for number in range(settings.rounds):
        for name in rotated(list(turns), number):
            if number >= _FEWEST_ROUNDS and _is_far_behind(turns, name):
                continue
            try:
                turns[name].append(ready[name].take_turn(settings.turn_s))
            except PeerFailure as failure:
                say(f"{name} failed in round {number + 1}: {failure}")
                found[name] = {"failure": f"in round {number + 1}: {failure}"}
                del turns[name]
    for name, answers in turns.items():
        found[name] = {column: [answer[column] for answer in answers] for column in COLUMNS}
    return found


def _is_far_behind(turns: Mapping[str, list[Answer]], name: str) -> bool:
    if BASELINE not in turns:
        return False
    own, least = (median(t["median_us"] for t in turns[who]) for who in (name, BASELINE))
    return bool(own > _FAR_BEHIND * least)


def _roof(comparison: Comparison) -> float | None:
    return comparison.roof.measure(comparison.threads) if comparison.roof else None
