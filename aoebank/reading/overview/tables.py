"""The parts of an overview as tables, the same for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aoebank.reading.overview.result import Disagreement, OverviewResult
from aoebank.report.sizes import size_text


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
    return (
        _sizes(result),
        _coverage(result),
        _ages(result),
        _staleness(result),
        _outliers(result),
        _disagreements(result),
        _duplicates(result),
    )


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


def _sizes(result: OverviewResult) -> Table:
    rows = [
        (
            *(size.bank, str(size.files), str(size.records), size_text(size.size_bytes)),
            *map(_count, (size.broken, size.in_quarantine)),
        )
        for size in result.sizes
    ]
    columns = ("bank", "files", "records", "size", "broken files", "in quarantine")
    return Table(title="Size", columns=columns, kinds="prrrrr", rows=rows)


def _coverage(result: OverviewResult) -> Table:
    rows = [
        (
            *(part.bank, part.soc_version or "-", part.op_type or "-", part.format),
            *(str(part.records), _count(part.measured)),
            *map(times, (part.lowest, part.median, part.highest)),
        )
        for part in result.coverage
    ]
    names = ("bank", "soc_version", "op_type", "format")
    figures = ("records", "measured", "lowest", "median", "highest")
    return Table(
        title="Coverage and gains", columns=(*names, *figures), kinds="p---rrrrr", rows=rows
    )


def _ages(result: OverviewResult) -> Table:
    rows = [
        (
            *(age.bank, age.engine or "unknown", age.cpu_model or "-", str(age.records)),
            *map(_day, (age.oldest, age.newest)),
        )
        for age in result.ages
    ]
    columns = ("bank", "measured by", "on", "records", "oldest", "newest")
    return Table(title="Age", columns=columns, kinds="p--rrr", rows=rows)


def _staleness(result: OverviewResult) -> Table:
    rows = [
        (part.bank, *map(_count, (part.fresh, part.to_check, part.stale, part.unknown)))
        for part in result.staleness
        if part.fresh + part.to_check + part.stale + part.unknown
    ]
    columns = ("bank", "measured as here", "to be checked again", "not to be used", "not noted")
    return Table(title="Staleness", columns=columns, kinds="prrrr", rows=rows)


def _outliers(result: OverviewResult) -> Table:
    rows = [
        (
            *(times(found.speedup), _interval(found.low, found.high), found.op_type or "-"),
            *(found.key, found.file, found.why),
        )
        for found in result.outliers
    ]
    columns = ("speed-up", "interval", "op_type", "key", "file", "why")
    return Table(title="Outliers", columns=columns, kinds="rr--p-", rows=rows)


def _disagreements(result: OverviewResult) -> Table:
    rows = [row for found in result.disagreements for row in _opinions(found)]
    columns = ("op_type", "key", "what", "speed-up", "interval", "time us", "day", "says")
    return Table(title="Disagreements", columns=columns, kinds="---rrrr-", rows=rows)


def _duplicates(result: OverviewResult) -> Table:
    rows = [(str(found.records), *found.files, found.bank) for found in result.duplicates]
    columns = ("records", "in", "and in", "bank")
    return Table(title="Duplicates", columns=columns, kinds="rppp", rows=rows)


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
