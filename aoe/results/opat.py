"""AOE's result file of operator tuning, `aoe_result_opat_<timestamp>_pid<N>.json`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aoe.measurement import RoundingSteps
from aoe.results.files import (
    Gain,
    ModelReport,
    RepoOutcome,
    TuningResult,
    gains_to_json,
    steps_to_json,
)
from aoe.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorResult:
    """One tuned operator (a workload, which several nodes of the model may share)."""

    op_name: str  # Node of the user's model that names it, of its first place
    op_types: tuple[str, ...]  # Operator types of the model it stands for, see `model_types`
    outcome: RepoOutcome  # What became of it
    # What tuning brought, by choice; nothing for a hit that was not tuned again.
    gains: tuple[Gain, ...] = ()
    # True if the bank has nothing, it was tuned, and no candidate could be compiled, run, or was
    # right.
    failed: bool = False
    fused: tuple[str, ...] = ()  # All nodes of the user's model its first place computes
    precision: Precision = Precision.FLOAT32  # What it computes in
    rounding: RoundingSteps | None = None  # Of its strategy, where it makes integers of 8 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatReport(ModelReport[OperatorResult]):
    """Contents of the result file of operator tuning."""


def opat_report_to_json(report: OpatReport) -> list[dict[str, Any]]:
    """Return the report in AOE's form; one that found nothing has no section but `basic`.

    Source: AOE documentation, result file of operator tuning.
    """
    if report.has_nothing:
        return [report.basic()]
    more: dict[str, Any] = {}
    if report.precision.is_lower:
        more["precision"] = report.precision.value
    failed = [operator.op_name for operator in report.tasks if operator.failed]
    if failed and report.result is TuningResult.FAILED:
        more["tuning_failed_operators"] = failed
    modified = [
        _modified(operator)
        for operator in report.tasks
        if operator.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    ]
    return report.sections("opat", {"repo_modified_operators": modified}, **more)


def _modified(operator: OperatorResult) -> dict[str, Any]:
    lower = operator.precision is not Precision.FLOAT32
    types = operator.op_types
    return {
        "op_name": operator.op_name,
        **({"fused_op_names": list(operator.fused)} if len(operator.fused) > 1 else {}),
        "op_type": types[0] if len(types) == 1 else list(types),
        **({"precision": operator.precision.value} if lower else {}),
        **({"one_step_off": steps_to_json(operator.rounding)} if operator.rounding else {}),
        "tune_performance": gains_to_json(operator.gains, operator.outcome),
    }
