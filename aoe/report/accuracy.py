"""The trade of accuracy against speed, kernel by kernel, as a table."""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING

from aoe.tuning.precision.constraint import told

if TYPE_CHECKING:
    from aoe.tuning.tasks.operators.chosen_kernel import ChosenKernel
    from aoe.tuning.validation.accuracy import HeldAccuracy
    from aoebank import Text

_MOST_ROWS = 30


def write_accuracy(text: Text, held: HeldAccuracy[ChosenKernel], kept: frozenset[str]) -> None:
    """Write what was traded, and what the whole model reaches.

    Args:
        text: Where to.
        held: What the model was held to.
        kept: Names of the kernels in the model.
    """
    if held.weighed:
        _write_trade(text, held, kept)
    text.line(f"accuracy: {held}" + ("" if held.trade.holds else ": MISSED, even in float32"))
    if held.trade.roll_back:
        text.line(
            f"{len(held.trade.roll_back)} of {len(held.weighed)} kernels put back to keep it: "
            f"{_with_all(held)}"
        )


def _with_all(held: HeldAccuracy[ChosenKernel]) -> str:
    if not held.trade.in_time and isnan(held.trade.at_first):
        return "no time was left to run the model with them"
    return f"{held.constraint.name} was {told(held.trade.at_first)} with all of them"


def _write_trade(text: Text, held: HeldAccuracy[ChosenKernel], kept: frozenset[str]) -> None:
    """Write a row for each kernel in question: the one that saves most comes first."""
    alone = f"{held.constraint.name} alone"
    header = ("operator", "precision", "places", "saves us", alone, "in model")
    ranked = sorted(held.weighed, key=lambda kernel: (-kernel.gain_us, kernel.source.name))
    text.line(f"accuracy against speed, {held.constraint}:")
    rows = (_row(kernel, held, kept) for kernel in ranked)
    text.table(header, rows, "n-rrr", most=_MOST_ROWS, rest="in summary.json")


def _row(
    kernel: ChosenKernel, held: HeldAccuracy[ChosenKernel], kept: frozenset[str]
) -> tuple[str, ...]:
    name = kernel.source.name
    alone = held.trade.alone.get(name)
    state = "put back" if name in held.trade.roll_back else "yes" if name in kept else "no"
    return (
        kernel.op_names[0],
        kernel.source.workload.precision.value,
        str(len(kernel.regions)),
        f"{kernel.gain_us:.1f}",
        told(alone) if alone is not None else "-",
        state,
    )
