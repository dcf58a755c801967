"""AOE's result file of gradient tuning, `aoe_result_gdat_<timestamp>_<pid>.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from aoe.errors import ResultFileError
from aoe.gradients.cost import CostModel, cost_from_json, cost_to_json
from aoe.gradients.timeline import SegmentTime, Timeline
from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome, TuningResult, improvement_percent
from aoe.results.gradient_schema import GDAT_SCHEMA, RESULT_SCHEMA

_MOST_BYTES = 64 << 20


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
        candidates: Everything measured, in order.
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
    candidates: tuple[CandidateReport, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


def gdat_result_name(timestamp: str, pid: int) -> str:
    """Return the name of the file; the timestamp is YYYYMMDDhhmmssSSS."""
    return f"aoe_result_gdat_{timestamp}_{pid}.json"


def gdat_report_to_json(report: GdatReport) -> list[dict[str, Any]]:
    """Return the report in the form of AOE's other result files, with what GDAT adds.

    Source: AOE documentation, result file of operator tuning; that of GDAT is not published.
    """
    body: dict[str, Any] = {"schema": RESULT_SCHEMA}
    before, after = report.before, report.after
    if before is not None and before.step_us:
        speedup = report.estimate.median if report.estimate else 1.0
        body["model_baseline_performance(ms)"] = round(before.step_us / 1e3, 6)
        body["model_performance_improvement"] = f"{improvement_percent(speedup):.2f}%"
        body["model_result_performance(ms)"] = round(before.step_us / 1e3 / speedup, 6)
    body["gdat_tuning_result"] = report.result.value
    body["repo_summary"] = _repo_summary(report.outcome)
    body["modelhash"] = report.modelhash
    body["gradients"] = {"count": report.gradients, "total_bytes": report.total_bytes}
    body["world_size"], body["backend"] = report.world_size, report.backend
    body["cost"] = cost_to_json(report.cost) if report.cost is not None else None
    body["outcome"] = report.outcome.value if report.outcome else None
    body["before"] = _grouping_to_json(before) if before is not None else None
    body["after"] = _grouping_to_json(after) if after is not None else None
    body["speedup"] = _estimate_to_json(report.estimate)
    body["candidates"] = [
        {
            "name": each.name,
            "segments": each.segments,
            "predicted_us": round(each.predicted_us, 3) if each.predicted_us is not None else None,
            "speedup": _estimate_to_json(each.estimate),
        }
        for each in report.candidates
    ]
    body["machine"], body["versions"] = dict(report.machine), dict(report.versions)
    basic = {"tuning_name": report.tuning_name, "tuning_time(s)": round(report.tuning_time_s)}
    return [{"basic": basic}, {"GDAT": body}]


def load_gdat_report(file: Path) -> GdatReport:
    """Read a result file.

    Raises:
        ResultFileError: there is none, it cannot be read, or it is no complete result of
            gradient tuning.
    """
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise ResultFileError(str(file), "too large for a result file")
        value = json.loads(file.read_bytes(), parse_constant=_refuse)
    except OSError as error:
        problem = f"cannot be read: {(error.strerror or str(error)).lower()}"
        raise ResultFileError(str(file), problem) from error
    except (ValueError, RecursionError) as error:
        raise ResultFileError(str(file), f"not JSON: {error}"[:200]) from error
    try:
        return gdat_report_from_json(value)
    except ValueError as error:
        text = str(error)
        raise ResultFileError(
            str(file), text, hint="give an aoe_result_gdat_<timestamp>_<pid>.json"
        ) from error


def gdat_report_from_json(value: Any) -> GdatReport:
    """Return the report `gdat_report_to_json` wrote.

    Raises:
        ValueError: the value is something else; the message names the place.
    """
    sections = _sections(value)
    _validate(sections)
    basic, body = sections["basic"], sections["GDAT"]
    return GdatReport(
        tuning_name=printable(basic["tuning_name"]),
        tuning_time_s=float(basic["tuning_time(s)"]),
        result=TuningResult(body["gdat_tuning_result"]),
        modelhash=body["modelhash"],
        gradients=int(body["gradients"]["count"]),
        total_bytes=int(body["gradients"]["total_bytes"]),
        world_size=int(body["world_size"]),
        backend=printable(body["backend"]),
        cost=cost_from_json(body["cost"]) if body.get("cost") is not None else None,
        outcome=RepoOutcome(body["outcome"]) if body.get("outcome") else None,
        before=_grouping(body.get("before")),
        after=_grouping(body.get("after")),
        estimate=_estimate(body.get("speedup")),
        candidates=tuple(
            CandidateReport(
                name=printable(each["name"]),
                segments=int(each["segments"]),
                predicted_us=each.get("predicted_us"),
                estimate=_estimate(each.get("speedup")),
            )
            for each in body.get("candidates", ())
        ),
        machine=body.get("machine", {}),
        versions={printable(k): printable(v) for k, v in body.get("versions", {}).items()},
    )


def printable(text: str) -> str:
    """Return a text without what could upset a terminal: control characters, lone surrogates."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _repo_summary(outcome: RepoOutcome | None) -> dict[str, int]:
    hit = outcome in (RepoOutcome.UPDATE, RepoOutcome.RESERVED)
    return {
        "repo_add_num": int(outcome is RepoOutcome.ADD),
        "repo_hit_num": int(hit),
        "repo_reserved_num": int(outcome is RepoOutcome.RESERVED),
        "repo_unsatisfied_num": int(outcome is RepoOutcome.UNSATISFIED),
        "repo_update_num": int(outcome is RepoOutcome.UPDATE),
        "total_num": int(outcome is not None),
    }


