"""A model against itself, many times: how often would it be accepted as faster than it is?

    python benchmarks/false_accepts.py --output DIR [--runs 40] [--busy 2] [--models tiny ...]
        [--left_s 20] [--planted 1.1]

Each run is the final comparison of operator tuning (five worker processes, fresh pairs, both
orders of loading), on a model and the same model. It is accepted as tuning accepts: the lower end
of the 99 % interval lies above 1, and the figures count, by wall time of a quiet machine or by CPU
time of a busy one. `--busy N` runs N busy loops meanwhile. Prints the shares with what they prove
at most; `runs.json` in the output directory has every run with the machine they were taken on. A
second call adds to it, on the same machine with the same threads, versions and sources.

With `--planted G` the baseline is a model that does G times the work for the same result, and the
share of accepted runs is that of gains that are found.

`--models` takes ONNX files, too. With `--left_s` the comparison has so many seconds, as that of a
large model in a short time limit: a few processes of one order of loading each. What these scatter
by is printed below the table: `PLACING` of `aoe/validation/intervals.py` has to be as much.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from math import comb, exp, inf, log, sqrt
from pathlib import Path
from statistics import fmean, median
from typing import Any

import onnx.parser
import tests_path  # noqa: F401
from busy_machine import neighbours
from comparison.files import write_document
from comparison.results import ENGINE, engine_digest
from support.contracts.networks import shipped_network
from support.contracts.small_models import SmallModel

from aoe.device.registry import default_device
from aoe.device.toolchain import find_toolchain
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.measurement import Clock
from aoe.ort.inputs import ModelInputs
from aoe.tuner.parts import library_versions
from aoe.tuner.policies import final_policy, variant_policy
from aoe.validation.comparing import ModelComparer, TimeIsUpError
from aoe.validation.time_reserve import NO_COSTS, PROCESSES, ModelCosts

MODELS = ("tiny", "squeezenet", "shufflenet", "bvlc_alexnet", "resnet50")
"""From microseconds to tens of milliseconds; the first is one operator on one element."""
_TINY = '<ir_version: 8, opset_import: ["": 17]> tiny (float[1] x) => (float[1] y) { y = Exp(x) }'
BLOCKS = 100
"""Of a model with a planted gain: one block more or less is 1 % of it."""
_CHANNELS, _SIDE = 32, 16
_ALL, _PLANTED = "all", "planted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One comparison of a model with itself."""

    model: str  # Its name
    busy: int  # Processes that kept the machine busy meanwhile
    speedup: float  # Printed estimate
    low: float  # Lower end of the printed interval
    high: float  # Upper end
    surely: float  # Lower end of the interval that decides
    given_share: float  # CPU time the measurement got of what it asked for
    latency_us: float  # Median time of a call
    processes: Sequence[float] = ()  # What each process said
    left_s: float | None = None  # Seconds the comparison had, None for as many as it takes
    clock: str = Clock.WALL.value  # Which time decided
    counts: bool = True  # True unless the machine was too busy for either clock

    @property
    def is_proven(self) -> bool:
        """True if the figures alone claim a gain that is not there."""
        return self.surely > 1

    @property
    def first_five(self) -> float:
        """Speed-up after as many processes as every comparison has.

        Five more follow only where these show a gain that they do not prove. So of models against
        themselves 62 % print less than 1 and 38 % more, whatever the noise; without a bias half of
        these figures lie on either side.
        """
        return exp(fmean(map(log, self.processes[:PROCESSES]))) if self.processes else self.speedup

    @property
    def is_accepted(self) -> bool:
        """True if tuning would have accepted it."""
        return self.is_proven and self.counts


@dataclass(frozen=True, slots=True)
class TwoModels:
    """Stands for an assembly: the model it tunes, and the one that came of it."""

    untuned: ModelPart
    tuned: ModelPart

    def write_model(self, kernels: Sequence[Any], name: str = "") -> ModelPart:
        """Return the tuned model."""
        return self.tuned


def main() -> int:
    """Measure, keep, print."""
    arguments = _arguments()
    output: Path = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    file = output / "runs.json"
    device = default_device()
    target = device.describe(arguments.threads)
    here = {
        "cpu": target.cpu_model,
        "threads": target.core_num,
        **library_versions(),
        ENGINE: engine_digest(),
    }
    runs = load(file, here)
    with (
        neighbours(0.0, processes=arguments.busy),
        Runner(device, target, find_toolchain(os.environ)) as runner,
    ):
        for number in range(arguments.runs):
            for name, models in _pairs(arguments, output):
                busy, left_s = arguments.busy, arguments.left_s
                run = compared(runner, name, models, busy=busy, seed=number, left_s=left_s)
                if run is None:
                    print(f"{name}: {left_s} s are too short", file=sys.stderr, flush=True)
                    continue
                runs.append(run)
                _save(file, here, runs)
                print(_line(runs[-1]), file=sys.stderr, flush=True)
    print(table(runs))
    deviation, processes = scatter(runs)
    if processes:
        print(f"\nstandard deviation of a process: {deviation:.4f}, {processes} processes")
    return 0


