"""Reports on snapshots: their records, moved records, and tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoebank.history.changes import Move, RecordMove
from aoebank.history.edits import Kept
from aoebank.history.snapshot import SnapshotResult
from aoebank.history.tag import TagResult
from aoebank.model.snapshot import SHORT_ID, Snapshot
from aoebank.report.output import Report, Text, members, plural

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
    return {"before": _id(before), "after": _id(after)}


def short(id_: str) -> str:
    """Return enough of an id for people."""
    return id_[:SHORT_ID]


def files_and_records(files: int, records: int) -> str:
    """Return `2 files, 5 records`."""
    return f"{plural(files, 'file')}, {plural(records, 'record')}"


def _id(snapshot: Snapshot | None) -> str | None:
    return snapshot.id if snapshot else None


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
    """What happened to one tag, or all there are."""

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
