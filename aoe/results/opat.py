"""AOE's result file of operator tuning, `aoe_result_opat_<timestamp>_pid<N>.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aoe.measurement.memory import ModelMemory
from aoe.results.files import (
    RepoOutcome,
    TuningResult,
    basic_section,
    memory_to_json,
    performance_members,
    repo_summary,
)
from aoe.results.gains import Gain, gains_to_json
from aoe.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorResult:
    """One tuned operator (a workload, which several nodes of the model may share).

    Attributes:
        op_name: Node of the user's model that names it, of its first place.
        fused: All nodes of the user's model its first place computes.
        op_types: Operator types of the model it stands for, see `model_types`.
        outcome: What became of it.
        gains: What tuning brought, by choice; nothing for a hit that was not tuned again.
        failed: True if the bank has nothing, it was tuned, and no candidate could be compiled,
            run, or was right.
        precision: What it computes in.
    """

    op_name: str
    op_types: tuple[str, ...]
    outcome: RepoOutcome
    gains: tuple[Gain, ...] = ()
    failed: bool = False
    fused: tuple[str, ...] = ()
    precision: Precision = Precision.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatReport:
    """Contents of `aoe_result_opat_<timestamp>_pid<N>.json`.

    Attributes:
        tuning_name: Name of the tuning task.
        tuning_time_s: Seconds so far.
        baseline_ms: Whole untuned model, None until it is measured; of several streams, from one
            run to the next.
        speedup: Whole model, untuned time over tuned time.
        result: State of the run.
        operators: Every operator that is done.
        precision: The lowest the tuned model computes in: what `speedup` is of.
        memory: What sessions of both models take, None where that is not known.
        streams: Callers the whole model is judged with at the same time.
        is_throughput: True where the runs of a second are judged, not the time of one.
    """

    tuning_name: str
    tuning_time_s: float = 0.0
    baseline_ms: float | None = None
    speedup: float = 1.0
    result: TuningResult = TuningResult.INCOMPLETE
    operators: tuple[OperatorResult, ...] = ()
    precision: Precision = Precision.FLOAT32
    memory: ModelMemory | None = None
    streams: int = 1
    is_throughput: bool = False

    @property
    def has_failed(self) -> bool:
        """True if operators were tuned, and each of them has failed."""
        return bool(self.operators) and all(operator.failed for operator in self.operators)

    def count(self, outcome: RepoOutcome) -> int:
        """Return how many operators ended so."""
        return sum(operator.outcome is outcome for operator in self.operators)


def opat_report_to_json(report: OpatReport) -> list[dict[str, Any]]:
    """Return the report in AOE's form (dialect of CANN 6.3 and later).

    While a run is incomplete, what only its end can tell is absent; a run that found nothing to
    tune has no section but `basic`.

    Source: AOE documentation, result file of operator tuning.
    """
    basic = basic_section(report.tuning_name, report.tuning_time_s, report.result)
    if report.result is TuningResult.SUCCESSFUL and not report.operators:
        return [basic]
    body: dict[str, Any] = {}
    if report.baseline_ms is not None:
        body |= performance_members(
            report.baseline_ms,
            report.speedup,
            report.result,
            report.streams,
            is_throughput=report.is_throughput,
        )
    if report.memory is not None:
        body["session_memory"] = memory_to_json(report.memory)
    body["opat_tuning_result"] = report.result.value
    body["repo_modified_operators"] = [
        _modified(operator)
        for operator in report.operators
        if operator.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    ]
    body["repo_summary"] = repo_summary(operator.outcome for operator in report.operators)
    if report.precision.is_lower:
        body["precision"] = report.precision.value
    if report.result is TuningResult.FAILED:
        failed = [operator.op_name for operator in report.operators if operator.failed]
        body |= {"tuning_failed_operators": failed} if failed else {}
    return [basic, {"OPAT": body}]


def _modified(operator: OperatorResult) -> dict[str, Any]:
    lower = operator.precision is not Precision.FLOAT32
    types = operator.op_types
    return {
        "op_name": operator.op_name,
        **({"fused_op_names": list(operator.fused)} if len(operator.fused) > 1 else {}),
        "op_type": types[0] if len(types) == 1 else list(types),
        **({"precision": operator.precision.value} if lower else {}),
        "tune_performance": gains_to_json(operator.gains, operator.outcome),
    }
