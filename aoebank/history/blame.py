"""Find which version brought a record, and what it was before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.diffing.fields import diff_fields, field_value, plain
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text.json_text import dumps
from aoebank.history.changes import Move, is_same_record, raw_of, read_record
from aoebank.history.log import version_document
from aoebank.history.snapshot import STYLES
from aoebank.model.display import RichDisplay
from aoebank.model.provenance import Provenance
from aoebank.model.record import Record
from aoebank.model.snapshot import HistorySource
from aoebank.reading.show import provenance_document, write_provenance
from aoebank.report.output import Report, Text, cut, members
from aoebank.selection import RecordFilter, holds_file, holds_record
from aoebank.storage.sides.open import open_versions
from aoebank.storage.sides.side import PathSide, Side, StoredSide
from aoebank.storage.sides.versions import History, Version

_KEPT_FILES = 8  # a walk looks at a version and its parents; a merge has two, rarely more


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordVersion:
    """One state of a record and the version that brought it."""

    version: Version | None  # None for a state on disk that no version has
    move: Move  # Whether the version added, changed or removed the record
    record: Record | None  # None when it was removed, or cannot be read


@dataclass(frozen=True, slots=True, kw_only=True)
class BlamedRecord:
    """A record with all its states, newest first."""

    file: str
    key: str
    is_present: bool  # Whether the bank has it now
    states: tuple[RecordVersion, ...]
    provenance: tuple[Provenance, ...]  # What its side-car tells, oldest first


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class BlameResult(RichDisplay):
    """Every record a key means; none if no version ever had it."""

    shown_by = "aoebank.history.blame:BlameReport"
    rows_in = "records"

    root: Path
    key: str
    records: tuple[BlamedRecord, ...]


def blame(
    root: Path, key: str, *, wanted: RecordFilter, source: HistorySource = HistorySource.AUTO
) -> BlameResult:
    """Return the origin of the records of a key, in the bank and in its history.

    Args:
        key: A key, the start of one, or a pattern.
        wanted: Which files are meant, and which records of those that hold several operators or
            targets.

    Raises:
        HistoryError: the bank has no history.
    """
    history = open_versions(root, source)
    here: Side = PathSide(label=str(root), path=root)
    if not history.has_files:
        here = history.side("HEAD")
    keys = RecordFilter(key=(key,))
    places = dict.fromkeys(_places(here, wanted, keys))
    if not places:  # removed: the newest version that had it knows where
        places = _find_removed(history, wanted, keys)
    walk = _Walk(history, {name for name, _ in places})
    return BlameResult(
        root=root,
        key=key,
        records=tuple(_blame(walk, here, name, full_key) for name, full_key in places),
    )


def _places(side: Side, wanted: RecordFilter, keys: RecordFilter) -> Iterator[tuple[str, str]]:
    for name in side.names():
        parsed = side.load(name) if holds_file(wanted, name) else None
        for key in parsed.keys if parsed else ():
            if keys.holds_key(key) and _is_meant(wanted, parsed, key):
                yield name, key


def _is_meant(wanted: RecordFilter, parsed: ParsedFile | None, key: str) -> bool:
    """True if a record is of a wanted operator and target, or cannot be read."""
    if not (wanted.op or wanted.soc):
        return True
    record = read_record(parsed, key)
    return record is None or holds_record(wanted, record)


def _find_removed(
    history: History, wanted: RecordFilter, keys: RecordFilter
) -> dict[tuple[str, str], None]:
    """Return file and key of such a record in the newest version that has one."""
    known: dict[tuple[str, str], tuple[str, ...]] = {}  # versions share most of their files
    for version in history.iter_versions():
        side = history.files(version.id)
        places: dict[tuple[str, str], None] = {}
        for name in side.names():
            if not holds_file(wanted, name):
                continue
            place = name, side.contents[name]
            if place not in known:
                parsed = side.load(name)
                known[place] = tuple(
                    key
                    for key in (parsed.keys if parsed else ())
                    if keys.holds_key(key) and _is_meant(wanted, parsed, key)
                )
            places |= dict.fromkeys((name, key) for key in known[place])
        if places:
            return places
    return {}


def _blame(walk: _Walk, here: Side, name: str, key: str) -> BlamedRecord:
    parsed = here.load(name)
    states = tuple(walk.states(name, key, parsed))
    entries = here.load_provenance(name).entries
    return BlamedRecord(
        file=name,
        key=key,
        is_present=raw_of(parsed, key) is not None,
        states=states,
        provenance=tuple(entry for entry in entries if entry.key == key),
    )


class _Walk:
    """Goes back from version to parent and remembers what it read of each."""

    def __init__(self, history: History, names: set[str]) -> None:
        versions = tuple(history.iter_versions(names)) if names else ()
        self._history = history
        self._names = names
        self._versions = {version.id: version for version in versions}
        self._newest = versions[0] if versions else None
        self._sides: dict[str, StoredSide] = {}
        self._read: dict[tuple[str, str], ParsedFile | None] = {}

    def states(self, name: str, key: str, here: ParsedFile | None) -> Iterator[RecordVersion]:
        """Yield the states of a record, newest first."""
        now, version = raw_of(here, key), self._newest
        if version is None:
            return
        if not is_same_record(now, self._raw(version, name, key)):
            old = self._raw(version, name, key)
            yield RecordVersion(version=None, move=_move(old, now), record=read_record(here, key))
        while version is not None:
            now = self._raw(version, name, key)
            parents = [self._versions[id_] for id_ in version.parents if id_ in self._versions]
            same = next(
                (parent for parent in parents if is_same_record(now, self._raw(parent, name, key))),
                None,
            )
            if same is None:
                old = self._raw(parents[0], name, key) if parents else None
                if old is not None or now is not None:
                    record = read_record(self._load(version, name), key)
                    yield RecordVersion(version=version, move=_move(old, now), record=record)
                same = parents[0] if parents else None
            version = same

    def _raw(self, version: Version, name: str, key: str) -> bytes | None:
        return raw_of(self._load(version, name), key)

    def _load(self, version: Version, name: str) -> ParsedFile | None:
        if version.id not in self._sides:
            self._sides[version.id] = self._history.files(version.id, self._names)
        side = self._sides[version.id]
        stored = side.contents.get(name)
        if stored is None:
            return None
        place = name, stored  # versions share what did not change between them
        if place not in self._read:
            while len(self._read) >= _KEPT_FILES:
                del self._read[next(iter(self._read))]
            self._read[place] = side.load(name)
        return self._read[place]


def _move(old: bytes | None, now: bytes | None) -> Move:
    if old is None:
        return Move.ADDED
    return Move.REMOVED if now is None else Move.CHANGED


_INDENT = " " * 11
_MOST_FIELDS = 8
_LONGEST = 100  # of a value; --json has it whole


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class BlameReport(Report):
    """The states of each record, newest first."""

    result: BlameResult
    schema: str = "aoebank.blame/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no version ever had such a record."""
        return 0 if self.result.records else 1

    def document(self) -> Mapping[str, object]:
        return {
            **members(self.result, "root key"),
            "records": [_document(blamed) for blamed in self.result.records],
        }

    def write(self, text: Text) -> None:
        if not self.result.records:
            text.line(f"{self.result.key}: no version has such a record")
        for number, blamed in enumerate(self.result.records):
            if number:
                text.line()
            _write(text, blamed)


