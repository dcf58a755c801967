"""Operators that walk a sequence and read what they made of the step before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from aoe.operators.facts import (
    RESULT_NUMBER,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Shape,
    Specials,
    number,
)
from aoe.workload import Operation

LSTM: OperatorKey = ("", "LSTM")
GRU: OperatorKey = ("", "GRU")
RNN: OperatorKey = ("", "RNN")
GATES: Mapping[OperatorKey, int] = MappingProxyType({LSTM: 4, GRU: 3, RNN: 1})
"""Rows of the weights for each element of the hidden state. Source: ONNX's operators."""


def _made(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (T, D, B, H) of all steps, or (D, B, H) of the last one."""
    data, weights, recurrent = shapes[:3]
    if (len(data), len(weights), len(recurrent)) != (3, 3, 3):
        return None
    of_last_step = (weights[0], data[1], recurrent[2])
    return of_last_step if operation.attributes.get(RESULT_NUMBER, 0) else (data[0], *of_last_step)


def _summed(operation: Operation, shape: Shape) -> int:
    """Return the products summed up for one element of the hidden state, in all of its gates."""
    gates = GATES[operation.domain, operation.op_type]
    return gates * (shape[-1] + int(number(operation.attributes, "hidden_size", 1)))


_RECURRENT = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(3, 6),
    since=7,
    shape=_made,
    specials=Specials.MODERATE,
    summed=_summed,
    factors=(1, 2),
    results=2,
)
"""ONNX Runtime's activations cut off what is far from 0, and NaN with it."""

RECURRENT_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    LSTM: replace(_RECURRENT, inputs=(3, 8), results=3),
    GRU: _RECURRENT,
    RNN: _RECURRENT,
}
