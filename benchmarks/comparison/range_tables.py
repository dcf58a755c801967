"""Tables of one tuned model for a range of shapes: a row for each network, and for each shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from comparison.steps import where_measured
from comparison.tables import table_row

FIRST = ", first calls"
_BASE, _RANGE, _FIXED, _OPENVINO = "ort", "engine range", "engine fixed", "openvino-f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredShape:
    """What was measured of a network at one shape."""

    network: str  # Its title
    step: str  # Title and extents
    base_ms: float  # ONNX Runtime's median time of a call
    speedups: Mapping[str, float]  # Over ONNX Runtime by name, the median of the rounds' ratios
    failed: frozenset[str]  # Names of what computed nothing
    # In the log of `--shapes_from`; None where the log has none, or there is none.
    calls: int | None


def step_name(title: str, extents: Sequence[int]) -> str:
    """Return the name of the step that measures a network at a shape."""
    return f"{title}, {' x '.join(map(str, extents))}"


def measured_shapes(document: Mapping[str, Any]) -> list[MeasuredShape]:
    """Return all shapes of a file of results at which ONNX Runtime was measured, in its order."""
    steps = document["steps"]
    calls: dict[str, int] = {}
    for rows in steps.values():
        calls |= rows.get("calls", {})  # results of before there were logs have none
    return [
        MeasuredShape(
            network=step.rpartition(", ")[0],
            step=step,
            base_ms=median(rows[_BASE]["median_us"]) / 1e3,
            speedups=_speedups(rows),
            failed=frozenset(who for who, row in rows.items() if "median_us" not in row),
            calls=calls.get(step),
        )
        for step, rows in steps.items()
        if "median_us" in rows.get(_BASE, {})
    ]


def weighted_mean(values: Sequence[float], weights: Sequence[float]) -> float:
    """Return the weighted geometric mean.

    >>> weighted_mean([4.0, 1.0], [1, 1]), weighted_mean([4.0, 1.0], [1, 0])
    (2.0, 4.0)
    """
    logs = (weight * log(value) for value, weight in zip(values, weights, strict=True))
    return exp(sum(logs) / sum(weights))


def every_shape(document: Mapping[str, Any], file: str) -> str:
    """Return a page with a row for each shape, as Markdown."""
    shapes = measured_shapes(document)
    has_calls = any(one.calls for one in shapes)
    heads = ["network, open extents", "ONNX Runtime ms", "engine, range", "engine, fixed"]
    heads += ["OpenVINO", *(["calls in the log"] if has_calls else [])]
    lines = [
        "# One model for a range of shapes: every shape",
        "",
        f"Written from `{file}` by `shape_ranges.py --write-docs`. Speed-ups over ONNX Runtime",
        f"with open shapes, 2 threads, float32. {where_measured(document)}",
        "",
        table_row(heads),
        table_row(["---"] * len(heads)),
    ]
    for one in shapes:
        cells = [one.step, f"{one.base_ms:.2f}"]
        cells += [_cell(one, who) for who in (_RANGE, _FIXED, _OPENVINO)]
        cells += [str(one.calls or "")] if has_calls else []
        lines.append(table_row(cells))
    lines += ["", _means(shapes), *_first_calls(document)]
    return "\n".join(lines) + "\n"


def every_network(document: Mapping[str, Any], file: str) -> str:
    """Return the table of the documentation: a row for each network, two for one with a log.

    Means over the shapes of a log are weighted by their calls. A mean has its least in brackets.
    """
    shapes = measured_shapes(document)
    heads = ["network", "shapes", "ONNX Runtime ms", "engine, range", "OpenVINO"]
    heads += ["engine, fixed", "range there"]
    beside = f"../benchmarks/results/{Path(file).with_suffix('.md')}"
    lines = [
        f"`{file}` ([every shape]({beside})), float32. {where_measured(document)}",
        "",
        table_row(heads),
        table_row(["---"] * len(heads)),
    ]
    for title, found in groupby(shapes, lambda one: one.network):
        group = list(found)
        served = [one for one in group if one.calls]
        others = [one for one in group if not one.calls]
        if served:
            lines.append(_row(title, f"{len(served)} of a log", served))
        if others:
            lines.append(_row(title, f"{len(others)}{' others' if served else ''}", others))
    return "\n".join([*lines, "", _means(shapes)]) + "\n"


def _row(title: str, shapes_text: str, shapes: Sequence[MeasuredShape]) -> str:
    """Return a row of means; a model for one shape stands beside that for the range there.

    Where engine and OpenVINO both have figures, their means are over the shapes that both have.
    """
    times = sorted(one.base_ms for one in shapes)
    span = " to ".join(dict.fromkeys(f"{ms:.2f}" for ms in (times[0], times[-1])))
    fixed = [one for one in shapes if _FIXED in one.speedups and _RANGE in one.speedups]
    both = [one for one in shapes if _OPENVINO in one.speedups and _RANGE in one.speedups]
    if both and len(both) < len(shapes):
        shapes_text += f", {len(both)} compared"
    shared = both or shapes
    cells = [title, shapes_text, span, _mean(shared, _RANGE), _mean(shared, _OPENVINO)]
    return table_row([*cells, _mean(fixed, _FIXED), _mean(fixed, _RANGE)])


def _mean(shapes: Sequence[MeasuredShape], who: str) -> str:
    known = [(one.speedups[who], one.calls or 1) for one in shapes if who in one.speedups]
    if not known:
        return "-" if any(who in one.failed for one in shapes) else ""
    values, weights = zip(*known, strict=True)
    mean = f"{weighted_mean(values, weights):.2f}"
    return f"{mean} ({min(values):.2f})" if len(values) > 1 else mean


def _cell(one: MeasuredShape, who: str) -> str:
    if who in one.speedups:
        return f"{one.speedups[who]:.2f}"
    return "-" if who in one.failed else ""


def _speedups(rows: Mapping[str, Any]) -> dict[str, float]:
    """Return the speed-up of everyone over ONNX Runtime: the median of the rounds' ratios.

    Who is far behind has had its turn in the first rounds only.
    """
    base = rows[_BASE]["median_us"]
    return {
        who: median(one / other for one, other in zip(base, row["median_us"], strict=False))
        for who, row in rows.items()
        if "median_us" in row
    }


def _means(shapes: Sequence[MeasuredShape]) -> str:
    """Return the means over all shapes, each of which counts once."""
    found: dict[str, list[float]] = {}
    for one in shapes:
        for who, speedup in one.speedups.items():
            found.setdefault(who, []).append(speedup)
    means = ", ".join(
        f"{who} {weighted_mean(values, [1] * len(values)):.2f}x ({len(values)} shapes)"
        for who, values in found.items()
        if who != _BASE
    )
    return f"Geometric means over ONNX Runtime: {means}."


def _first_calls(document: Mapping[str, Any]) -> list[str]:
    first = {
        step.removesuffix(FIRST): max(rows["first_calls"].values())
        for step, rows in document["steps"].items()
        if "first_calls" in rows
    }
    if not first:
        return []
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in first.items())
    return [
        "",
        f"First call of a shape the session has not seen, at most, over later ones: {told}.",
    ]
