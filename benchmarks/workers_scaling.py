"""What a pool of workers saves: simulated from times measured on one machine.

    python benchmarks/workers_scaling.py measure MODEL.onnx ... --out FILE [--trials N]
    python benchmarks/workers_scaling.py simulate FILE [--workers 1 2 4 10 20] [--runs 1 4]
                                           [--repeat 1] [--json]
    python benchmarks/workers_scaling.py page MODEL.onnx ...    # both, into docs/workers.md

`measure` tunes each model alone on this machine into an empty bank and notes the seconds before the
first search, of the search of each operator, and after the last one. `simulate` replays these: the
operators of a model go to whichever worker is free, in their order; what comes before and after is
on the machine of the run. A simulation, not a measurement of a pool: workers are as fast as the
measured machine, none fails, and each operator costs `OVERHEAD_S` more for the wire. `page` is for
an idle machine: it measures what its file does not have yet, simulates a zoo of ten times these
models, and writes the table of the page.
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

from comparison.files import write_document

OVERHEAD_S = 0.1
"""Of an operator at a worker: twenty messages of a few milliseconds, and its objects."""
CALIBRATION_S = 1.0
"""A comparison of a worker with itself, before its first operator and after every eight."""
BETWEEN_CALIBRATIONS = 8
BEGIN, END = "<!-- workers: begin -->", "<!-- workers: end -->"
_HERE = Path(__file__).resolve().parent
_TIMES = _HERE / "results" / "workers-trial-times.json"
_PAGE = _HERE.parent / "docs" / "workers.md"
_ZOO = 10
_REMOTE_POOLS = ((1, 1), (4, 1), (9, 1), (9, 3), (7, 3))
"""Workers that measure, and runs at once, each on one more machine."""


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


def read(file: Path) -> list[MeasuredRun]:
    """Return the runs of a file of `measure`."""
    found: Any = json.loads(file.read_text())["runs"]
    return [_run_of(members) for members in found]


def _run_of(members: Any) -> MeasuredRun:
    return MeasuredRun(**{**members, "operators_s": tuple(members["operators_s"])})


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
    paging = commands.add_parser("page")
    paging.add_argument("models", nargs="+", type=Path)
    paging.add_argument("--out", type=Path, default=_TIMES)
    paging.add_argument("--trials", type=int, default=8)
    paging.add_argument("--docs", type=Path, default=_PAGE)
    given = parser.parse_args()
    if given.command == "measure":
        _measure_all(given.models, given.out, given.trials, given.conditions)
        return 0
    if given.command == "page":
        known = json.loads(given.out.read_text())["runs"] if given.out.exists() else []
        done = {run["model"] for run in known}
        missing = [model for model in given.models if _name(model) not in done]
        _measure_all(missing, given.out, given.trials, "otherwise idle")
        write_page(given.docs, json.loads(given.out.read_text()))
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


def _name(model: Path) -> str:
    """Return the name of a model; prepared ones are `NAME/model.onnx`."""
    return model.parent.name if model.stem == "model" else model.name


def _measure_all(models: Sequence[Path], out: Path, trials: int, conditions: str) -> None:
    """Measure models and add them to a file, each as soon as it is done."""
    from aoe.device.registry import default_device

    target = default_device().describe()
    runs = json.loads(out.read_text())["runs"] if out.exists() else []
    for model in models:
        run = measure(model, trials)
        runs.append(
            {
                "model": _name(model),
                "before_s": round(run.before_s, 3),
                "operators_s": [round(seconds, 3) for seconds in run.operators_s],
                "after_s": round(run.after_s, 3),
            }
        )
        document = {
            "cpu": target.cpu_model,
            "cores": target.core_num,
            "trials": trials,
            "conditions": conditions,
            "runs": runs,
        }
        write_document(out, document)


def page_text(document: Any) -> str:
    """Return what the page says: labelled as a simulation, with the times it is made of."""
    runs = [_run_of(members) for members in document["runs"]]
    zoo = runs * _ZOO
    one, machine = alone(zoo), f"{document['cores']} cores of {document['cpu']}"
    lines = [
        "No pool of ten machines was measured. These figures are a **simulation** from the times",
        f"of real searches on {machine} ({document['conditions']}):",
        f"{document['trials']} candidates for an operator, an empty bank, each of these models",
        f"{_ZOO} times as a zoo of {len(zoo)} (no workload shared between them); one machine",
        f"needs {one:,.0f} s for all.",
        "",
        "| model | operators | before the first search s | searches s | after the last s |",
        "|---|---|---|---|---|",
    ]
    for run in runs:
        times = f"{run.before_s:.0f} | {sum(run.operators_s):.0f} | {run.after_s:.0f}"
        lines.append(f"| {run.model} | {len(run.operators_s)} | {times} |")
    lines += [
        "",
        "| machines that measure | runs, each on one more | seconds, simulated | times as fast |",
        "|---|---|---|---|",
    ]
    for workers, together in _REMOTE_POOLS:
        seconds = simulate(zoo, workers, together)
        lines.append(f"| {workers} | {together} | {seconds:,.0f} | {one / seconds:.2g} |")
    return "\n".join(lines) + "\n"


def write_page(page: Path, document: Any) -> None:
    """Put the figures between the markers of a page."""
    from comparison.tables import write_between

    write_between(page, BEGIN, END, page_text(document))


if __name__ == "__main__":
    sys.exit(main())
