"""Records that moved between two versions, as text and as members of a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from aoebank.history.changes import Move, RecordMove
from aoebank.history.edits import Kept
from aoebank.model.snapshot import SHORT_ID, Snapshot
from aoebank.report.output import Text, plural

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
