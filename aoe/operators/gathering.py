"""Operators that read where one of their inputs says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aoe.operators.axes import axis_of
from aoe.operators.facts import (
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    Shape,
    Specials,
    op_key,
)
from aoe.workload import Operation

_GRID_TAPS = {"nearest": 1, "linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}


def grid_taps(operation: Operation) -> int | None:
    """Return the elements along one dimension that a GridSample reads, None for no known mode."""
    return _GRID_TAPS.get(str(operation.attributes.get("mode", "linear")))


def _sampled(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    if len(shapes) != 2:
        return None
    data, grid = shapes
    rank = len(data) - 2
    if rank < 1 or len(grid) != len(data) or grid[-1] != rank or grid[0] != data[0]:
        return None
    return (*data[:2], *grid[1:-1])


def _read_by_grid(operation: Operation, shape: Shape) -> int:
    return int((grid_taps(operation) or 1) ** (len(shape) - 2))


def _indexed(operation: Operation, shape: Shape) -> int:
    axis = axis_of(operation, len(shape))
    return 1 if axis is None else shape[axis]


def _gathered(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return shapes[1] if len(shapes) == 2 and len(shapes[0]) == len(shapes[1]) else None


def _scattered(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return shapes[0] if len(shapes) == 3 and shapes[1] == shapes[2] else None


def _looked_up(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    if len(shapes) != 2 or not shapes[0] or axis_of(operation, len(shapes[0])) != 0:
        return None
    return (*shapes[1], *shapes[0][1:])


def _rows_of_table(operation: Operation, shape: Shape) -> int:
    return shape[0]


def looks_up(operation: Operation) -> bool:
    """Return True for a Gather of a workload whose indices are an input: rows of a table."""
    return op_key(operation) == GATHER and "indices" not in operation.attributes


GATHER: OperatorKey = ("", "Gather")
LOOK_UP = OperatorFacts(
    kind=OperatorKind.AXIS,
    inputs=(2, 2),
    shape=_looked_up,
    rounding=Rounding.EXACT,
    indices=(1,),
    indexed=_rows_of_table,
)
"""A Gather along axis 0 by indices that are an input; by constant ones it is a move."""

_BY_INDICES = OperatorFacts(
    kind=OperatorKind.AXIS,
    inputs=(2, 2),
    since=11,
    shape=_gathered,
    rounding=Rounding.EXACT,
    indices=(1,),
    indexed=_indexed,
)

GATHERING_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "GatherElements"): _BY_INDICES,
    ("", "GridSample"): OperatorFacts(
        kind=OperatorKind.WINDOW,
        inputs=(2, 2),
        since=16,
        shape=_sampled,
        specials=Specials.MODERATE,
        rounding=Rounding.SCALE,
        summed=_read_by_grid,
    ),
    ("", "ScatterElements"): replace(_BY_INDICES, inputs=(3, 3), shape=_scattered),
}
"""A grid is compared on finite values: releases of ONNX Runtime differ in what NaN points at.
Weights of a GridSample cancel one another, so small results are less exact than large ones."""
