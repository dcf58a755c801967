"""Recurrent operators in numbers, and the states their cells make of the sums of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from types import MappingProxyType

import halide as hl

from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.math.functions import constant, sigmoid, tanh
from aoe.operators import RESULT_NUMBER, Attributes, OperatorKey, Shape, number, op_key
from aoe.operators.recurrent import GATES, GRU, LSTM, RNN
from aoe.workload import Operation, Precision, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValues:
    """Values of one element of the states once its sums are complete.

    All of them are plain values: what is made of them is computed strictly where it has to be.
    """

    # Of each gate, what has entered included, unless the cell keeps both apart.
    sums: Sequence[hl.Expr]
    # What has entered the last gate by this step's input; added by a cell that keeps both apart
    # only.
    entered: hl.Expr
    before: Sequence[hl.Expr]  # The states of the step before
    kept: Sequence[hl.Expr]  # Those of this step, as far as they are made


States = tuple[hl.Expr | None, ...]
"""New states; None for one that stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A recurrent operator."""

    gates: int  # Sums for each element of the hidden state
    states: int  # What a step leaves for the next: the hidden state, and that of the cell
    activations: tuple[str, ...]  # ONNX's names of those that are computed, as they are by default
    # Makes the states of the sums, one part after the other: each finds what those before it have
    # made.
    finish: tuple[Callable[[CellValues], States], ...]
    keeps_separate: bool = (
        False  # True if the last gate's share of the input is not added to its sum
    )


def _lstm_cell(of: CellValues) -> States:
    """Return c = f c + i g; gates are i, o, f, g."""
    kept = sigmoid(of.sums[2]) * of.before[1]
    return None, kept + sigmoid(of.sums[0]) * tanh(of.sums[3])


def _lstm_hidden(of: CellValues) -> States:
    """Return h = o tanh(c)."""
    return sigmoid(of.sums[1]) * tanh(of.kept[1]), None


def _gru_candidate(of: CellValues) -> States:
    """Return the candidate state before its activation; gates are z, r, n."""
    return (of.entered + sigmoid(of.sums[1]) * of.sums[2],)


def _gru_hidden(of: CellValues) -> States:
    """Return h = (1 - z) n + z h."""
    update = sigmoid(of.sums[0])
    return ((constant(1.0) - update) * tanh(of.kept[0]) + update * of.before[0],)


def _rnn_hidden(of: CellValues) -> States:
    return (tanh(of.sums[0]),)


CELLS: Mapping[OperatorKey, Cell] = MappingProxyType(
    {
        LSTM: Cell(
            gates=GATES[LSTM],
            states=2,
            activations=("Sigmoid", "Tanh", "Tanh"),
            finish=(_lstm_cell, _lstm_hidden),
        ),
        GRU: Cell(
            gates=GATES[GRU],
            states=1,
            activations=("Sigmoid", "Tanh"),
            finish=(_gru_candidate, _gru_hidden),
            keeps_separate=True,
        ),
        RNN: Cell(gates=GATES[RNN], states=1, activations=("Tanh",), finish=(_rnn_hidden,)),
    }
)
"""Source: ONNX's operators; of GRU, the form whose reset comes behind the product."""


PANEL = 16
"""Elements of the hidden state that are computed together: a vector with AVX-512."""
_BIAS, _LENGTHS, _STARTS, _PEEPHOLES = 3, 4, 5, 7
"""Places of what may be omitted among the inputs; states to start from are the next two."""
_ELEMENTS_MAX = 1 << 28
"""Elements up to which a buffer is counted in 32 bits, in bytes."""
_PRECISIONS = (Precision.FLOAT32, Precision.STRICT_FLOAT32, Precision.BFLOAT16)


