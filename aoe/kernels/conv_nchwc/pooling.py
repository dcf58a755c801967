"""A pooling behind a convolution: of two rows and two columns of results the largest is left.

The results of a Winograd tile are whole squares of it, so the image in front of the pooling is
never written, nor read again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import halide as hl

from aoe.kernels.halide.shapes import shapes_of
from aoe.operators import OPERATORS, op_key
from aoe.operators.windows import windows_of
from aoe.workload import NCHWC_DOMAIN, Operation, Workload

_SIDE = 2


def without_pooling(workload: Workload) -> tuple[Workload, int]:
    """Return a workload without the pooling it ends in.

    Returns:
        The workload, and of how many rows and columns one result is left; as it is, and 1, where
        it ends otherwise.
    """
    *before, last = workload.operations
    if op_key(last) != (NCHWC_DOMAIN, "MaxPool") or not before:
        return workload, 1
    if last.inputs != (before[-1].output,) or not all(op_key(item) in OPERATORS for item in before):
        return workload, 1
    shapes = shapes_of(workload)
    if isinstance(shapes, str) or shapes[last.output] != workload.output.shape:
        return workload, 1
    whole = shapes[last.inputs[0]]
    in_squares = all(
        (window.size, window.stride, window.dilation) == (_SIDE, _SIDE, 1)
        and window.before == window.behind == 0
        and window.extent == _SIDE * window.made
        for window in windows_of(last, whole)
    )
    if not in_squares or (workload.is_open and _cuts_squares(last)):
        return workload, 1
    output = replace(workload.output, shape=whole)
    return replace(workload, operations=tuple(before), output=output), _SIDE


def _cuts_squares(pooling: Operation) -> bool:
    """True if odd extents leave squares of which a part lies beyond the image."""
    padding = str(pooling.attributes.get("auto_pad", "NOTSET"))
    return bool(pooling.attributes.get("ceil_mode", 0)) or padding.startswith("SAME")


def largest_of_squares(whole: hl.Func, place: Sequence[hl.Var], side: int) -> hl.Expr:
    """Return the largest result of a square, or the only one.

    Args:
        whole: Results, by channel of a block, column, row, block, image.
        place: Index of the square.
        side: Its rows and columns.
    """
    channel, column, row, *outer = place
    results = [
        whole[(channel, column * side + right, row * side + down, *outer)]
        for down in range(side)
        for right in range(side)
    ]
    return reduce(hl.max, results)
