"""Banks with a past, for tests of versions."""

from __future__ import annotations

import hashlib
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from aoebank import Bank, Record, SnapshotResult, load_quarantine
from aoebank.history.snapshot import take_snapshot
from aoebank.model.quarantine import QuarantineEntry
from aoebank.model.snapshot import Author
from aoebank.storage.bank import load_file
from aoebank.storage.history.database import history_path
from aoebank.storage.quarantine import quarantine_path, serialize_quarantine

SOC = "x86-64-v4"
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def author(minutes: int = 0) -> Author:
    """Return somebody some time after `START`."""
    return Author(
        who="Ann <ann@example.org>",
        now=START + timedelta(minutes=minutes),
        machine={"aoebank": "0", "host": "h"},
    )


def file_of(root: Path, op: str = "Softmax", soc: str = SOC) -> Path:
    """Return the bank file of an operator."""
    return Bank(root).unified_file(soc_version=soc, core_num=2, op_type=op)


def put(root: Path, *records: Record, op: str = "Softmax", soc: str = SOC) -> None:
    """Store records in the bank file of an operator."""
    Bank(root).put(file_of(root, op, soc), records)


def drop(root: Path, *records: Record, op: str = "Softmax", soc: str = SOC) -> None:
    """Remove records from the bank file of an operator."""
    Bank(root).remove(file_of(root, op, soc), [record.key for record in records])


def snap(root: Path, message: str = "", *, minutes: int = 0, **options: object) -> SnapshotResult:
    """Take a snapshot."""
    return take_snapshot(root, author(minutes), message=message, **options)  # type: ignore[arg-type]


def snap_id(root: Path, message: str = "", **options: object) -> str:
    """Take a snapshot and return its id."""
    recorded = snap(root, message, **options).recorded  # type: ignore[arg-type]
    assert recorded is not None
    return recorded.snapshot.id


def keep_out(root: Path, *entries: QuarantineEntry) -> None:
    """Add entries to the quarantine of a bank."""
    path = quarantine_path(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(serialize_quarantine([*load_quarantine(root), *entries]))


def costs(root: Path, op: str = "Softmax", soc: str = SOC) -> Mapping[str, float | None]:
    """Return the times in a bank file by key."""
    return {
        record.key: record.cost_us for record in load_file(file_of(root, op, soc)).iter_records()
    }


def tamper(root: Path, statement: str) -> None:
    """Change the database of a history in a way its triggers refuse."""
    with closing(sqlite3.connect(history_path(root))) as connection:
        triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        for (name,) in triggers.fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement)
        connection.commit()


def state(root: Path) -> Mapping[str, str]:
    """Return the digest of every file of a tree, the store of versions left out."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".aoebank" not in path.parts and ".git" not in path.parts
    }


def git(folder: Path, *arguments: str) -> str:
    """Run git as Ann."""
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    result = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return result.stdout.strip()
