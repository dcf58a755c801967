"""Operators that read all, or the neighbours, along an axis."""

from __future__ import annotations

from math import prod

from aoe.operators.facts import (
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Shape,
    Specials,
    first_shape,
    number,
)
from aoe.workload import Operation

SOFTMAX_ONE_AXIS_SINCE = 13
"""Version from which Softmax works on one axis, not on all from `axis` to the last."""


def softmax_axis(operation: Operation) -> int:
    """Return the `axis` of a Softmax or LogSoftmax, its default filled in."""
    default = -1 if operation.version >= SOFTMAX_ONE_AXIS_SINCE else 1
    return int(number(operation.attributes, "axis", default))


def _softmax_length(operation: Operation, shape: Shape) -> int:
    axis = softmax_axis(operation)
    one_axis = operation.version >= SOFTMAX_ONE_AXIS_SINCE
    return shape[axis] if one_axis else prod(shape[axis:])


def _lrn_window(operation: Operation, shape: Shape) -> int:
    return int(number(operation.attributes, "size", 1))


_SOFTMAX = OperatorFacts(
    kind=OperatorKind.AXIS, shape=first_shape, specials=Specials.FEW, summed=_softmax_length
)

AXIS_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "LRN"): OperatorFacts(
        kind=OperatorKind.WINDOW, shape=first_shape, specials=Specials.MODERATE, summed=_lrn_window
    ),
    ("", "LogSoftmax"): _SOFTMAX,
    ("", "Softmax"): _SOFTMAX,
}
