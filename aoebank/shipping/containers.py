"""Where rows are kept: lines of JSON, or a table of SQLite. A new kind is a class and a line."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Protocol

from aoebank.errors import BankFormatError, UsageError
from aoebank.formats.text.json_text import JsonTextError, dumps, loads
from aoebank.model.json_value import JsonValue
from aoebank.shipping.rows import BankRow

SCHEMA = "aoebank.rows/1"
_PLAIN = {"key": str, "op_type": str, "workload": str, "strategy": str, "cost_us": float}


class Container(Protocol):
    """A file with the rows of a bank."""

    suffixes: tuple[str, ...]

    def serialize(self, rows: Iterable[BankRow]) -> bytes:
        """Return the file."""
        ...

    def parse(self, path: Path) -> Iterator[BankRow]:
        """Yield the rows of a file.

        Raises:
            BankFormatError: it is none of ours.
            OSError: it cannot be read.
        """
        ...


class JsonLines:
    """A JSON object per line; the first says what the others are."""

    suffixes: tuple[str, ...] = (".jsonl",)

    def serialize(self, rows: Iterable[BankRow]) -> bytes:
        """Return the lines, the same rows always the same bytes."""
        lines = [dumps({"schema": SCHEMA}), *(dumps(_document(row)) for row in rows)]
        return "".join(f"{line}\n" for line in lines).encode("utf-8")

    def parse(self, path: Path) -> Iterator[BankRow]:
        """Yield the rows, each checked."""
        lines = path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1] or lines, start=1):  # the last may be torn
            document = _loads(line, path, number)
            if number == 1:
                _demand_schema(document.get("schema"), path)
            else:
                yield _row(document, path, number)


class SqliteTable:
    """A table `rows` of SQLite: `document` is the row, the other columns are for questions."""

    suffixes: tuple[str, ...] = (".db", ".sqlite")

    def serialize(self, rows: Iterable[BankRow]) -> bytes:
        """Return the database."""
        from sqlite_utils import Database

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "bank.db")
            with closing(Database(str(file))) as database:
                database.table("about").insert({"schema": SCHEMA})
                columns = {"file": str, "format": str, **_PLAIN, "document": str}
                database.table("rows").create(columns)
                database.table("rows").insert_all(map(_columns, rows))
            return file.read_bytes()

    def parse(self, path: Path) -> Iterator[BankRow]:
        """Yield the rows of the table, in the order they were put there."""
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            _demand_tables(connection, path)
            (schema,) = connection.execute("SELECT schema FROM about").fetchone() or ("",)
            _demand_schema(schema, path)
            cursor = connection.execute("SELECT document FROM rows ORDER BY rowid")
            for number, (document,) in enumerate(cursor, start=1):
                yield _row(_loads(str(document).encode(), path, number), path, number)
        except sqlite3.Error as error:
            raise BankFormatError(f"is no bank in SQLite: {error}", path=path) from error
        finally:
            connection.close()


def _demand_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse views of these names: they may compute without an end."""
    asked = "SELECT count(*) FROM sqlite_schema WHERE name IN ('about', 'rows') AND type != 'table'"
    if connection.execute(asked).fetchone() != (0,):
        raise BankFormatError("is no bank in SQLite: its rows are no table", path=path)


CONTAINERS: tuple[Container, ...] = (JsonLines(), SqliteTable())


def find_container(path: Path) -> Container | None:
    """Return the container a name stands for, None for a bank."""
    for container in CONTAINERS:
        if path.suffix in container.suffixes:
            return container
    return None


def demand_container(path: Path) -> Container:
    """Return the container a name stands for.

    Raises:
        UsageError: there is none.
    """
    container = find_container(path)
    if container is None:
        suffixes = [suffix for known in CONTAINERS for suffix in known.suffixes]
        raise UsageError(
            "--output: unknown kind of file", got=path.name, expected=" or ".join(suffixes)
        )
    return container


def _document(row: BankRow) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {"file": row.file}
    if not row.format:
        return members | {"text": row.text}
    members["format"] = row.format
    return members if row.record is None else members | {"record": dict(row.record)}


def _columns(row: BankRow) -> dict[str, object]:
    record = row.record or {}
    plain: dict[str, object] = {}
    for name in _PLAIN:
        value = record.get(name)
        is_json = value is not None and name in ("workload", "strategy")
        plain[name] = dumps(value) if is_json else value
    cost = plain["cost_us"]
    plain["cost_us"] = float(cost) if isinstance(cost, int | float) else None
    return {"file": row.file, "format": row.format, **plain, "document": dumps(_document(row))}


def _loads(line: bytes, path: Path, number: int) -> Mapping[str, JsonValue]:
    try:
        value = loads(line.decode("utf-8"))
    except (JsonTextError, UnicodeDecodeError) as error:
        raise BankFormatError(f"a row is not JSON: {error}", path=path, line=number) from error
    if not isinstance(value, dict):
        raise BankFormatError("a row is no object", path=path, line=number)
    return value


def _row(document: Mapping[str, JsonValue], path: Path, number: int) -> BankRow:
    file, format_, text = (document.get(name, "") for name in ("file", "format", "text"))
    record = document.get("record")
    is_right = all(isinstance(value, str) for value in (file, format_, text))
    if not is_right or not isinstance(record, dict | None):
        raise BankFormatError("a row has members of wrong types", path=path, line=number)
    return BankRow(file=str(file), format=str(format_), text=str(text), record=record)


def _demand_schema(schema: object, path: Path) -> None:
    if schema != SCHEMA:
        raise BankFormatError(
            "is no bank that was converted", path=path, got=repr(schema), expected=SCHEMA
        )