def _grouping_to_json(grouping: GroupingReport) -> dict[str, Any]:
    timeline = grouping.timeline
    return {
        "name": grouping.name,
        "source": grouping.source.value,
        "step_us": round(grouping.step_us, 3) if grouping.step_us is not None else None,
        "backward_end_us": round(timeline.backward_end_us, 3),
        "tail_us": round(timeline.tail_us, 3),
        "overlap_ratio": round(timeline.overlap_ratio, 4),
        "segments": [
            {
                "gradients": each.gradients,
                "bytes": each.bytes,
                "ready_us": round(each.ready_us, 3),
                "start_us": round(each.start_us, 3),
                "end_us": round(each.end_us, 3),
            }
            for each in timeline.segments
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


def _sections(value: Any) -> dict[str, Any]:
    """Return the parts of a file by name, whichever of AOE's two layouts it has."""
    if isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    if not isinstance(value, list) or not all(isinstance(each, Mapping) for each in value):
        raise ValueError("not a result file of AOE (expected a list of sections)")
    sections = {name: part for each in value for name, part in each.items()}
    if "GDAT" not in sections:
        others = ", ".join(sorted(map(str, sections)))[:80] or "nothing"
        raise ValueError(f"no result of gradient tuning (got {others}, expected GDAT)")
    return sections


def _validate(sections: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    error = best_match(Draft202012Validator(GDAT_SCHEMA).iter_errors(sections))
    if error is not None:
        place = "/".join(map(str, error.absolute_path))
        raise ValueError(f"/{place}: {error.message}"[:300])


def _grouping(value: Mapping[str, Any] | None) -> GroupingReport | None:
    if value is None:
        return None
    segments = tuple(
        SegmentTime(
            gradients=int(each["gradients"]),
            bytes=int(each["bytes"]),
            ready_us=float(each["ready_us"]),
            start_us=float(each["start_us"]),
            end_us=float(each["end_us"]),
        )
        for each in value["segments"]
    )
    late = next((each for each in segments if each.end_us < each.start_us), None)
    if late is not None:
        raise ValueError(f"a segment ends before it starts (got {late.start_us}..{late.end_us} us)")
    return GroupingReport(
        name=printable(value["name"]),
        source=TimelineSource(value["source"]),
        step_us=value.get("step_us"),
        timeline=Timeline(segments=segments, backward_end_us=float(value["backward_end_us"])),
    )


def _estimate(value: Mapping[str, Any] | None) -> SpeedupEstimate | None:
    return SpeedupEstimate(**{name: value[name] for name in _ESTIMATE}) if value else None


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number JSON has")


_ESTIMATE = ("median", "low", "high", "pairs", "coverage")
