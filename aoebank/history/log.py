"""List the versions of a bank with what each changed, and check its snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from aoebank.errors import HistoryError
from aoebank.formats.registry import get_format
from aoebank.formats.text.digest import record_digest, record_set_hash
from aoebank.history.changes import Move, iter_moves, tally
from aoebank.history.snapshot import moves_document, moves_summary, snapshot_document
from aoebank.model.display import RichDisplay
from aoebank.model.snapshot import HistorySource, Member, Snapshot, bank_record_set, snapshot_id
from aoebank.parameters.context import bank_in_use
from aoebank.report.output import Report, Text, members, plural
from aoebank.selection import RecordFilter, is_whole
from aoebank.storage.history.content import read_content
from aoebank.storage.history.database import open_history
from aoebank.storage.history.store import Counts, list_counts, list_snapshots, list_tags, members_of
from aoebank.storage.sides.open import open_versions
from aoebank.storage.sides.side import SideKind
from aoebank.storage.sides.snapshots import SnapshotHistory
from aoebank.storage.sides.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedVersion:
    """A version and what it changed."""

    version: Version
    moves: Mapping[Move, int]  # How many of the records asked for moved
    socs: Mapping[str, int]  # The same by soc_version


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LogResult(RichDisplay):
    """Versions, newest first."""

    shown_by = "aoebank.history.log:LogReport"
    rows_in = "versions"

    root: Path
    kind: SideKind
    versions: tuple[LoggedVersion, ...]
    more: bool  # Whether there are older ones


def log(
    root: Path,
    *,
    wanted: RecordFilter,
    limit: int | None = None,
    source: HistorySource = HistorySource.AUTO,
) -> LogResult:
    """Return the versions that changed the records asked for; without a filter all.

    Raises:
        HistoryError: the bank has no history.
    """
    history = open_versions(root, source)
    noted = history.counts() if is_whole(wanted) else {}
    found: list[LoggedVersion] = []
    for version in history.iter_versions():
        if limit is not None and len(found) == limit and is_whole(wanted):
            return LogResult(root=root, kind=history.kind, versions=tuple(found), more=True)
        counts = noted.get(version.id) or tally(iter_moves(*history.changes(version), wanted))
        if not counts.moves and not is_whole(wanted):
            continue
        if limit is not None and len(found) == limit:
            return LogResult(root=root, kind=history.kind, versions=tuple(found), more=True)
        found.append(
            LoggedVersion(
                version=version,
                moves={kind: counts.moves[kind] for kind in Move if counts.moves.get(kind)},
                socs=counts.socs,
            )
        )
    return LogResult(root=root, kind=history.kind, versions=tuple(found), more=False)


# ---- the check of snapshots ----


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """Result of the check of a whole history."""

    root: Path
    snapshots: int
    files: int  # Different contents that were read
    problems: tuple[str, ...]  # What is not as it was stored; none is good


def verify_history(root: Path) -> VerifyResult:
    """Read everything in the history of a bank and compare it with its digests.

    Raises:
        HistoryError: there is no history, or the database as such cannot be read.
    """
    with open_history(root) as database:
        integrity = database.execute("PRAGMA integrity_check(5)").fetchall()
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
    database: Connection, snapshot: Snapshot, parent: str, contents: dict[int, str]
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


def _content_problem(database: Connection, member: Member) -> str:
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


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport(Report):
    """A block per version."""

    result: LogResult
    schema: str = "aoebank.log/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no version changed what was asked for."""
        return 0 if self.result.versions else 1

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "root kind"),
            "versions": [_document(logged) for logged in self.result.versions],
            "more": self.result.more,
        }

    def write(self, text: Text) -> None:
        for logged in self.result.versions:
            _write(text, logged)
        if self.result.more:
            text.line(("older versions are left out: see --limit", "dim"))
        if not self.result.versions:
            text.line("no version changed these records")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Report):
    """Problems of a history."""

    result: VerifyResult
    schema: str = "aoebank.log-verify/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if anything is not as it was stored."""
        return 1 if self.result.problems else 0

    def document(self) -> Mapping[str, object]:
        return members(self.result, "root snapshots contents=files problems")

    def write(self, text: Text) -> None:
        for problem in self.result.problems:
            text.line((problem, "red"))
        good = "all as stored" if not self.result.problems else "not all as stored"
        snapshots = plural(self.result.snapshots, "snapshot")
        text.line(f"{snapshots}, {plural(self.result.files, 'different file')}: {good}")


def write_version(text: Text, version: Version) -> None:
    """Write id, tags, time and who, then the first line of the message."""
    tags = f" ({', '.join(version.tags)})" if version.tags else ""
    text.line((version.label, "yellow"), (tags, "cyan"), f"  {version.time}  {version.who}")
    for line in version.message.splitlines()[:1]:
        text.line(f"    {line}")


def version_document(version: Version) -> dict[str, object]:
    """Return the members of a version."""
    return members(version, "version=kind id parents who time message tags")


def _write(text: Text, logged: LoggedVersion) -> None:
    write_version(text, logged.version)
    # the name of a table of aiter, or of TunableOp, tells no target
    socs = ", ".join(f"{soc or '-'} {number}" for soc, number in sorted(logged.socs.items()))
    text.line(f"    {moves_summary(logged.moves)}{f' ({socs})' if len(logged.socs) > 1 else ''}")


def _document(logged: LoggedVersion) -> dict[str, object]:
    members = version_document(logged.version)
    if logged.version.snapshot is not None:
        members |= snapshot_document(logged.version.snapshot)
    return {**members, "moves": moves_document(logged.moves), "socs": dict(logged.socs)}


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> LogReport | VerifyReport:
    """Return the report on the versions of a bank, or on the check of its snapshots."""
    if given["verify"]:
        return VerifyReport(result=verify_history(bank_in_use(given["root"])))
    return LogReport(result=call())
