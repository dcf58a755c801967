"""One page: tiles, bars of the gains, and every table in full."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aoebank.reading.overview import Coverage, OverviewResult, Table, lean, tables, times
from aoebank.report.html import (
    Markup,
    bars,
    element,
    html_page,
    listing,
    page_header,
    row,
    section,
    table,
    tiles,
)
from aoebank.report.output import plural

if TYPE_CHECKING:
    from aoebank.reading.overview import OverviewReport

_MOST_BARS = 40


def overview_page(report: OverviewReport) -> str:
    """Return the page as HTML; it loads nothing and says so to the browser."""
    result = report.result
    return html_page(
        "Knowledge banks",
        page_header("Knowledge banks", ", ".join(size.bank for size in result.sizes)),
        _tiles(result),
        *_bars([part for part in result.coverage if part.median is not None]),
        *(_table(lean(table)) for table in tables(result) if table.rows),
        *_closed(result),
    )


def _tiles(result: OverviewResult) -> Markup:
    records = sum(size.records for size in result.sizes)
    measured = sum(part.measured for part in result.coverage)
    found = (
        (str(records), "records", ""),
        (str(measured), "with a speed-up", ""),
        (str(sum(size.broken for size in result.sizes)), "broken files", "bad"),
        (str(sum(part.stale for part in result.staleness)), "not to be used here", "bad"),
        (str(len(result.outliers)), "outliers", "note"),
        (str(len(result.disagreements)), "disagreements", "note"),
        (str(sum(found.records for found in result.duplicates)), "duplicates", ""),
    )
    return tiles((number, words, kind if number != "0" else "") for number, words, kind in found)


def _bars(coverage: Sequence[Coverage]) -> Iterator[Markup]:
    """Yield lowest to highest speed-up of each operator on one logarithmic axis from 1."""
    if not coverage:
        return
    shown = sorted(coverage, key=lambda part: -(part.median or 0))[:_MOST_BARS]
    most = max(math.log(max(part.highest or 1, 1.01)) for part in shown)

    def place(speedup: float | None) -> float:
        return 100 * max(math.log(speedup or 1), 0) / most

    rows = []
    for part in shown:
        low, middle, high = place(part.lowest), place(part.median), place(part.highest)
        words = f"{times(part.lowest)} to {times(part.highest)}, median {times(part.median)}"
        blocks = (
            ("range", low, 3.0, max(high - low, 0.5), 10.0),
            ("middle", max(middle - 0.4, 0), 0.0, 0.8, 16.0),
        )
        rows.append((f"{part.op_type or '-'} on {part.soc_version or '-'}", words, blocks))
    title = Markup("Speed-up by operator <small>logarithmic, from 1x</small>")
    yield section(title, bars(rows))


def _table(found: Table) -> Markup:
    numbers = [place for place, kind in enumerate(found.kinds) if kind == "r"]
    rows = (row(*_cells(cells, found.kinds)) for cells in found.rows)
    drawn = table(found.columns, rows, numbers, found.title)
    return section(found.title, drawn, count=plural(len(found.rows), "row"))


def _cells(cells: Sequence[str], kinds: str) -> Iterator[Markup]:
    for cell, kind in zip(cells, kinds, strict=True):
        number = cell.removesuffix("x")
        sort = number if number.replace(".", "", 1).isdigit() else False
        class_ = {"r": "right", "p": "about"}.get(kind, False)
        yield element("td", cell, class_=class_, data_sort=sort)


def _closed(result: OverviewResult) -> Iterator[Markup]:
    if result.closed:
        names = (error.headline for error in result.closed)
        yield section("Unreadable", listing(names), class_="problems")
