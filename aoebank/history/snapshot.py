"""Take a snapshot of a bank."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import AoebankError, BankNotFoundError
from aoebank.formats.text.json_text import storable
from aoebank.history.changes import Move, RecordMove, count_moves, iter_moves, tally
from aoebank.model.snapshot import SHORT_ID, Author, Snapshot
from aoebank.report.output import Report, Text, members, plural
from aoebank.selection import RecordFilter, holds_file, parts_of
from aoebank.storage.history.database import history_path, open_history, transaction
from aoebank.storage.history.recording import NewTag, Recorded, record
from aoebank.storage.history.store import (
    check_tag,
    find_snapshot,
    list_snapshots,
    list_tags,
    members_of,
    put_counts,
    put_tag,
    remove_tag,
)
from aoebank.storage.sides.side import PathSide
from aoebank.storage.sides.snapshots import SnapshotHistory
from aoebank.storage.tree import FileKind, iter_tree

# ---- tags ----


@dataclass(frozen=True, slots=True, kw_only=True)
class TagResult:
    """The tags of a bank, and what happened to one."""

    root: Path
    tags: dict[str, str]  # Id of the snapshot by name of the tag
    name: str | None = None  # The tag that was asked for; None when all were
    snapshot: str | None = None  # Id of what it means now, or meant before it was removed
    is_removed: bool = False  # Whether it was removed


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


# ---- snapshots ----


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotResult:
    """Outcome of taking a snapshot."""

    root: Path
    recorded: Recorded | None  # None for a dry run
    moves: Mapping[Move, int]  # How many records moved since the snapshot before
    tag: str | None = None  # Name it was given
    is_tracked: bool = False  # Whether commits have the bank too


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
    """Return the number of records a snapshot would find moved since the latest one.

    Raises:
        BankNotFoundError: there is no such bank, or nothing of these soc_versions.
    """
    _demand_bank(root)
    _scope(root, soc)
    history = SnapshotHistory(root)
    snapshots = history.snapshots() if history_path(root).is_file() else ()
    before = history.side(snapshots[-1].id if snapshots else "")
    moves = iter_moves(before, PathSide(label=str(root), path=root), RecordFilter())
    wanted = RecordFilter(soc=soc)  # of files: a snapshot takes each whole
    meant = (move for move in moves if holds_file(wanted, move.file))
    return SnapshotResult(root=root, recorded=None, moves=count_moves(meant))


def record_bank(
    root: Path,
    author: Author,
    *,
    message: str,
    soc: tuple[str, ...] = (),
    tag: NewTag | None = None,
) -> Recorded:
    """Record a bank, without looking at what moved.

    Of the message, what no UTF-8 can hold is spelled out: the history is a database.
    """
    _demand_bank(root)
    wanted = RecordFilter(soc=soc)
    draft = Snapshot(
        id="",
        parent="",
        who=author.who,
        time=author.time,
        message=storable(message),
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


# ---- what is printed ----


STYLES = {Move.ADDED: "green", Move.REMOVED: "red", Move.CHANGED: "magenta"}
_BACK = {Move.ADDED: Move.REMOVED, Move.REMOVED: Move.ADDED, Move.CHANGED: Move.CHANGED}


def moves_summary(moves: Mapping[Move, int]) -> str:
    """Return `2 added, 1 changed`, or `no record moved`."""
    parts = [f"{moves[kind]} {kind}" for kind in Move if moves.get(kind)]
    return ", ".join(parts) or "no record moved"


def moves_document(moves: Mapping[Move, int]) -> dict[str, int]:
    """Return the counts of every kind."""
    return {str(kind): moves.get(kind, 0) for kind in Move}


def move_document(move: RecordMove, *, is_back: bool = False) -> dict[str, str]:
    """Return the members of a move.

    Args:
        is_back: It is taken back, so an added record is one that goes.
    """
    kind = _BACK[move.kind] if is_back else move.kind
    return {"kind": str(kind), "file": move.file, "key": move.key}


def write_moves(text: Text, moves: Sequence[RecordMove], *, is_back: bool = False) -> None:
    """Write a line per record, file by file."""
    file = None
    for move in moves:
        if move.file != file:
            file = move.file
            text.line((file, "bold"))
        kind = _BACK[move.kind] if is_back else move.kind
        text.line(f"  {move.key}  ", (str(kind), STYLES[kind]))


def short(id_: str) -> str:
    """Return enough of an id for people."""
    return id_[:SHORT_ID]


def files_and_records(files: int, records: int) -> str:
    """Return `2 files, 5 records`."""
    return f"{plural(files, 'file')}, {plural(records, 'record')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport(Report):
    """The snapshot, and what is new in it."""

    result: SnapshotResult
    schema: str = "aoebank.snapshot/1"

    def document(self) -> Mapping[str, object]:
        result, recorded = self.result, self.result.recorded
        found: dict[str, object] = {
            "root": str(result.root),
            "dry_run": recorded is None,
            "moves": moves_document(result.moves),
        }
        if recorded is None:
            return found
        return {
            **found,
            "new": recorded.is_new,
            "snapshot": snapshot_document(recorded.snapshot),
            "tag": result.tag,
            "broken": list(recorded.broken),
            "in_git": result.is_tracked,
            "files": [
                {
                    **members(member, "name sha256 records"),
                    "record_set": member.record_set or None,
                }
                for member in recorded.members.values()
            ],
        }

    def write(self, text: Text) -> None:
        result, recorded = self.result, self.result.recorded
        if recorded is None:
            text.line(f"would record: {moves_summary(result.moves)}")
            return
        snapshot = recorded.snapshot
        tag = f", tag {result.tag}" if result.tag else ""
        if recorded.is_new:
            what = files_and_records(len(recorded.members), snapshot.records)
            text.line(
                "snapshot ",
                (snapshot.short_id, "yellow"),
                f": {what}: {moves_summary(result.moves)}{tag}",
            )
        else:
            text.line("nothing has changed since snapshot ", (snapshot.short_id, "yellow"), tag)
        for name in recorded.broken:
            text.line(("broken: ", "red"), f"{name}, recorded as it is")
        if result.is_tracked:
            text.line(("note: commits have this bank too; log and blame go by them", "dim"))


def snapshot_document(snapshot: Snapshot) -> dict[str, object]:
    """Return the members of a snapshot."""
    return {
        **members(snapshot, "id parent?"),
        **members(snapshot, "who time message tags"),
        "environment": dict(snapshot.environment),
        "soc_versions": None if snapshot.scope is None else list(snapshot.scope),
        **members(snapshot, "records record_set"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class TagReport(Report):
    """The change of one tag, or all tags."""

    result: TagResult
    schema: str = "aoebank.tag/1"

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "root tags name snapshot"),
            "removed": self.result.is_removed,
        }

    def write(self, text: Text) -> None:
        result = self.result
        if result.name is None:
            for name, id_ in result.tags.items():
                text.line((name, "cyan"), f"  {short(id_)}")
            if not result.tags:
                text.line("no tag")
            return
        verb = "no longer means" if result.is_removed else "means"
        text.line(
            (result.name, "cyan"), f" {verb} snapshot ", (short(result.snapshot or ""), "yellow")
        )
