"""The parts of an overview as tables, the same for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aoebank.reading.overview.result import Disagreement, OverviewResult
from aoebank.report.sizes import size_text

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One part.

    Attributes:
        columns: Title of each column.
        kinds: Of the columns, a character each, as `Text.table` takes them.
        rows: Cells, as many as columns.
    """

    title: str
    columns: tuple[str, ...]
    kinds: str
    rows: Sequence[Sequence[str]]


def tables(result: OverviewResult) -> tuple[Table, ...]:
    """Return the parts, empty ones too."""
    noted = [
        part for part in result.staleness if part.fresh + part.to_check + part.stale + part.unknown
    ]
    return (
        _table(
            "Size",
            result.sizes,
            ("bank", "p", lambda one: one.bank),
            ("files", "r", lambda one: str(one.files)),
            ("records", "r", lambda one: str(one.records)),
            ("size", "r", lambda one: size_text(one.size_bytes)),
            ("broken files", "r", lambda one: _count(one.broken)),
            ("in quarantine", "r", lambda one: _count(one.in_quarantine)),
        ),
        _table(
            "Coverage and gains",
            result.coverage,
            ("bank", "p", lambda one: one.bank),
            ("soc_version", "-", lambda one: one.soc_version or "-"),
            ("op_type", "-", lambda one: one.op_type or "-"),
            ("format", "-", lambda one: one.format),
            ("records", "r", lambda one: str(one.records)),
            ("measured", "r", lambda one: _count(one.measured)),
            ("lowest", "r", lambda one: times(one.lowest)),
            ("median", "r", lambda one: times(one.median)),
            ("highest", "r", lambda one: times(one.highest)),
        ),
        _table(
            "Age",
            result.ages,
            ("bank", "p", lambda one: one.bank),
            ("measured by", "-", lambda one: one.engine or "unknown"),
            ("on", "-", lambda one: one.cpu_model or "-"),
            ("records", "r", lambda one: str(one.records)),
            ("oldest", "r", lambda one: _day(one.oldest)),
            ("newest", "r", lambda one: _day(one.newest)),
        ),
        _table(
            "Staleness",
            noted,
            ("bank", "p", lambda one: one.bank),
            ("measured as here", "r", lambda one: _count(one.fresh)),
            ("to be checked again", "r", lambda one: _count(one.to_check)),
            ("not to be used", "r", lambda one: _count(one.stale)),
            ("not noted", "r", lambda one: _count(one.unknown)),
        ),
        *_judged(result),
    )


def _judged(result: OverviewResult) -> tuple[Table, ...]:
    opinions = [row for found in result.disagreements for row in _opinions(found)]
    columns = ("op_type", "key", "what", "speed-up", "interval", "time us", "day", "says")
    return (
        _table(
            "Outliers",
            result.outliers,
            ("speed-up", "r", lambda one: times(one.speedup)),
            ("interval", "r", lambda one: _interval(one.low, one.high)),
            ("op_type", "-", lambda one: one.op_type or "-"),
            ("key", "-", lambda one: one.key),
            ("file", "p", lambda one: one.file),
            ("why", "-", lambda one: one.why),
        ),
        Table(title="Disagreements", columns=columns, kinds="---rrrr-", rows=opinions),
        _table(
            "Duplicates",
            result.duplicates,
            ("records", "r", lambda one: str(one.records)),
            ("in", "p", lambda one: one.files[0]),
            ("and in", "p", lambda one: one.files[1]),
            ("bank", "p", lambda one: one.bank),
        ),
    )


def _table(title: str, things: Iterable[T], *columns: tuple[str, str, Callable[[T], str]]) -> Table:
    titles, kinds, _ = zip(*columns, strict=True)
    rows = [tuple(cell(thing) for _, _, cell in columns) for thing in things]
    return Table(title=title, columns=titles, kinds="".join(kinds), rows=rows)


def lean(table: Table) -> Table:
    """Return a table without columns that say nothing, or the same bank in each row."""
    columns = [*zip(*table.rows, strict=True)]
    kept = [
        place
        for place, cells in enumerate(columns)
        if {*cells} - {"", "-"} and not (table.columns[place] == "bank" and _is_one(cells))
    ]
    return Table(
        title=table.title,
        columns=tuple(table.columns[place] for place in kept),
        kinds="".join(table.kinds[place] for place in kept),
        rows=[tuple(row[place] for place in kept) for row in table.rows],
    )


def _is_one(cells: Sequence[str]) -> bool:
    return len({*cells}) == 1


def times(speedup: float | None) -> str:
    """Return a speed-up as people read it."""
    return "-" if speedup is None else f"{speedup:.2f}x"


def _opinions(found: Disagreement) -> Iterable[tuple[str, ...]]:
    for number, opinion in enumerate(found.opinions):
        head = ("", "", "") if number else (found.op_type or "-", found.key, found.what)
        cost = "-" if opinion.cost_us is None else f"{opinion.cost_us:g}"
        figures = (times(opinion.speedup), _interval(opinion.low, opinion.high), cost)
        yield (*head, *figures, _day(opinion.time), opinion.where)


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def _count(count: int) -> str:
    return str(count) if count else "-"


def _day(time: str) -> str:
    return time[:10] or "-"
