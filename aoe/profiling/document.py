"""A profile as the members of its JSON document, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aoe.errors import OptionError
from aoe.graph.fusing.groups import StopReason
from aoe.operators import Shape
from aoe.ort.profile import NodeRun
from aoe.profiling.counters import HardwareCounters
from aoe.profiling.figures import FusionLimit, KindSummary, OperatorProfile, ProfiledModel
from aoe.profiling.peak import NodeWork, OperatorBound
from aoe.profiling.probe import peak_from_json, peak_to_json

SCHEMA = "aoe.profile/1"
_DIGITS = 4


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
        "model_us_by_threads": _by_threads(profile.model_us_by_threads),
        "best_threads": profile.best_threads,
        "operators_us": _short(profile.operators_us),
        "lost_us": _short(profile.lost_us),
        "peak": peak_to_json(profile.peak),
        "kinds": [_kind(summary) for summary in profile.kinds()],
        "operators": [_operator_to_json(operator) for operator in profile.operators],
        "timeline": [
            {
                "node": run.node,
                "start_us": _short(run.start_us),
                "duration_us": _short(run.duration_us),
            }
            for run in profile.timeline
        ],
        "counters": {
            "per_run": dict(profile.counters.per_run),
            "instructions_per_cycle": _short(profile.counters.instructions_per_cycle),
            "reason": profile.counters.reason,
        },
        "versions": dict(profile.versions),
        "fusion": None
        if profile.fusion is None
        else [_fusion_to_json(one) for one in profile.fusion],
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
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
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
    counters = value["counters"]
    return ProfiledModel(
        model=str(value["model"]),
        soc_version=str(value["soc_version"]),
        cpu_model=str(value["cpu_model"]),
        threads=int(value["threads"]),
        runs=int(value["runs"]),
        model_us=float(value["model_us"]),
        model_min_us=float(value["model_min_us"]),
        model_us_by_threads=_threads_from(value["model_us_by_threads"]),
        peak=peak_from_json(value["peak"]),
        operators=tuple(_operator_from_json(item) for item in value["operators"]),
        timeline=tuple(
            NodeRun(
                node=str(item["node"]),
                start_us=float(item["start_us"]),
                duration_us=float(item["duration_us"]),
            )
            for item in value["timeline"]
        ),
        counters=HardwareCounters(
            per_run={str(name): float(count) for name, count in counters["per_run"].items()},
            reason=str(counters["reason"]),
        ),
        versions={str(name): str(number) for name, number in value["versions"].items()},
        fusion=None
        if value["fusion"] is None
        else tuple(_fusion_from_json(item) for item in value["fusion"]),
    )


def _operator_to_json(operator: OperatorProfile) -> dict[str, Any]:
    work = operator.work
    return {
        "name": operator.name,
        "op_names": list(operator.op_names),
        "op_type": operator.op_type,
        "op_types": list(operator.op_types),
        "reads": list(operator.reads),
        "input_shapes": [_shape(shape) for shape in operator.input_shapes],
        "output_shapes": [_shape(shape) for shape in operator.output_shapes],
        "dtype": operator.dtype,
        "layout": operator.layout,
        "calls": operator.calls,
        "median_us": _short(operator.median_us),
        "min_us": _short(operator.min_us),
        "flops": operator.flops,
        "weight_bytes": None if work is None else work.weight_bytes,
        "activation_bytes": None if work is None else work.activation_bytes,
        "gflops_per_s": _short(operator.gflops_per_s),
        "gbytes_per_s": _short(operator.gbytes_per_s),
        "roofline_us": _short(operator.roofline_us),
        "bound": operator.bound.value,
        "lost_us": _short(operator.lost_us),
        "peak_share": _short(operator.peak_share),
        "warm_us": _short(operator.warm_us),
        "us_by_threads": _by_threads(operator.us_by_threads),
        "best_threads": operator.best_threads,
    }


def _operator_from_json(value: Mapping[str, Any]) -> OperatorProfile:
    work = None
    if value["weight_bytes"] is not None:
        work = NodeWork(
            flops=None if value["flops"] is None else int(value["flops"]),
            weight_bytes=int(value["weight_bytes"]),
            activation_bytes=int(value["activation_bytes"]),
        )
    return OperatorProfile(
        name=str(value["name"]),
        op_names=tuple(map(str, value["op_names"])),
        op_type=str(value["op_type"]),
        op_types=tuple(map(str, value["op_types"])),
        reads=tuple(map(str, value["reads"])),
        input_shapes=tuple(_shape_from(shape) for shape in value["input_shapes"]),
        output_shapes=tuple(_shape_from(shape) for shape in value["output_shapes"]),
        dtype=str(value["dtype"]),
        layout=str(value["layout"]),
        calls=int(value["calls"]),
        median_us=float(value["median_us"]),
        min_us=float(value["min_us"]),
        work=work,
        roofline_us=_number(value["roofline_us"]),
        bound=OperatorBound(value["bound"]),
        warm_us=_number(value["warm_us"]),
        us_by_threads=_threads_from(value["us_by_threads"]),
    )


def _fusion_to_json(one: FusionLimit) -> dict[str, Any]:
    return {
        "class": one.fusion_class,
        "op_names": list(one.op_names),
        "op_types": list(one.op_types),
        "through_cache": one.through_cache,
        "stop": one.stop.value,
        "stopped_by_limit": one.stop.is_limit,
        "stopped_at": one.stopped_at,
        "stopped_type": one.stopped_type,
        "without_limits": one.without_limits,
        "runs_as": one.runs_as,
        "goes_on_here": one.goes_on_here,
        "median_us": _short(one.median_us),
    }


def _fusion_from_json(value: Mapping[str, Any]) -> FusionLimit:
    return FusionLimit(
        fusion_class=str(value["class"]),
        op_names=tuple(map(str, value["op_names"])),
        op_types=tuple(map(str, value["op_types"])),
        through_cache=str(value["through_cache"]),
        stop=StopReason(value["stop"]),
        stopped_at=str(value["stopped_at"]),
        stopped_type=str(value["stopped_type"]),
        without_limits=int(value["without_limits"]),
        runs_as=int(value["runs_as"]),
        goes_on_here=bool(value["goes_on_here"]),
        median_us=float(value["median_us"]),
    )


def _kind(summary: KindSummary) -> dict[str, Any]:
    return {
        "kind": summary.kind,
        "operators": summary.operators,
        "median_us": _short(summary.median_us),
        "roofline_us": _short(summary.roofline_us),
        "lost_us": _short(summary.lost_us),
        "flops": summary.flops,
        "bytes": summary.bytes,
    }


def _by_threads(us_by_threads: Mapping[int, float]) -> list[dict[str, Any]]:
    return [
        {"threads": threads, "median_us": _short(us)}
        for threads, us in sorted(us_by_threads.items())
    ]


def _threads_from(value: list[Mapping[str, Any]]) -> dict[int, float]:
    return {int(item["threads"]): float(item["median_us"]) for item in value}


def _shape(shape: Shape | None) -> list[int] | None:
    return None if shape is None else list(shape)


def _shape_from(value: list[int] | None) -> Shape | None:
    return None if value is None else tuple(map(int, value))


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)
