"""Look over banks as a whole, by queries on the tables `aoebank query` has."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from datetime import date
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Any

from aoebank.errors import BankPathError, RecordError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import target_word
from aoebank.formats.words import words_of
from aoebank.model.display import RichDisplay
from aoebank.reading.query import EVERYTHING, fill, make_tables
from aoebank.report.output import (
    Column,
    ReadingReport,
    Text,
    closed_document,
    plural,
    said_columns,
    size_text,
    times,
    write_closed,
)
from aoebank.storage.sides.side import Side
from aoebank.validation.siblings import sibling_group
from aoebank.validation.stale import StaleResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """The records of one operator on one target in one bank."""

    bank: str
    soc_version: str
    op_type: str
    format: str
    records: int
    measured: int  # How many have a speed-up in the side-car
    lowest: float | None  # Smallest speed-up; None where nothing was measured, as for the next two
    median: float | None  # Median speed-up
    highest: float | None  # Largest speed-up


@dataclass(frozen=True, slots=True, kw_only=True)
class Age:
    """The records of a bank one program measured on one CPU."""

    bank: str
    engine: str  # Program and version; empty for records nobody noted anything about
    cpu_model: str
    records: int
    oldest: str  # Time of the first change, RFC 3339; empty as above
    newest: str  # Time of the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Staleness:
    """Counts of fresh and stale records of a bank, as `aoebank stale` tells them."""

    bank: str
    fresh: int  # Records measured in an environment like the present one
    to_check: int  # Records of another CPU, or of other versions; they may be used meanwhile
    stale: int  # Records that must not be used: another target, kernels made another way
    unknown: int  # Records nobody noted an environment of


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A record whose figure deserves a second look."""

    bank: str
    file: str
    key: str
    op_type: str
    speedup: float
    low: float | None
    high: float | None
    why: str  # In words
    computes: str = ""  # The workload in words; empty where the record cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """Record of one side, for a disagreement."""

    where: str  # Bank, program, CPU: whatever tells the sides apart
    time: str
    speedup: float | None
    low: float | None
    high: float | None
    cost_us: float | None = None
    strategy_sha256: str = ""  # Of the strategy; empty for an earlier measurement of the same one


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """A record about which people, or banks, say different things."""

    soc_version: str
    op_type: str
    key: str
    what: str
    opinions: tuple[Opinion, ...]
    computes: str = ""  # The workload in words; empty where the record cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicates:
    """Records that stand alike, key and strategy, in two files of a bank."""

    bank: str
    files: tuple[str, str]
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a bank."""

    bank: str
    files: int
    records: int
    size_bytes: int
    broken: int  # Files readers cannot use
    in_quarantine: int  # Records that are kept out


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OverviewResult(RichDisplay):
    """Everything an overview tells, each part with what matters most first."""

    shown_by = "aoebank.reading.overview:OverviewReport"
    rows_in = "coverage"

    sizes: tuple[Size, ...]
    coverage: tuple[Coverage, ...]
    ages: tuple[Age, ...]
    staleness: tuple[Staleness, ...]
    outliers: tuple[Outlier, ...]
    disagreements: tuple[Disagreement, ...]
    duplicates: tuple[Duplicates, ...]
    # Files and folders that cannot be read, so that records may be missing.
    closed: tuple[BankPathError, ...] = ()


FEWEST_OF_A_KIND = 5
FAR = 4.0
"""Robust standard deviations from the median of its operator at which a speed-up stands out."""
_NORMAL = 1.4826
"""From a median absolute deviation to a standard deviation. Source: P. J. Rousseeuw, C. Croux,
Journal of the American Statistical Association 88 (1993)."""
_LEAST_SPREAD = 0.05  # of log(speed-up): equal figures are no reason to call the next one far

Row = dict[str, Any]

# texts of each record would take longer than all else; of the few that are told they are read again
_WANTED = EVERYTHING | {"records": EVERYTHING["records"] - {"computes", "workload", "strategy"}}
_SIZES = """
SELECT bank, count(*) AS files, total(records) AS records, total(size_bytes) AS size_bytes,
       count(problem) AS broken,
       (SELECT total(in_quarantine) FROM records WHERE records.bank = files.bank) AS in_quarantine
