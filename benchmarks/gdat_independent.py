"""An A/B of gradient tuning by another program than the tuner, over shaped links.

    python benchmarks/gdat_independent.py --output DIR      # about 8 minutes, needs root for links
    python benchmarks/gdat_independent.py --output DIR --seconds 60 --scenarios cnn-2000   # a look
    python benchmarks/gdat_independent.py --output DIR --seconds 1800      # up to 80 rounds each

Each scenario is tuned once (`aoe.torch.tune_gradients`, which fills a bank). Then four arms, each
in processes of its own: plain `DistributedDataParallel`, the same a second time, DDP with
`bucket_cap_mb=1`, and DDP with what the bank says (`apply_gradient_strategy`). The processes
of all arms live side by side, but only one arm runs at a time, some steps in every round, in an
order that turns with every round; after half of the rounds all of them are started anew. A ratio
is that of two arms in one round. `plain again` is the control: where its interval is without 1, the
machine was not fit for measuring. `holds` says whether the interval the tuner printed has the
median found here. Prints a Markdown table; `results.json` in the output folder has every round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from gdat_training import ARMS
from shaped_link import INTERFACE, is_permitted, shaped_link

from aoe.device.registry import default_device
from aoe.measurement import PairedSamples, estimate_speedup

SCENARIOS = {
    # name: model of `gdat_models.py`, Mbit/s of each link
    "cnn-2000": ("resnet50", 2000.0),
    "mlp-2000": ("mlp", 2000.0),
    "bert-6000": ("bert", 6000.0),
}
PLAIN, *RIVALS = ARMS[1:]
_HEADING = (
    "| model | link | arm | step ms | against plain DDP | 95 % interval | "
    "printed by the tuner | holds |"
)
_STARTS = 2
_STEPS = 4
_LEAST_ROUNDS = 6
_TUNING_SHARE = 0.2
"""Of a scenario's time, for the tuner's race; confirming and starting come on top."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a scenario runs."""

    folder: Path  # For its bank and its rendezvous files
    model: str  # Its name
    prefixes: Sequence[Sequence[str]]  # What puts a process behind its link, one per process


def main() -> int:
    """Run the scenarios, print the table."""
    arguments = _arguments()
    output: Path = arguments.output.resolve()
    shaped = _prepare(output)
    results: dict[str, Any] = {
        "schema": "aoe.gdat_independent/1",
        **_machine_facts(2),
        "scenarios": [],
    }
    budget_s = arguments.seconds / len(arguments.scenarios)
    for name in arguments.scenarios:
        model, megabits = SCENARIOS[name]
        folder = output / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        with shaped_link(2, megabits if shaped else 0.0) as prefixes:
            found = _scenario(Place(folder, model, prefixes), time.monotonic() + budget_s, budget_s)
        link = f"{megabits:g} Mbit/s" if shaped else "loopback"
        results["scenarios"].append({"name": name, "model": model, "link": link, **found})
        (output / "results.json").write_text(json.dumps(results, indent=1))
        print("\n".join(rows(results["scenarios"][-1])), file=sys.stderr, flush=True)
    print(page(results))
    return 0


def page(results: dict[str, Any]) -> str:
    """Return everything as Markdown."""
    facts = {key: value for key, value in results.items() if key not in {"schema", "scenarios"}}
    return _table(facts, _HEADING, [line for one in results["scenarios"] for line in rows(one)])


def rows(scenario: dict[str, Any]) -> list[str]:
    """Return a scenario's lines: the plain arm, then its rivals."""
    times_us = scenario["times_us"]
    head = f"| {scenario['model']} | {scenario['link']} |"
    lines = [f"{head} {PLAIN} DDP | {_milliseconds(times_us[PLAIN])} | 1 | - | - | - |"]
    for arm in RIVALS:
        estimate = estimate_speedup(PairedSamples(tuple(times_us[PLAIN]), tuple(times_us[arm])))
        printed, holds = "-", "-"
        tuned = scenario["tuned"]
        if arm == RIVALS[-1] and tuned["printed"] is not None:
            printed = f"{tuned['printed']:.3f}x ({tuned['low']:.3f} to {tuned['high']:.3f})"
            holds = "yes" if tuned["low"] <= estimate.median <= tuned["high"] else "no"
        elif arm == RIVALS[-1]:
            printed = f"kept the default ({tuned['outcome']})"
        lines.append(
            f"{head} {arm} | {_milliseconds(times_us[arm])} | {estimate.median:.3f}x | "
            f"{estimate.low:.3f} to {estimate.high:.3f} ({estimate.pairs} rounds) | "
            f"{printed} | {holds} |"
        )
    return lines


