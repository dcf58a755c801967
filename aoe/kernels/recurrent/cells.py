"""What a recurrent operator makes of its sums: the states of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import halide as hl

from aoe.kernels.math.functions import constant, sigmoid, tanh
from aoe.operators import OperatorKey
from aoe.operators.recurrent import GATES, GRU, LSTM, RNN


@dataclass(frozen=True, slots=True, kw_only=True)
class CellValues:
    """What is known of one element of the states once its sums are complete.

    All of them are plain values: what is made of them is computed strictly where it has to be.

    Attributes:
        sums: Of each gate, what has entered included, unless the cell keeps both apart.
        entered: What has entered the last gate by this step's input; added by a cell that keeps
            both apart only.
        before: The states of the step before.
        kept: Those of this step, as far as they are made.
    """

    sums: Sequence[hl.Expr]
    entered: hl.Expr
    before: Sequence[hl.Expr]
    kept: Sequence[hl.Expr]


States = tuple[hl.Expr | None, ...]
"""New states; None for one that stays as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A recurrent operator.

    Attributes:
        gates: Sums for each element of the hidden state.
        states: What a step leaves for the next: the hidden state, and that of the cell.
        activations: ONNX's names of those that are computed, as they are by default.
        finish: Makes the states of the sums, one part after the other: each finds what those
            before it have made.
        keeps_apart: True if the last gate's share of the input is not added to its sum.
    """

    gates: int
    states: int
    activations: tuple[str, ...]
    finish: tuple[Callable[[CellValues], States], ...]
    keeps_apart: bool = False


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
            keeps_apart=True,
        ),
        RNN: Cell(gates=GATES[RNN], states=1, activations=("Tanh",), finish=(_rnn_hidden,)),
    }
)
"""Source: ONNX's operators; of GRU, the form whose reset comes behind the product."""