FROM files GROUP BY bank"""
_RECORDS = """
SELECT bank, file, coalesce(soc_version, '') AS soc_version, coalesce(op_type, '') AS op_type,
       format, key, cost_us, speedup, speedup_low AS low, speedup_high AS high,
       coalesce(measured, '') AS time, coalesce(engine, '') AS engine,
       coalesce(cpu_model, '') AS cpu_model, strategy_sha256
FROM records ORDER BY rowid"""
_AGES = """
SELECT bank, coalesce(engine, '') AS engine, coalesce(cpu_model, '') AS cpu_model,
       count(*) AS records, coalesce(min(measured), '') AS oldest,
       coalesce(max(measured), '') AS newest
FROM records GROUP BY 1, 2, 3 ORDER BY oldest"""
_ENTRIES = """
SELECT p.bank, p.file, p.key, p.event, p.time, p.engine, coalesce(p.cpu_model, '') AS cpu_model,
       p.speedup, p.speedup_low AS low, p.speedup_high AS high,
       coalesce(r.soc_version, '') AS soc_version, coalesce(r.op_type, '') AS op_type
FROM provenance p JOIN records r USING (bank, file, key) ORDER BY p.rowid"""
_DUPLICATES = """
SELECT a.bank, a.file AS one, b.file AS other, count(*) AS records
FROM records a JOIN records b USING (bank, format, key, strategy_sha256)
WHERE a.file < b.file GROUP BY 1, 2, 3 ORDER BY records DESC, 1, 2, 3"""


def overview(
    sides: Sequence[Side], *, today: date, stale_of: Callable[[Side], StaleResult]
) -> OverviewResult:
    """Return the overview of banks, and the parts that deserve a second look.

    Args:
        sides: The banks.
        today: Day by which entries of a quarantine expire.
        stale_of: Holds the records of a bank against the present environment.
    """
    with closing(make_tables()) as database:
        database.row_factory = _row
        closed = fill(database, sides, today=today, wanted=_WANTED)
        database.execute("CREATE INDEX by_key ON records (key, bank, file)")
        records = [*database.execute(_RECORDS)]
        words = _Words({side.label: side for side in sides})
        return OverviewResult(
            sizes=tuple(_sizes(database)),
            coverage=tuple(_coverage(records)),
            ages=tuple(Age(**row) for row in database.execute(_AGES)),
            staleness=tuple(_staleness(side, stale_of(side)) for side in sides),
            outliers=tuple(_outliers(records, words)),
            disagreements=(*_between_banks(records, words), *_within_side_cars(database, words)),
            duplicates=tuple(_duplicates(database)),
            closed=tuple(closed),
        )


class _Words:
    """Workloads in words, of the records that are told."""

    def __init__(self, sides: Mapping[str, Side]) -> None:
        self._sides = sides
        self._files: dict[tuple[str, str], ParsedFile | None] = {}

    def of(self, row: Row) -> str:
        """Return the workload of the record a row is of; empty for one that cannot be read."""
        place = (row["bank"], row["file"])
        with suppress(BankPathError, RecordError):  # the file may be gone meanwhile
            if place not in self._files:
                self._files[place] = self._sides[place[0]].load(place[1])
            parsed = self._files[place]
            number = parsed.find(row["key"]) if parsed is not None else None
            if parsed is not None and number is not None:
                return words_of(parsed.format.record(parsed, number)).computes
        return ""


def _row(cursor: sqlite3.Cursor, values: tuple[Any, ...]) -> Row:
    return dict(zip((column[0] for column in cursor.description), values, strict=True))


def _duplicates(database: sqlite3.Connection) -> Iterator[Duplicates]:
    for row in database.execute(_DUPLICATES):
        files = (row["one"], row["other"])
        one, other = (sibling_group(Path(file)) for file in files)
        if one is not None and one == other:
            continue  # banks of related chips are meant to say the same
        yield Duplicates(bank=row["bank"], files=files, records=row["records"])


def _sizes(database: sqlite3.Connection) -> Iterator[Size]:
    for row in database.execute(_SIZES):
        counts = {name: int(value) for name, value in row.items() if name != "bank"}
        yield Size(bank=row["bank"], **counts)


def _staleness(side: Side, found: StaleResult) -> Staleness:
    stale = sum(one.drift.is_stale for one in found.found)
    unknown = sum(not one.drift.is_stale and not one.is_noted for one in found.found)
    return Staleness(
        bank=side.label,
        fresh=found.looked_at - len(found.found),
        to_check=len(found.found) - stale - unknown,
        stale=stale,
        unknown=unknown,
    )


def _coverage(records: Iterable[Row]) -> list[Coverage]:
    groups: dict[tuple[str, ...], list[float | None]] = defaultdict(list)
    for row in records:
        kind = (row["bank"], row["soc_version"], row["op_type"], row["format"])
        groups[kind].append(row["speedup"])
    found = []
    for (bank, soc_version, op_type, format_), speedups in groups.items():
        known = [speedup for speedup in speedups if speedup is not None]
        found.append(
            Coverage(
                bank=bank,
                soc_version=soc_version,
                op_type=op_type,
                format=format_,
                records=len(speedups),
                measured=len(known),
                lowest=min(known, default=None),
                median=median(known) if known else None,
                highest=max(known, default=None),
            )
        )
    return sorted(found, key=lambda part: (part.bank, part.soc_version, -part.records))


def _outliers(records: Iterable[Row], words: _Words) -> list[Outlier]:
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in records:
        if row["speedup"] is not None:
            groups[row["soc_version"], row["op_type"]].append(row)
    found = []
    for rows in groups.values():
        logs = [math.log(row["speedup"]) for row in rows]
        middle = median(logs)
        spread = max(_NORMAL * median(abs(log - middle) for log in logs), _LEAST_SPREAD)
        for row, log in zip(rows, logs, strict=True):
            far = (log - middle) / spread if len(rows) >= FEWEST_OF_A_KIND else 0.0
            why = _why(row, far, math.exp(middle))
            if why:
                figures = {name: row[name] for name in ("speedup", "low", "high")}
                place = {name: row[name] for name in ("bank", "file", "key", "op_type")}
                found.append(Outlier(**place, **figures, why=why, computes=words.of(row)))
    return sorted(found, key=lambda outlier: outlier.speedup)


def _why(row: Row, far: float, usual: float) -> str:
    if row["speedup"] < 1:
        return "slower than the default"
    if row["low"] is not None and row["low"] <= 1:
        return "the interval reaches down to 1: not proven to be faster"
    if abs(far) > FAR:
        return f"far from the {usual:.2f}x usual for this operator: measure it again"
    return ""


def _between_banks(records: Iterable[Row], words: _Words) -> Iterator[Disagreement]:
    """Yield records several banks have with other strategies."""
    groups: dict[tuple[str, ...], dict[str, Row]] = defaultdict(dict)
    for row in records:
        if row["strategy_sha256"] is None:
            continue  # cannot be read
        same = (row["soc_version"], row["op_type"], row["format"], row["key"])
        groups[same].setdefault(row["bank"], row)
    for (soc_version, op_type, _, key), by_bank in groups.items():
        rows = [*by_bank.values()]
        if len({row["strategy_sha256"] for row in rows}) > 1:
            yield Disagreement(
                soc_version=soc_version,
                op_type=op_type,
                key=key,
                what="other strategies",
                computes=words.of(rows[0]),
                opinions=tuple(
                    Opinion(
                        where=row["bank"],
                        time=row["time"],
                        speedup=row["speedup"],
                        low=row["low"],
                        high=row["high"],
                        cost_us=row["cost_us"],
                        strategy_sha256=row["strategy_sha256"],
                    )
                    for row in rows
                ),
            )


def _within_side_cars(database: sqlite3.Connection, words: _Words) -> Iterator[Disagreement]:
    """Yield records that were measured again with the same strategy, and read otherwise."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in database.execute(_ENTRIES):
        same = (row["bank"], row["file"], row["key"])
        if row["event"] in ("add", "update"):
            groups[same].clear()  # another strategy from here on
        if row["event"] in ("add", "update", "reserved") and row["low"] is not None:
            groups[same].append(row)
    for rows in groups.values():
        apart = [pair for pair in combinations(rows, 2) if _are_apart(*pair)]
        if apart:
            yield Disagreement(
                soc_version=rows[0]["soc_version"],
                op_type=rows[0]["op_type"],
                key=rows[0]["key"],
                what="measured again, and the intervals do not meet",
                computes=words.of(rows[0]),
                opinions=tuple(
                    Opinion(
                        where=", ".join(
                            filter(None, (row["bank"], row["engine"], row["cpu_model"]))
                        ),
                        time=row["time"],
                        speedup=row["speedup"],
                        low=row["low"],
                        high=row["high"],
                    )
                    for row in rows
                ),
            )


