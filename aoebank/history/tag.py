"""Give snapshots names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aoebank.model.snapshot import Author, Snapshot
from aoebank.storage.history.database import open_history, transaction
from aoebank.storage.history.store import (
    find_snapshot,
    list_snapshots,
    list_tags,
    put_tag,
    remove_tag,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TagResult:
    """The tags of a bank, and what happened to one.

    Attributes:
        tags: Id of the snapshot by name of the tag.
        name: The tag that was asked for; None when all were.
        snapshot: Id of what it means now, or meant before it was removed.
        is_removed: Whether it was removed.
    """

    root: Path
    tags: dict[str, str]
    name: str | None = None
    snapshot: str | None = None
    is_removed: bool = False


def show_tags(root: Path) -> TagResult:
    """Return all tags.

    Raises:
        HistoryError: the bank has no history.
    """
    with open_history(root) as database:
        return TagResult(root=root, tags=list_tags(database))


def add_tag(
    root: Path, name: str, reference: str, author: Author, *, force: bool = False
) -> TagResult:
    """Let a tag mean a snapshot.

    Raises:
        HistoryError: there is no such snapshot, the name cannot be a tag, or it is taken.
    """
    with open_history(root) as database:
        snapshot: Snapshot = find_snapshot(list_snapshots(database), reference)
        with transaction(database):
            put_tag(database, name, snapshot, who=author.who, time=author.time, force=force)
        tags = list_tags(database)
    return TagResult(root=root, tags=tags, name=name, snapshot=snapshot.id)


def delete_tag(root: Path, name: str, author: Author) -> TagResult:
    """Remove a tag; its snapshot stays.

    Raises:
        HistoryError: there is no such tag.
    """
    with open_history(root) as database:
        meant = remove_tag(database, name, who=author.who, time=author.time)
        tags = list_tags(database)
    return TagResult(root=root, tags=tags, name=name, snapshot=meant, is_removed=True)
