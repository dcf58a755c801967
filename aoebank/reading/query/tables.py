"""The tables of a query, and how banks become rows of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoebank.errors import BankPathError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.text.json_text import dumps
from aoebank.model.digest import digest_of
from aoebank.model.provenance import Event, Provenance
from aoebank.model.quarantine import Quarantine
from aoebank.storage.git.attributes import QUARANTINE
from aoebank.storage.quarantine import parse_quarantine
from aoebank.storage.sides.side import Side, listing_of

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


def fill(database: Database, sides: Sequence[Side], *, today: date) -> list[BankPathError]:
    """Make the tables of some banks.

    Args:
        database: An empty one.
        sides: The banks, each a tree or a file.
        today: Day by which entries of a quarantine expire.

    Returns:
        What could not be read, so that rows are missing.
    """
    for name, columns in TABLES.items():
        database.table(name).create(dict(columns))
    closed: list[BankPathError] = []
    for side in sides:
        names, unlisted = listing_of(side)
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
