"""Run one query over banks; it can read them and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from aoebank.errors import BankPathError, UsageError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text.json_text import dumps
from aoebank.model.digest import digest_of
from aoebank.model.finding import Finding
from aoebank.model.provenance import Event, Provenance
from aoebank.model.quarantine import Quarantine
from aoebank.report.closed import (
    ReadingReport,
    broken_document,
    closed_document,
    write_closed,
)
from aoebank.report.output import Text, plural
from aoebank.storage.git.attributes import QUARANTINE
from aoebank.storage.quarantine import parse_quarantine
from aoebank.storage.sides.side import Side

if TYPE_CHECKING:
    from sqlite_utils import Database

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
"""Columns by table. `bank` is how a person wrote it, `file` the path below it; `workload`,
`strategy`, `fingerprint`, `search` and `op_names` are JSON. The figures of a record are those of
its last change, with the day they were measured."""
FULL_TEXT = "records_fts"
"""Virtual table (SQLite FTS5) over the words of `records`; its rows have the same rowid."""
FULL_TEXT_COLUMNS = (
    *("file", "soc_version", "op_type", "key", "workload", "strategy"),
    *("engine", "cpu_model"),
)

Row = dict[str, Any]


def fill(
    database: Database, sides: Sequence[Side], *, today: date, broken: list[Finding] | None = None
) -> list[BankPathError]:
    """Make the tables of some banks.

    Args:
        database: An empty one.
        sides: The banks, each a tree or a file.
        today: Day by which entries of a quarantine expire.
        broken: Gets the first error of each file that has one.

    Returns:
        What could not be read, so that rows are missing.
    """
    for name, columns in TABLES.items():
        database.table(name).create(dict(columns))
    closed: list[BankPathError] = []
    for side in sides:
        names, unlisted = side.listing()
        closed += unlisted
        kept_out = parse_quarantine(
            side.read_bytes(QUARANTINE) or b"", Path(side.label, QUARANTINE)
        )
        for name in names:
            try:
                parsed = side.load(name)
                entries = side.load_provenance(name).entries if parsed is not None else ()
            except BankPathError as error:
                closed.append(error)
                continue
            if parsed is not None:
                fault = find_error(parsed)
                if fault is not None and broken is not None:
                    broken.append(fault)
                place = {"bank": side.label, "file": name} | _target(parsed)
                rows = _records(parsed, entries, kept_out, today)
                _insert(database, "files", [place | _file(parsed)])
                _insert(database, "records", (place | row for row in rows))
                _insert(database, "provenance", (place | _entry(entry) for entry in entries))
    return closed


def index_full_text(database: Database) -> None:
    """Make `records_fts`; `records` has all its rows."""
    database.table("records").enable_fts(FULL_TEXT_COLUMNS)


def _insert(database: Database, table: str, rows: Iterable[Row]) -> None:
    columns = TABLES[table]
    database.table(table).insert_all(
        {name: _storable(value) for name, value in row.items() if name in columns} for row in rows
    )


def _storable(value: object) -> object:
    """Return a value SQLite takes: names of files need not be Unicode."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


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


def _records(
    parsed: ParsedFile, entries: Iterable[Provenance], kept_out: Quarantine, today: date
) -> Iterator[Row]:
    """Yield the records of a file; those that cannot be read have no row."""
    changes = {e.key: e for e in entries if e.event in (Event.ADD, Event.UPDATE)}
    for record in parsed.iter_records():
        row: Row = {
            "key": record.key,
            "cost_us": record.cost_us,
            "origin": record.origin,
            "workload": dumps(record.workload),
            "strategy": dumps(record.strategy),
            "strategy_sha256": digest_of(record.strategy),
            "in_quarantine": int(kept_out.find(record, today=today) is not None),
        }
        if record.op_type is not None:
            row["op_type"] = record.op_type
        change = changes.get(record.key)
        if change is not None:
            row |= _figures(change) | {"measured": change.time, "engine": change.engine}
        yield row


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


_ALLOWED = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)
Value = str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The answer to a query.

    Attributes:
        columns: Their names, as the query gives them.
        rows: Values, a tuple each as long as `columns`.
        closed: Files and folders that cannot be read, so that rows may be missing.
        broken: The first error of each file that has one: records of it may be missing, too.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    closed: tuple[BankPathError, ...] = ()
    broken: tuple[Finding, ...] = ()


def describe_tables() -> QueryResult:
    """Return the tables there are to ask, and the columns of each."""
    return QueryResult(columns=("table", "columns"), rows=tuple(columns_of()))


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
    from sqlite_utils import Database

    connection = sqlite3.connect(":memory:")
    try:
        database = Database(connection)
        broken: list[Finding] = []
        closed = fill(database, sides, today=today, broken=broken)
        if FULL_TEXT in sql.lower():  # the other queries do not wait for it
            index_full_text(database)
        connection.commit()
        connection.create_aggregate("median", 1, _Median)  # type: ignore[arg-type]
        connection.set_authorizer(_only_reading)
        cursor = connection.execute(sql)
        if cursor.description is None:
            raise UsageError("no query", got=repr(sql), expected="a SELECT")
        columns = tuple(column[0] for column in cursor.description)
        rows = tuple(tuple(map(_plain, row)) for row in cursor)
    except (sqlite3.Error, sqlite3.Warning) as error:
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