def compared(
    runner: Any, name: str, models: TwoModels, *, busy: int, seed: int, left_s: float | None = None
) -> Run | None:
    """Compare two models as the judge of a tuning does.

    Args:
        runner: Measures, see `Runner`.
        name: Of the pair.
        models: The same one twice, or one with more work than the other.
        busy: Processes that keep the machine busy.
        seed: Of the inputs.
        left_s: Seconds it has, None for as many as it takes.

    Returns:
        None where they are too short to say anything.
    """
    costs = NO_COSTS if left_s is None else _costs(runner, models, seed)
    comparer = _comparer(
        runner, models, seed, costs=costs, most_s=inf if left_s is None else left_s
    )
    try:
        gain = comparer.for_the_record(())
    except TimeIsUpError:
        return None
    measurement = gain.comparison.measurement
    load = measurement.load
    return Run(
        model=name,
        busy=busy,
        speedup=gain.estimate.median,
        low=gain.estimate.low,
        high=gain.estimate.high,
        surely=gain.surely,
        given_share=load.use.given_share if load is not None else 1.0,
        latency_us=measurement.latency_us,
        processes=gain.processes,
        left_s=left_s,
        clock=measurement.clock.value,
        counts=measurement.counts,
    )


def _costs(runner: Any, models: TwoModels, seed: int) -> ModelCosts:
    """Return what things take with a model, as subgraph tuning learns it."""
    began_s = time.monotonic()
    runner.restart()
    found = _comparer(runner, models, seed, in_hurry=True).once(()).comparison.measurement
    return ModelCosts.of_comparison(time.monotonic() - began_s, found.latency_us)


def _comparer(
    runner: Any,
    models: TwoModels,
    seed: int,
    *,
    costs: ModelCosts = NO_COSTS,
    most_s: float = inf,
    in_hurry: bool = False,
) -> ModelComparer[Any]:
    threads, began_s = runner.target.core_num, time.monotonic()
    screen = variant_policy(threads, accept_busy=False)
    return ModelComparer(
        models,  # type: ignore[arg-type]
        runner,
        screen=NO_COSTS.hurried(screen) if in_hurry else screen,
        final=final_policy(threads, accept_busy=False, left_s=most_s),
        inputs=ModelInputs(seed=seed),
        left_s=lambda: max(0.0, began_s + most_s - time.monotonic()),
        costs=costs,
    )


def table(runs: Sequence[Run]) -> str:
    """Return the shares by model, its seconds and how busy the machine was kept, as Markdown.

    A planted gain is to be accepted: it counts in none of all models.
    """
    heading = (
        "| model | busy processes | median | of the first five | runs | intervals without 1 | "
        "by wall time | by CPU time | claimed by figures | accepted | at most (95 %) |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|"
    )
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        within = "" if run.left_s is None else f", {run.left_s:g} s"
        groups.setdefault((run.model + within, run.busy), []).append(run)
        if not run.model.startswith(_PLANTED):
            groups.setdefault((_ALL + within, run.busy), []).append(run)
    ordered = sorted(groups.items(), key=lambda group: (group[0][1], group[0][0].startswith(_ALL)))
    return "\n".join([heading, *(_row(name, busy, group) for (name, busy), group in ordered)])


def scatter(runs: Sequence[Run]) -> tuple[float, int]:
    """Return the standard deviation of a process of one order of loading, and how many there are.

    Of the logarithms of what they read, around what their run says; both orders count as noise.
    """
    squares, freedom, processes = 0.0, 0, 0
    for run in runs:
        logs = [log(ratio) for ratio in run.processes]
        if run.left_s is not None and len(logs) > 1:
            squares += sum((one - fmean(logs)) ** 2 for one in logs)
            freedom += len(logs) - 1
            processes += len(logs)
    return (sqrt(squares / freedom) if freedom else 0.0), processes


def at_most(accepted: int, runs: int, confidence: float = 0.95) -> float:
    """Return the largest share of accepted runs that `accepted` of `runs` leave possible.

    Source: C. J. Clopper, E. S. Pearson, Biometrika 26 (1934): the upper limit is where so few or
        fewer have the probability 1 - confidence.
    """
    if accepted >= runs:
        return 1.0
    low, high = accepted / runs, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        so_few = sum(
            comb(runs, count) * middle**count * (1 - middle) ** (runs - count)
            for count in range(accepted + 1)
        )
        low, high = (middle, high) if so_few > 1 - confidence else (low, middle)
    return high