class Direction(StrEnum):
    """From which end a sequence is walked; ONNX's words."""

    FORWARD = "forward"
    REVERSE = "reverse"
    BOTH = "bidirectional"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """One recurrent operator: numbers of its inputs, and extents."""

    workload: Workload  # What it is all of
    cell: Cell  # What it makes of its sums
    data: int  # Number of the input (steps, rows, width) that is walked
    weights: int  # Of the weights of the input
    recurrent: int  # Of those of the hidden state
    bias: int | None  # Of both biases, if there are any
    starts: tuple[int | None, ...]  # Of the states before the first step; None where they are zero
    steps: int  # Of a sequence
    rows: int  # Sequences side by side
    width: int  # Elements of a step
    hidden: int  # Elements of the hidden state
    direction: Direction  # From which end a sequence is walked
    result: int  # Which one is wanted: all hidden states, the last one, or the last one of the cell

    @property
    def directions(self) -> int:
        """Sequences of states for each row."""
        return 2 if self.direction is Direction.BOTH else 1

    @property
    def panels(self) -> int:
        """Vectors of the hidden state, the last of them not always full."""
        return -(-self.hidden // PANEL)

    @property
    def padded(self) -> int:
        """Elements of all panels."""
        return self.panels * PANEL

    @property
    def products(self) -> int:
        """Products summed up in the whole sequence."""
        depth = self.width + self.hidden
        return self.directions * self.steps * self.rows * self.cell.gates * self.hidden * depth


def read_recurrence(workload: Workload) -> Recurrence | Support:
    """Return a workload that is one recurrent operator, or why it is none a kernel computes."""
    anchor = workload.operations[-1]
    cell = CELLS.get(op_key(anchor))
    if cell is None:
        return Support("no LSTM, GRU or RNN")
    reason = _unusual(workload, anchor) or _unusual_attribute(anchor.attributes, anchor, cell)
    if reason:
        return Support(reason)
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    given = [*anchor.inputs, *[""] * (_PEEPHOLES - len(anchor.inputs))]
    numbers = [int(ref[1:]) if ref else None for ref in given]
    data, weights, recurrent = (int(ref[1:]) for ref in given[:3])
    (steps, rows, width), hidden = shapes[given[0]], shapes[given[2]][2]
    found = Recurrence(
        workload=workload,
        cell=cell,
        data=data,
        weights=weights,
        recurrent=recurrent,
        bias=numbers[_BIAS],
        starts=tuple(numbers[_STARTS : _STARTS + cell.states]),
        steps=steps,
        rows=rows,
        width=width,
        hidden=hidden,
        direction=Direction(str(anchor.attributes.get("direction", Direction.FORWARD))),
        result=int(number(anchor.attributes, RESULT_NUMBER, 0)),
    )
    return _check_shapes(found, anchor) and found


def _unusual(workload: Workload, anchor: Operation) -> str:
    """Return the reason why a workload is not one operator by constant weights; "" if it is."""
    name, inputs = anchor.op_type, anchor.inputs
    if len(workload.operations) > 1:
        return f"{name} with another operator"
    if workload.precision not in _PRECISIONS:
        return f"{name} in {workload.precision.value}"
    if not all(ref.startswith("x") for ref in inputs if ref):
        return f"{name} that reads a number for a tensor"
    if len(inputs) > _LENGTHS and inputs[_LENGTHS]:
        return f"{name} of sequences that differ in length"
    if len(inputs) > _PEEPHOLES and inputs[_PEEPHOLES]:
        return f"{name} with peepholes"
    if any(spec.dtype != "float32" or spec.block for spec in (*workload.inputs, workload.output)):
        return f"{name} of tensors that are not float32 row by row"
    read = [ref for ref in inputs[: _BIAS + 1] if ref]
    if len(set(read)) < len(read) or not set(read).isdisjoint(inputs[_STARTS:_PEEPHOLES]):
        return f"{name} that reads a tensor twice"
    if not all(workload.inputs[int(ref[1:])].constant for ref in read[1:]):
        return f"{name} by weights that are computed"
    return ""


def _unusual_attribute(attributes: Attributes, anchor: Operation, cell: Cell) -> str:
    """Return the first attribute no kernel computes; "" if there is none."""
    name = anchor.op_type
    direction = str(attributes.get("direction", Direction.FORWARD))
    if direction not in tuple(Direction):
        return f"{name} in direction {direction}"
    if number(attributes, "layout", 0):
        return f"{name} with rows before steps, which ONNX Runtime does not compute"
    for limit in ("clip", "input_forget"):
        if number(attributes, limit, 0):
            return f"{name} with {limit}"
    if cell.keeps_separate and not number(attributes, "linear_before_reset", 0):
        return f"{name} whose reset comes before the product"
    given = attributes.get("activations", ())
    names = [str(item).lower() for item in given] if isinstance(given, tuple) else [str(given)]
    usual = [activation.lower() for activation in cell.activations]
    if names not in ([], usual, usual * 2):
        return f"{name} with activations {', '.join(names)}"
    return ""


def _check_shapes(of: Recurrence, anchor: Operation) -> Support:
    """Check that the extents of all inputs agree and can be counted."""
    gates, ends = of.cell.gates, of.directions
    expected: list[tuple[int | None, Shape]] = [
        (of.weights, (ends, gates * of.hidden, of.width)),
        (of.recurrent, (ends, gates * of.hidden, of.hidden)),
        (of.bias, (ends, 2 * gates * of.hidden)),
        *((at, (ends, of.rows, of.hidden)) for at in of.starts),
    ]
    for at, shape in expected:
        got = shape if at is None else of.workload.inputs[at].shape
        if got != shape:
            return Support(f"{anchor.op_type} reads {got} where {shape} is expected")
    if of.result > of.cell.states:
        return Support(f"{anchor.op_type} has no result {of.result}")
    if number(anchor.attributes, "hidden_size", of.hidden) != of.hidden:
        return Support(f"{anchor.op_type} of another hidden size than its weights")
    kept = (of.steps + 1) * of.rows * ends * of.padded
    entered = of.steps * of.rows * ends * of.padded * gates
    weights = ends * of.padded * gates * max(of.width, of.padded)
    if max(kept, entered, weights, prod(of.workload.inputs[of.data].shape)) >= _ELEMENTS_MAX:
        return Support(f"{anchor.op_type} of too many elements")
    return SUPPORTED
