"""A profile as the members of its JSON document, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from aoe.errors import OptionError
from aoe.profiling.figures import FusionLimit, OperatorProfile, ProfiledModel
from aoe.profiling.probe import peak_from_json, peak_to_json

SCHEMA = "aoe.profile/1"
_NO_PROFILE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
"""Errors of reading a document that is no profile."""
_DIGITS = 4
_OF_NODES = (
    *("name", "op_names", "op_type", "op_types", "reads", "input_shapes", "output_shapes"),
    *("dtype", "layout", "calls", "median_us", "min_us", "flops"),
)
_OF_MACHINE = (
    *("gflops_per_s", "gbytes_per_s", "roofline_us", "bound", "lost_us", "peak_share"),
    *("warm_us", "us_by_threads", "best_threads"),
)
"""Members of an operator in their order, before and behind its bytes."""
_OF_FUSION = ("op_names", "op_types", "through_cache", "stop")
_OF_STOP = (
    *("stopped_at", "stopped_type", "without_limits", "runs_as", "goes_on_here", "median_us"),
)
"""Members of a fusion, before and behind whether a limit stopped it."""


def profile_to_json(profile: ProfiledModel) -> dict[str, Any]:
    """Return the members of a document, figures that follow from others included."""
    return {
        "model": profile.model,
        "soc_version": profile.soc_version,
        "cpu_model": profile.cpu_model,
        "threads": profile.threads,
        "runs": profile.runs,
        "model_us": profile.model_us,
        "model_min_us": profile.model_min_us,
        **_members(profile, ("model_us_by_threads", "best_threads", "operators_us", "lost_us")),
        "peak": peak_to_json(profile.peak),
        "kinds": _plain(profile.kinds()),
        "operators": [_operator_to_json(operator) for operator in profile.operators],
        "timeline": _plain(profile.timeline),
        "counters": {
            "per_run": dict(profile.counters.per_run),
            "instructions_per_cycle": _plain(profile.counters.instructions_per_cycle),
            "reason": profile.counters.reason,
        },
        "versions": dict(profile.versions),
        "fusion": None
        if profile.fusion is None
        else [_fusion_to_json(one) for one in profile.fusion],
        "doubts": list(profile.caveats),
    }


def read_profile(file: Path) -> ProfiledModel:
    """Return the profile in a file that `aoe profile --json` has written.

    Raises:
        OptionError: it cannot be read, or is no such document.
    """
    try:
        value = json.loads(file.read_bytes())
        if not isinstance(value, dict) or value.get("schema") != SCHEMA:
            raise ValueError(f"schema: not {SCHEMA}")
        return profile_from_json(value)
    except OSError as error:
        raise OptionError(str(file), f"cannot be read: {error.strerror or error}") from error
    except _NO_PROFILE as error:
        raise OptionError(
            str(file),
            f"no profile: {error}",
            expected=f"a document {SCHEMA}",
            hint=f"aoe profile MODEL --json > {file.name}",
        ) from error


def profile_from_json(value: Mapping[str, Any]) -> ProfiledModel:
    """Return the profile of a document.

    Raises:
        ValueError: a member is out of range.
        KeyError: a member is missing.
        TypeError: a member is of another type.
    """
    fusion = value["fusion"]
    found: ProfiledModel = _read(
        ProfiledModel,
        {
            **value,
            "caveats": value.get("doubts", ()),  # documents of earlier versions have none
            "model_us_by_threads": _threads_from(value["model_us_by_threads"]),
            "peak": peak_from_json(value["peak"]),
            "operators": [
                {
                    **operator,
                    "work": operator if operator["weight_bytes"] is not None else None,
                    "us_by_threads": _threads_from(operator["us_by_threads"]),
                }
                for operator in value["operators"]
            ],
            "fusion": fusion and [{**one, "fusion_class": one["class"]} for one in fusion],
        },
    )
    return found


def _operator_to_json(operator: OperatorProfile) -> dict[str, Any]:
    work = operator.work
    return {
        **_members(operator, _OF_NODES),
        "weight_bytes": None if work is None else work.weight_bytes,
        "activation_bytes": None if work is None else work.activation_bytes,
        **_members(operator, _OF_MACHINE),
    }


def _fusion_to_json(one: FusionLimit) -> dict[str, Any]:
    return {
        "class": one.fusion_class,
        **_members(one, _OF_FUSION),
        "stopped_by_limit": one.stop.is_limit,
        **_members(one, _OF_STOP),
    }


def _members(value: object, names: Sequence[str]) -> dict[str, Any]:
    return {name: _plain(getattr(value, name)) for name in names}


def _plain(value: Any) -> Any:
    """Return a figure, or a value of several, as JSON keeps it; times go by number of threads."""
    match value:
        case float():
            return round(value, _DIGITS)
        case Enum():
            return value.value
        case tuple():
            return [_plain(item) for item in value]
        case Mapping():
            times = sorted(value.items())
            return [{"threads": threads, "median_us": _plain(us)} for threads, us in times]
        case _ if is_dataclass(value):
            return _members(value, [field.name for field in fields(value)])
    return value


def _read(kind: Any, value: Any) -> Any:
    """Return a JSON value as the type of a field, given by its annotation.

    Raises:
        ValueError, KeyError, TypeError: it is something else.
    """
    if isinstance(kind, type) and is_dataclass(kind):
        if type(value) is kind:
            return value
        hints = get_type_hints(kind)
        return kind(**{name: _read(hint, value[name]) for name, hint in hints.items()})
    origin, inner = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else _read(inner[0], value)
    if origin is tuple:
        return tuple(_read(inner[0], item) for item in value)
    if origin is Mapping:
        return {_read(inner[0], name): _read(inner[1], item) for name, item in value.items()}
    return kind(value)


def _threads_from(value: list[Mapping[str, Any]]) -> dict[int, float]:
    return {item["threads"]: item["median_us"] for item in value}
