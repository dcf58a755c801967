"""Snapshots as versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoebank.model.snapshot import Snapshot
from aoebank.storage.history.database import open_history
from aoebank.storage.history.store import find_snapshot, list_snapshots
from aoebank.storage.sides.side import SideKind, StoredSide
from aoebank.storage.sides.snapshot_side import open_snapshot_side
from aoebank.storage.sides.versions import Version, empty_side


@dataclass(frozen=True, slots=True)
class SnapshotHistory:
    """The snapshots beside a bank."""

    root: Path

    @property
    def kind(self) -> SideKind:
        return SideKind.SNAPSHOT

    def versions(self) -> tuple[Version, ...]:
        """Return all snapshots, newest first."""
        return tuple(_version(each) for each in reversed(self.snapshots()))

    def get(self, reference: str) -> Version:
        """Return the snapshot a tag, an id, the start of one, or `latest~N` means."""
        return _version(find_snapshot(self.snapshots(), reference))

    def side(self, version: str) -> StoredSide:
        """Return the bank as a snapshot has it."""
        if not version:
            return empty_side(self.kind)
        return open_snapshot_side(version, root=self.root)

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
    )
