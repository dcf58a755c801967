"""Changes between two versions of a bank, record by record, as bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.digest import record_digest
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.model.record import Record
from aoebank.selection import RecordFilter, holds_file, holds_record, target_of
from aoebank.storage.history.store import Counts
from aoebank.storage.quarantine import find_entry
from aoebank.storage.sides.side import Side, StoredSide


class Move(StrEnum):
    """Kind of change of a record."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordMove:
    """One record that is not the same before and after."""

    file: str  # Path below the root
    key: str
    before: bytes | None  # Its bytes; None when it was not there
    after: bytes | None

    @property
    def kind(self) -> Move:
        """Return the kind of the move."""
        if self.before is None:
            return Move.ADDED
        return Move.REMOVED if self.after is None else Move.CHANGED


def iter_moves(before: Side, after: Side, wanted: RecordFilter) -> Iterator[RecordMove]:
    """Yield the records that differ between two sides; another spelling is no difference."""
    for name in sorted({*before.names(), *after.names()}):
        if holds_file(wanted, name) and not _is_same_content(before, after, name):
            yield from file_moves(name, before.load(name), after.load(name), wanted)


def file_moves(
    name: str, before: ParsedFile | None, after: ParsedFile | None, wanted: RecordFilter
) -> Iterator[RecordMove]:
    """Yield the records that differ between two states of a file."""
    if before is not None and after is not None and before.data == after.data:
        return
    old, new = (parsed.keys if parsed else [] for parsed in (before, after))
    for key in dict.fromkeys((*old, *new)):
        if not wanted.holds_key(key):
            continue
        left, right = raw_of(before, key), raw_of(after, key)
        if is_same_record(left, right) or not _is_meant(wanted, before, after, key):
            continue
        yield RecordMove(file=name, key=key, before=left, after=right)


def raw_of(parsed: ParsedFile | None, key: str) -> bytes | None:
    """Return the bytes of the record readers use for a key, or None."""
    number = parsed.find(key) if parsed is not None else None
    return parsed.raw(number) if parsed is not None and number is not None else None


def is_same_record(a: bytes | None, b: bytes | None) -> bool:
    """True if two records are equal whatever their spelling; None: there is none."""
    if a == b:
        return True
    return a is not None and b is not None and record_digest(a) == record_digest(b)


def get_record(parsed: ParsedFile | None, key: str) -> Record | None:
    """Return the record readers use for a key, None if there is none.

    Raises:
        RecordError: it is broken.
    """
    number = parsed.find(key) if parsed is not None else None
    return parsed.format.record(parsed, number) if parsed and number is not None else None


def read_record(parsed: ParsedFile | None, key: str) -> Record | None:
    """Return the record readers use for a key; None if there is none or it is broken."""
    with suppress(RecordError):
        return get_record(parsed, key)
    return None


def find_quarantine_entry(
    parsed: ParsedFile | None, key: str, quarantine: Quarantine, today: date
) -> QuarantineEntry | None:
    """Return the entry that keeps the record of a key out, or None."""
    number = parsed.find(key) if parsed is not None else None
    if parsed is None or number is None:
        return None
    return find_entry(parsed, number, quarantine, today=today)


def count_moves(moves: Iterable[RecordMove]) -> Counter[Move]:
    """Return the number of records that moved in each way."""
    return Counter(move.kind for move in moves)


def tally(moves: Iterable[RecordMove]) -> Counts:
    """Return the number of records that moved, by kind of change and by soc_version."""
    kinds: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for move in moves:
        kinds[str(move.kind)] += 1
        files[move.file] += 1
    socs: Counter[str] = Counter()
    for name, number in files.items():
        socs[target_of(name)] += number
    return Counts(moves=dict(kinds), socs=dict(socs))


def _is_meant(
    wanted: RecordFilter, before: ParsedFile | None, after: ParsedFile | None, key: str
) -> bool:
    """True if a record is of a wanted operator type, and of a wanted target where it names its."""
    files = (parsed for parsed in (before, after) if parsed is not None)
    asks_target = bool(wanted.soc) and any(one.format.has_target_in_rows for one in files)
    if not (wanted.op or asks_target):
        return True
    found = read_record(after, key) or read_record(before, key)
    return found is not None and holds_record(wanted, found)


def _is_same_content(before: Side, after: Side, name: str) -> bool:
    """True if a store says two files are equal, without reading them."""
    if not (isinstance(before, StoredSide) and isinstance(after, StoredSide)):
        return False
    stored = before.contents.get(name)
    return before.kind is after.kind and stored is not None and stored == after.contents.get(name)
