"""The overview of banks as one page: tiles, bars of the gains, and every table in full."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from jinja2 import Environment

from aoebank.reading.overview import lean, tables
from aoebank.report.html import page_environment
from aoebank.report.output import plural, times
from aoebank.report.scale import Scale

if TYPE_CHECKING:
    from aoebank.reading.overview import OverviewReport

_MOST_BARS = 40


def overview_page(report: OverviewReport) -> str:
    """Return the page; its bars are on one logarithmic axis from 1 to the highest of them."""
    result = report.result
    measured = [part for part in result.coverage if part.median is not None]
    highest_of: dict[tuple[str, str], float] = {}
    for part in measured:  # an operator's bars stand together, one for each bank
        name = (part.op_type, part.soc_version)
        highest_of[name] = max(highest_of.get(name, 0), part.median or 0)
    shown = sorted(
        measured, key=lambda part: (-highest_of[part.op_type, part.soc_version], part.op_type)
    )[:_MOST_BARS]
    highest = max((part.highest or 1 for part in shown), default=1)
    return (
        _pages()
        .get_template("overview.html")
        .render(
            result=result,
            measured=shown,
            names_bank=len(result.sizes) > 1,
            scale=Scale(low=1, high=max(highest, 1.01), start=0, end=100, is_log=True),
            tables=map(lean, tables(result)),
        )
    )


@cache
def _pages() -> Environment:
    return page_environment(plural, times)
