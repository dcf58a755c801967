"""Tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from aoe.tuning.opat.operator import TunedOperator
    from aoe.tuning.opat.result import OpatResult

_MOST_ROWS = 30


def operator_table(result: OpatResult) -> Table:
    """Return the table of operators before and after tuning."""
    from rich.table import Table

    table = Table(title="operators, times for one place in the model")
    table.add_column("operator", overflow="fold")
    table.add_column("computes", overflow="fold")
    for heading in ("places", "share", "before us", "after us", "speed-up"):
        table.add_column(heading, justify="right")
    table.add_column("bank")
    table.add_column("in model")
    kept = {kernel.key for kernel in result.judgement.kept}
    for tuned in result.operators[:_MOST_ROWS]:
        table.add_row(*_row(tuned, tuned.operator.key in kept))
    hidden = len(result.operators) - _MOST_ROWS
    if hidden > 0:
        table.caption = f"{hidden} more in summary.json"
    return table


def _row(tuned: TunedOperator, kept: bool) -> tuple[str, ...]:
    operator = tuned.operator
    chain = [op.op_type for op in operator.workload.operations]
    return (
        operator.op_name,
        "+".join(name for name in chain if not name.startswith("Reorder")),
        str(len(operator.regions)),
        f"{operator.share:.1%}",
        f"{tuned.before_us:.1f}" if tuned.before_us else "-",
        f"{tuned.after_us:.1f}" if tuned.after_us else "-",
        f"{tuned.speedup:.2f}x" if tuned.speedup else "-",
        tuned.outcome.value,
        "yes" if kept else "no",
    )


def print_table(table: Table) -> None:
    """Print a table on standard output, without colour unless it is a terminal."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(table)
