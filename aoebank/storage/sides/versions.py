"""The versions of a bank, from its snapshots or from the git history it lies in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from aoebank.model.snapshot import Snapshot
from aoebank.storage.history.store import Counts
from aoebank.storage.sides.side import SideKind, StoredSide

SHORT_ID = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One state of a bank that can be gone back to."""

    kind: SideKind
    id: str  # Of the snapshot or commit, in full
    parents: tuple[str, ...]  # The versions before it; the first one is what it is compared with
    who: str
    time: str  # RFC 3339 in UTC
    message: str
    tags: tuple[str, ...] = ()
    snapshot: Snapshot | None = None  # All a snapshot tells of itself; None for a commit

    @property
    def label(self) -> str:
        """Return the name of a side of this version, its id cut short."""
        return f"{self.kind}:{self.id[:SHORT_ID]}"


class History(Protocol):
    """Versions of one bank."""

    @property
    def kind(self) -> SideKind: ...

    @property
    def has_files(self) -> bool:
        """True if the bank lies on disk too: a bare repository has versions alone."""
        ...

    def iter_versions(self, names: Collection[str] = ()) -> Iterator[Version]:
        """Yield the versions, newest first.

        Args:
            names: Only versions that touch these files, along every line of the history.
        """
        ...

    def get(self, reference: str) -> Version:
        """Return the version a person means.

        Raises:
            HistoryError: there is no such version, or more than one.
        """
        ...

    def side(self, version: str) -> StoredSide:
        """Return the bank as a version has it, by full id; empty for an empty id."""
        ...

    def files(self, version: str, names: Collection[str] = ()) -> StoredSide:
        """Return some files of a version, by default all; cheap for many versions in a row."""
        ...

    def changes(self, version: Version) -> tuple[StoredSide, StoredSide]:
        """Return the bank before a version and as it has it; what both share may be missing."""
        ...

    def counts(self) -> Mapping[str, Counts]:
        """Return the number of records each version changed, by full id, where noted."""
        ...


def empty_side(kind: SideKind) -> StoredSide:
    """Return a bank without files: what comes before the first version."""
    return StoredSide(
        label="nothing",
        kind=kind,
        is_tree=True,
        place="nothing",
        contents={},
        read=lambda name: b"",
    )
