"""Take back what one version changed, record by record, and nothing that came later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import ClassVar

from aoebank.errors import HistoryError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.provenance import provenance_path
from aoebank.history.changes import (
    RecordMove,
    find_quarantine_entry,
    get_record,
    is_same_record,
    iter_moves,
    raw_of,
)
from aoebank.history.edits import EditPlan, FileEdit, Kept, edit_records, load_if_there
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.selection import RecordFilter
from aoebank.storage.quarantine import load_quarantine
from aoebank.storage.sides.open import open_versions, split_reference
from aoebank.storage.sides.side import StoredSide


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertConflict:
    """A record that is no longer as the version left it, so it stays as it is.

    Attributes:
        move: What the version did.
        now: The record as it is; None when it is not there.
        quarantine: Why the record before the version cannot come back, if that is it.
    """

    move: RecordMove
    now: bytes | None
    quarantine: QuarantineEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertPlan(EditPlan):
    """What would be taken back.

    Attributes:
        taken_back: What the version did to the records that are put back.
        done: How many records are already as they were before the version.
    """

    verb: ClassVar[str] = "revert"

    taken_back: tuple[RecordMove, ...]
    conflicts: tuple[RevertConflict, ...]
    done: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertResult:
    """A plan and what became of it; `kept` is None for a dry run."""

    plan: RevertPlan
    kept: Kept | None


def plan_revert(
    root: Path, reference: str, wanted: RecordFilter, *, today: date | None = None
) -> RevertPlan:
    """Return the changes that take back a version from the bank as it is now.

    Args:
        reference: `git:COMMIT`, or a snapshot by tag, id, the start of one, `latest~N`.
        wanted: Records to take back; the others stay.
        today: Records in quarantine on this day do not come back; None: all do.

    Raises:
        HistoryError: there is no such version.
        BankFormatError: a file to change is broken.
    """
    source, rest = split_reference(reference)
    history = open_versions(root, source)
    version = history.get(rest)
    parent = history.side(version.parents[0]) if version.parents else history.side("")
    moves = tuple(iter_moves(parent, history.side(version.id), wanted))
    if not moves:
        raise HistoryError(
            "this version changed none of these records", where=version.label, hint="aoebank log"
        )
    quarantine = load_quarantine(root) if today else Quarantine()
    plan = _Planning(root, parent, quarantine, today or date.min)
    for name in dict.fromkeys(move.file for move in moves):
        plan.add_file(name, [move for move in moves if move.file == name])
    return RevertPlan(
        root=root,
        version=version,
        edits=tuple(plan.edits),
        taken_back=tuple(plan.taken_back),
        conflicts=tuple(plan.conflicts),
        done=plan.done,
    )


class _Planning:
    """Sorts the moves of a version into what goes back, what cannot, and what is done."""

    def __init__(self, root: Path, parent: StoredSide, quarantine: Quarantine, today: date) -> None:
        self._root = root
        self._parent = parent
        self._quarantine = quarantine
        self._today = today
        self.edits: list[FileEdit] = []
        self.taken_back: list[RecordMove] = []
        self.conflicts: list[RevertConflict] = []
        self.done = 0

    def add_file(self, name: str, moves: list[RecordMove]) -> None:
        path = self._root / name
        here, old = load_if_there(path), self._parent.load(name)
        clean = [*self._clean(here, old, moves)]
        if not clean:
            return
        self.taken_back += clean
        changes = {move.key: get_record(old, move.key) for move in clean}
        like = here or old
        assert like is not None  # a clean move has its record here, or had it before
        data = here.data if here is not None else None
        result = edit_records(path, here, like, changes)
        is_empty = old is None and not len(like.format.parse(result, path))
        has_side_car = provenance_path(path).exists()  # it does not stay alone
        after = None if is_empty and data is not None and not has_side_car else result
        self.edits.append(FileEdit(name=name, before=data, after=after))

    def _clean(
        self, here: ParsedFile | None, old: ParsedFile | None, moves: list[RecordMove]
    ) -> Iterator[RecordMove]:
        for move in moves:
            now = raw_of(here, move.key)
            entry = find_quarantine_entry(old, move.key, self._quarantine, self._today)
            if is_same_record(now, move.before):
                self.done += 1
            elif entry is None and is_same_record(now, move.after):
                yield move
            else:
                self.conflicts.append(RevertConflict(move=move, now=now, quarantine=entry))
