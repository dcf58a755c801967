"""Measure every rewrite rule alone: on a block it is about, and on whole networks.

    python benchmarks/rewrites.py [--rules NAME ...] [--networks FILE.onnx ...] [--no-blocks]
                                  [--pairs 60] [--threads 2] [--write] [--again]
                                  [--on-kernels]

Each figure is the speed-up of ONNX Runtime by the rewritten graph, both with every optimisation,
measured as the engine compares whole models: the median ratio of pairs of samples, its interval.
A network is named after its file, or after the folder of a `model.onnx`. --write puts the
figures into `benchmarks/results/rewrites.json`, from which `docs/generate_rewrites.py` makes the
table. With it what was measured before, with this version of a rule, is passed over unless --again
is given, so that a run that was ended goes on where it was.

--on-kernels asks what a rule brings where kernels are tuned anyway: the block as it is and the
rewritten one are each tuned, with a few candidates an operator, from one bank, and the tuned models
are compared. These figures are in `results/rewrites-on-kernels.json`; they decide which rules are
tried by default (`ONLY_AT_O1` in `aoe/graph/rewrites/registry.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import tests_path  # noqa: F401
from comparison.files import write_document
from rewrite_blocks import BLOCKS
from support.contracts.rewrites import matches_of, rewritten, view

import aoe
from aoe.bank.built_in import VARIABLE as BUILT_IN_BANK
from aoe.device.registry import default_device
from aoe.device.toolchain import find_toolchain
from aoe.entry.onnx_file import load_onnx
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.measurement.estimates import SpeedupEstimate, estimate_speedup
from aoe.measurement.pairs import MeasurePolicy
from aoe.om.file import unpack
from aoe.om.loading import tuned_part
from aoe.ort.inputs import ModelInputs
from aoe.runs.operators.result import OpatResult
from aoe.tasks.rewrites.subgraphs import RULES

RESULTS = Path(__file__).resolve().parent / "results" / "rewrites.json"
ON_KERNELS = RESULTS.with_name("rewrites-on-kernels.json")
_SAMPLE_US = 2e3
_TRIALS = 4
"""Candidates of an operator: blocks have a handful of operators, and a time limit is soon spent
waiting where another run measures."""
_TIMEOUT_S = 120.0


class WrongResultsError(Exception):
    """A rewritten model computes something else; how fast it does so is no figure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a rule brought: `speedup` with its 95 % interval, times in us."""

    rule: str
    version: int
    model: str
    matches: int
    speedup: float
    low: float
    high: float
    before_us: float
    pairs: int
    # Generated kernels in the block as it is and in the rewritten one, where both were tuned; None
    # where both are ONNX Runtime's alone.
    kernels: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A model a rule finds something in, before and after."""

    rule: RewriteRule
    model: str
    matches: int
    before: Path
    after: Path


def prepare(
    rule: RewriteRule, name: str, proto: onnx.ModelProto, graph: ModelGraph, folder: Path
) -> Job | None:
    """Return what is to be measured of a rule, None if it finds nothing in a model."""
    found = matches_of(graph, rule)
    if not found:
        return None
    changed, _ = rewritten(proto, rule)
    number = len(list(folder.iterdir()))
    files = folder / f"{number}_before.onnx", folder / f"{number}_after.onnx"
    for file, model in zip(files, (proto, changed), strict=True):
        file.write_bytes(model.SerializeToString())
    return Job(
        rule=rule,
        model=name,
        matches=len(found),
        before=files[0],
        after=files[1],
    )


def measure(job: Job, runner: Runner, folder: Path, *, pairs: int, on_kernels: bool) -> Figure:
    """Return what a rule brings for a model, by pairs of samples in the measuring process.

    Args:
        job: The model as it is, and rewritten.
        runner: Measures.
        folder: For what is tuned.
        pairs: Of samples.
        on_kernels: True to tune both models first.

    Raises:
        WrongResultsError: the two compute different results.
    """
    files, kernels = (job.before, job.after), None
    parts = [ModelPart(model=file, optimize=True) for file in files]
    if on_kernels:
        own = folder / job.before.stem
        tuned = [_tuned(file, own, runner.target.core_num) for file in files]
        parts = [
            tuned_part(own / f"unpacked-{at}", unpack(one.om_file, own / f"unpacked-{at}"))
            for at, one in enumerate(tuned)
        ]
        kernels = (len(tuned[0].validation.kept), len(tuned[1].validation.kept))
    found: ModelComparison = runner.call(
        "compare_models",
        timeout_s=_TIMEOUT_S,
        baseline=parts[0],
        tuned=parts[1],
        policy=MeasurePolicy(
            pairs_min=pairs,
            pairs_max=pairs,
            threads=runner.target.core_num,
            sample_min_us=_SAMPLE_US,
        ),
        inputs=ModelInputs(seed=1),
    )
    if not found.deviation.acceptable:
        raise WrongResultsError(f"{job.rule.name} on {job.model}: {found.deviation.detail}")
    estimate = estimate_speedup(found.measurement)
    return _figure(job, estimate, found.measurement.baseline_latency_us, kernels)


def _tuned(file: Path, folder: Path, threads: int) -> OpatResult:
    """Tune a model into the bank of a folder: operators both models have get the same kernels."""
    return aoe.tune(
        file,
        output=folder / file.stem,
        bank=folder / "bank",
        aicore_num=threads,
        trials=_TRIALS,
        accept_busy=True,
    ).get(OpatResult)


