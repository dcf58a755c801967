"""The engine against ONNX Runtime, OpenVINO and torch.compile on the networks people run.

    python benchmarks/peers.py --smoke                       # does everything work: two minutes
    python benchmarks/peers.py --list
    python benchmarks/peers.py --budget 300                  # everything, on a quiet machine
    python benchmarks/peers.py --networks resnet18 bert6 --threads 1 2 --rounds 15
    python benchmarks/peers.py --precision_mode allow_fp32_to_bf16 ...
    python benchmarks/peers.py --write-docs                  # tables and picture from the results
    python benchmarks/peers.py --results FILE --write-docs   # of another machine: FILE.md alone

Needs `pip install -r benchmarks/requirements-peers.txt` beside the engine; a runtime that is not
installed is a row that says so. A network is built with seeded weights, exported, and computed in
float64; then every runtime loads it in a process of its own, with the same threads on the same
cores, and they take turns, in an order that changes from round to round. Who is not running is
stopped, so that no waiting thread of one disturbs another. One turn gives one number, the median of
its calls; a ratio is the median over the rounds of the ratios within a round, with the interval of
a median, which holds whatever the distribution.

Runs can be ended and begun again at any time: each network is written when it is done, and what was
prepared, tuned and compiled is kept in `--work`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

from comparison.operations import FmaRoof
from comparison.prepared import PreparationError, PreparedNetwork
from comparison.results import ResultsError, ResultsFile, environment, open_results
from comparison.rounds import Comparison, RoundSettings, compare
from networks.registry import NETWORKS
from runtimes.registry import BASELINE, PEERS, with_precision
from runtimes.runtime import Peer

_HERE = Path(__file__).resolve().parent
_RESULTS = _HERE / "results" / "peers.json"
_WORK = _HERE.parent / "build" / "peers"
_SMOKE_NETWORKS = ("conformer_block", "lstm_tagger")
_PACKAGE_OF = {
    "onnx_runtime": ("onnxruntime",),
    "openvino": ("openvino",),
    "torch_compile": ("torch",),
}


def write_tables_of_peers(results: Path, docs: Path) -> None:
    """Write tables and picture; what draws is loaded here."""
    from comparison.tables import write_docs

    write_docs(results, docs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """What a suite compares on which networks, and where its results are."""

    about: str = __doc__  # First lines of its help
    # Names of those it measures where none is named, and knows.
    networks: Sequence[str] = tuple(NETWORKS)
    # Networks, rounds, seconds of a turn and of tuning of `--smoke`.
    smoke: tuple[tuple[str, ...], int, float, float] = (_SMOKE_NETWORKS, 2, 0.02, 2.0)
    peers: Mapping[str, Peer] = field(default_factory=lambda: PEERS)  # What is compared
    # Numbers of them where none is named; empty for 1, 2 and all cores.
    threads: tuple[int, ...] = ()
    budget_s: float = 300.0  # Seconds of tuning
    # Builds a network in a folder.
    prepare: Callable[[str, Path], PreparedNetwork] = PreparedNetwork.make
    # Lets runtimes take turns.
    compare: Callable[[Comparison, RoundSettings, Callable[[str], None]], dict[str, Any]] = compare
    # Measures what the processor can do, with files in a folder.
    open_roof: Callable[[Path], FmaRoof | None] = FmaRoof
    results: Path = _RESULTS  # Of this machine
    # Writes the tables of results into a folder of pages.
    write_docs: Callable[[Path, Path], None] = write_tables_of_peers


def main(words: list[str] | None = None, suite: Suite | None = None) -> int:
    """Measure, or list, or write the documentation."""
    suite = suite or Suite()
    arguments = _arguments(words, suite)
    if arguments.list:
        _print_lists(suite)
        return 0
    try:
        if arguments.write_docs:
            suite.write_docs(arguments.results, _HERE.parent / "docs")
            return 0
        with open_results(arguments.results, is_mixed=True) as results:
            _run(arguments, results, suite)
    except ResultsError as error:
        print(f"{suite.results.stem}: {error}", file=sys.stderr)
        return 3
    return 0


def _arguments(words: list[str] | None, suite: Suite) -> argparse.Namespace:
    networks, peers = list(suite.networks), list(suite.peers)
    parser = argparse.ArgumentParser(description=suite.about.splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=networks, choices=networks)
    parser.add_argument("--peers", nargs="+", default=peers, choices=peers)
    parser.add_argument("--threads", nargs="+", type=int, help="default: 1, 2 and all cores")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turn", type=float, default=0.5, help="seconds of one turn")
    parser.add_argument("--budget", type=float, default=suite.budget_s, help="seconds of tuning")
    parser.add_argument(
        "--precision_mode", nargs="+", default=[], help="further rows of the engine"
    )
    parser.add_argument("--results", type=Path, default=suite.results)
    parser.add_argument("--work", type=Path, default=_WORK)
    parser.add_argument(
        "--minutes", type=float, default=inf, help="begin no further network after so many"
    )
    parser.add_argument("--again", action="store_true", help="measure what was measured before")
    parser.add_argument("--smoke", action="store_true", help="two little networks, few rounds")
    parser.add_argument("--list", action="store_true", help="networks and peers")
    parser.add_argument("--write-docs", action="store_true", help="tables and picture from results")
    arguments = parser.parse_args(words)
    if arguments.smoke:
        _make_small(arguments, suite)
    cores = environment()["cores"]
    usual = suite.threads or (1, 2, cores)
    arguments.threads = arguments.threads or sorted({min(one, cores) for one in usual})
    if not all(1 <= threads <= cores for threads in arguments.threads):
        parser.error(f"--threads: got {arguments.threads}, expected 1 to {cores}, the usable cores")
    if arguments.rounds < 1 or arguments.turn <= 0 or arguments.budget < 0:
        parser.error("--rounds must be at least 1, --turn above 0, --budget at least 0")
    return arguments


def _make_small(arguments: argparse.Namespace, suite: Suite) -> None:
    arguments.networks, arguments.rounds, arguments.turn, arguments.budget = suite.smoke
    arguments.threads = arguments.threads or [1]
    if arguments.results == suite.results:
        arguments.results = arguments.work / f"{suite.results.stem}-smoke.json"


def _print_lists(suite: Suite) -> None:
    for name in suite.networks:
        network = NETWORKS[name]
        shapes = ", ".join("x".join(map(str, tensor.shape)) for tensor in network.inputs[:2])
        more = f" and {len(network.inputs) - 2} more" if len(network.inputs) > 2 else ""
        print(f"{name:22} {network.title:24} {shapes}{more}")
    print()
    for name, peer in suite.peers.items():
        print(f"{name:22} {peer.title:24} {peer.precision}")


def _run(arguments: argparse.Namespace, results: ResultsFile, suite: Suite) -> None:
    peers = _peers(arguments, suite.peers)
    settings = RoundSettings(
        rounds=arguments.rounds, turn_s=arguments.turn, budget_s=arguments.budget
    )
    arguments.work.mkdir(parents=True, exist_ok=True)
    roof = _fma_roof(arguments.work, suite)
    versions = _versions(peers)
    end_s = time.monotonic() + arguments.minutes * 60
    for name in arguments.networks:
        if time.monotonic() >= end_s:
            _say(name, "left to another run, --minutes are over")
            return
        open_threads = [
            threads
            for threads in arguments.threads
            if arguments.again or not _is_done(results, name, threads, peers, settings)
        ]
        if not open_threads:
            _say(name, "measured before")
            continue
        try:
            network = suite.prepare(name, arguments.work / name)
        except PreparationError as error:
            _say(name, f"cannot be prepared: {error}")
            for threads in open_threads:
                results.put(_unprepared(name, threads, str(error)))
            continue
        for threads in open_threads:
            comparison = Comparison(
                network=network, threads=threads, peers=peers, versions=versions, roof=roof
            )
            where = f"{name}, {threads} thread{'s' * (threads > 1)}"
            say = partial(_say, where)
            results.put(suite.compare(comparison, settings, say))


def _peers(arguments: argparse.Namespace, known: Mapping[str, Peer]) -> MappingProxyType[str, Peer]:
    """Return the peers asked for, the baseline always, further rows of the engine behind it."""
    peers: dict[str, Peer] = {BASELINE: known[BASELINE]}
    for name in arguments.peers:
        peers[name] = known[name]
        if name == "engine":
            peers.update(with_precision(mode) for mode in arguments.precision_mode)
    return MappingProxyType(peers)


def _versions(peers: MappingProxyType[str, Peer]) -> dict[str, str]:
    here = environment()
    found = {"engine": here["engine"]}
    for module, packages in _PACKAGE_OF.items():
        found[module] = " ".join(str(here["versions"][package]) for package in packages)
    return {name: found[peer.module] for name, peer in peers.items()}


def _is_done(
    results: ResultsFile,
    name: str,
    threads: int,
    peers: MappingProxyType[str, Peer],
    settings: RoundSettings,
) -> bool:
    record = results.find(name, threads)
    if record is None or not set(peers) <= set(record["peers"]):
        return False
    wanted: dict[str, Any] = {
        "rounds": settings.rounds,
        "turn_s": settings.turn_s,
        "budget_s": settings.budget_s,
    }
    return bool(record["settings"] == wanted)


def _unprepared(name: str, threads: int, reason: str) -> dict[str, Any]:
    return {"network": name, "threads": threads, "settings": {}, "failure": reason, "peers": {}}


def _fma_roof(work: Path, suite: Suite) -> FmaRoof | None:
    try:
        return suite.open_roof(work)
    except (OSError, ValueError) as error:
        _say("roof", f"not measured: {error}")
        return None


def _say(where: str, text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {where}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
