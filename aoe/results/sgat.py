"""AOE's result file of subgraph tuning, `aoe_result_sgat_<timestamp>_pid<N>.json`.

Subgraphs have `repo_key`, the identity of their record, in place of names of operators, and their
times are in ms where those of operators are in us. `strategy` and `tune_performance` are of this
engine.

Source: AOE documentation, result file of subgraph tuning (aoeep_16_025, aoeep_16_066).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aoe.results.files import (
    Gain,
    ModelReport,
    RepoOutcome,
    TuningResult,
    gains_to_json,
    improvement_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphResult:
    """One tuned subgraph."""

    repo_key: str  # Its graphID
    outcome: RepoOutcome  # What became of it
    strategy: str = ""  # What is done with it, in words
    before_us: float | None = None  # Time of the default, None if not measured in this run
    after_us: float | None = None  # Time of the strategy, likewise
    failed: bool = False  # True if it was tuned and no form of it could be run, or was right
    gains: tuple[Gain, ...] = ()  # What single choices brought, where that was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class SgatReport(ModelReport[SubgraphResult]):
    """Contents of the result file of subgraph tuning."""


def sgat_report_to_json(report: SgatReport) -> list[dict[str, Any]]:
    """Return the report in AOE's form.

    A run that failed, or found nothing to tune, has no section but `basic`.
    """
    if report.has_nothing or report.result is TuningResult.FAILED:
        return [report.basic()]
    modified = {
        f"{outcome.value}_repo_subgraphs": [
            _modified(subgraph) for subgraph in report.tasks if subgraph.outcome is outcome
        ]
        for outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    }
    failed = [subgraph.repo_key for subgraph in report.tasks if subgraph.failed]
    more = {"tuning_failed_subgraphs": failed} if failed else {}
    return report.sections("sgat", {"repo_modified_subgraphs": modified}, **more)


def _modified(subgraph: SubgraphResult) -> dict[str, Any]:
    found: dict[str, Any] = {"repo_key": subgraph.repo_key, "strategy": subgraph.strategy}
    before_us, after_us = subgraph.before_us, subgraph.after_us
    if before_us is not None and after_us is not None:
        found["performance_before_tune(ms)"] = round(before_us / 1e3, 6)
        found["performance_after_tune(ms)"] = round(after_us / 1e3, 6)
        found["performance_improvement"] = improvement_text(before_us / after_us)
    if subgraph.gains:
        found["tune_performance"] = gains_to_json(subgraph.gains, subgraph.outcome)
    return found
