"""Check that a history of snapshots is what was stored: digests, ids, the chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.errors import HistoryError
from aoebank.formats.registry import get_format
from aoebank.formats.text.digest import record_digest, record_set_hash
from aoebank.history.changes import iter_moves, tally
from aoebank.model.snapshot import Member, Snapshot, bank_record_set, snapshot_id
from aoebank.selection import RecordFilter
from aoebank.storage.history.content import read_content
from aoebank.storage.history.database import open_history
from aoebank.storage.history.store import Counts, list_counts, list_snapshots, list_tags, members_of
from aoebank.storage.sides.snapshots import SnapshotHistory

if TYPE_CHECKING:
    from sqlite_utils import Database


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """What a check of a whole history found.

    Attributes:
        files: Different contents that were read.
        problems: What is not as it was stored; none is good.
    """

    root: Path
    snapshots: int
    files: int
    problems: tuple[str, ...]


def verify_history(root: Path) -> VerifyResult:
    """Read everything in the history of a bank and compare it with its digests.

    Raises:
        HistoryError: there is no history, or the database as such cannot be read.
    """
    with open_history(root) as database:
        integrity = database.conn.execute("PRAGMA integrity_check(5)").fetchall()
        problems = [f"database: {line}" for (line,) in integrity if line != "ok"]
        snapshots = list_snapshots(database)
        contents: dict[int, str] = {}
        for place, snapshot in enumerate(snapshots):
            parent = snapshots[place - 1].id if place else ""
            found = _problems(database, snapshot, parent, contents)
            problems += [f"snapshot {snapshot.short_id}: {problem}" for problem in found]
        ids = {snapshot.id for snapshot in snapshots}
        problems += [
            f"tag {name}: means a snapshot that is not there"
            for name, id_ in list_tags(database).items()
            if id_ not in ids
        ]
        noted = list_counts(database)
    problems += _count_problems(root, snapshots, noted) if noted and not problems else []
    return VerifyResult(
        root=root, snapshots=len(snapshots), files=len(contents), problems=tuple(problems)
    )


def _count_problems(
    root: Path, snapshots: tuple[Snapshot, ...], noted: Mapping[str, Counts]
) -> Iterator[str]:
    """Yield the snapshots that moved other numbers of records than was noted."""
    history = SnapshotHistory(root)
    for snapshot in snapshots:
        if snapshot.id in noted:
            sides = (history.side(snapshot.parent), history.side(snapshot.id))
            counts, noted_counts = tally(iter_moves(*sides, RecordFilter())), noted[snapshot.id]
            # earlier releases named the first folder where that is none of a target
            totals = [sum(one.socs.values()) for one in (counts, noted_counts)]
            if counts.moves != noted_counts.moves or totals[0] != totals[1]:
                yield f"snapshot {snapshot.short_id}: not as many records moved as was noted"


def _problems(
    database: Database, snapshot: Snapshot, parent: str, contents: dict[int, str]
) -> Iterator[str]:
    """Yield the problems of a snapshot; `contents` remembers files read before."""
    try:
        members = members_of(database, snapshot)
    except HistoryError as error:
        yield error.problem
        return
    yield from _chain_problems(snapshot, members, parent)
    for member in members.values():
        if member.content not in contents:
            contents[member.content] = _content_problem(database, member)
        if contents[member.content]:
            yield f"{member.name}: {contents[member.content]}"


def _chain_problems(
    snapshot: Snapshot, members: Mapping[str, Member], parent: str
) -> Iterator[str]:
    if snapshot.parent != parent:
        yield "the snapshot before it is not its parent"
    if snapshot.record_set != bank_record_set(members):
        yield "the record-set hash is not that of its files"
    if snapshot.id != snapshot_id(snapshot, members):
        yield "the id is not the hash of what it says"


def _content_problem(database: Database, member: Member) -> str:
    """Return the problem of a stored file, empty if there is none."""
    try:
        data = read_content(database, member.content)
    except HistoryError as error:
        return error.problem
    if len(data) != member.size_bytes:
        return "its size is not the one stored"
    if not member.format:
        return ""
    try:
        format_ = get_format(member.format)
    except ValueError:
        return "its format is not known"
    parsed = format_.parse(data, Path(member.name))
    digests = [record_digest(parsed.raw(number)) for number in range(len(parsed))]
    if record_set_hash(digests) != member.record_set:
        return "the record-set hash is not that of its records"
    return ""
