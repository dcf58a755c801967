"""Recurrent operators: workloads of them, and what ONNX defines them to compute, in NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from aoe.operators.recurrent import GATES
from aoe.workload import AttributeValue, Precision, Workload
from support.contracts.kernels import Array, operation, plain

NAME = "recurrent"


def recurrence(
    op_type: str,
    steps: int,
    rows: int,
    width: int,
    hidden: int,
    *,
    direction: str = "forward",
    bias: bool = True,
    starts: int = 0,
    result: int = 0,
    precision: Precision = Precision.FLOAT32,
    **attributes: AttributeValue,
) -> Workload:
    """Return a workload of one recurrent operator.

    Args:
        op_type: LSTM, GRU or RNN.
        steps: Of a sequence.
        rows: Sequences side by side.
        width: Elements of a step.
        hidden: Elements of the hidden state.
        direction: ONNX's word.
        bias: True if it has one.
        starts: States it starts from that are given: none, the hidden one, both.
        result: All hidden states, the last one, or the last one of the cell.
        precision: Of its products.
        attributes: More of them.
    """
    ends, gates = 2 if direction == "bidirectional" else 1, GATES["", op_type]
    inputs = [
        plain(steps, rows, width),
        plain(ends, gates * hidden, width, constant=True),
        plain(ends, gates * hidden, hidden, constant=True),
    ]
    refs = ["x0", "x1", "x2"]
    if bias:
        refs.append(f"x{len(inputs)}")
        inputs.append(plain(ends, 2 * gates * hidden, constant=True))
    if starts:
        refs += ["-"] * (5 - len(refs))
    for _ in range(starts):
        refs.append(f"x{len(inputs)}")
        inputs.append(plain(ends, rows, hidden))
    given: dict[str, AttributeValue] = {"hidden_size": hidden, "direction": direction}
    if op_type == "GRU":
        given["linear_before_reset"] = 1
    if result:
        given["result"] = result
    last = (ends, rows, hidden)
    return Workload(
        op_type=NAME,
        inputs=tuple(inputs),
        operations=(operation(op_type, " ".join(refs), **{**given, **attributes}),),
        output=plain(*(last if result else (steps, *last))),
        precision=precision,
    )


def lowered(workload: Workload) -> Workload:
    """Return the same with products in bfloat16."""
    return replace(workload, precision=Precision.BFLOAT16)


def bfloat16_pairs(values: Array) -> Array:
    """Return float32 values rounded as kernels keep them, pairs of the last axis in a word.

    The first of a pair is the nearest bfloat16, ties to even; the second one the nearest number
    that has that in its low half.
    """
    bits = values.astype(np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    low = rounded[..., 0::2][..., : bits.shape[-1] // 2]
    odd = bits[..., 1::2]
    size = (odd & np.uint32(0x7FFFFFFF)) + np.uint32(0x8000)
    high = np.where(size >= low, (size - low) >> 16, 0) | (odd >> 16) & np.uint32(0x8000)
    found = rounded << 16
    found[..., 1::2] = (high << 16) | low
    result: Array = found.astype(np.uint32).view(np.float32)
    return result


def _sigmoid(x: Array) -> Array:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


def _next(op_type: str, entered: Array, left: Array, states: Sequence[Array]) -> list[Array]:
    """Return the states behind a step.

    Args:
        op_type: LSTM, GRU or RNN.
        entered: (rows, gates x hidden) of the input, with its bias.
        left: The same of the hidden state.
        states: In front of the step: the hidden one, and that of the cell.
    """
    gates = len(entered[0]) // len(states[0][0])
    from_input, from_hidden = np.split(entered, gates, 1), np.split(left, gates, 1)
    both = [one + other for one, other in zip(from_input, from_hidden, strict=True)]
    if op_type == "RNN":
        return [np.tanh(both[0])]
    if op_type == "GRU":
        update, reset = _sigmoid(both[0]), _sigmoid(both[1])
        candidate = np.tanh(from_input[2] + reset * from_hidden[2])
        return [(1 - update) * candidate + update * states[0]]
    cell = _sigmoid(both[2]) * states[1] + _sigmoid(both[0]) * np.tanh(both[3])
    return [_sigmoid(both[1]) * np.tanh(cell), cell]


def by_definition(workload: Workload, inputs: Mapping[str, Array]) -> Array:
    """Return what a workload of `recurrence` computes, in float64.

    Args:
        workload: One operator.
        inputs: Every input, constants included.
    """
    (one,) = workload.operations
    refs = [*one.inputs, *[""] * (7 - len(one.inputs))]
    x, w, r = (inputs[ref].astype(np.float64) for ref in refs[:3])
    (steps, rows, _), (ends, wide, hidden) = x.shape, r.shape
    bias = inputs[refs[3]].astype(np.float64) if refs[3] else np.zeros((ends, 2 * wide))
    all_states = np.zeros((steps, ends, rows, hidden))
    last = np.zeros((2, ends, rows, hidden))
    for end in range(ends):
        count = 2 if one.op_type == "LSTM" else 1
        states = [
            inputs[ref][end].astype(np.float64) if ref else np.zeros((rows, hidden))
            for ref in refs[5 : 5 + count]
        ]
        backwards = one.attributes["direction"] == "reverse" or end == 1
        for step in reversed(range(steps)) if backwards else range(steps):
            entered = x[step] @ w[end].T + bias[end, :wide]
            left = states[0] @ r[end].T + bias[end, wide:]
            states = _next(one.op_type, entered, left, states)
            all_states[step, end] = states[0]
        last[: len(states), end] = states
    result = int(str(one.attributes.get("result", 0)))
    return last[result - 1] if result else all_states
