"""What a pool of workers saves: simulated from times measured on one machine.

    python benchmarks/workers_scaling.py MODEL.onnx ...    # an otherwise idle machine
    python benchmarks/workers_scaling.py --write-docs      # into docs/workers.md

Each model is tuned alone on this machine into an empty bank; noted are the seconds before the first
search, of the search of each operator, and after the last one. The simulation replays these: the
operators of a model go to whichever worker is free, in their order; what comes before and after is
on the machine of the run. A simulation, not a measurement of a pool: workers are as fast as the
measured machine, none fails, and each operator costs `OVERHEAD_S` more for the wire. The table is
of a zoo of ten times the measured models.
"""

from __future__ import annotations

import heapq
import itertools
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from comparison.experiment import Experiment, Option, run_experiment
from comparison.steps import Steps

OVERHEAD_S = 0.1
"""Of an operator at a worker: twenty messages of a few milliseconds, and its objects."""
CALIBRATION_S = 1.0
"""A comparison of a worker with itself, before its first operator and after every eight."""
BETWEEN_CALIBRATIONS = 8
_ZOO = 10
_REMOTE_POOLS = ((1, 1), (4, 1), (9, 1), (9, 3), (7, 3))
"""Workers that measure, and runs at once, each on one more machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A model that was tuned alone."""

    before_s: float  # Importing, optimising and profiling
    operators_s: tuple[float, ...]  # Search of each operator, in the order they were tuned in
    after_s: float  # Judging and writing


def tune_alone(model: Path, trials: int) -> MeasuredRun:
    """Tune a model into an empty bank and note what took how long."""
    import aoe

    marks: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # nothing compiled before
        bank = Path(folder) / "bank"
        bank.mkdir()
        began = time.monotonic()
        aoe.tune(
            model,
            bank=bank,
            output=Path(folder) / "out",
            trials=trials,
            progress=lambda event: marks.append((event.kind.value, time.monotonic() - began)),
        )
        ended = time.monotonic() - began
    planned = next(at for kind, at in marks if kind == "plan")
    done = [planned, *(at for kind, at in marks if kind == "operator")]
    return MeasuredRun(
        before_s=round(planned, 3),
        operators_s=tuple(round(b - a, 3) for a, b in itertools.pairwise(done)),
        after_s=round(ended - done[-1], 3),
    )


def simulate(
    measured: Sequence[MeasuredRun],
    workers: int,
    runs: int = 1,
    *,
    overhead_s: float = OVERHEAD_S,
    calibration_s: float = CALIBRATION_S,
) -> float:
    """Return the seconds until all models are tuned.

    Args:
        measured: Models in the order they are tuned in.
        workers: Which measure.
        runs: Begun at once, each on a machine of its own; they share models and workers.
        overhead_s: What each operator costs for the wire.
        calibration_s: What calibrating a worker takes.
    """
    free = [(0.0, number) for number in range(workers)]
    jobs = [0] * workers
    waiting = list(measured)[::-1]
    begun = [(0.0, number) for number in range(runs)]  # (when its next model begins, run)
    queue: list[tuple[float, int, int, float]] = []  # (ready, run, place, seconds)
    left, last = [0] * runs, [0.0] * runs
    after = [0.0] * runs
    ended = 0.0
    while begun or queue:
        while begun and (not queue or begun[0][0] <= max(queue[0][0], free[0][0])):
            at, run = heapq.heappop(begun)
            ended = max(ended, at)
            if not waiting:
                continue
            model = waiting.pop()
            ready = at + model.before_s
            left[run], last[run], after[run] = len(model.operators_s), ready, model.after_s
            for place, seconds in enumerate(model.operators_s):
                heapq.heappush(queue, (ready, run, place, seconds))
            if not model.operators_s:
                heapq.heappush(begun, (ready + model.after_s, run))
        if not queue:
            continue
        ready, run, _, seconds = heapq.heappop(queue)
        at, worker = heapq.heappop(free)
        calibration = calibration_s if jobs[worker] % BETWEEN_CALIBRATIONS == 0 else 0.0
        jobs[worker] += 1
        done = max(at, ready) + calibration + seconds + overhead_s
        heapq.heappush(free, (done, worker))
        last[run], left[run] = max(last[run], done), left[run] - 1
        if left[run] == 0:
            heapq.heappush(begun, (last[run] + after[run], run))
    return ended


def alone(measured: Sequence[MeasuredRun]) -> float:
    """Return the seconds one machine takes, as measured."""
    return sum(one.before_s + sum(one.operators_s) + one.after_s for one in measured)


def measure(model: str, steps: Steps, given: Namespace) -> None:
    """Measure a model, unless that is done; prepared ones are `NAME/model.onnx`."""
    file = Path(model)
    name = file.parent.name if file.stem == "model" else file.name
    steps.once(name, lambda: asdict(tune_alone(file, given.trials)))


def page_text(document: Any) -> str:
    """Return what the page says: labelled as a simulation, with the times it is made of."""
    runs = {
        name: MeasuredRun(**{**members, "operators_s": tuple(members["operators_s"])})
        for name, members in document["steps"].items()
    }
    zoo, here = [*runs.values()] * _ZOO, document["environment"]
    one, machine = alone(zoo), f"{here['cores']} cores of {here['cpu']}"
    lines = [
        "No pool of ten machines was measured. These figures are a **simulation** from the times",
        f"of real searches on {machine} ({document['date']}):",
        f"{document['options']['trials']} candidates for an operator, an empty bank, each model",
        f"{_ZOO} times as a zoo of {len(zoo)} (no workload shared between them); one machine",
        f"needs {one:,.0f} s for all.",
        "",
        "| model | operators | before the first search s | searches s | after the last s |",
        "|---|---|---|---|---|",
    ]
    for name, run in runs.items():
        times = f"{run.before_s:.0f} | {sum(run.operators_s):.0f} | {run.after_s:.0f}"
        lines.append(f"| {name} | {len(run.operators_s)} | {times} |")
    lines += [
        "",
        "| machines that measure | runs, each on one more | seconds, simulated | times as fast |",
        "|---|---|---|---|",
    ]
    for workers, together in _REMOTE_POOLS:
        seconds = simulate(zoo, workers, together)
        lines.append(f"| {workers} | {together} | {seconds:,.0f} | {one / seconds:.2g} |")
    return "\n".join(lines) + "\n"


EXPERIMENT = Experiment(
    name="workers_scaling",
    about=__doc__,
    measure=measure,
    cases=None,
    options={"trials": Option(default=8, help="candidates of an operator")},
    settings=lambda given: {"trials": given.trials},
    short=lambda document, _: page_text(document),
    page="workers.md",
    smoke=((), {"trials": 1}),
)


if __name__ == "__main__":
    sys.exit(run_experiment(EXPERIMENT))
