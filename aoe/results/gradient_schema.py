"""What a result file of gradient tuning must hold to be read again (JSON Schema)."""

from __future__ import annotations

from typing import Any

RESULT_SCHEMA = "aoe.gdat_result/1"

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
        "candidates": {"type": "array", "items": _CANDIDATE, "maxItems": 10_000},
        "machine": {"type": "object"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
    },
)
GDAT_SCHEMA = _object(
    {"basic": _object({"tuning_name": _TEXT, "tuning_time(s)": _TIME}), "GDAT": _BODY}
)
