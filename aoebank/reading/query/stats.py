"""Counts and times of records, by what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from aoebank.errors import UsageError
from aoebank.reading.query.run import QueryResult, query
from aoebank.storage.sides.side import Side

GROUPS = (
    *("bank", "file", "format", "soc_version", "core_num", "op_type"),
    *("origin", "engine", "cpu_model"),
)
"""What records can be counted by: columns of the table `records`."""
DEFAULT_GROUPS = ("soc_version", "format", "op_type")
_FIGURES = """count(*) AS records, count(DISTINCT bank || '/' || file) AS files,
min(cost_us) AS fastest_us, median(cost_us) AS median_us, max(cost_us) AS slowest_us,
count(speedup) AS measured, median(speedup) AS median_speedup,
max(measured) AS newest, sum(in_quarantine) AS in_quarantine"""


def stats(sides: Sequence[Side], by: Sequence[str], *, today: date) -> QueryResult:
    """Return a row of figures for each group of records.

    Args:
        sides: The banks.
        by: Some of `GROUPS`.
        today: Day by which entries of a quarantine expire.

    Raises:
        UsageError: there is no such group.
    """
    unknown = next((name for name in by if name not in GROUPS), None)
    if unknown is not None:
        raise UsageError(
            "--by: no such group", got=repr(unknown), expected=f"one of {', '.join(GROUPS)}"
        )
    names = ", ".join(dict.fromkeys(by or DEFAULT_GROUPS))
    return query(
        f"SELECT {names}, {_FIGURES} FROM records GROUP BY {names} ORDER BY {names}",
        sides,
        today=today,
    )
