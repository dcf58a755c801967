"""What a farm of workers saves: simulated from times measured on one machine.

    python benchmarks/workers_scaling.py measure MODEL.onnx ... --out FILE [--trials N]
    python benchmarks/workers_scaling.py simulate FILE [--workers 1 2 4 10 20] [--runs 1 4]
                                           [--repeat 1] [--json]

`measure` tunes each model alone on this machine into an empty bank and notes the seconds before the
first search, of the search of each operator, and after the last one. `simulate` replays these: the
operators of a model go to whichever worker is free, in their order; what comes before and after is
on the machine of the run. A simulation, not a measurement of a farm: workers are as fast as the
measured machine, none fails, and each operator costs `OVERHEAD_S` more for the wire.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OVERHEAD_S = 0.1
"""Of an operator at a worker: twenty messages of a few milliseconds, and its objects."""
CALIBRATION_S = 1.0
"""A comparison of a worker with itself, before its first operator and after every eight."""
BETWEEN_CALIBRATIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A model that was tuned alone.

    Attributes:
        model: Name of its file.
        before_s: Importing, optimising and profiling.
        operators_s: Search of each operator, in the order they were tuned in.
        after_s: Judging and writing.
    """

    model: str
    before_s: float
    operators_s: tuple[float, ...]
    after_s: float


def measure(model: Path, trials: int) -> MeasuredRun:
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
        model=model.name,
        before_s=planned,
        operators_s=tuple(after - before for before, after in itertools.pairwise(done)),
        after_s=ended - done[-1],
    )


def simulate(measured: Sequence[MeasuredRun], workers: int, runs: int = 1) -> float:
    """Return the seconds until all models are tuned.

    Args:
        measured: Models in the order they are tuned in.
        workers: Which measure.
        runs: Begun at once, each on a machine of its own; they share models and workers.
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
        calibration = CALIBRATION_S if jobs[worker] % BETWEEN_CALIBRATIONS == 0 else 0.0
        jobs[worker] += 1
        done = max(at, ready) + calibration + seconds + OVERHEAD_S
        heapq.heappush(free, (done, worker))
        last[run], left[run] = max(last[run], done), left[run] - 1
        if left[run] == 0:
            heapq.heappush(begun, (last[run] + after[run], run))
    return ended


def alone(measured: Sequence[MeasuredRun]) -> float:
    """Return the seconds one machine takes, as measured."""
    return sum(one.before_s + sum(one.operators_s) + one.after_s for one in measured)


def read(file: Path) -> list[MeasuredRun]:
    """Return the runs of a file of `measure`."""
    found: Any = json.loads(file.read_text())["runs"]
    return [MeasuredRun(**{**run, "operators_s": tuple(run["operators_s"])}) for run in found]


def table(measured: Sequence[MeasuredRun], workers: Sequence[int], runs: Sequence[int]) -> Any:
    """Return the figures of a simulation, a row for each number of workers and runs."""
    one = alone(measured)
    rows = []
    for number in workers:
        for together in runs:
            seconds = simulate(measured, number, together)
            rows.append(
                {
                    "workers": number,
                    "runs": together,
                    "seconds": round(seconds, 1),
                    "times_as_fast": round(one / seconds, 2),
                }
            )
    return {"simulated": True, "one_machine_s": round(one, 1), "rows": rows}


def main() -> int:
    """Measure or simulate."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("models", nargs="+", type=Path)
    measuring.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--trials", type=int, default=24)
    measuring.add_argument("--conditions", default="", help="what else the machine did, in words")
    simulating = commands.add_parser("simulate")
    simulating.add_argument("file", type=Path)
    simulating.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4, 10, 20])
    simulating.add_argument("--runs", nargs="+", type=int, default=[1, 4])
    simulating.add_argument("--repeat", type=int, default=1, help="times each model is in the zoo")
    simulating.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if given.command == "measure":
        _measure_all(given)
        return 0
    found = table(read(given.file) * given.repeat, given.workers, given.runs)
    if given.json:
        sys.stdout.write(json.dumps(found) + "\n")
        return 0
    sys.stdout.write(f"simulated; one machine, as measured: {found['one_machine_s']} s\n")
    for row in found["rows"]:
        sys.stdout.write(
            f"{row['workers']:3} workers, {row['runs']} runs at once: {row['seconds']:8.1f} s, "
            f"{row['times_as_fast']:.2f} times as fast\n"
        )
    return 0


def _measure_all(given: argparse.Namespace) -> None:
    from aoe.device.registry import default_device

    target = default_device().describe()
    runs = []
    for model in given.models:
        run = measure(model, given.trials)
        runs.append(
            {
                "model": run.model,
                "before_s": round(run.before_s, 3),
                "operators_s": [round(seconds, 3) for seconds in run.operators_s],
                "after_s": round(run.after_s, 3),
            }
        )
        document = {
            "cpu": target.cpu_model,
            "cores": target.core_num,
            "trials": given.trials,
            "conditions": given.conditions,
            "runs": runs,
        }
        given.out.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