def _figure(
    job: Job,
    estimate: SpeedupEstimate,
    before_us: float,
    kernels: tuple[int, int] | None = None,
) -> Figure:
    return Figure(
        rule=job.rule.name,
        version=job.rule.version,
        model=job.model,
        matches=job.matches,
        speedup=round(estimate.median, 3),
        low=round(estimate.low, 3),
        high=round(estimate.high, 3),
        before_us=round(before_us, 1),
        pairs=estimate.pairs,
        kernels=kernels,
    )


Model = tuple[str, onnx.ModelProto, Sequence[str]]
"""A model with its name and the rules to measure on it."""


def blocks(rules: Sequence[str]) -> Iterator[Model]:
    """Yield the blocks of rules."""
    for rule in rules:
        for label, make in BLOCKS[rule].items():
            yield f"block: {label}", make(), [rule]


def network(path: Path, rules: Sequence[str]) -> Model:
    """Return a network from a file."""
    return name_of(path), load_onnx(path, {}).proto, rules


def name_of(path: Path) -> str:
    """Return the name of a network."""
    return path.parent.name if path.stem == "model" else path.stem


def measure_all(
    path: Path | None, rules: Sequence[str], runner: Runner, *, pairs: int, on_kernels: bool
) -> list[Figure]:
    """Measure rules on a network, or each on its own blocks where there is none."""
    figures = []
    with ScratchFolder("rewrites") as folder:
        found = blocks(rules) if path is None else [network(path, rules)]
        for job in list(_jobs(found, folder)):
            try:
                figures.append(measure(job, runner, folder, pairs=pairs, on_kernels=on_kernels))
            except WrongResultsError as error:  # the other blocks have their figures
                print(f"wrong results: {error}", file=sys.stderr)
                continue
            _on_event(figures[-1])
    return figures


def _jobs(found: Iterable[Model], folder: Path) -> Iterator[Job]:
    for name, proto, rules in found:
        graph = view(proto)
        for rule in rules:
            try:
                job = prepare(RULES[rule], name, proto, graph, folder)
            except Exception as error:  # one rule does not end the measurement of the others
                print(f"{rule} on {name}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            if job is not None:
                yield job


def _on_event(figure: Figure) -> None:
    interval = f"{figure.low:.3f} to {figure.high:.3f}"
    print(
        f"{figure.rule:32} {figure.model:32} {figure.speedup:.3f}x ({interval}),"
        f" {figure.matches} matches, {figure.before_us / 1000:.2f} ms",
        flush=True,
    )


def main() -> None:
    """Measure and print; see the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--networks", nargs="*", type=Path, default=[])
    parser.add_argument("--no-blocks", action="store_true")
    parser.add_argument("--pairs", type=int, default=60, help="of samples, for each figure")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--again", action="store_true", help="measure what was measured before")
    parser.add_argument("--on-kernels", action="store_true", help="tune both first")
    options = parser.parse_args()
    os.environ[BUILT_IN_BANK] = "off"
    file = ON_KERNELS if options.on_kernels else RESULTS
    known = measured(file) if options.write and not options.again else frozenset()
    rules = [rule for rule in options.rules if not is_known(rule, known)]
    parts: list[tuple[Path | None, list[str]]] = [(None, [rule]) for rule in rules]
    parts = [] if options.no_blocks else parts
    for path in options.networks:
        if some := unmeasured(name_of(path), options.rules, known):
            parts.append((path, some))
    device = default_device()
    target = device.describe(options.threads)
    with Runner(device, target, find_toolchain(os.environ)) as runner:
        for path, some in parts:
            how = {"pairs": options.pairs, "on_kernels": options.on_kernels}
            try:
                figures = measure_all(path, some, runner, **how)
            except Exception as error:  # one network does not end the measurement of the others
                print(f"{path or some}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            if options.write and figures:
                write(figures, options.threads, file)


def measured(file: Path) -> frozenset[tuple[str, int, str]]:
    """Return what a file of results has: rule, its version, model."""
    document = json.loads(file.read_text()) if file.exists() else {}
    rows = document.get("figures", [])
    return frozenset((row["rule"], row["version"], row["model"]) for row in rows)


def is_known(rule: str, known: Collection[tuple[str, int, str]]) -> bool:
    """Return whether all blocks of a rule have been measured with its version."""
    labels = {(rule, RULES[rule].version, f"block: {label}") for label in BLOCKS[rule]}
    return labels <= set(known)


def unmeasured(
    network: str, rules: Iterable[str], known: Collection[tuple[str, int, str]]
) -> list[str]:
    """Return the rules that have no figure of a network with their version.

    A rule that finds nothing in it never has one.
    """
    return [rule for rule in rules if (rule, RULES[rule].version, network) not in known]


def write(figures: Sequence[Figure], threads: int, file: Path) -> None:
    """Put figures into a file of results; those of other rules and models stay.

    The head of the file says where the last ones were measured, each figure where it was.
    """
    old = json.loads(file.read_text()) if file.exists() else {}
    key = ("rule", "model")
    conditions = {
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "onnxruntime": onnxruntime.__version__,
        "cpu": default_device().describe(threads).soc_version,
        "threads": threads,
        "load": round(os.getloadavg()[0], 1),
    }
    kept = {tuple(figure[name] for name in key): figure for figure in old.get("figures", [])}
    kept |= {(one.rule, one.model): _members(one) | conditions for one in figures}
    document = {**conditions, "figures": [kept[name] for name in sorted(kept)]}
    write_document(file, document)


def _members(figure: Figure) -> dict[str, Any]:
    return {name: value for name, value in asdict(figure).items() if value is not None}


if __name__ == "__main__":
    main()