def _write(text: Text, blamed: BlamedRecord) -> None:
    absent = "" if blamed.is_present else "  (no longer in the bank)"
    text.line((blamed.key, "bold"), f"  {blamed.file}{absent}")
    older = [*blamed.states[1:], None]
    for state, before in zip(blamed.states, older, strict=True):
        _write_state(text, state, before.record if before else None)
    for entry in blamed.provenance:
        write_provenance(text, entry)


def _write_state(text: Text, state: RecordVersion, before: Record | None) -> None:
    """Write a state and what it changed; of a record that came new, its time and strategy."""
    version = state.version
    who = "not recorded yet"
    if version is not None:
        tags = f" ({', '.join(version.tags)})" if version.tags else ""
        who = f"{version.label}{tags}  {version.time}  {version.who}"
    text.line("  ", (f"{state.move:<8}", STYLES[state.move]), f" {who}{_message(state)}")
    if state.record is None:
        return
    if before is None or state.move is not Move.CHANGED:
        strategy = cut(dumps(state.record.strategy), _LONGEST)
        text.line(f"{_INDENT}{_cost(state.record)}  strategy {strategy}")
        return
    for line in _changes(before, state.record):
        text.line(f"{_INDENT}{line}")


def _changes(before: Record, now: Record) -> Iterator[str]:
    """Yield the differences of two states of a record, a line each."""
    if _cost(before) != _cost(now):
        yield f"{_cost(before)} -> {_cost(now)}"
    changes = diff_fields(before.strategy, now.strategy)
    for change in changes[:_MOST_FIELDS]:
        old, new = (cut(field_value(change, of_b=of_b), _LONGEST) for of_b in (False, True))
        yield f"{change.pointer}: {old} -> {new}"
    if len(changes) > _MOST_FIELDS:
        yield f"and {len(changes) - _MOST_FIELDS} more members (--json has both strategies)"
    if not changes and _cost(before) == _cost(now):
        yield "strategy and time are the same; other members changed"


def _message(state: RecordVersion) -> str:
    lines = state.version.message.splitlines() if state.version else []
    return f"  {lines[0]}" if lines else ""


def _cost(record: Record) -> str:
    return "not measured" if record.cost_us is None else f"{record.cost_us:g} us"


def _document(blamed: BlamedRecord) -> dict[str, object]:
    return {
        **members(blamed, "file key present=is_present"),
        "states": [_state(state) for state in blamed.states],
        "provenance": [provenance_document(entry) for entry in blamed.provenance],
    }


def _state(state: RecordVersion) -> dict[str, object]:
    record = state.record
    return {
        "move": str(state.move),
        "version": version_document(state.version) if state.version else None,
        "record": None
        if record is None
        else {
            "cost_us": plain(record.cost_us),
            "origin": record.origin,
            "strategy": plain(record.strategy),
        },
    }
