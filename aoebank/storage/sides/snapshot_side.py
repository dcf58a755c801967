"""A snapshot as a side."""

from __future__ import annotations

from pathlib import Path

from aoebank.model.snapshot import Snapshot
from aoebank.storage.history.content import read_content
from aoebank.storage.history.database import open_history
from aoebank.storage.history.store import find_snapshot, list_snapshots, members_of
from aoebank.storage.sides.side import SideKind, StoredSide


def open_snapshot_side(reference: str, *, root: Path) -> StoredSide:
    """Return the bank at `root` as it was in a snapshot.

    Args:
        reference: A tag, an id or the start of one, `latest`, `latest~N`.

    Raises:
        HistoryError: the bank has no history, or no such snapshot.
    """
    snapshot = get_snapshot(reference, root=root)
    with open_history(root) as database:
        members = members_of(database, snapshot)
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
