"""AOE's result file of operator tuning, `aoe_result_opat_<timestamp>_<pid>.json`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from aoe.measurement.memory import ModelMemory
from aoe.results.files import (
    RepoOutcome,
    TuningResult,
    basic_section,
    improvement_percent,
    memory_to_json,
    performance_members,
    repo_summary,
)
from aoe.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorResult:
    """One tuned operator (a workload, which several nodes of the model may share).

    Attributes:
        op_name: First node that computes it.
        op_type: Kernel family.
        outcome: What became of it.
        before_us: Time of the default, us; None for a hit that was not tuned again.
        after_us: Time of the best strategy, us.
        precision: What it computes in.
    """

    op_name: str
    op_type: str
    outcome: RepoOutcome
    before_us: float | None = None
    after_us: float | None = None
    precision: Precision = Precision.FLOAT32


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatReport:
    """Contents of `aoe_result_opat_<timestamp>_<pid>.json`.

    Attributes:
        tuning_name: Name of the tuning task.
        tuning_time_s: Seconds so far.
        baseline_ms: Whole untuned model, None until it is measured.
        speedup: Whole model, untuned time over tuned time.
        result: State of the run.
        operators: Every operator that is done.
        failed_operators: Names of operators whose tuning failed altogether.
        precision: The lowest the tuned model computes in: what `speedup` is of.
        memory: What sessions of both models take, None where that is not known.
    """

    tuning_name: str
    tuning_time_s: float = 0.0
    baseline_ms: float | None = None
    speedup: float = 1.0
    result: TuningResult = TuningResult.INCOMPLETE
    operators: tuple[OperatorResult, ...] = ()
    failed_operators: tuple[str, ...] = field(default=())
    precision: Precision = Precision.FLOAT32
    memory: ModelMemory | None = None

    def count(self, outcome: RepoOutcome) -> int:
        """Return how many operators ended so."""
        return sum(operator.outcome is outcome for operator in self.operators)


def opat_report_to_json(report: OpatReport) -> list[dict[str, Any]]:
    """Return the report in AOE's form (dialect of CANN 6.3 and later).

    Source: AOE documentation, result file of operator tuning.
    """
    body: dict[str, Any] = {}
    if report.baseline_ms is not None:
        body |= performance_members(report.baseline_ms, report.speedup)
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
    if report.failed_operators:
        body["tuning_failed_operators"] = list(report.failed_operators)
    return [basic_section(report.tuning_name, report.tuning_time_s), {"OPAT": body}]


def _modified(operator: OperatorResult) -> dict[str, Any]:
    before, after = operator.before_us or 0.0, operator.after_us or 1.0
    lower = operator.precision is not Precision.FLOAT32
    return {
        "op_name": operator.op_name,
        "op_type": operator.op_type,
        **({"precision": operator.precision.value} if lower else {}),
        "tune_performance": {
            "Schedule": {
                "performance_after_tune(us)": round(after, 3),
                "performance_before_tune(us)": round(before, 3),
                "performance_improvement": f"{improvement_percent(before / after):.2f}%",
                "update_mode": operator.outcome.value,
            }
        },
    }
