"""AOE's result file of gradient tuning, `aoe_result_gdat_<timestamp>_pid<N>.json`, and its reader.

Anybody may have edited a file that is read, so it is checked against a schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from aoe.errors import ResultFileError
from aoe.gradients.compression import Compression
from aoe.gradients.cost import CostModel, cost_from_json, cost_to_json
from aoe.gradients.timeline import SegmentTime, Timeline
from aoe.measurement import SpeedupEstimate
from aoe.results.files import (
    RepoOutcome,
    TuningResult,
    basic_section,
    interval_to_json,
    performance_members,
    repo_summary,
)

RESULT_SCHEMA = "aoe.gdat_result/1"


class TimelineSource(StrEnum):
    """Source of the times of a timeline."""

    SIMULATION = "simulation"
    MEASURED = "measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingReport:
    """A grouping of the gradients and what it does."""

    name: str  # For people, such as `DDP default (1 MiB, 25 MiB)`
    timeline: Timeline  # One backward pass with it
    source: TimelineSource  # Where the times come from
    # Median time of a measured step with it, None if none was measured.
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
    """Result of sums in 16 bits, which were allowed."""

    compression: Compression  # The type
    tolerance: float  # How far gradients may be from those in full, as a share of their length
    deviation: float | None = None  # How far they are, None if that was not found out
    problem: str = ""  # Why they are not used, or the empty string
    # The tuning on top of the grouping in full; None if there was none.
    tuning: GdatReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatReport:
    """Contents of the result file."""

    tuning_name: str  # Name of the tuning task
    modelhash: str  # Identity of the model in the bank, decimal
    gradients: int  # Number of gradients
    total_bytes: int  # Their size together
    world_size: int  # Processes
    backend: str  # Their communication library
    tuning_time_s: float = 0.0  # Seconds so far
    result: TuningResult = TuningResult.INCOMPLETE  # State of the run
    cost: CostModel | None = None  # All-reduce among them, None until it is known
    # What became of the record in the bank, None until that is known.
    outcome: RepoOutcome | None = None
    before: GroupingReport | None = None  # The default grouping, None until it is known
    # The grouping in use at the end; the default's if that stays.
    after: GroupingReport | None = None
    # Speed-up of a step, None if nothing was kept or measured.
    estimate: SpeedupEstimate | None = None
    busy: str = ""  # How a busy machine served the steps that were measured; empty for a quiet one
    candidates: tuple[CandidateReport, ...] = ()  # Everything measured, in order
    # What became of sums in 16 bits; None if they were not allowed.
    compression: CompressionReport | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)  # Facts about it, JSON values
    versions: Mapping[str, str] = field(default_factory=dict)  # Of libraries


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
        **interval_to_json(estimate),
        "pairs": estimate.pairs,
        "coverage": round(estimate.coverage, 4),
    }


def _rounded(time_us: float | None) -> float | None:
    return round(time_us, 3) if time_us is not None else None


_MOST_BYTES = 64 << 20
_WAY_OUT = "give an .om, or an aoe_result_gdat_<timestamp>_pid<N>.json"
_ESTIMATE_MEMBERS = ("median", "low", "high", "pairs", "coverage")

# ---- what a file must hold (JSON Schema) ----

_TIME = {"type": "number", "minimum": 0, "maximum": 1e15}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 10**9}
_BYTES = {"type": "integer", "minimum": 0, "maximum": 2**63}
_TEXT = {"type": "string", "maxLength": 10_000}
_RATIO = {"type": "number", "exclusiveMinimum": 0, "maximum": 1e9}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the schema of an object; members it does not name are left alone."""
    properties = {**required, **(optional or {})}
    return {"type": "object", "required": list(required), "properties": properties}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "type": [schema["type"], "null"]}


