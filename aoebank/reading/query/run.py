"""Run one query over banks; it can read them and nothing else."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median

from aoebank.errors import BankPathError, UsageError
from aoebank.reading.query.tables import FULL_TEXT, columns_of, fill, index_full_text
from aoebank.storage.sides.side import Side

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
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    closed: tuple[BankPathError, ...] = ()


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
        closed = fill(database, sides, today=today)
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
    return QueryResult(columns=columns, rows=rows, closed=tuple(closed))


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
