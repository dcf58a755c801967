"""The versions of a bank, from its snapshots or from the git history it lies in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aoebank.errors import HistoryError
from aoebank.model.snapshot import HistorySource
from aoebank.storage.sides import SideKind, StoredSide

SHORT_ID = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """One state of a bank that can be gone back to.

    Attributes:
        id: Of the snapshot or commit, in full.
        parents: The versions before it; the first one is what it is compared with.
        time: RFC 3339 in UTC.
    """

    kind: SideKind
    id: str
    parents: tuple[str, ...]
    who: str
    time: str
    message: str
    tags: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Return how a side of this version is written, the id cut short."""
        return f"{self.kind}:{self.id[:SHORT_ID]}"


class History(Protocol):
    """Versions of one bank."""

    @property
    def kind(self) -> SideKind: ...

    def versions(self) -> tuple[Version, ...]:
        """Return all versions, newest first; a parent comes after its children."""
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


def open_versions(root: Path, source: HistorySource = HistorySource.AUTO) -> History:
    """Return the history of a bank: git's where the bank is committed, else its snapshots.

    Raises:
        HistoryError: the bank has no history of this kind.
    """
    from aoebank.storage.git_versions import GitHistory, is_tracked
    from aoebank.storage.history.database import history_path
    from aoebank.storage.snapshot_versions import SnapshotHistory

    if source is HistorySource.GIT or (source is HistorySource.AUTO and is_tracked(root)):
        return GitHistory(root)
    if history_path(root).is_file():
        return SnapshotHistory(root)
    in_git = is_tracked(root)
    raise HistoryError(
        "bank has no snapshot" if in_git else "bank has no history: no snapshot, and no commit "
        "has its files", where=str(root),
        hint="commits have it; a commit is written git:REV" if in_git
        else f"aoebank snapshot {root}",
    )  # fmt: skip


def split_reference(reference: str) -> tuple[HistorySource, str]:
    """Return where a reference is looked up, and what is left of it.

    >>> split_reference("git:HEAD~1"), split_reference("v1")
    ((<HistorySource.GIT: 'git'>, 'HEAD~1'), (<HistorySource.SNAPSHOTS: 'snapshots'>, 'v1'))
    """
    kind, colon, rest = reference.partition(":")
    if colon and kind == "git":
        return HistorySource.GIT, rest
    return HistorySource.SNAPSHOTS, rest if colon and kind == "snapshot" else reference


def empty_side(kind: SideKind) -> StoredSide:
    """Return a bank without files: what comes before the first version."""
    return StoredSide(
        label="nothing", kind=kind, is_tree=True, place="nothing", contents={},
        read=lambda name: b"",
    )  # fmt: skip
