"""Run one query over banks; it can read them and nothing else."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import repeat
from operator import add
from statistics import median
from typing import TYPE_CHECKING, Any

from aoebank.errors import BankPathError, UsageError
from aoebank.formats.protocol import ParsedFile, find_error, iter_or_none
from aoebank.formats.text.json_text import dumps, storable
from aoebank.formats.words import words_of
from aoebank.model.digest import digest_of
from aoebank.model.display import RichDisplay
from aoebank.model.finding import Finding
from aoebank.model.provenance import Event, Provenance
from aoebank.model.quarantine import Quarantine
from aoebank.model.record import Record
from aoebank.report.output import (
    ReadingReport,
    Text,
    broken_document,
    closed_document,
    plural,
    write_closed,
)
from aoebank.storage.quarantine import find_entry
from aoebank.storage.sides.open import quarantine_of
from aoebank.storage.sides.side import PathSide, Side

if TYPE_CHECKING:
    from aoebank.storage.bank import Bank

TABLES: Mapping[str, Mapping[str, type]] = {
    "files": {
        "bank": str,
        "file": str,
        "format": str,
        "soc_version": str,
        "core_num": int,
        "core_type": str,
        "op_type": str,
        "records": int,
        "size_bytes": int,
        "problem": str,
    },
    "records": {
        "bank": str,
        "file": str,
        "format": str,
        "soc_version": str,
        "core_num": int,
        "op_type": str,
        "key": str,
        "cost_us": float,
        "origin": str,
        "computes": str,
        "workload": str,
        "strategy": str,
        "strategy_sha256": str,
        "speedup": float,
        "speedup_low": float,
        "speedup_high": float,
        "measured": str,
        "engine": str,
        "cpu_model": str,
        "in_quarantine": int,
    },
    "provenance": {
        "bank": str,
        "file": str,
        "key": str,
        "event": str,
        "time": str,
        "engine": str,
        "model": str,
        "speedup": float,
        "speedup_low": float,
        "speedup_high": float,
        "cpu_model": str,
        "fingerprint": str,
        "search": str,
        "op_names": str,
    },
}
"""Columns by table. `bank` is how a person wrote it, `file` the path below it; `computes` is the
workload in words, `workload`,
`strategy`, `fingerprint`, `search` and `op_names` are JSON. The figures of a record are those of
its last change, with the day they were measured."""
FULL_TEXT = "records_fts"
"""Virtual table (SQLite FTS5) over the words of `records`; its rows have the same rowid."""
FULL_TEXT_COLUMNS = (
    *("file", "soc_version", "op_type", "key", "computes", "workload", "strategy"),
    *("engine", "cpu_model"),
)

Row = dict[str, Any]
_Columns = Mapping[str, Iterable[object]]
Wanted = Mapping[str, Set[str]]
"""Columns a query reads, by table: what `fill` has to make."""
EVERYTHING: dict[str, Set[str]] = {name: columns.keys() for name, columns in TABLES.items()}
_OF_FILES = ("bank", "file", "format", "soc_version", "core_num")
_OF_SIDE_CARS = frozenset(
    {"speedup", "speedup_low", "speedup_high", "measured", "engine", "cpu_model"}
)
_OF_RECORDS: Mapping[str, Callable[[Record], object]] = {
    "origin": lambda record: record.origin,
    "computes": lambda record: words_of(record).computes,
    "workload": lambda record: dumps(record.workload),
    "strategy": lambda record: dumps(record.strategy),
    "strategy_sha256": lambda record: digest_of(record.strategy),
}
"""Columns for which each record is read; a scan of the file is enough for most others."""


def columns_read(sql: str) -> Wanted:
    """Return the tables and columns a query reads: SQLite names them while it prepares the query.

    Raises:
        sqlite3.Error: it is no query, or reads or does what it must not.
    """
    found: dict[str, set[str]] = {}

    def note(action: int, first: str | None, second: str | None, *_: object) -> int:
        if action == sqlite3.SQLITE_READ and first is not None:
            # a table of which no column is read comes as the query spells it
            table = first.lower()
            table = FULL_TEXT if table.startswith(FULL_TEXT) else table  # or a table of its index
            found.setdefault(table, set()).add(second or "")
        return _only_reading(action, first)

    with closing(make_tables(sql)) as connection:
        connection.set_authorizer(note)
        try:
            connection.execute(f"EXPLAIN {sql}")
        except sqlite3.Error:  # or it is an EXPLAIN itself; else the error is about its own words
            connection.execute(sql)
    if _JOINS_BY_NAME.search(sql):  # SQLite does not tell the columns of a USING
        return EVERYTHING | ({FULL_TEXT: set()} if FULL_TEXT in sql.lower() else {})
    if FULL_TEXT in found:
        found.setdefault("records", set()).update(FULL_TEXT_COLUMNS)
    return found


def make_tables(sql: str = "") -> sqlite3.Connection:
    """Return a database in memory with empty tables, the full-text one if a query names it.

    No library of tables is loaded: with NumPy comes a thread, and large files are then scanned by
    one process.
    """
    database = sqlite3.connect(":memory:")
    for name, columns in TABLES.items():
        typed = (f"{column} {_TYPES[type_]}" for column, type_ in columns.items())
        database.execute(f"CREATE TABLE {name} ({', '.join(typed)})")
    if FULL_TEXT in sql.lower():
        words = ", ".join(FULL_TEXT_COLUMNS)
        database.execute(f"CREATE VIRTUAL TABLE {FULL_TEXT} USING fts5({words}, content=records)")
    database.commit()
    database.create_aggregate("median", 1, _Median)  # type: ignore[arg-type]
    return database


def fill(
    database: sqlite3.Connection,
    sides: Sequence[Side],
    *,
    today: date,
    wanted: Wanted = EVERYTHING,
    broken: list[Finding] | None = None,
) -> list[BankPathError]:
    """Fill the tables of some banks as far as somebody reads them.

    Args:
        database: Has the tables, empty.
        sides: The banks, each a tree or a file.
        today: Day by which entries of a quarantine expire.
        wanted: What is read; other columns stay NULL, other tables empty.
        broken: Gets the first error of each file that has one.

    Returns:
        What could not be read, so that rows are missing.
    """
    closed: list[BankPathError] = []
    reads_files = not wanted.keys().isdisjoint({"files", "records"})
    reads_side_cars = "provenance" in wanted or bool(_OF_SIDE_CARS & wanted.get("records", set()))
    for side in sides if reads_files or reads_side_cars else ():
        names, unlisted = side.listing()
        closed += unlisted
        kept_out = quarantine_of(side)
        for name in names:
            parsed, entries = None, tuple[Provenance, ...]()
            try:  # a side-car tells the same whether its bank file can be read, or is asked for
                entries = side.load_provenance(name).entries if reads_side_cars else ()
                parsed = side.load(name) if reads_files else None
            except BankPathError as error:
                closed.append(error)
            place: Row = {"bank": side.label, "file": name}
            if parsed is not None:
                fault = find_error(parsed)
                if fault is not None and broken is not None:
                    broken.append(fault)
                place |= _target(parsed)
                _insert(database, "files", wanted, [place | _file(parsed)])
                if "records" in wanted:
                    columns = _columns(parsed, place, entries, kept_out, today)
                    _insert_records(database, wanted["records"], parsed, columns)
            _insert(database, "provenance", wanted, (place | _entry(entry) for entry in entries))
    return closed


def _insert(database: sqlite3.Connection, table: str, wanted: Wanted, rows: Iterable[Row]) -> None:
    if table in wanted:
        columns = TABLES[table]
        values = (tuple(storable(row.get(name)) for name in columns) for row in rows)
        places = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO {table} VALUES ({places})", values)


def _insert_records(
    database: sqlite3.Connection, wanted: Set[str], parsed: ParsedFile, columns: _Columns
) -> None:
    """Insert a row per record, one that cannot be read included; `ls` counts it, too."""
    facts = [name for name in _OF_RECORDS if name in wanted]
    # a row that nothing is read of has the name of its bank
    names = [name for name in columns if name in wanted] or ["bank"]
    if not facts and all(isinstance(columns[name], repeat) for name in names):
        values = [next(iter(columns[name]), None) for name in names]
        same = f"INSERT INTO records ({', '.join(names)}) SELECT {', '.join('?' * len(names))}"
        database.execute(f"{_NUMBERS} {same} FROM numbers WHERE n", (len(parsed), *values))
        return
    rows: Iterable[tuple[object, ...]] = zip(*(columns[name] for name in names), strict=True)
    if facts:
        rows = map(add, rows, (_facts(record, facts) for record in iter_or_none(parsed)))
    places = ", ".join("?" * len(names + facts))
    sql = f"INSERT INTO records ({', '.join(names + facts)}) VALUES ({places})"
    database.executemany(sql, rows)


def _facts(record: Record | None, names: Iterable[str]) -> tuple[object, ...]:
    return tuple(storable(_OF_RECORDS[name](record)) if record else None for name in names)


def _columns(
    parsed: ParsedFile, place: Row, entries: Iterable[Provenance], kept_out: Quarantine, today: date
) -> _Columns:
    """Return the columns of the records of a file for which no record is read."""
    keys = parsed.keys
    figures = {
        entry.key: _figures(entry) | {"measured": entry.time, "engine": entry.engine}
        for entry in entries
        if entry.event in (Event.ADD, Event.UPDATE)
    }
    times = parsed.format.iter_times_us(parsed)
    return {
        **{name: repeat(storable(place[name]), len(keys)) for name in _OF_FILES},
        **_own_targets(parsed),
        **{name: _figure_of(figures, name, keys) for name in _OF_SIDE_CARS},
        "op_type": _op_types(parsed),
        "key": map(storable, keys),
        "cost_us": (None if time_us is None else float(time_us) for time_us in times),
        "in_quarantine": _kept_out(parsed, kept_out, today),
    }


def _own_targets(parsed: ParsedFile) -> _Columns:
    """Return the targets of records that name theirs; of others the file does."""
    if not parsed.format.has_target_in_rows:
        return {}
    return {"soc_version": map(storable, parsed.format.iter_targets(parsed))}


def _op_types(parsed: ParsedFile) -> Iterable[object]:
    found = parsed.format.iter_op_types(parsed)
    if isinstance(found, repeat):
        return repeat(storable(next(found, None)), len(parsed))
    return map(storable, found)


def _kept_out(parsed: ParsedFile, kept_out: Quarantine, today: date) -> Iterable[int]:
    if not kept_out:
        return repeat(0, len(parsed))
    entries = (find_entry(parsed, number, kept_out, today=today) for number in range(len(parsed)))
    return (int(entry is not None) for entry in entries)


def _figure_of(figures: Mapping[str, Row], name: str, keys: Sequence[str]) -> Iterable[object]:
    if not figures:
        return repeat(None, len(keys))
    return (storable(figures[key][name]) if key in figures else None for key in keys)


def _target(parsed: ParsedFile) -> Row:
    told = parsed.name
    return {
        "format": str(parsed.format.name),
        "soc_version": told.soc_version if told else None,
        "core_num": told.core_num if told else None,
        "core_type": told.core_type if told else None,
        "op_type": told.op_type if told else None,
    }


def _file(parsed: ParsedFile) -> Row:
    error = find_error(parsed)
    return {
        "records": len(parsed),
        "size_bytes": len(parsed.data),
        "problem": error.message if error else None,
    }


def _entry(entry: Provenance) -> Row:
    return _figures(entry) | {
        "key": entry.key,
        "event": str(entry.event),
        "time": entry.time,
        "engine": entry.engine,
        "model": _text(entry.model.get("name")),
        "fingerprint": dumps(dict(entry.fingerprint)),
        "search": dumps(dict(entry.search)),
        "op_names": dumps(list(entry.op_names)),
    }


def _figures(entry: Provenance) -> Row:
    return {
        "speedup": entry.speedup,
        "speedup_low": entry.speedup_low,
        "speedup_high": entry.speedup_high,
        "cpu_model": _text(entry.fingerprint.get("cpu_model")),
    }


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def columns_of() -> Iterator[tuple[str, str]]:
    """Yield tables, each with its columns in a line."""
    for name, columns in TABLES.items():
        yield name, ", ".join(columns)
    yield FULL_TEXT, ", ".join(FULL_TEXT_COLUMNS)


_TYPES = {str: "TEXT", int: "INTEGER", float: "FLOAT"}
_NUMBERS = """WITH RECURSIVE numbers(n) AS
(SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"""
_JOINS_BY_NAME = re.compile(r"\b(?:using|natural)\b", re.IGNORECASE)
_ALLOWED = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)
Value = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QueryResult(RichDisplay):
    """The answer to a query."""

    shown_by = "aoebank.reading.query:QueryReport"
    rows_in = "rows"

    columns: tuple[str, ...]  # Their names, as the query gives them
    rows: tuple[tuple[Value, ...], ...]  # Values, a tuple each as long as `columns`
    # Files and folders that cannot be read, so that rows may be missing.
    closed: tuple[BankPathError, ...] = ()
    # The first error of each file that has one: records of it may be missing, too.
    broken: tuple[Finding, ...] = ()

    def to_records(self) -> list[dict[str, Any]]:
        """Return the rows, values by the name of their column."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def describe_tables() -> QueryResult:
    """Return the tables there are to ask, and the columns of each."""
    return QueryResult(columns=("table", "columns"), rows=tuple(columns_of()))


def record_rows(*, result: Bank) -> list[dict[str, Any]]:
    """Return all records of a bank as the table `records` has them."""
    if not result.root.exists():
        return []
    today = datetime.now(UTC).date()
    found = query(
        "SELECT * FROM records", [PathSide(label=str(result.root), path=result.root)], today=today
    )
    return found.to_records()


def query(sql: str, sides: Sequence[Side], *, today: date) -> QueryResult:
    """Return the rows of an SQL query over banks; see `TABLES` for the tables.

    Args:
        sql: One SELECT, in the words of SQLite, with `median(column)` and with the full-text table
            `records_fts` (`MATCH`). Anything that writes, or opens a file, is refused.
        sides: The banks.
        today: Day by which entries of a quarantine expire.

    Raises:
        UsageError: it is no query, or names what is not there.
    """
    connection = make_tables(sql)
    try:
        wanted = columns_read(sql)
        broken: list[Finding] = []
        closed = fill(connection, sides, today=today, wanted=wanted, broken=broken)
        if FULL_TEXT in wanted:
            connection.execute(f"INSERT INTO {FULL_TEXT} ({FULL_TEXT}) VALUES ('rebuild')")
        connection.commit()
        connection.set_authorizer(_only_reading)
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise UsageError("no query", got=repr(sql), expected="a SELECT")
        columns = tuple(column[0] for column in cursor.description)
        rows = tuple(tuple(map(_plain, row)) for row in cursor)
    except (sqlite3.Error, sqlite3.Warning, UnicodeEncodeError) as error:  # words need not be text
        refused = "it may read tables and nothing else" if _is_refusal(error) else str(error)
        raise UsageError(
            f"cannot run the query: {refused}",
            got=repr(sql),
            hint="aoebank query    # lists the tables and their columns",
        ) from error
    finally:
        connection.close()
    return QueryResult(columns=columns, rows=rows, closed=tuple(closed), broken=tuple(broken))


class _Median:
    """The aggregate SQLite has none of; values that are no numbers do not count."""

    def __init__(self) -> None:
        self._values: list[float] = []

    def step(self, value: object) -> None:
        if isinstance(value, int | float):
            self._values.append(value)

    def finalize(self) -> float | None:
        return median(self._values) if self._values else None


def _is_refusal(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_AUTH


def _only_reading(action: int, first: str | None, *_: object) -> int:
    if action == sqlite3.SQLITE_PRAGMA and first == "data_version":
        return sqlite3.SQLITE_OK  # FTS5 reads it to see whether its index is still the same
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _plain(value: object) -> Value:
    """Return a value JSON knows: a query may make bytes of texts, and infinities."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value if isinstance(value, str | int | float) else None


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


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryReport(ReadingReport[QueryResult]):
    """A table of rows."""

    schema: str = "aoebank.query/1"

    def document(self) -> Mapping[str, object]:
        """Return the columns, and the rows as lists."""
        return {
            "columns": list(self.result.columns),
            "rows": [list(row) for row in self.result.rows],
            "broken": broken_document(self.result.broken),
            "unreadable": closed_document(self.result.closed),
        }

    def write(self, text: Text) -> None:
        """Write the table and how many rows it has."""
        rows = self.result.rows
        if rows:
            kinds = "".join(
                "r" if _is_number(column) else "-" for column in zip(*rows, strict=True)
            )
            text.table(self.result.columns, ([_cell(v) for v in row] for row in rows), kinds=kinds)
        for error in self.result.broken:
            text.line(("broken: ", "red"), f"{error.location}: {error.message}")
        write_closed(text, self.result.closed)
        text.line(plural(len(rows), "row"))


def _is_number(column: Sequence[Value]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in column)


def _cell(value: Value) -> str:
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
