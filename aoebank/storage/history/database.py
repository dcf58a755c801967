"""The database of a history: its tables, how it is opened, what its errors mean.

The journal is SQLite's rollback journal and not a WAL: banks lie on network file systems,
where the shared memory of a WAL does not work. Nothing is ever updated or deleted; triggers
see to it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from urllib.parse import quote

from aoebank.errors import (
    AoebankError,
    BankLockedError,
    BankPathError,
    BankPermissionError,
    HistoryError,
    shell_word,
)
from aoebank.storage.tree import iter_folders_above
from aoebank.storage.writing.atomic import FILE_MODE, give_to_owner_of, make_directories, real_place
from aoebank.storage.writing.staged import update_file

FOLDER = ".aoebank"
FILE = "history.db"
SCHEMA_VERSION = 1
LOCK_TIMEOUT_S = 60.0
_APPLICATION_ID = 0x414F4542
_IGNORED = b"# the history is local, the quarantine travels with the bank\n/history.db*\n"
_HINT = "the bank itself is untouched; move the file away to start a new history"

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) {strict};
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, lengths BLOB NOT NULL,
    records BLOB NOT NULL, data BLOB NOT NULL
) {strict};
CREATE TABLE content (
    id INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, format TEXT NOT NULL,
    size_bytes INTEGER NOT NULL, records INTEGER NOT NULL, record_set TEXT NOT NULL,
    runs BLOB NOT NULL, UNIQUE (sha256, format)
) {strict};
CREATE TABLE snapshot (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, parent TEXT NOT NULL UNIQUE,
    who TEXT NOT NULL, time TEXT NOT NULL, message TEXT NOT NULL, environment TEXT NOT NULL,
    scope TEXT, records INTEGER NOT NULL, record_set TEXT NOT NULL
) {strict};
CREATE TABLE member (
    snapshot INTEGER NOT NULL REFERENCES snapshot (number), name BLOB NOT NULL,
    content INTEGER NOT NULL REFERENCES content (id), PRIMARY KEY (snapshot, name)
) {without_rowid};
CREATE TABLE tag (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, snapshot TEXT,
    who TEXT NOT NULL, time TEXT NOT NULL
) {strict};
"""
TABLES = ("meta", "chunk", "content", "snapshot", "member", "tag")


def history_path(root: Path) -> Path:
    """Return the path of a bank's history."""
    return root / FOLDER / FILE


def find_history(place: Path) -> Path | None:
    """Return the bank at or above a path that has a history, or None."""
    roots = (root for root in iter_folders_above(place.absolute()) if history_path(root).is_file())
    return next(roots, None)


@contextmanager
def open_history(root: Path, *, create: bool = False) -> Iterator[Connection]:
    """Give the database of a bank's history.

    Args:
        create: Make one where there is none.

    Raises:
        HistoryError: there is none, it is damaged, or a newer program made it.
        BankLockedError: another process is at it for too long.
        BankPermissionError: it cannot be read, or not written.
        BankPathError: the disk is full, or the place cannot be used.
    """
    path = history_path(root)
    with _errors_explained(path):
        if create:
            _prepare_place(root)
        elif not root.exists():
            raise HistoryError("no such bank", where=str(root), expected="a directory")
        elif not path.is_file():
            raise HistoryError(
                "bank has no history", where=str(root), hint=f"aoebank snapshot {shell_word(root)}"
            )
        database = connect(path)
        try:
            _check_schema(database, path, create=create)
            yield database
        finally:
            database.close()


@contextmanager
def transaction(database: Connection) -> Iterator[None]:
    """Hold the write lock; all that was written stays if nothing raises, else nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:  # a full disk has rolled it back already
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _prepare_place(root: Path) -> None:
    folder = root / FOLDER
    path, ignored = real_place(folder / FILE, root), folder / ".gitignore"
    make_directories(folder)
    if not ignored.exists():
        update_file(ignored, lambda old: _IGNORED if old is None else old, root=root)
    if not path.exists():
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
        give_to_owner_of(folder, descriptor)
        os.close(descriptor)


def connect(path: Path) -> Connection:
    """Open a history that is there."""
    # `rw` also reads a file we may not write; with `ro` a dead writer's journal is in the way
    place = f"file:{quote(os.fsencode(path))}?mode=rw"
    connection = sqlite3.connect(place, uri=True, timeout=LOCK_TIMEOUT_S, isolation_level=None)
    try:  # it is read here for the first time: a damaged file is found by this
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.row_factory = sqlite3.Row
        return connection
    except BaseException:
        connection.close()
        raise


def _check_schema(database: Connection, path: Path, *, create: bool) -> None:
    found = _user_version(database)
    if found == 0 and create and not _table_names(database):
        with transaction(database):
            if _user_version(database) == 0:  # nobody else was first
                _make_tables(database)
        found = _user_version(database)
    application = database.execute("PRAGMA application_id").fetchone()[0]
    if found == 0 and not _table_names(database):
        raise HistoryError(
            "history is empty: its first snapshot did not end",
            where=str(path),
            hint=f"aoebank snapshot {shell_word(path.parent.parent)}",
        )
    if application != _APPLICATION_ID or not set(TABLES) <= _table_names(database):
        raise HistoryError("is no history of a bank", where=str(path), hint=_HINT)
    if found > SCHEMA_VERSION:
        raise HistoryError(
            "a newer aoebank made this history",
            where=str(path),
            got=f"version {found}",
            expected=f"at most {SCHEMA_VERSION}",
            hint="pip install --upgrade aoebank",
        )


def _table_names(database: Connection) -> set[str]:
    return {
        name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    }


def _user_version(database: Connection) -> int:
    return int(database.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(database: Connection) -> None:
    from aoebank import __version__

    is_strict = sqlite3.sqlite_version_info >= (3, 37)
    strict = "STRICT" if is_strict else ""
    without_rowid = "STRICT, WITHOUT ROWID" if is_strict else "WITHOUT ROWID"
    for statement in _TABLES.format(strict=strict, without_rowid=without_rowid).split(";"):
        if statement.strip():
            database.execute(statement)
    for table in TABLES:
        for verb in ("UPDATE", "DELETE"):
            database.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'a history is only added to'); END"
            )
    database.execute("INSERT INTO meta VALUES ('schema', 'aoebank.history/1')")
    database.execute("INSERT INTO meta VALUES ('made_by', ?)", [f"aoebank {__version__}"])
    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


@contextmanager
def _errors_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except AoebankError:
        raise
    except sqlite3.Error as error:
        raise _explain(error, path) from error
    except PermissionError as error:
        raise BankPermissionError(
            "history cannot be read or written", path=path, hint=f"ls -ld {shell_word(path.parent)}"
        ) from error
    except OSError as error:
        problem = f"history cannot be used: {(error.strerror or str(error)).lower()}"
        raise BankPathError(problem, path=path) from error


def _explain(error: sqlite3.Error, path: Path) -> AoebankError:
    # the low byte is the kind, what is above it tells it more precisely
    kind = getattr(error, "sqlite_errorcode", 0) & 0xFF
    words = str(error).lower()
    if kind in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BankLockedError(
            "another process is writing the history",
            path=path,
            hint=f"wait for it to end; `fuser {shell_word(path)}` names it",
        )
    if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
        return BankPermissionError(
            "history cannot be written",
            path=path,
            hint=f"ls -l {shell_word(path)} {shell_word(path.parent)}",
        )
    if kind in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return BankPathError(f"history cannot be used: {words}", path=path)
    return HistoryError(f"history is damaged: {words}", where=str(path), hint=_HINT)
