"""Snapshots: one as a side, and all of a bank as its versions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from aoebank.model.snapshot import Snapshot
from aoebank.storage.history.content import read_content
from aoebank.storage.history.database import open_history
from aoebank.storage.history.store import (
    Counts,
    demand_whole,
    find_snapshot,
    list_counts,
    list_snapshots,
    members_of,
)
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.storage.sides.versions import Version, empty_side


def open_snapshot_side(reference: str, *, root: Path) -> StoredSide:
    """Return the bank at `root` as it was in a snapshot.

    Args:
        reference: A tag, an id or the start of one, `latest`, `latest~N`.

    Raises:
        HistoryError: the bank has no history, or no such snapshot, or it is damaged.
    """
    snapshot = get_snapshot(reference, root=root)
    with open_history(root) as database:
        members = members_of(database, snapshot)
    demand_whole(snapshot, members)
    return StoredSide(
        label=f"snapshot:{reference}",
        kind=SideKind.SNAPSHOT,
        is_tree=True,
        place=f"snapshot:{snapshot.short_id}:{root}",
        contents={name: str(member.content) for name, member in members.items()},
        read=lambda number: read_snapshot_file(root, int(number)),
    )


def get_snapshot(reference: str, *, root: Path) -> Snapshot:
    """Return the snapshot a reference means.

    Raises:
        HistoryError: there is none.
    """
    with open_history(root) as database:
        return find_snapshot(list_snapshots(database), reference)


def read_snapshot_file(root: Path, content: int) -> bytes:
    """Return the bytes of a file of a snapshot.

    Raises:
        HistoryError: they are not what was stored.
    """
    with open_history(root) as database:
        return read_content(database, content)


@dataclass(frozen=True, slots=True)
class SnapshotHistory:
    """The snapshots beside a bank."""

    root: Path

    @property
    def kind(self) -> SideKind:
        return SideKind.SNAPSHOT

    @property
    def has_files(self) -> bool:
        """True: snapshots lie in the bank they are of."""
        return True

    def iter_versions(self, names: Collection[str] = ()) -> Iterator[Version]:
        """Yield all snapshots, newest first."""
        return (_version(snapshot) for snapshot in reversed(self.snapshots()))

    def get(self, reference: str) -> Version:
        """Return the snapshot a tag, an id, the start of one, or `latest~N` means."""
        return _version(find_snapshot(self.snapshots(), reference))

    def side(self, version: str) -> StoredSide:
        """Return the bank as a snapshot has it."""
        if not version:
            return empty_side(self.kind)
        return open_snapshot_side(version, root=self.root)

    def files(self, version: str, names: Collection[str] = ()) -> StoredSide:
        """Return the bank as a snapshot has it."""
        return self.side(version)

    def changes(self, version: Version) -> tuple[StoredSide, StoredSide]:
        """Return the bank as the snapshot before has it, and as this one does."""
        parent = version.parents[0] if version.parents else ""
        return self.side(parent), self.side(version.id)

    def counts(self) -> dict[str, Counts]:
        """Return the number of records that moved, by full id, where noted."""
        with open_history(self.root) as database:
            return list_counts(database)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """Return the snapshots with all that is known of them, oldest first."""
        with open_history(self.root) as database:
            return list_snapshots(database)


def _version(snapshot: Snapshot) -> Version:
    return Version(
        kind=SideKind.SNAPSHOT,
        id=snapshot.id,
        parents=(snapshot.parent,) if snapshot.parent else (),
        who=snapshot.who,
        time=snapshot.time,
        message=snapshot.message,
        tags=snapshot.tags,
        snapshot=snapshot,
    )
