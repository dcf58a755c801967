"""AOE's result file of gradient tuning, `aoe_result_gdat_<timestamp>_pid<N>.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aoe.gradients.compression import Compression
from aoe.gradients.cost import CostModel, cost_to_json
from aoe.gradients.timeline import Timeline
from aoe.measurement import SpeedupEstimate
from aoe.results.files import (
    RepoOutcome,
    TuningResult,
    basic_section,
    performance_members,
    repo_summary,
)

RESULT_SCHEMA = "aoe.gdat_result/1"


class TimelineSource(StrEnum):
    """Where the times of a timeline come from."""

    SIMULATION = "simulation"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingReport:
    """A grouping of the gradients and what it does.

    Attributes:
        name: For people, such as `DDP default (1 MiB, 25 MiB)`.
        timeline: One backward pass with it.
        source: Where the times come from.
        step_us: Median time of a measured step with it, None if none was measured.
    """

    name: str
    timeline: Timeline
    source: TimelineSource
    step_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateReport:
    """One measured grouping: the estimate is its speed-up of a step over the default's."""

    name: str
    segments: int
    predicted_us: float | None = None
    estimate: SpeedupEstimate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionReport:
    """What became of sums in 16 bits, which were allowed.

    Attributes:
        compression: The type.
        tolerance: How far gradients may be from those in full, as a share of their length.
        deviation: How far they are, None if that was not found out.
        problem: Why they are not used, or the empty string.
        tuning: The tuning on top of the grouping in full; None if there was none.
    """

    compression: Compression
    tolerance: float
    deviation: float | None = None
    problem: str = ""
    tuning: GdatReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatReport:
    """Contents of the result file.

    Attributes:
        tuning_name: Name of the tuning task.
        tuning_time_s: Seconds so far.
        result: State of the run.
        modelhash: Identity of the model in the bank, decimal.
        gradients: Number of gradients.
        total_bytes: Their size together.
        world_size: Processes.
        backend: Their communication library.
        cost: All-reduce among them, None until it is known.
        outcome: What became of the record in the bank, None until that is known.
        before: The default grouping, None until it is known.
        after: The grouping in use at the end; the default's if that stays.
        estimate: Speed-up of a step, None if nothing was kept or measured.
        busy: How a busy machine served the steps that were measured; empty for a quiet one.
        candidates: Everything measured, in order.
        compression: What became of sums in 16 bits; None if they were not allowed.
        machine: Facts about it, JSON values.
        versions: Of libraries.
    """

    tuning_name: str
    modelhash: str
    gradients: int
    total_bytes: int
    world_size: int
    backend: str
    tuning_time_s: float = 0.0
    result: TuningResult = TuningResult.INCOMPLETE
    cost: CostModel | None = None
    outcome: RepoOutcome | None = None
    before: GroupingReport | None = None
    after: GroupingReport | None = None
    estimate: SpeedupEstimate | None = None
    busy: str = ""
    candidates: tuple[CandidateReport, ...] = ()
    compression: CompressionReport | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def gdat_report_to_json(report: GdatReport) -> list[dict[str, Any]]:
    """Return the report in the form of AOE's other result files, with what GDAT adds.

    Source: AOE documentation, result file of operator tuning; that of GDAT is not published.
    """
    basic = basic_section(report.tuning_name, report.tuning_time_s, report.result)
    return [basic, {"GDAT": _body(report)}]


def _body(report: GdatReport) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": RESULT_SCHEMA}
    before, after = report.before, report.after
    if before is not None and before.step_us:
        speedup = report.estimate.median if report.estimate else 1.0
        body |= performance_members(before.step_us / 1e3, speedup, report.result)
    body["gdat_tuning_result"] = report.result.value
    body["repo_summary"] = repo_summary([report.outcome] if report.outcome else [])
    body["modelhash"] = report.modelhash
    body["gradients"] = {"count": report.gradients, "total_bytes": report.total_bytes}
    body["world_size"], body["backend"] = report.world_size, report.backend
    body["cost"] = cost_to_json(report.cost) if report.cost is not None else None
    body["outcome"] = report.outcome.value if report.outcome else None
    body["before"] = _grouping_to_json(before) if before is not None else None
    body["after"] = _grouping_to_json(after) if after is not None else None
    body["speedup"] = _estimate_to_json(report.estimate)
    if report.busy:
        body["busy"] = report.busy
    body["candidates"] = [
        {
            "name": candidate.name,
            "segments": candidate.segments,
            "predicted_us": round(candidate.predicted_us, 3)
            if candidate.predicted_us is not None
            else None,
            "speedup": _estimate_to_json(candidate.estimate),
        }
        for candidate in report.candidates
    ]
    if (found := report.compression) is not None:
        body["compression"] = {
            "summed_in": found.compression.value,
            "note": found.compression.words,
            "tolerance": found.tolerance,
            "deviation": found.deviation,
            "problem": found.problem,
            "tuning": _body(found.tuning) if found.tuning is not None else None,
        }
    body["machine"], body["versions"] = dict(report.machine), dict(report.versions)
    return body


def _grouping_to_json(grouping: GroupingReport) -> dict[str, Any]:
    timeline = grouping.timeline
    return {
        "name": grouping.name,
        "source": grouping.source.value,
        "step_us": _rounded(grouping.step_us),
        "backward_end_us": round(timeline.backward_end_us, 3),
        "tail_us": round(timeline.tail_us, 3),
        "overlap_ratio": round(timeline.overlap_ratio, 4),
        "segments": [
            {
                "gradients": segment.gradients,
                "bytes": segment.bytes,
                "ready_us": round(segment.ready_us, 3),
                "start_us": round(segment.start_us, 3),
                "end_us": round(segment.end_us, 3),
            }
            for segment in timeline.segments
        ],
    }


def _estimate_to_json(estimate: SpeedupEstimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "median": round(estimate.median, 4),
        "low": round(estimate.low, 4),
        "high": round(estimate.high, 4),
        "pairs": estimate.pairs,
        "coverage": round(estimate.coverage, 4),
    }


def _rounded(time_us: float | None) -> float | None:
    return round(time_us, 3) if time_us is not None else None
