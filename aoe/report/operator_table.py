"""The table of tuned operators: as many columns as the terminal has room for, words unbroken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aoe.workload import Precision

if TYPE_CHECKING:
    from aoe.tuning.opat.result import OpatResult
    from aoe.tuning.tasks.operators.operator import TunedOperator
    from aoebank import Text

_MOST_ROWS = 30
_COMPUTES = "computes"
_FIGURES = frozenset({"places", "share", "before us", "after us", "speed-up"})
_LEAST_FIRST = ("places", "bank", _COMPUTES, "share", "before us", "after us")
"""Columns that go when there is no room; name, precision, speed-up and verdict stay."""
_GAP = 2


def write_operators(text: Text, result: OpatResult) -> None:
    """Write the operators before and after tuning, one line each where the terminal has room.

    All figures are in `summary.json`, also of columns and rows that are left out.
    """
    rows = [_row(tuned, result) for tuned in result.operators]
    columns = _columns(rows[:_MOST_ROWS], text.width, mixed=_is_mixed(result))
    kinds = "".join(
        "r" if name in _FIGURES else "-" if name == _COMPUTES else "n" for name in columns
    )
    text.line("operators, times for one place in the model:")
    cells = ([row[name] for name in columns] for row in rows)
    text.table(columns, cells, kinds, most=_MOST_ROWS, rest="in summary.json")


def _row(tuned: TunedOperator, result: OpatResult) -> Mapping[str, str]:
    """Return the cells of an operator by column, in their order."""
    operator = tuned.operator
    chain = [op.op_type for op in operator.workload.operations]
    kept = operator.key in result.used_keys
    return {
        "operator": operator.op_name,
        _COMPUTES: " + ".join(name for name in chain if not name.startswith("Reorder")),
        "precision": operator.workload.precision.value,
        "places": str(len(operator.regions)),
        "share": f"{operator.share:.1%}",
        "before us": f"{tuned.before_us:.1f}" if tuned.before_us else "-",
        "after us": f"{tuned.after_us:.1f}" if tuned.after_us else "-",
        "speed-up": f"{tuned.speedup:.2f}x" if tuned.speedup else "-",
        "bank": tuned.outcome.value,
        "in model": "yes" if kept else "no",
    }


def _columns(rows: Sequence[Mapping[str, str]], width: int | None, *, mixed: bool) -> list[str]:
    """Return the columns there is room for; the precision is one where there are several."""
    columns = [name for name in rows[0] if name != "precision" or mixed]
    for name in _LEAST_FIRST:
        if width is None or _width(columns, rows) <= width:
            break
        if name in columns:
            columns.remove(name)
    return columns


def _width(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> int:
    """Return the characters a table needs at least to break no word."""
    from rich.cells import cell_len

    texts = [[name, *(row[name] for row in rows)] for name in columns]
    needed = [
        max(cell_len(part) for text in cells for part in (text.split() if wraps else [text]))
        for cells, wraps in zip(texts, (name == _COMPUTES for name in columns), strict=True)
    ]
    return sum(needed) + _GAP * (len(columns) - 1)


def _is_mixed(result: OpatResult) -> bool:
    """Return whether operators were tuned in anything but plain float32."""
    precisions = {tuned.operator.workload.precision for tuned in result.operators}
    return bool(precisions - {Precision.FLOAT32})