_SEGMENT = _object(
    {"gradients": _COUNT, "bytes": _BYTES, "ready_us": _TIME, "start_us": _TIME, "end_us": _TIME}
)
_GROUPING = _object(
    {
        "name": _TEXT,
        "source": {"type": "string", "enum": ["simulation", "measured"]},
        "backward_end_us": _TIME,
        "segments": {"type": "array", "items": _SEGMENT, "maxItems": 100_000},
    },
    {"step_us": _or_null(_TIME)},
)
_ESTIMATE = _object(
    {
        "median": _RATIO,
        "low": _RATIO,
        "high": _RATIO,
        "pairs": _COUNT,
        "coverage": {"type": "number", "minimum": 0, "maximum": 1},
    }
)
_CANDIDATE = _object(
    {"name": _TEXT, "segments": _COUNT},
    {"predicted_us": _or_null(_TIME), "speedup": _or_null(_ESTIMATE)},
)
_BODY = _object(
    {
        "schema": {"type": "string", "const": RESULT_SCHEMA},
        "gdat_tuning_result": {
            "type": "string",
            "enum": ["tuning incomplete", "tuning successful", "tuning failed"],
        },
        "modelhash": {"type": "string", "pattern": "^[0-9]{1,20}$"},
        "gradients": _object({"count": _COUNT, "total_bytes": _BYTES}),
        "world_size": _COUNT,
        "backend": _TEXT,
    },
    {
        "cost": {"type": ["object", "null"]},
        "outcome": {"enum": ["add", "update", "reserved", "unsatisfied", None]},
        "before": _or_null(_GROUPING),
        "after": _or_null(_GROUPING),
        "speedup": _or_null(_ESTIMATE),
        "busy": _TEXT,
        "candidates": {"type": "array", "items": _CANDIDATE, "maxItems": 10_000},
        "machine": {"type": "object"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
    },
)
_COMPRESSION = _object(
    {
        "summed_in": {"type": "string", "enum": [one.value for one in Compression]},
        "tolerance": _TIME,
    },
    {"deviation": _or_null(_TIME), "problem": _TEXT, "tuning": _or_null(_BODY)},
)
_WHOLE_BODY = {
    **_BODY,
    "properties": {**_BODY["properties"], "compression": _or_null(_COMPRESSION)},
}
GDAT_SCHEMA = _object(
    {"basic": _object({"tuning_name": _TEXT}, {"tuning_time(s)": _TIME}), "GDAT": _WHOLE_BODY}
)

# ---- reading ----


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
        raise ResultFileError(str(file), f"not JSON: {error}"[:200], hint=_WAY_OUT) from error
    try:
        return gdat_report_from_json(value)
    except ValueError as error:
        raise ResultFileError(str(file), str(error), hint=_WAY_OUT) from error


def gdat_report_from_json(value: Any) -> GdatReport:
    """Return the report `gdat_report_to_json` wrote.

    Raises:
        ValueError: the value is something else; the message names the place.
    """
    sections = _sections(value)
    _validate(sections)
    return _report(sections["basic"], sections["GDAT"])


def _report(basic: Mapping[str, Any], body: Mapping[str, Any]) -> GdatReport:
    return GdatReport(
        tuning_name=printable(basic["tuning_name"]),
        tuning_time_s=float(basic.get("tuning_time(s)", 0.0)),
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
        busy=printable(body.get("busy", "")),
        candidates=tuple(
            CandidateReport(
                name=printable(candidate["name"]),
                segments=int(candidate["segments"]),
                predicted_us=candidate.get("predicted_us"),
                estimate=_estimate(candidate.get("speedup")),
            )
            for candidate in body.get("candidates", ())
        ),
        compression=_compression(basic, body.get("compression")),
        machine=body.get("machine", {}),
        versions={printable(k): printable(v) for k, v in body.get("versions", {}).items()},
    )


def _compression(
    basic: Mapping[str, Any], value: Mapping[str, Any] | None
) -> CompressionReport | None:
    if value is None:
        return None
    tuning = value.get("tuning")
    return CompressionReport(
        compression=Compression(value["summed_in"]),
        tolerance=value["tolerance"],
        deviation=value.get("deviation"),
        problem=printable(value.get("problem", "")),
        tuning=_report(basic, tuning) if tuning is not None else None,
    )


def printable(text: str) -> str:
    """Return a text without what could upset a terminal: control characters, lone surrogates."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _sections(value: Any) -> dict[str, Any]:
    """Return the parts of a file by name, whichever of AOE's two layouts it has."""
    if isinstance(value, Mapping) and len(value) == 1:
        value = next(iter(value.values()))
    if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
        raise ValueError("not a result file of AOE (expected a list of sections)")
    sections = {name: part for section in value for name, part in section.items()}
    if "GDAT" not in sections:
        others = ", ".join(sorted(map(str, sections)))[:80] or "nothing"
        raise ValueError(f"no result of gradient tuning (got {others}, expected GDAT)")
    return sections


def _validate(sections: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(GDAT_SCHEMA).iter_errors(sections))
    if error is not None:
        place = "/".join(map(str, error.absolute_path))
        raise ValueError(f"/{place}: {error.message}"[:300])


def _grouping(value: Mapping[str, Any] | None) -> GroupingReport | None:
    if value is None:
        return None
    segments = tuple(
        SegmentTime(
            gradients=int(segment["gradients"]),
            bytes=int(segment["bytes"]),
            ready_us=float(segment["ready_us"]),
            start_us=float(segment["start_us"]),
            end_us=float(segment["end_us"]),
        )
        for segment in value["segments"]
    )
    late = next((segment for segment in segments if segment.end_us < segment.start_us), None)
    if late is not None:
        raise ValueError(f"a segment ends before it starts (got {late.start_us}..{late.end_us} us)")
    return GroupingReport(
        name=printable(value["name"]),
        source=TimelineSource(value["source"]),
        step_us=value.get("step_us"),
        timeline=Timeline(segments=segments, backward_end_us=float(value["backward_end_us"])),
    )


def _estimate(value: Mapping[str, Any] | None) -> SpeedupEstimate | None:
    return SpeedupEstimate(**{name: value[name] for name in _ESTIMATE_MEMBERS}) if value else None


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no number JSON has")
