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
    RepoOutcome,
    TuningResult,
    basic_section,
    improvement_text,
    performance_members,
    repo_summary,
)
from aoe.results.gains import Gain, gains_to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphResult:
    """One tuned subgraph.

    Attributes:
        repo_key: Its graphID.
        outcome: What became of it.
        strategy: What is done with it, in words.
        before_us: Time of the default, None if not measured in this run.
        after_us: Time of the strategy, likewise.
        failed: True if it was tuned and no form of it could be run, or was right.
        gains: What single choices brought, where that was measured.
    """

    repo_key: str
    outcome: RepoOutcome
    strategy: str = ""
    before_us: float | None = None
    after_us: float | None = None
    failed: bool = False
    gains: tuple[Gain, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SgatReport:
    """Contents of `aoe_result_sgat_<timestamp>_pid<N>.json`.

    Attributes:
        tuning_name: Name of the tuning task.
        tuning_time_s: Seconds so far.
        baseline_ms: Whole untuned model, None until it is measured; of several streams, from one
            run to the next.
        speedup: Whole model, untuned time over tuned time.
        result: State of the run.
        subgraphs: Every subgraph that is done.
        streams: Callers the whole model is judged with at the same time.
        is_throughput: True where the runs of a second are judged, not the time of one.
    """

    tuning_name: str
    tuning_time_s: float = 0.0
    baseline_ms: float | None = None
    speedup: float = 1.0
    result: TuningResult = TuningResult.INCOMPLETE
    subgraphs: tuple[SubgraphResult, ...] = ()
    streams: int = 1
    is_throughput: bool = False


def sgat_report_to_json(report: SgatReport) -> list[dict[str, Any]]:
    """Return the report in AOE's form.

    While a run is incomplete, what only its end can tell is absent; a run that failed, or found
    nothing to tune, has no section but `basic`.
    """
    basic = basic_section(report.tuning_name, report.tuning_time_s, report.result)
    nothing = report.result is TuningResult.SUCCESSFUL and not report.subgraphs
    if nothing or report.result is TuningResult.FAILED:
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
    body["sgat_tuning_result"] = report.result.value
    body["repo_modified_subgraphs"] = {
        f"{outcome.value}_repo_subgraphs": [
            _modified(subgraph) for subgraph in report.subgraphs if subgraph.outcome is outcome
        ]
        for outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    }
    body["repo_summary"] = repo_summary(subgraph.outcome for subgraph in report.subgraphs)
    failed = [subgraph.repo_key for subgraph in report.subgraphs if subgraph.failed]
    if failed:
        body["tuning_failed_subgraphs"] = failed
    return [basic, {"SGAT": body}]


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
