"""What was taken from an earlier result, and why the rest was not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoe.tuning.reuse.kinds import ReuseKind

if TYPE_CHECKING:
    from aoe.tuning.reuse.kinds import Reuse, ReuseSummary
    from aoebank import Text

_MOST_ROWS = 30
_COLUMNS = ("", "operator", "family", "why")


def write_reuse(text: Text, summary: ReuseSummary | None) -> None:
    """Write how many operators became what; what was not reused, or is doubtful, line by line."""
    if summary is None:
        return
    text.line(f"against {summary.base}: {summary}")
    told = [part for part in summary.parts if _is_told(part)]
    if told:
        text.table(_COLUMNS, map(_row, told[:_MOST_ROWS]), "nnn-")
    if len(told) > _MOST_ROWS:
        text.line((f"{len(told) - _MOST_ROWS} more in the JSON document", "dim"))


def _is_told(part: Reuse) -> bool:
    return part.kind is not ReuseKind.REUSED or ";" in part.reason


def _row(part: Reuse) -> tuple[str, ...]:
    name = part.op_names[0] if part.op_names else part.key
    return part.kind.value, name, part.op_type, part.reason
