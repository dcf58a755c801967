"""Result files and last lines of a training that was tuned in its script."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aoe.bank.operators import bank_root, key_of
from aoe.measurement import SpeedupEstimate
from aoe.results.files import (
    Gain,
    GainKind,
    TuningResult,
    interval_to_json,
    result_name,
    write_json,
    write_report,
)
from aoe.results.opat import OpatReport, OperatorResult, opat_report_to_json
from aoe.settings import work_path
from aoe.torch.fused_optimizers import FusedOptimizer
from aoe.torch.scripts.loading import SCHEMA, TRAINING_FILE
from aoe.torch.scripts.regions import TunedGraph, TunedRegion
from aoe.torch.scripts.result_folder import (
    gain_of_all,
    gain_to_json,
    region_names,
    write_folder,
)
from aoe.torch.scripts.whole_steps import StepGain
from aoe.tuner.mode import JobType
from aoe.tuner.reuse.kinds import ReuseSummary
from aoebank import AoebankError, plural

_LEFT = (
    "left to PyTorch: convolutions, matrix products and attention, what runs in float16, and "
    "gradients of gradients"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlaces:
    """Where the results of a script go."""

    name: str  # Of the run
    results: Path  # Directory of `training.json`
    result_file: Path  # AOE's
    bank: Path | None  # Root of the bank, None where there is none

    @classmethod
    def of(
        cls, script: str, stamp: str, *, output: Path | None, env: Mapping[str, str], cwd: Path
    ) -> TrainingPlaces:
        """Return the places of a run: `output`, else AOE's workspace.

        Raises:
            OutputError: `ASCEND_WORK_PATH` cannot be used.
        """
        name = f"{Path(script).stem}_{stamp}"
        folder = None if output is None else cwd / output
        log = work_path(env, cwd, folder)
        try:
            bank = bank_root(env, cwd, writes=False)
        except AoebankError:
            bank = None
        return cls(
            name=name,
            results=folder or log / "aoe_workspace" / name / "tunespace" / "result",
            result_file=log / result_name(JobType.OPAT, stamp, os.getpid()),
            bank=bank,
        )


def write_results(
    places: TrainingPlaces,
    graphs: Sequence[TunedGraph],
    optimizers: Sequence[FusedOptimizer],
    left: Mapping[str, str],
    seconds: float,
    reuse: ReuseSummary | None = None,
    gain: StepGain | None = None,
) -> dict[str, Any]:
    """Write AOE's result file, with a report for each training graph, and the results' directory.

    Returns:
        The document in `training.json`.

    Raises:
        OutputError: a file cannot be written.
        AoebankError: a bank cannot be read or written.
    """
    for number, graph in enumerate(graphs, start=1):
        report = _opat_report(graph, f"{places.name}/{graph.name}", seconds, gain)
        key = f"report_{places.name.rpartition('_')[2]}_{number}"
        write_report(places.result_file, opat_report_to_json(report), key)
    document = {
        "schema": SCHEMA,
        "name": places.name,
        "bank": None if places.bank is None else str(places.bank.resolve()),
        "graphs": [_graph_to_json(graph) for graph in graphs],
        "optimizers": [_optimizer_to_json(one) for one in optimizers],
        "left": dict(left),
        "steps": gain_to_json(gain),
    }
    write_json(places.results / TRAINING_FILE, document)
    write_folder(
        places.results,
        graphs,
        places.bank,
        name=places.name,
        seconds=seconds,
        reuse=reuse,
        gain=gain,
    )
    return document


def _opat_report(graph: TunedGraph, name: str, seconds: float, gain: StepGain | None) -> OpatReport:
    """Return the report on a graph; its "whole model" is a whole step, where steps are compared."""
    return OpatReport(
        tuning_name=name,
        tuning_time_s=seconds,
        baseline_ms=None if gain is None else gain.eager_ms,
        speedup=gain_of_all([graph], gain),
        result=TuningResult.SUCCESSFUL,
        tasks=tuple(
            OperatorResult(
                op_name=name_of_region,
                op_types=region.operators or region.op_types,
                outcome=region.outcome,
                gains=_gains(region),
            )
            for name_of_region, region in region_names(graph)
        ),
    )


def _gains(region: TunedRegion) -> tuple[Gain, ...]:
    if region.estimate is None:
        return ()
    after_us = region.eager_us / region.estimate.median
    return (Gain(kind=GainKind.SCHEDULE, before_us=region.eager_us, after_us=after_us),)


def _graph_to_json(graph: TunedGraph) -> dict[str, Any]:
    return {
        "module": graph.name,
        "is_used": bool(graph.is_used),
        "passes": _estimate_to_json(graph.passes),
        "regions": [
            {
                "direction": region.direction,
                "requires_grad": True,
                "operators": list(region.operators),
                "op_types": list(region.op_types),
                "inputs": list(region.shapes),
                "repo": region.outcome.value,
                "eager_us": round(region.eager_us, 3),
                "speedup": _estimate_to_json(region.estimate),
                "is_used": bool(graph.is_used) and region.is_used,
                "is_known": region.is_known,
                "records": [key_of(one) for one in region.workloads],
                "reason": region.reason,
            }
            for region in graph.regions
        ],
    }


def _estimate_to_json(estimate: SpeedupEstimate | None) -> dict[str, float] | None:
    return None if estimate is None else interval_to_json(estimate)


def _optimizer_to_json(one: FusedOptimizer) -> dict[str, Any]:
    return {
        "class": one.name,
        "groups": one.groups,
        "fused": one.fused,
        "compared": one.copies,
        "reason": one.reason,
    }


def lines_of(
    graphs: Sequence[TunedGraph],
    optimizers: Iterable[FusedOptimizer],
    left: Mapping[str, str],
    reuse: ReuseSummary | None = None,
    steps: str = "",
) -> Iterator[str]:
    """Yield the last lines of a run: its graphs, its optimizers, and what is not to be had.

    Args:
        graphs: Of the training.
        optimizers: Of the training.
        left: Modules that stay as they are, and why.
        reuse: What was taken from an earlier result, None without one.
        steps: Line on whole steps; empty for none.
    """
    for graph in graphs:
        yield _graph_line(graph)
    if reuse is not None:
        yield f"against {reuse.base}: {reuse}"
    for optimizer in optimizers:
        yield str(optimizer)
    if steps:
        yield steps
    for name, reason in left.items():
        yield f"{name}: as it is, {reason}"
    if graphs:
        yield _LEFT
    elif not left:
        yield (
            "no module of the script was trained: nothing is tuned; inference is by "
            "aoe.torch.optimize or aoe.torch.set_aoe"
        )


def _graph_line(graph: TunedGraph) -> str:
    regions = graph.regions
    faster = sum(region.is_used for region in regions)
    found = f"training of {graph.name}: kernels are faster for {faster} of " + plural(
        len(regions), "region"
    )
    if (passes := graph.passes) is not None:
        found += f", both passes {passes.median:.2f}x ({passes.low:.2f} to {passes.high:.2f})"
    elif graph.is_used:
        found += ", both passes were compared by an earlier run"
    return found + ("" if graph.is_used else "; PyTorch computes it")
