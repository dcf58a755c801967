"""Snapshots: recorded states of a bank, each naming the one before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from aoebank.model.digest import digest_of
from aoebank.model.json_value import JsonValue

SHORT_ID = 12
SCHEMA = "aoebank.snapshot/1"


class HistorySource(StrEnum):
    """Source of versions."""

    AUTO = "auto"
    SNAPSHOTS = "snapshots"
    GIT = "git"


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Author of a change of a history, with time and machine."""

    who: str
    now: datetime  # In UTC
    machine: Mapping[str, str]

    @property
    def time(self) -> str:
        """Return the time as RFC 3339 in UTC."""
        return self.now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One file of a snapshot."""

    name: str
    content: int  # What the store calls its bytes
    sha256: str  # Of its bytes
    size_bytes: int
    format: str = ""  # Of a bank file; empty for a side-car or a binary twin
    records: int = 0
    record_set: str = ""  # Hash of its records as a set; empty without records


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A recorded state of a bank."""

    id: str  # sha256 over everything below, the parent and the digests of all files included
    parent: str  # The snapshot before; empty for the first
    who: str
    time: str  # RFC 3339 in UTC
    message: str
    environment: Mapping[str, str]  # Versions and machine, for people who compare times later
    scope: tuple[str, ...] | None  # The soc_versions it knows about; None: the whole bank
    records: int  # How many records its bank files hold
    record_set: str  # Hash of all records as a set, each with the name of its file
    tags: tuple[str, ...] = field(default=(), compare=False)  # Names that mean it, sorted

    @property
    def short_id(self) -> str:
        """Return enough of the id for people."""
        return self.id[:SHORT_ID]

    def covers(self, soc_version: str) -> bool:
        """True if the snapshot knows what the bank had for a target."""
        return self.scope is None or soc_version in self.scope


def snapshot_id(snapshot: Snapshot, members: Mapping[str, Member]) -> str:
    """Return the id a snapshot with these files must have, `snapshot.id` left aside."""
    files: list[JsonValue] = [
        [name, member.sha256, member.format, member.record_set]
        for name, member in sorted(members.items())
    ]
    return digest_of(
        {
            "schema": SCHEMA,
            "parent": snapshot.parent,
            "who": snapshot.who,
            "time": snapshot.time,
            "message": snapshot.message,
            "environment": dict(snapshot.environment),
            "scope": None if snapshot.scope is None else list(snapshot.scope),
            "records": snapshot.records,
            "record_set": snapshot.record_set,
            "files": files,
        }
    )


def bank_record_set(members: Mapping[str, Member]) -> str:
    """Return the hash of all records of a bank: of each file's name and record-set hash."""
    sets: list[JsonValue] = [
        [name, member.record_set] for name, member in sorted(members.items()) if member.record_set
    ]
    return digest_of(sets)
