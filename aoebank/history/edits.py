"""Planned changes of bank files, and writing them without losing what was there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aoebank.errors import HistoryError
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.text.checks import is_blank
from aoebank.history.snapshot import record_bank
from aoebank.model.digest import sha256_of
from aoebank.model.record import Record
from aoebank.model.snapshot import Author, Snapshot
from aoebank.report.output import Text
from aoebank.storage.bank import load_file
from aoebank.storage.binary_caches import demand_no_binary_cache
from aoebank.storage.history.database import history_path, open_history
from aoebank.storage.history.recording import demand_readable
from aoebank.storage.history.store import list_snapshots, members_of
from aoebank.storage.sides.git import GitHistory, is_tracked
from aoebank.storage.writing.atomic import TEMPORARY_SUFFIX, hold_folder
from aoebank.storage.writing.journal import roll_back
from aoebank.storage.writing.staged import FileWrite, write_files


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """Content of one file before and after an edit."""

    name: str  # Path below the root
    before: bytes | None  # Its bytes now; None when it is not there
    after: bytes | None  # Its bytes then; None when it goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Snapshots that keep the states before and after some edits."""

    # Snapshot made because the state before was not recorded, else None.
    before: Snapshot | None = None
    after: Snapshot | None = None  # Snapshot of the result; None where the bank has no snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class EditPlan:
    """Files of a bank to change, whole or record by record."""

    root: Path
    edits: tuple[FileEdit, ...] = ()

    @property
    def message(self) -> str:
        """Return the message of the snapshot of the result."""
        raise NotImplementedError

    def first(self) -> tuple[FileEdit, ...]:
        """Return the files that change before the others; they alone are no reason to record."""
        return ()


_Plan = TypeVar("_Plan", bound=EditPlan)


def load_if_there(path: Path) -> ParsedFile | None:
    """Read a bank file, broken or not; None if there is none."""
    return load_file(path) if path.exists() else None


def edit_records(
    path: Path, parsed: ParsedFile | None, like: ParsedFile, changes: Mapping[str, Record | None]
) -> bytes:
    """Return a bank file with some records changed, the others byte for byte.

    Args:
        parsed: The file now; None when there is none.
        like: A file that tells the format of a new one.

    Raises:
        BankFormatError: the file is broken.
        BankPathError: readers take its binary twin, which the edit would make wrong.
    """
    format_ = parsed.format if parsed is not None else like.format
    demand_no_binary_cache(
        path,
        format_,
        problem="readers open this twin of the bank file, so single records cannot change",
        hint="restore whole files: without --key",
    )
    if parsed is None or is_blank(parsed.data):
        parsed = format_.parse(format_.empty, path)
    raise_if_broken(parsed)
    return format_.serialize(parsed, changes)


def change_bank(
    root: Path, make_plan: Callable[[], _Plan], author: Callable[[], Author], *, dry_run: bool
) -> tuple[_Plan, Kept | None]:
    """Plan the edits of a bank and carry them out; a dry run writes nothing.

    Raises:
        BankLockedError: another process changes the bank.
        BankPathError: a file cannot be written, or was changed meanwhile.
    """
    if dry_run:
        return make_plan(), None
    with hold_folder(root):  # others read what this one writes
        put_back_edits(root)
        plan = make_plan()
        return plan, carry_out(plan, author())


def carry_out(plan: EditPlan, author: Author) -> Kept:
    """Write files, the state before kept in the history first unless it is recorded.

    All files are written, or none: `put_back_edits` undoes the changes of a process that died
    in the middle. A file that changed since it was read is an error.

    Raises:
        BankLockedError: another process is at it.
        BankPathError: a file cannot be written, or was changed meanwhile.
    """
    root, edits, first = plan.root, plan.edits, plan.first()
    if not edits and not first:
        return Kept()
    if edits and history_path(root).is_file():
        demand_readable(root)  # the result is to be recorded
    kept = None
    if edits and not _is_recorded(root, edits):
        kept = record_bank(root, author, message=f"before {plan.message}").snapshot
    changes = (
        FileWrite(path=root / edit.name, data=edit.after, old_sha256=sha256_of(edit.before))
        for edit in (*first, *edits)
    )
    write_files(changes, journal=_journal(root), root=root)
    if not edits or not history_path(root).is_file():
        return Kept()
    return Kept(before=kept, after=record_bank(root, author, message=plan.message).snapshot)


def put_back_edits(root: Path) -> None:
    """Undo a restore or a revert whose process died in the middle.

    Raises:
        BankLockedError: it lives.
    """
    roll_back(_journal(root))


def _journal(root: Path) -> Path:
    return root / f".restore{TEMPORARY_SUFFIX}"


def _is_recorded(root: Path, edits: Iterable[FileEdit]) -> bool:
    """True if the latest snapshot or commit has the files as they are now."""
    there = {edit.name: edit.before for edit in edits if edit.before is not None}
    return not there or _is_in_snapshot(root, there) or _is_in_commit(root, there)


def _is_in_snapshot(root: Path, files: Mapping[str, bytes]) -> bool:
    if not history_path(root).is_file():
        return False
    with open_history(root, create=True) as database:  # the first snapshot may have been cut off
        snapshots = list_snapshots(database)
        members = members_of(database, snapshots[-1]) if snapshots else {}
    stored = {name: member.sha256 for name, member in members.items()}
    return all(stored.get(name) == sha256_of(data) for name, data in files.items())


def _is_in_commit(root: Path, files: Mapping[str, bytes]) -> bool:
    try:
        if not is_tracked(root):
            return False
        side = GitHistory(root).side("HEAD")
        return all(side.read_bytes(name) == data for name, data in files.items())
    except HistoryError:
        return False


def write_kept(text: Text, kept: Kept | None) -> None:
    """Write which snapshots keep the states before and after."""
    if kept is None:
        return
    for snapshot, what in ((kept.before, "the state before"), (kept.after, "the result")):
        if snapshot is not None:
            text.line((f"{what} is snapshot {snapshot.short_id}", "dim"))


def kept_document(kept: Kept | None) -> dict[str, str | None]:
    """Return the ids of the snapshots that keep the states before and after."""
    before, after = (kept.before, kept.after) if kept else (None, None)
    return {"before": before.id if before else None, "after": after.id if after else None}
