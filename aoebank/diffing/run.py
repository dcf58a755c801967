"""Compare two banks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from aoebank.diffing.fields import FieldChange, diff_fields, diff_steps
from aoebank.diffing.pair_files import FilePair, pair_files
from aoebank.diffing.result import (
    ChangeKind,
    DiffResult,
    HeaderChange,
    RecordChange,
    RollupRow,
    RollupTally,
    TimeVerdict,
)
from aoebank.errors import (
    AoebankError,
    BankFormatError,
    BankNotFoundError,
    BankPathError,
    RecordError,
    shell_word,
)
from aoebank.formats.names import BankName
from aoebank.formats.protocol import ParsedFile, raise_if_broken
from aoebank.formats.provenance import ProvenanceLog
from aoebank.formats.registry import target_word
from aoebank.formats.text import json_text
from aoebank.formats.words import workload_line
from aoebank.model.digest import canonical_text
from aoebank.model.json_value import JsonValue
from aoebank.model.provenance import Event
from aoebank.model.record import Record
from aoebank.model.timing import NOISE_RATIO, Timing, contradict, is_beyond, noise_band, timing_of
from aoebank.processes import count_processes, map_in_order
from aoebank.selection import RecordFilter, demand_case
from aoebank.storage.sides.side import PathSide, Side, SideKind, listed, size_on_disk

_UNKNOWN = Timing()
_NOBODY: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class SideCarFacts:
    """Facts of the newest entries of a side-car, by key."""

    # Of the stored times: only an entry that stored a record tells of it.
    timings: Mapping[str, Timing]
    uses: Mapping[str, frozenset[tuple[str, str]]]  # Pairs of model and node a record was tuned for


@dataclass(frozen=True)
class MeasuredPair:
    """The side-cars of a file in A and in B, read when the first time has to be judged."""

    load_a: Callable[[], ProvenanceLog]
    load_b: Callable[[], ProvenanceLog]
    noise_ratio: float
    weights: Mapping[str, float] | None = None  # Stands in for what the side-cars say about use

    @cached_property
    def _a(self) -> SideCarFacts:
        return facts_of(self.load_a())

    @cached_property
    def _b(self) -> SideCarFacts:
        return facts_of(self.load_b())

    def judge(
        self, key: str, cost_a_us: float | None, cost_b_us: float | None
    ) -> tuple[TimeVerdict, float]:
        """Return the verdict on two times, and the noise band that was used."""
        if cost_a_us is None or cost_b_us is None:
            return TimeVerdict.UNKNOWN, 0.0
        a, b = self._a.timings.get(key, _UNKNOWN), self._b.timings.get(key, _UNKNOWN)
        band = noise_band(self.noise_ratio, a, b)
        if contradict(a, b):
            return TimeVerdict.NOT_COMPARABLE, band
        if is_beyond(cost_a_us, cost_b_us, band):
            return TimeVerdict.SLOWER, band
        if is_beyond(cost_b_us, cost_a_us, band):
            return TimeVerdict.FASTER, band
        return TimeVerdict.WITHIN_NOISE, band

    def weight(self, key: str) -> float:
        """Return the number of uses of a record; 1 where it is unknown."""
        if self.weights is not None:
            return self.weights.get(key, 0.0)
        uses = self._b.uses.get(key, _NOBODY) or self._a.uses.get(key, _NOBODY)
        return float(len(uses) or 1)


def facts_of(log: ProvenanceLog) -> SideCarFacts:
    """Return the times and uses of records in a side-car."""
    stored = {entry.key: entry for entry in log.entries if entry.event in (Event.ADD, Event.UPDATE)}
    uses: dict[str, set[tuple[str, str]]] = {}
    for entry in log.entries:
        model = str(entry.model.get("sha256") or entry.model.get("name") or "")
        uses.setdefault(entry.key, set()).update((model, name) for name in entry.op_names)
    return SideCarFacts(
        timings={key: timing_of(entry) for key, entry in stored.items()},
        uses={key: frozenset(names) for key, names in uses.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """Options of a comparison."""

    # Times this close are the same; a wider recorded spread of the samples counts instead.
    noise_ratio: float = NOISE_RATIO
    only: RecordFilter = field(default_factory=RecordFilter)
    # How often each key is used; a key it does not name is not. None: as often as the side-cars
    # tell, else once.
    weights: Mapping[str, float] | None = None
    has_renames: bool = True  # Whether to look for files that have another name in B
    has_fields: bool = True  # Whether to tell which members of a strategy changed

    def __post_init__(self) -> None:
        if not (0 <= self.noise_ratio < math.inf):
            raise ValueError(f"noise_ratio must not be negative, not {self.noise_ratio}")


# ---- how often keys are used ----


MAX_WEIGHT = 1e15


def load_weights(path: Path) -> dict[str, float]:
    """Read how often each key is used: one JSON object of key -> number, none negative.

    Raises:
        BankFormatError: it is something else.
        BankPathError: it cannot be read.
    """
    try:
        value = json_text.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError as error:
        raise BankNotFoundError("no such file", path=path) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BankPathError(f"cannot be read: {reason}", path=path) from error
    except ValueError as error:  # no UTF-8, no JSON
        raise BankFormatError(f"weights are not JSON: {error}", path=path) from error
    if not isinstance(value, Mapping):
        raise BankFormatError("weights are not one JSON object", path=path)
    weights = {}
    for key, weight in value.items():
        if (
            isinstance(weight, bool)
            or not isinstance(weight, int | float)
            or not (0 <= weight <= MAX_WEIGHT)
        ):
            raise BankFormatError(
                f"weight of {key!a} is not usable",
                path=path,
                got=json_text.dumps(weight)[:40],
                expected="a number from 0 to 1e15",
            )
        weights[key] = float(weight)
    return weights


# ---- one file ----


_Place: TypeAlias = "tuple[ParsedFile, int]"
_NOTHING: dict[str, int] = {}  # what a side without this file has
_KINDS = {TimeVerdict.SLOWER: ChangeKind.SLOWER, TimeVerdict.FASTER: ChangeKind.FASTER}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileComparison:
    """Two files that belong together; one of them may be absent."""

    name: str  # What to call them
    name_a: str | None  # The name in A, if it has another one there
    old: ParsedFile | None
    new: ParsedFile | None
    measured: MeasuredPair  # What their side-cars say
    options: DiffOptions

    @property
    def soc_version(self) -> str | None:
        """Return the target, as the file names tell."""
        return next((name.soc_version for name in self._names() if name.soc_version), None)

    @property
    def op_type(self) -> str | None:
        """Return the operator type, as the file names tell."""
        return next((name.op_type for name in self._names() if name.op_type), None)

    def is_wanted(self) -> bool:
        """True if the filter asks for any record of these files."""
        only = self.options.only
        socs = [name.soc_version for name in self._names() if name.soc_version]
        is_target = self._has_target_in_rows or only.holds_soc(*socs)
        return is_target and (self.op_type is None or only.holds_op(self.op_type))

    def iter_changes(self) -> Iterator[RecordChange | None]:
        """Yield the change of each wanted record; None where it is the same."""
        only = self.options.only
        has_all = self.op_type is not None or not only.op
        has_all = has_all and not (only.soc and self._has_target_in_rows)
        for key, before, after in self._pairs():
            if before is not None and after is not None:
                if before[0].raw(before[1]) == after[0].raw(after[1]):
                    if has_all or self._holds(after):
                        yield None
                    continue
                change = self._compare(key, before, after)
                if change is None or self._is_meant(change):
                    yield change
            else:
                change = self._lone(key, before, after)
                if self._is_meant(change):
                    yield change

    def _names(self) -> Iterator[BankName]:
        for parsed in (self.new, self.old):
            if parsed is not None and parsed.name is not None:
                yield parsed.name

    def _pairs(self) -> Iterator[tuple[str, _Place | None, _Place | None]]:
        """Yield each wanted key once, with the record readers use for it on both sides."""
        old, new, only = self.old, self.new, self.options.only
        find_old = _NOTHING.get if old is None else old.places.get
        find_new = _NOTHING.get if new is None else new.places.get
        for number, key in enumerate(old.keys if old else ()):
            if find_old(key) == number and (not only.key or only.holds_key(key)):
                place = find_new(key)
                assert old is not None
                yield key, (old, number), None if new is None or place is None else (new, place)
        for number, key in enumerate(new.keys if new else ()):
            if find_old(key) is None and find_new(key) == number and only.holds_key(key):
                assert new is not None
                yield key, None, (new, number)

    @property
    def _has_target_in_rows(self) -> bool:
        files = (parsed for parsed in (self.new, self.old) if parsed is not None)
        return any(parsed.format.has_target_in_rows for parsed in files)

    def _holds(self, place: _Place) -> bool:
        """True if an unchanged record is of a wanted operator type and target."""
        try:
            record = _record(place)
        except RecordError:
            return False
        return self.options.only.holds_op(record.op_type) and self._is_target(record.soc_version)

    def _is_meant(self, change: RecordChange) -> bool:
        return self.options.only.holds_op(change.op_type) and self._is_target(change.soc_version)

    def _is_target(self, soc_version: str | None) -> bool:
        """True if a record is for a wanted target; of most formats the file name tells."""
        return not self._has_target_in_rows or self.options.only.holds_soc(soc_version or "")

    def _lone(self, key: str, before: _Place | None, after: _Place | None) -> RecordChange:
        place = after or before
        assert place is not None
        try:
            record = _record(place)
        except RecordError as error:
            return self._broken(key, error)
        return RecordChange(
            kind=ChangeKind.REMOVED if after is None else ChangeKind.ADDED,
            file=self.name,
            file_a=self.name_a,
            key=key,
            soc_version=self.soc_version or record.soc_version,
            op_type=record.op_type or self.op_type,
            workload=self._describe(record),
            cost_a_us=record.cost_us if after is None else None,
            cost_b_us=None if after is None else record.cost_us,
        )

    def _compare(self, key: str, before: _Place, after: _Place) -> RecordChange | None:
        try:
            a, b = _record(before), _record(after)
        except RecordError as error:
            return self._broken(key, error)
        verdict, band = self.measured.judge(key, a.cost_us, b.cost_us)
        kind = _kind(a, b, verdict)
        if kind is None:
            return None
        has_fields = kind is ChangeKind.STRATEGY and self.options.has_fields
        op_type = b.op_type or a.op_type or self.op_type
        return RecordChange(
            kind=kind,
            file=self.name,
            file_a=self.name_a,
            key=key,
            soc_version=self.soc_version or b.soc_version,
            op_type=op_type,
            workload=self._describe(b),
            cost_a_us=a.cost_us,
            cost_b_us=b.cost_us,
            verdict=verdict,
            noise_ratio=band,
            weight=1.0 if verdict is TimeVerdict.UNKNOWN else self.measured.weight(key),
            fields=tuple(_fields(a, b, op_type, after)) if has_fields else (),
            steps=diff_steps(a.strategy, b.strategy) if has_fields else (),
        )

    def _broken(self, key: str, error: RecordError) -> RecordChange:
        return RecordChange(
            kind=ChangeKind.BROKEN,
            file=self.name,
            file_a=self.name_a,
            key=key,
            soc_version=self.soc_version,
            op_type=self.op_type,
            problem=error.headline,
        )

    def _describe(self, record: Record) -> str:
        return workload_line(record) if self.options.has_fields else ""


def _fields(a: Record, b: Record, op_type: str | None, place: _Place) -> Iterator[FieldChange]:
    """Yield the members that changed, those marked that no reader uses."""
    for change in diff_fields(a.strategy, b.strategy):
        unread = place[0].format.unread_reason(op_type, change.member)
        yield replace(change, unread=unread) if unread else change


def _record(place: _Place) -> Record:
    parsed, number = place
    return parsed.format.record(parsed, number)


def _kind(a: Record, b: Record, verdict: TimeVerdict) -> ChangeKind | None:
    # what Python calls equal may still be 1 and 1.0; what it calls different never is the same
    if a.strategy != b.strategy or canonical_text(a.strategy) != canonical_text(b.strategy):
        return ChangeKind.STRATEGY
    if a.cost_us != b.cost_us:
        return _KINDS.get(verdict, ChangeKind.RETIMED)
    return (
        None if canonical_text(_details(a)) == canonical_text(_details(b)) else ChangeKind.DETAILS
    )


def _details(record: Record) -> JsonValue:
    """Return the members that are neither strategy nor time; the file has the target."""
    others: list[JsonValue] = [other.facts for other in record.alternatives]
    return [record.workload, record.origin, record.extra, others]


# ---- all files ----


_STORED = (SideKind.GIT, SideKind.SNAPSHOT)
_RowKey = tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """Result of comparing two files."""

    row: _RowKey  # Target and operator type, as the file names tell
    changes: tuple[RecordChange, ...]
    equal: int  # How many records are the same
    header: HeaderChange | None
    format: str | None  # Its name; None where the sides hold an empty file only


@dataclass(frozen=True, slots=True, kw_only=True)
class _Problem:
    """Error of two files that could not be compared; a value, so that it hides no other file."""

    error: AoebankError


@dataclass(slots=True)
class _Tally:
    """Results so far."""

    changes: list[RecordChange] = field(default_factory=list)
    rows: dict[_RowKey, RollupTally] = field(default_factory=dict)
    compared: list[FilePair] = field(default_factory=list)
    problems: list[AoebankError] = field(default_factory=list)
    headers: list[HeaderChange] = field(default_factory=list)
    formats: set[str] = field(default_factory=set)

    def add(self, compared: _Compared, *, is_moved: bool) -> None:
        """Add the records of two files."""
        self.changes += compared.changes
        self.headers += () if compared.header is None else (compared.header,)
        self.formats.update(() if compared.format is None else (compared.format,))
        for change in compared.changes:
            self.rows.setdefault(_row_of(change), RollupTally())
        row = self.rows.setdefault(compared.row, RollupTally())
        if is_moved:
            row.moved += compared.equal
        else:
            row.unchanged += compared.equal

    def rollup(self) -> tuple[RollupRow, ...]:
        """Return a row per target and operator type."""
        changes: dict[_RowKey, list[RecordChange]] = {}
        for change in self.changes:
            changes.setdefault(_row_of(change), []).append(change)
        names = sorted(self.rows, key=lambda names: (names[0] or "", names[1] or ""))
        return tuple(
            self.rows[row_key].row(*row_key, changes.get(row_key, [])) for row_key in names
        )


def diff(
    a: Side,
    b: Side,
    options: DiffOptions | None = None,
    *,
    count: Callable[[int], int] = count_processes,
) -> DiffResult:
    """Return the difference of `a` and `b`.

    In trees, a file that cannot be compared is one of `problems` and hides no other.

    Args:
        a: Before.
        b: After.
        options: What is compared, and how.
        count: Says how many processes compare so many bytes.

    Raises:
        BankNotFoundError: one is a tree and the other a file that is not in it, or a tree
            holds no bank file.
        BankFormatError: a side that is one file is broken.
    """
    a, b, options = listed(a), listed(b), options or DiffOptions()
    tally = _Tally()
    is_one_file = not (a.is_tree and b.is_tree)
    pairs = _pairs(a, b, options)
    demand_case(options.only, [*a.names(), *b.names()])

    def work(pair: FilePair) -> _Compared | _Problem | None:
        try:
            return _compare_files(a, b, pair, options)
        except (BankPathError, BankFormatError) as error:
            if is_one_file:
                raise
            return _Problem(error=error)

    processes = count(size_on_disk((a, b)))
    for pair, found in zip(pairs, map_in_order(work, pairs, processes), strict=True):
        if isinstance(found, _Problem):
            tally.problems.append(found.error)
        elif found is not None:
            tally.add(found, is_moved=pair.move is not None)
            tally.compared.append(pair)
    return DiffResult(
        a=a.label,
        b=b.label,
        changes=tuple(sorted(tally.changes, key=_order)),
        moves=tuple(pair.move for pair in tally.compared if pair.move),
        headers=tuple(tally.headers),
        rollup=tally.rollup(),
        problems=tuple(tally.problems),
        noise_ratio=options.noise_ratio,
        target_word=target_word(tally.formats),
    )


def _pairs(a: Side, b: Side, options: DiffOptions) -> list[FilePair]:
    for side in (a, b):
        if side.is_tree and not side.names():
            raise BankNotFoundError(
                "no bank file in this tree",
                path=Path(side.label),
                hint=f"aoebank validate {shell_word(side.label)}"
                if side.kind is SideKind.TREE
                else "",
            )
    if not (a.is_tree and b.is_tree):
        return [FilePair(a=_name_beside(a, b), b=_name_beside(b, a))]
    return pair_files(a, b, has_renames=options.has_renames)


def _name_beside(side: Side, other: Side) -> str:
    """Return the one file meant by a side, which may be a stored tree against a file on disk."""
    if not side.is_tree:
        return side.names()[0]
    (name,) = other.names()
    if side.kind in _STORED:
        place = other.path.absolute().as_posix() if isinstance(other, PathSide) else name
        inside = [stored for stored in side.names() if f"/{place}".endswith(f"/{stored}")]
        if inside:
            return max(inside, key=len)
        same = [stored for stored in side.names() if stored.rpartition("/")[2] == name]
        if len(same) == 1:
            return same[0]
    raise BankNotFoundError(
        "cannot compare a file with a tree",
        path=Path(other.label),
        got="a file",
        expected="a directory",
    )


def _compare_files(a: Side, b: Side, pair: FilePair, options: DiffOptions) -> _Compared | None:
    """Return the difference of two files, None if no record of them is asked for."""
    measured = MeasuredPair(
        load_a=lambda: a.load_provenance(pair.a or ""),
        load_b=lambda: b.load_provenance(pair.b or ""),
        noise_ratio=options.noise_ratio,
        weights=options.weights,
    )
    old = None if pair.a is None else a.load(pair.a)
    new = None if pair.b is None else b.load(pair.b, like=old)
    comparison = FileComparison(
        name=pair.name,
        name_a=pair.a if pair.a != pair.b else None,
        old=old,
        new=new,
        measured=measured,
        options=options,
    )
    if not comparison.is_wanted():
        return None
    _demand_comparable(comparison)
    found = [*comparison.iter_changes()]
    changes = tuple(change for change in found if change is not None)
    row = (comparison.soc_version, comparison.op_type)
    there = [parsed for parsed in (new, old) if parsed is not None]
    return _Compared(
        row=row,
        changes=changes,
        equal=len(found) - len(changes),
        header=_header_change(pair, old, new),
        format=there[0].format.name if there else None,
    )


def _header_change(
    pair: FilePair, old: ParsedFile | None, new: ParsedFile | None
) -> HeaderChange | None:
    if old is None or new is None or old.data == new.data or not (len(old) and len(new)):
        return None
    a, b = old.format.header(old), new.format.header(new)
    return HeaderChange(file=pair.name, a=a, b=b) if a != b else None


def _demand_comparable(comparison: FileComparison) -> None:
    old, new = comparison.old, comparison.new
    if old is not None and new is not None and old.data == new.data:
        return  # however broken: nothing changed
    for parsed in (old, new):
        if parsed is not None:
            raise_if_broken(parsed)
    if old is not None and new is not None and old.format.name != new.format.name:
        raise BankFormatError(
            "cannot compare files of different formats",
            path=new.path,
            got=new.format.name,
            expected=old.format.name,
        )


def _row_of(change: RecordChange) -> _RowKey:
    return change.soc_version, change.op_type


def _order(change: RecordChange) -> tuple[bool, float, int, str, float, str]:
    """Return the sort key: regressions, then breakage, the worst first."""
    is_slower = change.verdict is TimeVerdict.SLOWER
    ratio = change.cost_ratio or 0.0
    rank = list(ChangeKind).index(change.kind)
    return not is_slower, -ratio if is_slower else 0.0, rank, change.file, -ratio, change.key
