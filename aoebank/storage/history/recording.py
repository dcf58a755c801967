"""Take a snapshot: read every file whole, pack what is new, add it in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from sqlite3 import Connection

from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.digest import sha256_of
from aoebank.model.snapshot import Member, Snapshot, bank_record_set, snapshot_id
from aoebank.storage.bank import load_file, read_file, read_there
from aoebank.storage.history.content import (
    Packing,
    Place,
    decode_runs,
    load_chunks,
    pack,
    piece_name,
)
from aoebank.storage.history.database import transaction
from aoebank.storage.history.store import (
    add_snapshot,
    find_content,
    list_snapshots,
    members_of,
    put_tag,
)
from aoebank.storage.tree import FileKind, find_closed, iter_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFile:
    """One file of a bank as a snapshot sees it."""

    name: str  # Path below the root
    data: bytes
    parsed: ParsedFile | None  # Of a bank file; None for a side-car or a binary twin

    @property
    def is_broken(self) -> bool:
        """True if readers cannot use it."""
        return self.parsed is not None and find_error(self.parsed) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Snapshot that was taken, or found to be up to date."""

    snapshot: Snapshot  # The new one, or the latest when nothing has changed since
    members: Mapping[str, Member]
    is_new: bool  # False when nothing has changed
    # Bank files that are recorded as they are, though readers cannot use them.
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTag:
    """A name for a snapshot, and whether it may be taken from another one."""

    name: str
    force: bool = False


def iter_bank_files(root: Path, wanted: Callable[[str], bool]) -> Iterator[BankFile]:
    """Yield the bank files below `root`, their side-cars and binary twins, each read whole.

    Args:
        wanted: Given a path below the root, whether to read that file.

    Raises:
        BankPathError: a folder, or what may be a bank file, cannot be read. Left out it would
            count as removed.
    """
    for entry in iter_tree(root):
        name = entry.path.relative_to(root).as_posix()
        error = find_closed(entry)
        if error is not None:
            raise error
        if entry.kind is FileKind.SIDE_CAR and wanted(name):
            yield BankFile(name=name, data=read_there(entry.path), parsed=None)
        elif entry.kind is FileKind.BANK and wanted(name):
            parsed = load_file(entry.path)
            yield BankFile(name=name, data=parsed.data, parsed=parsed)
            binary_cache = parsed.format.companion(entry.path)
            data = read_file(binary_cache) if binary_cache is not None else None
            if binary_cache is not None and data is not None:
                place = binary_cache.relative_to(root).as_posix()
                yield BankFile(name=place, data=data, parsed=None)


def demand_readable(root: Path) -> None:
    """Raise `BankPathError` for a bank that could not be recorded, before it is changed."""
    for entry in iter_tree(root):
        error = find_closed(entry)
        if error is not None:
            raise error
        is_ours = entry.kind in (FileKind.BANK, FileKind.SIDE_CAR)
        if is_ours and not (entry.path.is_file() and os.access(entry.path, os.R_OK)):
            read_there(entry.path)  # tells what is the matter


def record(
    database: Connection,
    root: Path,
    draft: Snapshot,
    *,
    wanted: Callable[[str], bool],
    tag: NewTag | None = None,
) -> Recorded:
    """Add the present state of a bank to its history, unless nothing has changed.

    Packing is done before the write lock is taken: others wait for the adding alone.

    Args:
        draft: Says who, when, why and what scope; the rest is filled in here.
        wanted: Which files are looked at; the others stay as the snapshot before had them.
        tag: Name for the snapshot.

    Raises:
        BankPathError: something cannot be read.
        HistoryError: the tag is taken; then nothing is recorded either.
    """
    snapshots = list_snapshots(database)
    before = members_of(database, snapshots[-1]) if snapshots else {}
    files: dict[str, Packing] = {}
    broken = []
    for file in iter_bank_files(root, wanted):
        files[file.name] = _pack(database, file, before)
        broken += [file.name] if file.is_broken else []
    with transaction(database):
        recorded = _add(database, draft, files, wanted, tuple(broken))
        if tag is not None:
            put_tag(
                database,
                tag.name,
                recorded.snapshot,
                who=draft.who,
                time=draft.time,
                force=tag.force,
            )
    return recorded


def _add(
    database: Connection,
    draft: Snapshot,
    files: Mapping[str, Packing],
    wanted: Callable[[str], bool],
    broken: tuple[str, ...],
) -> Recorded:
    snapshots = list_snapshots(database)  # another process may have been first
    latest = snapshots[-1] if snapshots else None
    before = members_of(database, latest) if latest else {}
    kept = {name: Packing(member=file) for name, file in before.items() if not wanted(name)}
    packings = dict(sorted({**kept, **files}.items()))
    final = {name: packing.member for name, packing in packings.items()}
    scope = _scope(latest, draft)
    if latest and scope == latest.scope and _digests(final) == _digests(before):
        return Recorded(snapshot=latest, members=before, is_new=False, broken=broken)
    snapshot = replace(
        draft,
        parent=latest.id if latest else "",
        scope=scope,
        records=sum(member.records for member in final.values()),
        record_set=bank_record_set(final),
    )
    snapshot = replace(snapshot, id=snapshot_id(snapshot, final))
    add_snapshot(database, snapshot, packings)
    return Recorded(
        snapshot=snapshot, members=members_of(database, snapshot), is_new=True, broken=broken
    )


def _pack(database: Connection, file: BankFile, before: Mapping[str, Member]) -> Packing:
    """Return a file as the store has it already, or packed."""
    format_name = str(file.parsed.format.name) if file.parsed else ""
    stored = find_content(database, sha256_of(file.data), format_name)
    if stored is not None:
        return Packing(member=replace(stored, name=file.name))
    known, digests = _known_pieces(database, before.get(file.name), format_name)
    packing = pack(file.data, file.parsed, known, digests)
    packing.member = replace(packing.member, name=file.name)
    return packing


def _known_pieces(
    database: Connection, member: Member | None, format_name: str
) -> tuple[dict[bytes, Place], dict[int, bytes]]:
    """Return the pieces a file had in the snapshot before."""
    known: dict[bytes, Place] = {}
    digests: dict[int, bytes] = {}
    if member is None or member.format != format_name:
        return known, digests
    query = "SELECT runs FROM content WHERE id = ?"
    runs = decode_runs(database.execute(query, [member.content]).fetchone()[0])
    for chunk in load_chunks(database, dict.fromkeys(chunk for chunk, _, _ in runs)):
        digests[chunk.id] = chunk.records
        for position, piece in enumerate(chunk.pieces()):
            known.setdefault(piece_name(piece), (chunk.id, position))
    return known, digests


def _digests(members: Mapping[str, Member]) -> dict[str, tuple[str, str]]:
    return {name: (member.sha256, member.format) for name, member in members.items()}


def _scope(latest: Snapshot | None, draft: Snapshot) -> tuple[str, ...] | None:
    """Return the soc_versions a snapshot knows about, with the ones of the snapshot before."""
    if draft.scope is None or (latest is not None and latest.scope is None):
        return None
    return tuple(sorted({*draft.scope, *(latest.scope or () if latest else ())}))
