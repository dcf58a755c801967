"""A profile as a trace for chrome://tracing and ui.perfetto.dev: one run, operator by operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aoe.profiling.figures import OperatorProfile, ProfiledModel
from aoe.workload import shape_text
from aoebank import plural

_PROCESS = 1


def trace_document(profile: ProfiledModel) -> dict[str, Any]:
    """Return the run of a profile whose time is the median, in the Trace Event Format.

    Lanes: the operators, and above them the nodes of the user's model.
    Source: Trace Event Format, Google, 2016; times are microseconds.
    """
    by_name = {operator.name: operator for operator in profile.operators}
    events: list[dict[str, Any]] = [
        _name("process_name", 0, profile.model),
        _name("thread_name", 1, "nodes of the model"),
        _name("thread_name", 2, f"operators, {plural(profile.threads, 'thread')}"),
    ]
    for run in profile.timeline:
        operator = by_name.get(run.node)
        if operator is not None:
            events += _events(operator, run.start_us, run.duration_us)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"soc_version": profile.soc_version, "cpu_model": profile.cpu_model},
    }


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": thread, "args": {"name": name}}


def _events(
    operator: OperatorProfile, start_us: float, duration_us: float
) -> Iterator[dict[str, Any]]:
    place = {
        "ph": "X",
        "cat": operator.kind,
        "pid": _PROCESS,
        "ts": round(start_us, 3),
        "dur": round(duration_us, 3),
    }
    facts = {
        "op_type": operator.op_type,
        "inputs": [shape_text(shape) for shape in operator.input_shapes],
        "outputs": [shape_text(shape) for shape in operator.output_shapes],
        "dtype": operator.dtype,
        "layout": operator.layout,
        "median_us": operator.median_us,
        "roofline_us": operator.roofline_us,
        "lost_us": operator.lost_us,
        "bound": operator.bound.value,
    }
    if operator.op_names:
        yield {**place, "tid": 1, "name": " + ".join(operator.op_names), "args": {}}
    yield {**place, "tid": 2, "name": operator.name, "args": facts}
