"""Take a snapshot of a bank."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import AoebankError, BankNotFoundError
from aoebank.history.changes import Move, count_moves, iter_moves, tally
from aoebank.model.snapshot import Author, Snapshot
from aoebank.selection import RecordFilter, holds_file, parts_of
from aoebank.storage.history.counts import put_counts
from aoebank.storage.history.database import history_path, open_history
from aoebank.storage.history.recording import NewTag, Recorded, record
from aoebank.storage.history.store import (
    check_tag,
    find_snapshot,
    list_snapshots,
    members_of,
)
from aoebank.storage.sides.side import PathSide
from aoebank.storage.sides.snapshots import SnapshotHistory
from aoebank.storage.tree import FileKind, iter_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResult:
    """What became of taking a snapshot.

    Attributes:
        recorded: None for a dry run.
        moves: How many records moved since the snapshot before.
        tag: Name it was given.
        is_tracked: Whether commits have the bank too.
    """

    root: Path
    recorded: Recorded | None
    moves: Mapping[Move, int]
    tag: str | None = None
    is_tracked: bool = False


def take_snapshot(
    root: Path,
    author: Author,
    *,
    message: str = "",
    tag: str | None = None,
    soc: tuple[str, ...] = (),
    force: bool = False,
) -> SnapshotResult:
    """Record the present state of a bank, unless the latest snapshot has it already.

    Args:
        tag: Name for the snapshot.
        soc: Patterns of soc_versions to look at; the others stay as they were recorded.
        force: Move the tag if it means another snapshot.

    Raises:
        BankNotFoundError: there is no such bank, or nothing of these soc_versions.
        HistoryError: the history is damaged, or the tag is taken.
        BankPathError: the history cannot be written; nothing of the snapshot is kept.
    """
    from aoebank.storage.sides.git import is_tracked

    if tag is not None:
        check_tag(tag)
    new_tag = NewTag(name=tag, force=force) if tag is not None else None
    recorded = record_bank(root, author, message=message, soc=soc, tag=new_tag)
    return SnapshotResult(
        root=root,
        recorded=recorded,
        tag=tag,
        moves=_moves(root, recorded),
        is_tracked=is_tracked(root),
    )


def preview_snapshot(root: Path, *, soc: tuple[str, ...] = ()) -> SnapshotResult:
    """Return how many records a snapshot would find moved since the latest one.

    Raises:
        BankNotFoundError: there is no such bank, or nothing of these soc_versions.
    """
    _demand_bank(root)
    _scope(root, soc)
    history = SnapshotHistory(root)
    snapshots = history.snapshots() if history_path(root).is_file() else ()
    before = history.side(snapshots[-1].id if snapshots else "")
    moves = iter_moves(before, PathSide(label=str(root), path=root), RecordFilter(soc=soc))
    return SnapshotResult(root=root, recorded=None, moves=count_moves(moves))


def record_bank(
    root: Path,
    author: Author,
    *,
    message: str,
    soc: tuple[str, ...] = (),
    tag: NewTag | None = None,
) -> Recorded:
    """Record a bank, without looking at what moved."""
    _demand_bank(root)
    wanted = RecordFilter(soc=soc)
    draft = Snapshot(
        id="",
        parent="",
        who=author.who,
        time=author.time,
        message=message,
        environment=author.machine,
        scope=_scope(root, soc),
        records=0,
        record_set="",
    )
    with open_history(root, create=True) as database:
        return record(database, root, draft, wanted=lambda name: holds_file(wanted, name), tag=tag)


def _demand_bank(root: Path) -> None:
    if not root.is_dir():
        raise BankNotFoundError("no such bank", path=root, expected="a directory")


def _moves(root: Path, recorded: Recorded) -> Mapping[Move, int]:
    if not recorded.is_new:
        return {}
    if not recorded.snapshot.parent:
        return {Move.ADDED: recorded.snapshot.records} if recorded.snapshot.records else {}
    history = SnapshotHistory(root)
    snapshot = recorded.snapshot
    sides = (history.side(snapshot.parent), history.side(snapshot.id))
    counts = tally(iter_moves(*sides, RecordFilter()))
    with suppress(AoebankError), open_history(root) as database:  # the snapshot itself is there
        put_counts(database, snapshot.id, counts)
    return {kind: counts.moves[kind] for kind in Move if counts.moves.get(kind)}


def _scope(root: Path, soc: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the soc_versions that patterns mean, here or in the latest snapshot."""
    if not soc:
        return None
    names = {*_names_on_disk(root), *_names_in_history(root)}
    wanted = RecordFilter(soc=soc)
    found = {soc_version for name in names for soc_version in parts_of(name).soc_versions}
    scope = tuple(sorted(soc_version for soc_version in found if wanted.holds_soc(soc_version)))
    if not scope:
        raise BankNotFoundError(
            "nothing of this soc_version in the bank",
            path=root,
            got=", ".join(soc),
            expected=", ".join(sorted(found)) or None,
        )
    return scope


def _names_on_disk(root: Path) -> list[str]:
    kinds = (FileKind.BANK, FileKind.SIDE_CAR)
    return [os.path.relpath(entry.path, root) for entry in iter_tree(root) if entry.kind in kinds]


def _names_in_history(root: Path) -> list[str]:
    if not history_path(root).is_file():
        return []
    with open_history(root) as database:
        snapshots = list_snapshots(database)
        return [*members_of(database, find_snapshot(snapshots, "latest"))] if snapshots else []
