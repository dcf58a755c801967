"""One page: tiles, bars of the gains, and every table in full."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from aoebank.ops.overview.result import Coverage, OverviewResult
from aoebank.report.html import Markup, element, join, page
from aoebank.report.html_style import SCRIPT, STYLE
from aoebank.report.output import plural
from aoebank.report.overview.tables import Table, lean, tables, times

_STYLE = (
    STYLE
    + """
.bars {
  display: grid; grid-template-columns: max-content 1fr max-content; gap: 6px 12px;
  align-items: center;
}
.bars svg { width: 100%; height: 18px; display: block; }
.bars .range { fill: var(--line); } .bars .middle { fill: var(--good); }
.bars span { overflow-wrap: anywhere; }
h2 small { display: inline; font-weight: 400; }
@media (max-width: 600px) {
  .bars { grid-template-columns: 1fr; gap: 2px; } .bars .right { text-align: left; }
  .bars .right + span { margin-top: 10px; }
}
"""
)
_MOST_BARS = 40


def overview_page(result: OverviewResult) -> str:
    """Return the page as HTML; it loads nothing and says so to the browser."""
    banks = ", ".join(size.bank for size in result.sizes)
    body = [
        element("header", element("h1", "Knowledge banks"), element("p", banks, class_="sides")),
        _tiles(result),
        _bars([part for part in result.coverage if part.median is not None]),
        *(_table(lean(table)) for table in tables(result) if table.rows),
        _closed(result),
    ]
    return page("Knowledge banks", element("main", *body), style=_STYLE, script=SCRIPT)


def _tiles(result: OverviewResult) -> Markup:
    records = sum(size.records for size in result.sizes)
    measured = sum(part.measured for part in result.coverage)
    tiles = (
        (str(records), "records", ""),
        (str(measured), "with a speed-up", ""),
        (str(sum(size.broken for size in result.sizes)), "broken files", "bad"),
        (str(sum(part.stale for part in result.staleness)), "not to be used here", "bad"),
        (str(len(result.outliers)), "outliers", "note"),
        (str(len(result.disagreements)), "disagreements", "note"),
        (str(sum(found.records for found in result.duplicates)), "duplicates", ""),
    )
    return element("section", *(_tile(*tile) for tile in tiles), class_="tiles")


def _tile(number: str, words: str, kind: str) -> Markup:
    class_ = f"tile {kind}" if kind and number != "0" else "tile"
    return element("div", element("b", number), element("span", words), class_=class_)


def _bars(coverage: Sequence[Coverage]) -> Markup:
    """Return lowest to highest speed-up of each operator on one logarithmic axis from 1."""
    if not coverage:
        return Markup("")
    shown = sorted(coverage, key=lambda part: -(part.median or 0))[:_MOST_BARS]
    most = max(math.log(max(part.highest or 1, 1.01)) for part in shown)

    def place(speedup: float | None) -> float:
        return 100 * max(math.log(speedup or 1), 0) / most

    rows: list[Markup] = []
    for part in shown:
        low, middle, high = place(part.lowest), place(part.median), place(part.highest)
        words = f"{times(part.lowest)} to {times(part.highest)}, median {times(part.median)}"
        drawing = element(
            "svg",
            _block("range", low, max(high - low, 0.5), y="4", height="10"),
            _block("middle", max(middle - 0.4, 0), 0.8, y="1", height="16"),
            viewBox="0 0 100 18",
            preserveAspectRatio="none",
            role="img",
            aria_label=words,
        )
        rows += [
            element("span", f"{part.op_type or '-'} on {part.soc_version or '-'}"),
            drawing,
            element("span", words, class_="right"),
        ]
    title = element("h2", "Speed-up by operator ", element("small", "logarithmic, from 1x"))
    return element("section", title, element("div", *rows, class_="bars"))


def _block(class_: str, x: float, width: float, **rest: str) -> Markup:
    return element("rect", class_=class_, x=f"{x:.2f}", width=f"{width:.2f}", **rest)


def _table(table: Table) -> Markup:
    named = zip(table.columns, table.kinds, strict=True)
    head = element("tr", *(element("th", name, class_=_class(kind)) for name, kind in named))
    body = join(element("tr", *_cells(row, table.kinds)) for row in table.rows)
    whole = element("table", element("thead", head), element("tbody", body))
    count = element("span", plural(len(table.rows), "row"), class_="count")
    return element("section", element("h2", table.title, count), _scrolled(whole))


def _scrolled(table: Markup) -> Markup:
    return element("div", table, class_="scroll", tabindex="0")


def _cells(row: Sequence[str], kinds: str) -> Iterable[Markup]:
    for cell, kind in zip(row, kinds, strict=True):
        number = cell.removesuffix("x")
        sort = number if number.replace(".", "", 1).isdigit() else False
        yield element("td", cell, class_=_class(kind), data_sort=sort)


def _class(kind: str) -> str | bool:
    return "right" if kind == "r" else "about" if kind == "p" else False


def _closed(result: OverviewResult) -> Markup:
    if not result.closed:
        return Markup("")
    items = (element("li", error.headline) for error in result.closed)
    return element("section", element("h2", "Unreadable"), element("ul", *items), class_="problems")