def _are_apart(one: Row, other: Row) -> bool:
    if one["high"] is None or other["high"] is None:
        return False
    return bool(one["high"] < other["low"] or other["high"] < one["low"])


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One part."""

    title: str
    things: Sequence[Any]  # A row is of one
    columns: Sequence[Column[Any]]


def tables(result: OverviewResult) -> Iterator[Table]:
    """Yield the parts there is anything to tell of."""
    bank, (_, kind, cell), *others = _COVERAGE
    word = target_word(part.format for part in result.coverage)
    coverage = (bank, (word, kind, cell), *others)
    noted = [
        part for part in result.staleness if part.fresh + part.to_check + part.stale + part.unknown
    ]
    opinions = [row for found in result.disagreements for row in _opinions(found)]
    parts = (
        ("Size", result.sizes, _SIZE),
        ("Coverage and gains", result.coverage, coverage),
        ("Age", result.ages, _AGE),
        ("Staleness", noted, _STALENESS),
        ("Outliers", result.outliers, _OUTLIERS),
        ("Disagreements", opinions, _OPINIONS),
        ("Duplicates", result.duplicates, _DUPLICATE),
    )
    for title, things, columns in parts:
        if things:
            yield Table(title=title, things=things, columns=columns)


def lean(table: Table) -> Table:
    """Return a table without columns that say nothing, or the same bank in each row."""
    kept = [
        (title, kind, cell)
        for title, kind, cell in said_columns(table.things, table.columns)
        if title != "bank" or len({*map(cell, table.things)}) > 1
    ]
    return replace(table, columns=kept)


def _opinions(found: Disagreement) -> Iterable[tuple[str, ...]]:
    for number, opinion in enumerate(found.opinions):
        about = (found.op_type or "-", found.computes or "-", found.key, found.what)
        head = ("",) * len(about) if number else about
        cost = "-" if opinion.cost_us is None else f"{opinion.cost_us:g}"
        figures = (times(opinion.speedup), _interval(opinion.low, opinion.high), cost)
        yield (*head, *figures, _day(opinion.time), opinion.where)


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.2f}-{high:.2f}"


def _count(count: int) -> str:
    return str(count) if count else "-"


def _day(time: str) -> str:
    return time[:10] or "-"


_SIZE: tuple[Column[Size], ...] = (
    ("bank", "p", lambda one: one.bank),
    ("files", "r", lambda one: str(one.files)),
    ("records", "r", lambda one: str(one.records)),
    ("size", "r", lambda one: size_text(one.size_bytes)),
    ("broken files", "r", lambda one: _count(one.broken)),
    ("in quarantine", "r", lambda one: _count(one.in_quarantine)),
)
_COVERAGE: tuple[Column[Coverage], ...] = (
    ("bank", "p", lambda one: one.bank),
    ("soc_version", "-", lambda one: one.soc_version or "-"),
    ("op_type", "-", lambda one: one.op_type or "-"),
    ("format", "-", lambda one: one.format),
    ("records", "r", lambda one: str(one.records)),
    ("measured", "r", lambda one: _count(one.measured)),
    ("lowest", "r", lambda one: times(one.lowest)),
    ("median", "r", lambda one: times(one.median)),
    ("highest", "r", lambda one: times(one.highest)),
)
_AGE: tuple[Column[Age], ...] = (
    ("bank", "p", lambda one: one.bank),
    ("measured by", "-", lambda one: one.engine or "unknown"),
    ("on", "-", lambda one: one.cpu_model or "-"),
    ("records", "r", lambda one: str(one.records)),
    ("oldest", "r", lambda one: _day(one.oldest)),
    ("newest", "r", lambda one: _day(one.newest)),
)
_STALENESS: tuple[Column[Staleness], ...] = (
    ("bank", "p", lambda one: one.bank),
    ("measured as here", "r", lambda one: _count(one.fresh)),
    ("to be checked again", "r", lambda one: _count(one.to_check)),
    ("not to be used", "r", lambda one: _count(one.stale)),
    ("not noted", "r", lambda one: _count(one.unknown)),
)
_OUTLIERS: tuple[Column[Outlier], ...] = (
    ("speed-up", "r", lambda one: times(one.speedup)),
    ("interval", "r", lambda one: _interval(one.low, one.high)),
    ("op_type", "-", lambda one: one.op_type or "-"),
    ("computes", "-", lambda one: one.computes or "-"),
    ("key", "-", lambda one: one.key),
    ("file", "p", lambda one: one.file),
    ("why", "-", lambda one: one.why),
)
_OPINIONS: tuple[Column[Sequence[str]], ...] = (
    ("op_type", "-", itemgetter(0)),
    ("computes", "-", itemgetter(1)),
    ("key", "-", itemgetter(2)),
    ("what", "-", itemgetter(3)),
    ("speed-up", "r", itemgetter(4)),
    ("interval", "r", itemgetter(5)),
    ("time us", "r", itemgetter(6)),
    ("day", "r", itemgetter(7)),
    ("says", "-", itemgetter(8)),
)
_DUPLICATE: tuple[Column[Duplicates], ...] = (
    ("records", "r", lambda one: str(one.records)),
    ("in", "p", lambda one: one.files[0]),
    ("and in", "p", lambda one: one.files[1]),
    ("bank", "p", lambda one: one.bank),
)


MOST_ROWS = 20
"""Rows of each part on a terminal; the document and the page have all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewReport(ReadingReport[OverviewResult]):
    """An overview of banks."""

    schema: str = "aoebank.report/1"

    def document(self) -> Mapping[str, object]:
        """Return each part as a list."""
        result = self.result
        judged = ("outliers", "disagreements", "duplicates")
        parts = ("sizes", "coverage", "ages", "staleness", *judged)
        return {
            **{part: [asdict(entry) for entry in getattr(result, part)] for part in parts},
            "unreadable": closed_document(result.closed),
        }

    def write(self, text: Text) -> None:
        """Write a table for each part there is anything to tell of."""
        for table in tables(self.result):
            text.line((table.title, "bold"))
            text.columns(table.things[:MOST_ROWS], *table.columns)
            left = len(table.things) - MOST_ROWS
            if left > 0:
                text.line(f"and {plural(left, 'more row')}; --json has all")
            text.line()
        write_closed(text, self.result.closed)
        records = sum(size.records for size in self.result.sizes)
        text.line(
            f"{plural(len(self.result.sizes), 'bank')}, {plural(records, 'record')}, "
            f"{plural(len(self.result.outliers), 'outlier')}, "
            f"{plural(len(self.result.disagreements), 'disagreement')}"
        )