def _row(name: str, busy: int, runs: Sequence[Run]) -> str:
    accepted = sum(run.is_accepted for run in runs)
    excluding = sum(not run.low <= 1 <= run.high for run in runs)
    return (
        f"| {name} | {busy} | {median(run.speedup for run in runs):.4f} | "
        f"{median(run.first_five for run in runs):.4f} | {len(runs)} | {excluding} | "
        f"{_decided(runs, Clock.WALL)} | {_decided(runs, Clock.CPU)} | "
        f"{sum(run.is_proven for run in runs)} | {accepted} | "
        f"{at_most(accepted, len(runs)):.1%} |"
    )


def _decided(runs: Sequence[Run], clock: Clock) -> int:
    return sum(run.counts and run.clock == clock for run in runs)


def _line(run: Run) -> str:
    return (
        f"{run.model}: {run.speedup:.4f} ({run.low:.4f} to {run.high:.4f}, surely "
        f"{run.surely:.4f}), {run.latency_us:.1f} us, {run.given_share:.0%} of the CPU time, "
        f"{run.clock if run.counts else 'nothing'} decides"
    )


def _pairs(arguments: argparse.Namespace, output: Path) -> Iterator[tuple[str, TwoModels]]:
    """Yield names and models to compare."""
    if (gain := arguments.planted) is not None:
        planted = [output / "models" / f"blocks_{more}.onnx" for more in (_more(gain), 0)]
        for file, more in zip(planted, (_more(gain), 0), strict=True):
            file.parent.mkdir(parents=True, exist_ok=True)
            onnx.save(blocks(more), file)
        untuned, tuned = (ModelPart(model=file) for file in planted)
        yield f"{_PLANTED} {gain}", TwoModels(untuned, tuned)
        return
    for name in arguments.models:
        part = ModelPart(model=_prepared(name, output))
        yield name, TwoModels(part, part)


def _more(gain: float) -> int:
    return round((gain - 1) * BLOCKS)


def blocks(more: int, least: int = BLOCKS) -> onnx.ModelProto:
    """Make a model of `least` convolutions, and of `more` whose result counts for nothing.

    Those compute beside the others and are multiplied by zero at the end: the same result as
    without them, for more work. They have weights of their own: ONNX Runtime merges equal nodes.
    """
    model = SmallModel(seed=0)
    x = model.input(1, _CHANNELS, _SIDE, _SIDE)
    ends = []
    for count in (least, more):
        weight, made = model.weight(_CHANNELS, _CHANNELS, 3, 3), x
        for _ in range(count):
            made = model.op("Tanh", model.op("Conv", made, weight, pads=[1, 1, 1, 1]))
        ends.append(made)
    nothing = model.op("Mul", ends[1], model.constant(0.0))
    return model.model(model.op("Add", ends[0], nothing))


def _prepared(name: str, output: Path) -> Path:
    if name.endswith(".onnx"):
        return Path(name).resolve()
    file = output / "models" / f"{name}.onnx"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        model = onnx.parser.parse_model(_TINY) if name == "tiny" else shipped_network(name)
        onnx.save(model, file)
    return file


def load(file: Path, here: Mapping[str, Any]) -> list[Run]:
    """Return the runs a file has, none where there is no file.

    Raises:
        SystemExit: they are of another machine, number of threads, version or source: shares over
            both would be those of neither.
    """
    if not file.exists():
        return []
    document = json.loads(file.read_text())
    other = [name for name, value in here.items() if document.get(name, value) != value]
    if other:
        sys.exit(f"{file}: runs of another {', '.join(other)}; expected a new --output")
    return [Run(**run) for run in document["runs"]]


def _save(file: Path, here: Mapping[str, Any], runs: Sequence[Run]) -> None:
    document: Mapping[str, Any] = {
        "schema": "aoe.false_accepts/1",
        "date": datetime.now(UTC).date().isoformat(),
        **here,
        "runs": [asdict(run) for run in runs],
    }
    write_document(file, document)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--runs", type=int, default=40, help="of each model")
    parser.add_argument("--busy", type=int, default=0, help="processes that keep cores busy")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--models", nargs="+", default=MODELS, help="of those, or ONNX files")
    parser.add_argument("--planted", type=float, default=None, help="gain of a model made for it")
    parser.add_argument("--left_s", type=float, default=None, help="of one comparison")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