def _scenario(place: Place, deadline: float, budget_s: float) -> dict[str, Any]:
    print(f"{place.model}: tuning", file=sys.stderr, flush=True)
    _wait(_spawn(place, "tune", "tune", seconds=_TUNING_SHARE * budget_s), timeout_s=600)
    times_us: dict[str, list[float]] = {arm: [] for arm in ARMS[1:]}
    for number in range(_STARTS):
        with _started(place, number) as arms:
            # what is left, in equal parts for the starts to come, two seconds before the end
            until = time.monotonic() + (deadline - time.monotonic()) / (_STARTS - number) - 2
            done = 0
            while done < _LEAST_ROUNDS or (time.monotonic() < until and done < 40):
                turn = done % len(arms)
                order = [*list(arms)[turn:], *list(arms)[:turn]]
                for arm in order if done % 2 == 0 else reversed(order):
                    times_us[arm].append(_sample_us(arms[arm]))
                done += 1
        print(f"{place.model}: start {number + 1}, {done} rounds", file=sys.stderr, flush=True)
    tuned = json.loads((place.folder / "tuned.json").read_text())
    return {"tuned": tuned, "times_us": times_us, "load_average": os.getloadavg()[0]}


@contextlib.contextmanager
def _started(place: Place, again: int) -> Iterator[dict[str, list[subprocess.Popen[str]]]]:
    """Start the processes of all arms, and end them."""
    arms = {}
    try:
        for number, arm in enumerate(ARMS[1:]):
            arms[arm] = _spawn(place, arm, f"{again}_{number}")
            _sample_us(arms[arm], steps=1)  # one after the other: the next one probes the link
        yield arms
    finally:
        for workers in arms.values():
            _end(workers)


def _spawn(
    place: Place, arm: str, rendezvous: str, *, seconds: float = 0.0
) -> list[subprocess.Popen[str]]:
    words = ["--arm", arm, "--model", place.model, "--folder", place.folder, "--seconds", seconds]
    words += ["--rendezvous", f"rendezvous_{rendezvous}"]
    return _start(place.prefixes, *words, is_served=arm != "tune")


def _sample_us(workers: Sequence[subprocess.Popen[str]], steps: int = _STEPS) -> float:
    """Let an arm run some steps; return the mean time of one."""
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write(f"{steps}\n")
        worker.stdin.flush()
    assert workers[0].stdout is not None
    answer = workers[0].stdout.readline()
    if not answer:
        raise SystemExit("a process of an arm ended, see above")
    return float(answer)


def _end(workers: Sequence[subprocess.Popen[str]]) -> None:
    for worker in workers:
        if worker.stdin is not None:
            worker.stdin.close()
    for worker in workers:
        try:
            worker.wait(timeout=10)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _prepare(output: Path) -> bool:
    """Make a folder for results and undo links at SIGTERM; return whether links can be shaped."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    output.mkdir(parents=True, exist_ok=True)
    permitted = is_permitted()
    if not permitted:
        print("no permission to make namespaces: loopback as it is", file=sys.stderr)
    return permitted


def _machine_facts(world: int) -> dict[str, Any]:
    """Return the conditions of figures by so many processes of this machine."""
    target = default_device().describe()
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cpu": target.cpu_model,
        "cores": target.core_num,
        "processes": world,
        "backend": "gloo",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _start(
    prefixes: Sequence[Sequence[str]], *words: object, is_served: bool = False
) -> list[subprocess.Popen[str]]:
    """Start `gdat_training.py` as the processes of a group.

    Args:
        prefixes: What puts a process behind its link, one per process.
        words: Arguments of the script, but for rank and world.
        is_served: True for pipes to all of them, and from the first.
    """
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if any(prefixes):
        env["GLOO_SOCKET_IFNAME"] = INTERFACE
    command = [
        sys.executable,
        str(Path(__file__).with_name("gdat_training.py")),
        *map(str, words),
        "--world",
    ]
    return [
        subprocess.Popen(
            [*prefix, *command, str(len(prefixes)), "--rank", str(rank)],
            env=env,
            stdin=subprocess.PIPE if is_served else None,
            stdout=subprocess.PIPE if is_served and rank == 0 else None,
            text=True,
        )
        for rank, prefix in enumerate(prefixes)
    ]


def _wait(workers: Sequence[subprocess.Popen[str]], timeout_s: float) -> None:
    """Wait until all processes of a group ended well; none is left behind."""
    try:
        codes = [worker.wait(timeout=timeout_s) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    if any(codes):
        raise SystemExit(f"processes ended with {codes}, see above")


def _table(facts: Mapping[str, Any], heading: str, lines: Iterable[str]) -> str:
    """Return figures as Markdown, below the conditions they were measured in."""
    conditions = ", ".join(f"{key} {value}" for key, value in facts.items())
    columns = heading.count("|") - 1
    return "\n".join([conditions, "", heading, "|---" * columns + "|", *lines])


def _milliseconds(times_us: Sequence[float]) -> str:
    ordered = sorted(times_us)
    return f"{ordered[len(ordered) // 2] / 1e3:.1f}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=400.0, help="for everything")
    parser.add_argument(
        "--scenarios", nargs="+", default=["cnn-2000", "mlp-2000"], choices=list(SCENARIOS)
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
