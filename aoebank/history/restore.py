"""Put a bank, or a part of it, back to how a version has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import ClassVar

from aoebank.errors import BankPathError, HistoryError, shell_word
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.provenance import SUFFIX
from aoebank.history.changes import (
    RecordMove,
    file_moves,
    find_quarantine_entry,
    get_record,
)
from aoebank.history.edits import EditPlan, FileEdit, Kept, edit_records, load_if_there
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.selection import (
    RecordFilter,
    bank_name_of,
    demand_case,
    holds_file,
    holds_whole_file,
    is_whole,
    parts_of,
)
from aoebank.storage.binary_caches import binary_cache_of
from aoebank.storage.history.recording import iter_bank_files
from aoebank.storage.quarantine import load_quarantine
from aoebank.storage.sides.open import open_versions, split_reference
from aoebank.storage.sides.side import PathSide, SideKind, StoredSide
from aoebank.storage.sides.versions import Version


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptOut:
    """A record that did not come back, and the entry that says why."""

    file: str
    key: str
    entry: QuarantineEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan(EditPlan):
    """What would change on the way to a version.

    Attributes:
        moves: Records that are not the same; none for files that only change their spelling.
        unknown: Files that stay because the version does not know their soc_version.
        kept_out: Records of the version that do not come back, being in quarantine.
    """

    verb: ClassVar[str] = "restore"

    moves: tuple[RecordMove, ...]
    unknown: tuple[str, ...] = ()
    kept_out: tuple[KeptOut, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A plan and what became of it; `kept` is None for a dry run."""

    plan: RestorePlan
    kept: Kept | None


def plan_restore(
    root: Path, reference: str, wanted: RecordFilter, *, today: date | None = None
) -> RestorePlan:
    """Return the changes that bring the bank back to a version.

    Args:
        reference: `git:REV`, or a snapshot by tag, id, the start of one, `latest~N`.
        wanted: With patterns for keys, single records are put back; else whole files with
            their side-cars, byte for byte.
        today: Records in quarantine on this day stay out; None: everything comes back.

    Raises:
        HistoryError: there is no such version, or nothing of what is wanted in it or here.
        BankFormatError: a file is broken and only some of its records are wanted, or the
            quarantine is broken.
    """
    source, rest = split_reference(reference)
    history = open_versions(root, source)
    version = history.get(rest)
    side = history.side(version.id)
    demand_case(wanted, side.names())
    known, unknown = _known(root, version, side, wanted)
    if not known and not unknown and not is_whole(wanted):
        raise HistoryError(
            "nothing of what was asked for is in this version or in the bank",
            where=version.label,
            hint=f"aoebank ls {shell_word(root)}",
        )
    quarantine = load_quarantine(root) if today else Quarantine()
    guard = _Guard(quarantine, today or date.min, side)
    edits: list[FileEdit] = []
    moves: list[RecordMove] = []
    for name in known:
        before, after = load_if_there(root / name), guard.clean(name, side.load(name))
        moves += file_moves(name, before, after, wanted)
        if not holds_whole_file(wanted, name):
            edits += _record_edit(root, name, before, after, moves)
    edits += _file_edits(root, side, wanted, frozenset(unknown), guard)
    return RestorePlan(
        root=root,
        version=version,
        edits=tuple(edits),
        moves=tuple(moves),
        unknown=unknown,
        kept_out=tuple(kept for kept in guard.kept_out if wanted.holds_key(kept.key)),
    )


class _Guard:
    """Takes records in quarantine out of the files of a version."""

    def __init__(self, quarantine: Quarantine, today: date, side: StoredSide) -> None:
        self._stored = side.contents.keys()
        self._quarantine = quarantine
        self._today = today
        self.kept_out: list[KeptOut] = []
        self.cleaned: dict[str, bytes] = {}

    def clean(self, name: str, parsed: ParsedFile | None) -> ParsedFile | None:
        """Return a file of a version as it may come back."""
        if parsed is None or not len(self._quarantine):
            return parsed
        found = [
            KeptOut(file=name, key=key, entry=entry)
            for key in dict.fromkeys(parsed.keys)
            if (entry := find_quarantine_entry(parsed, key, self._quarantine, self._today))
        ]
        if not found:
            return parsed
        if _binary_cache_name(name) in self._stored:
            raise BankPathError(
                "a record of this file is in quarantine, and only its tuner can take it out of "
                "the binary twin",
                path=Path(name),
                got=found[0].key,
                hint="--with-quarantined brings the file back as it was",
            )
        if find_error(parsed) is not None:
            return parsed
        data = parsed.format.serialize(parsed, dict.fromkeys(kept.key for kept in found))
        if data == parsed.data:
            return parsed
        self.kept_out += found
        self.cleaned[name] = data
        return parsed.format.parse(data, parsed.path)


def _known(
    root: Path, version: Version, side: StoredSide, wanted: RecordFilter
) -> tuple[list[str], tuple[str, ...]]:
    """Return the bank files in question, and those the version knows nothing about."""
    here = PathSide(label=str(root), path=root).names() if root.is_dir() else ()
    names = [name for name in sorted({*here, *side.names()}) if holds_file(wanted, name)]
    snapshot = version.snapshot
    if snapshot is None or snapshot.scope is None:
        return names, ()
    unknown = tuple(
        name for name in names if not any(map(snapshot.covers, parts_of(name).soc_versions))
    )
    return [name for name in names if name not in unknown], unknown


def _record_edit(
    root: Path,
    name: str,
    before: ParsedFile | None,
    after: ParsedFile | None,
    moves: list[RecordMove],
) -> Iterator[FileEdit]:
    """Yield the edit of a file of which only some records are put back."""
    changes = {move.key: get_record(after, move.key) for move in moves if move.file == name}
    like = before or after
    if not changes or like is None:
        return
    data = before.data if before is not None else None
    result = edit_records(root / name, before, like, changes)
    if result != data:
        yield FileEdit(name=name, before=data, after=result)


def _file_edits(
    root: Path, side: StoredSide, wanted: RecordFilter, unknown: frozenset[str], guard: _Guard
) -> Iterator[FileEdit]:
    """Yield the edits of files that are put back whole, side-cars and twins included."""

    def is_meant(name: str) -> bool:
        return holds_whole_file(wanted, name) and bank_name_of(name) not in unknown

    before = {file.name: file.data for file in iter_bank_files(root, is_meant)}
    then = [name for name in _stored_files(side) if is_meant(name)]
    for name in sorted({*before, *then}):
        after = guard.cleaned.get(name)
        if after is None and name in then:
            after = side.read(side.contents[name])
        if before.get(name) != after:
            yield FileEdit(name=name, before=before.get(name), after=after)


def _stored_files(side: StoredSide) -> list[str]:
    """Return the bank files of a version, their side-cars and their binary twins."""
    if side.kind is SideKind.SNAPSHOT:
        return [*side.contents]
    banks = side.names()
    companions = {*banks, *(f"{name}{SUFFIX}" for name in banks)}
    companions |= {
        binary_cache for name in banks if (binary_cache := _binary_cache_name(name)) is not None
    }
    return [name for name in side.contents if name in companions]


def _binary_cache_name(name: str) -> str | None:
    binary_cache = binary_cache_of(Path(name))
    return binary_cache.as_posix() if binary_cache else None
