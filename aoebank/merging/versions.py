"""The three versions of one bank file: parsed, checked that they fit together, each key once.

Of several records of one key in one file, the one that counts:

    some kept out or with an error, others sound               a sound one
    two comparable times, the gap beyond the noise band        the fastest
    anything else                                              the one readers use
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isclose
from pathlib import Path
from statistics import median
from typing import Protocol

from aoebank.errors import BankFormatError, RecordError
from aoebank.formats.faults import Fault, find_fault, rank_of
from aoebank.formats.plausibility import find_time_problem
from aoebank.formats.protocol import ParsedFile, find_error, raise_if_broken
from aoebank.formats.provenance import ProvenanceLog
from aoebank.formats.registry import HEAD_BYTES, find_format
from aoebank.formats.text.checks import is_blank
from aoebank.merging.decisions import (
    CLEAN,
    SOURCE_OF,
    Action,
    Changed,
    Choice,
    KeptDuplicate,
    KeptRecord,
    MergeRules,
    Reason,
    Source,
    Three,
)
from aoebank.model.digest import sha256_of
from aoebank.model.provenance import Event, Provenance
from aoebank.model.record import Record
from aoebank.model.timing import (
    Timing,
    are_comparable,
    fingerprint_of,
    is_beyond,
    noise_band,
    timing_of,
)

KeptOut = Callable[[ParsedFile], Mapping[int, str]]
_STORED = (Event.ADD, Event.UPDATE)  # the events that put a time into the bank
_ROUNDING = 1e-3  # banks keep times rounded
_BROKEN_HINT = "mend that side first: aoebank validate names everything that is wrong"
_TARGET = ("soc_version", "core_num", "core_type", "op_type")
OTHER_TARGET_HINT = "--allow-other-soc merges them all the same"
_USED = {  # the versions whose record an action takes, or whose removal
    Action.KEEP_BOTH: (Source.OURS, Source.THEIRS),
    Action.REMOVE: (Source.THEIRS,),
    **{action: (source,) for action, source in SOURCE_OF.items()},
}
_NOWHERE: dict[str, int] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions(Three[ParsedFile | None]):
    """The parsed files; None where a version has no such file."""

    def any(self) -> ParsedFile:
        """Return one that is there, ours first."""
        found = [parsed for parsed in (self.ours, self.theirs, self.base) if parsed is not None]
        return found[0]

    def iter_places(self) -> Iterator[tuple[str, int | None, int | None, int | None]]:
        """Yield key and position in base, ours and theirs: those of ours, then new ones."""
        find_base, find_ours, find_theirs = (
            parsed.places.get if parsed is not None else _NOWHERE.get
            for parsed in (self.base, self.ours, self.theirs)
        )
        for number, key in enumerate(self.ours.keys if self.ours else ()):
            if find_ours(key) == number:
                yield key, find_base(key), number, find_theirs(key)
        for number, key in enumerate(self.theirs.keys if self.theirs else ()):
            if find_ours(key) is None and find_theirs(key) == number:
                yield key, find_base(key), None, number

    def iter_compared(
        self, *, is_two_way: bool
    ) -> Iterator[tuple[str, int | None, int | None, int | None, Changed]]:
        """Yield the same with who changed the key, going by bytes.

        Args:
            is_two_way: There is no base: what a side does not have it did not remove.
        """
        raw_base, raw_ours, raw_theirs = map(_reader, (self.base, self.ours, self.theirs))
        for key, base, ours, theirs in self.iter_places():
            mine, other = raw_ours(ours), raw_theirs(theirs)
            if mine == other:
                who = Changed.NOBODY
            elif is_two_way and None in (ours, theirs):
                who = Changed.OURS if theirs is None else Changed.THEIRS
            elif is_two_way:
                who = Changed.BOTH
            else:
                old = raw_base(base)
                who = Changed.OURS if other == old else Changed.BOTH
                if mine == old:
                    who = Changed.THEIRS
            yield key, base, ours, theirs, who

    def hidden(self, source: Source) -> dict[str, list[int]]:
        """Return by key the records that do not count, since another one has their key."""
        parsed = self.of(source)
        repeated = parsed.repeated() if parsed is not None else {}
        return {
            key: [number for number in numbers if parsed is None or parsed.find(key) != number]
            for key, numbers in repeated.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVersions(Three[int | None]):
    """Where a key is in each version, None where it is not, and its records there.

    Attributes:
        files: The versions it is in.
    """

    key: str
    files: Versions
    _records: dict[Source, Record | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    _faults: dict[Source, Fault | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def record(self, source: Source) -> Record | None:
        """Return the record of one version, or None if there is none or it cannot be read."""
        if source not in self._records:
            parsed, number = self.files.of(source), self.of(source)
            self._records[source] = None
            if parsed is not None and number is not None:
                with suppress(RecordError):
                    self._records[source] = parsed.format.record(parsed, number)
        return self._records[source]

    def fault(self, source: Source) -> Fault | None:
        """Return the fault of the record of one version, None if there is none."""
        if source not in self._faults:
            parsed, number = self.files.of(source), self.of(source)
            self._faults[source] = None
            if parsed is not None and number is not None:
                self._faults[source] = find_fault(parsed, number)
        return self._faults[source]

    def raw(self, source: Source) -> bytes | None:
        """Return the bytes of the record of one version, or None if there is none."""
        parsed, number = self.files.of(source), self.of(source)
        return None if parsed is None or number is None else parsed.raw(number)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedKeys:
    """The records of both sides that do not count, by key and side."""

    numbers: Mapping[str, Mapping[Source, Sequence[int]]]

    def explain(self, choice: Choice, key: KeyVersions) -> Choice:
        """Return a choice that says which records of its key are left out, if any are."""
        if key.key not in self.numbers:
            return choice
        notes = [choice.note] if choice.note else []
        for source, numbers in self.numbers[key.key].items():
            own = _describe(key.files.of(source), key.of(source))
            others = ", ".join(_describe(key.files.of(source), number) for number in numbers)
            notes.append(
                f"{source} has the key {len(numbers) + 1} times: {own} counts, not {others}"
            )
        is_clean = choice.reason in CLEAN and not choice.conflict
        reason = Reason.DUPLICATE if is_clean else choice.reason
        return replace(choice, reason=reason, note="; ".join(notes))

    def records(self, key: KeyVersions) -> tuple[KeptDuplicate, ...]:
        """Return the records of a key that are left out."""
        return tuple(
            KeptDuplicate(side=source, record=keep_record(parsed, number))
            for source, numbers in self.numbers.get(key.key, {}).items()
            if (parsed := key.files.of(source)) is not None
            for number in numbers
        )


def parse_versions(versions: Three[bytes | None], path: Path) -> Versions:
    """Return the versions as files with records.

    Raises:
        BankFormatError: one is broken; the message tells which.
    """
    base = versions.base  # git's word for none is an empty one
    parsed = Versions(
        base=None if base is None or is_blank(base) else parse_version(base, path),
        ours=parse_version(versions.ours, path),
        theirs=parse_version(versions.theirs, path),
    )
    for source in Source:
        version = parsed.of(source)
        try:
            if version is not None:
                raise_if_broken(version)
        except BankFormatError as error:
            error.where = f"{source} of {error.where}"
            error.hint = _BROKEN_HINT
            raise
    return parsed


def parse_version(data: bytes | None, path: Path) -> ParsedFile | None:
    """Return a version as a file; one without bytes is a file too, and broken.

    Raises:
        BankFormatError: neither its name nor its first bytes are those of a bank.
    """
    if data is None:
        return None
    known = find_format(path, data[:HEAD_BYTES])
    if known is None:
        raise BankFormatError(
            "is no bank file",
            path=path,
            hint="git check-attr -a names the attribute that sent it here",
        )
    return known.parse(data, path)


class Conditions(Protocol):
    """What decides which records count, besides the records themselves; see `MergeContext`."""

    @property
    def rules(self) -> MergeRules:
        """What makes times comparable, and what may differ."""
        ...

    @property
    def times_of_ours(self) -> Measurements:
        """How the times of our file were measured."""
        ...

    @property
    def times_of_theirs(self) -> Measurements:
        """The same of theirs."""
        ...

    def kept_out(self, parsed: ParsedFile | None) -> Mapping[int, str]:
        """Return the records of a file that stay out, by position, with the reason."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The versions of a file, ready for decisions.

    Attributes:
        versions: Each key once.
        repeated: Records that do not count, since another one has their key.
        frame: Whose file the edits are made to; None if no version has the file.
        ours_out: Records of ours that stay out, by position, with the reason.
        theirs_out: The same of theirs.
        bad_records: Tells which records have an error.
    """

    versions: Versions
    repeated: RepeatedKeys
    frame: Source | None
    ours_out: Mapping[int, str]
    theirs_out: Mapping[int, str]
    bad_records: BadRecords

    def iter_keys(self, *, is_two_way: bool) -> Iterator[tuple[KeyVersions | str, Changed]]:
        """Yield keys with who changed them; of those nobody changed the name alone."""
        versions, repeated = self.versions, self.repeated.numbers
        is_plain = not (self.ours_out or self.theirs_out)
        for key, base, ours, theirs, who in versions.iter_compared(is_two_way=is_two_way):
            if who is Changed.NOBODY and is_plain and key not in repeated:
                yield key, who
            else:
                yield (
                    KeyVersions(key=key, base=base, ours=ours, theirs=theirs, files=versions),
                    who,
                )


def read_inputs(versions: Versions, name: str, conditions: Conditions) -> Inputs:
    """Return versions ready for decisions.

    Args:
        versions: As they are.
        name: Of the file in the result; it tells readers what the file is for.
        conditions: What decides which records count.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
    """
    demand_mergeable(versions, name, may_differ_in_soc=conditions.rules.may_differ_in_soc)
    out = [conditions.kept_out(parsed) for parsed in (versions.ours, versions.theirs)]
    versions = count_each_key_once(versions, conditions)
    return Inputs(
        versions=versions,
        repeated=find_repeated_keys(versions),
        frame=find_frame(versions),
        ours_out=out[0],
        theirs_out=out[1],
        bad_records=BadRecords(versions=versions),
    )


def count_each_key_once(versions: Versions, conditions: Conditions) -> Versions:
    """Return the versions, of each the record that counts where it has a key several times."""

    def prefer(parsed: ParsedFile | None, times: Measurements) -> ParsedFile | None:
        if parsed is None:
            return None
        rules, kept_out = conditions.rules, conditions.kept_out
        return prefer_best(parsed, times=times, rules=rules, kept_out=kept_out)

    return Versions(
        base=prefer(versions.base, conditions.times_of_ours),
        ours=prefer(versions.ours, conditions.times_of_ours),
        theirs=prefer(versions.theirs, conditions.times_of_theirs),
    )


def demand_mergeable(versions: Versions, name: str, *, may_differ_in_soc: bool) -> None:
    """Raise `BankFormatError` unless the versions are whole, of one format and for one target.

    Args:
        name: Of the file in the result; it tells readers what the file is for.
        may_differ_in_soc: Whether other cores or another soc_version will do.
    """
    for source in Source:
        parsed = versions.of(source)
        # a base without bytes has no record to lose: each side added its own
        if parsed is not None and not (source is Source.BASE and is_blank(parsed.data)):
            raise_if_broken(parsed)
    there = (versions.ours, versions.theirs, versions.base)
    found = [parsed for parsed in there if parsed is not None and not is_blank(parsed.data)]
    result = empty_file(name) if found else None
    if result is not None:
        _demand_same_kind(result, found[0], may_differ_in_soc=may_differ_in_soc)
    for other in found[1:]:
        _demand_same_kind(found[0], other, may_differ_in_soc=may_differ_in_soc)
    _demand_one_header(versions)


def find_untouched(versions: Versions) -> Source | None:
    """Return the side whose file is the result whatever else is broken; None if both count.

    Where both sides have the same bytes, or only one side changed them, nothing is chosen
    among records. So a file that is broken everywhere stops no merge, and one that a side mended
    comes in. But a broken file never takes the place of a whole one.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    broken = {source for source in Source if _is_broken(versions.of(source))}
    if not broken or ours is None or theirs is None:
        return None
    if ours.data == theirs.data:
        return Source.OURS
    for changed, kept in ((Source.OURS, theirs), (Source.THEIRS, ours)):
        is_unchanged = base is not None and base.data == kept.data
        if is_unchanged and (changed not in broken or _is_broken(kept)):
            return changed
    return None


def _is_broken(parsed: ParsedFile | None) -> bool:
    return parsed is not None and find_error(parsed) is not None


def empty_file(name: str) -> ParsedFile | None:
    """Return an empty file of this name, which tells its format and its target."""
    known = find_format(Path(name))
    return None if known is None else known.parse(known.empty, Path(name))


def _demand_same_kind(a: ParsedFile, b: ParsedFile, *, may_differ_in_soc: bool) -> None:
    if a.format.name != b.format.name:
        raise BankFormatError(
            "banks of different formats cannot be merged",
            path=b.path,
            got=b.format.name,
            expected=a.format.name,
        )
    for member in _TARGET:
        one, other = getattr(a.name, member, None), getattr(b.name, member, None)
        if None in (one, other) or one == other:
            continue
        if may_differ_in_soc and member != "op_type":
            continue
        raise BankFormatError(
            f"bank file is for another {member}",
            path=b.path,
            got=other,
            expected=one,
            hint="" if member == "op_type" else OTHER_TARGET_HINT,
        )


def _demand_one_header(versions: Versions) -> None:
    """Raise if two version lines would have to become one."""
    ours, theirs, base = versions.ours, versions.theirs, versions.base
    if ours is None or theirs is None or not (len(ours) and len(theirs)):
        return
    one, other = ours.format.header(ours), theirs.format.header(theirs)
    is_one_sided = base is not None and base.data in (ours.data, theirs.data)
    if one != other and not is_one_sided:
        raise BankFormatError(
            "version line differs",
            path=theirs.path,
            got=other,
            expected=one,
            hint="bring both to one version first",
        )


@dataclass(slots=True)
class Measurements:
    """Looks up how the times of one side's bank file were measured.

    Attributes:
        load: Gives the side-car; called when first needed, which is rarely.
    """

    load: Callable[[], ProvenanceLog]
    _by_key: dict[str, list[Provenance]] | None = field(default=None, init=False)

    def find(self, record: Record) -> Timing:
        """Return the timing of a record.

        A side-car holds the history of its key, after a merge that of both sides. The entry
        meant is the last one with this time; without it all of them must agree.
        """
        if self._by_key is None:
            self._by_key = {}
            for entry in self.load().entries:
                if entry.event in _STORED:
                    self._by_key.setdefault(entry.key, []).append(entry)
        entries = self._by_key.get(record.key, [])
        meant = [entry for entry in entries if _is_time_of(entry, record)]
        if meant:
            return timing_of(max(meant, key=lambda entry: entry.time))
        texts = {fingerprint_of(entry) for entry in entries}
        return Timing(fingerprint=texts.pop() if len(texts) == 1 else None)


def _is_time_of(entry: Provenance, record: Record) -> bool:
    if record.cost_us is None or not entry.tuned_us:
        return False
    return isclose(median(entry.tuned_us), record.cost_us, rel_tol=_ROUNDING, abs_tol=_ROUNDING)


def prefer_best(
    parsed: ParsedFile, *, times: Measurements, rules: MergeRules, kept_out: KeptOut
) -> ParsedFile:
    """Return a file whose `find` gives the record that counts for each key.

    Args:
        times: How the times of the file were measured.
        kept_out: Gives by position the records that stay out; asked where a key is repeated.
    """
    repeated = {} if parsed.format.joins_equal_keys else parsed.repeated()
    if not repeated:
        return parsed
    bad = kept_out(parsed)
    preferred = {}
    for key, numbers in repeated.items():
        used, sound = _sound(parsed, numbers, bad)
        preferred[key] = _fastest(parsed, used, sound, times, rules)
    return replace(parsed, preferred=preferred)


def _sound(
    parsed: ParsedFile, numbers: Sequence[int], kept_out: Mapping[int, str]
) -> tuple[int, list[int]]:
    """Return the record readers use among those without an error, and all of these."""
    ranks = {
        number: (number in kept_out, rank_of(find_fault(parsed, number))) for number in numbers
    }
    sound = [number for number in numbers if ranks[number] == min(ranks.values())]
    return sound[0 if parsed.format.first_wins else -1], sound


def _fastest(
    parsed: ParsedFile,
    used: int,
    sound: Sequence[int],
    times: Measurements,
    rules: MergeRules,
) -> int:
    """Return the fastest record, if its gap to the one readers use is beyond the noise band."""
    records = {
        number: record for number in sound if (record := _read_timed(parsed, number)) is not None
    }
    if used not in records:
        return used
    used_us, used_timing = records[used].cost_us, times.find(records[used])
    best, best_us = used, used_us
    for number, record in records.items():
        timing = times.find(record)
        band = noise_band(rules.noise_ratio, timing, used_timing)
        is_comparable = are_comparable(timing, used_timing, rules.times)
        assert record.cost_us is not None
        assert best_us is not None
        assert used_us is not None
        if is_comparable and record.cost_us < best_us and is_beyond(record.cost_us, used_us, band):
            best, best_us = number, record.cost_us
    return best


def _read_timed(parsed: ParsedFile, number: int) -> Record | None:
    """Return a record with a plausible time."""
    with suppress(RecordError):
        record = parsed.format.record(parsed, number)
        is_usable = record.cost_us is not None and not find_time_problem(record)
        return record if is_usable else None
    return None


def find_repeated_keys(versions: Versions) -> RepeatedKeys:
    """Return the records of both sides that do not count."""
    found: dict[str, dict[Source, Sequence[int]]] = {}
    for source in (Source.OURS, Source.THEIRS):
        parsed = versions.of(source)
        if parsed is not None and not parsed.format.joins_equal_keys:
            for key, numbers in versions.hidden(source).items():
                found.setdefault(key, {})[source] = numbers
    return RepeatedKeys(numbers=found)


def _describe(parsed: ParsedFile | None, number: int | None) -> str:
    """Return time and line of a record, for a note."""
    assert parsed is not None
    assert number is not None
    cost_us = keep_record(parsed, number).cost_us
    line, _ = parsed.lines.position(parsed.starts[number])
    return f"line {line}" if cost_us is None else f"{cost_us:g} us in line {line}"


def keep_record(parsed: ParsedFile, number: int) -> KeptRecord:
    """Return the record at a position as a decision keeps it."""
    record = None
    with suppress(RecordError):
        record = parsed.format.record(parsed, number)
    raw = parsed.raw(number)
    return KeptRecord(
        raw=raw,
        sha256=sha256_of(raw),
        cost_us=record.cost_us if record else None,
        strategy=record.strategy if record else None,
    )


def _reader(parsed: ParsedFile | None) -> Callable[[int | None], bytes | None]:
    """Return a reader of the bytes of a record, fast: it is called a million times."""
    if parsed is None:
        return lambda number: None
    data, starts, ends = parsed.data, parsed.starts, parsed.ends

    def read(number: int | None) -> bytes | None:
        return None if number is None else data[starts[number] : ends[number]]

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Relatedness:
    """Whether the base has anything to do with a side, in one file or in all."""

    base_has_records: bool = False
    side_has_records: bool = False
    share_a_key: bool = False

    @property
    def are_strangers(self) -> bool:
        """Return whether both have records, and no key in common."""
        return self.base_has_records and self.side_has_records and not self.share_a_key

    def __or__(self, other: Relatedness) -> Relatedness:
        return Relatedness(
            base_has_records=self.base_has_records or other.base_has_records,
            side_has_records=self.side_has_records or other.side_has_records,
            share_a_key=self.share_a_key or other.share_a_key,
        )


def find_relatedness(base: ParsedFile | None, side: ParsedFile | None) -> Relatedness:
    """Return the relation of a file's base and a side: their records, and common keys."""
    has_base, has_side = (parsed is not None and len(parsed) > 0 for parsed in (base, side))
    share = False
    if base is not None and side is not None:
        share = not side.places.keys().isdisjoint(base.keys)
    return Relatedness(base_has_records=has_base, side_has_records=has_side, share_a_key=share)


def find_frame(versions: Versions) -> Source | None:
    """Return whose file the edits are made to; None if no version has the file.

    It is ours; theirs where ours is the base or is no longer there, so that a file only they
    changed comes out as they wrote it.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    if theirs is None:
        return None if ours is None else Source.OURS
    is_unchanged = ours is None or (base is not None and ours.data == base.data)
    return Source.THEIRS if is_unchanged else Source.OURS


@dataclass(slots=True, kw_only=True)
class BadRecords:
    """Tells which actions would give a key to a record with an error.

    | the record taken has an error, and | |
    |---|---|
    | it takes the place of one that has none, or cannot be read while that one can | objection |
    | it is new, and cannot be read | objection |
    | it is new, and stands where its side removed another one | objection, to the removal too |
    | it is new otherwise, or as bad as the one it replaces | none: nothing better is lost |

    Without a base a record only one side has is new.
    """

    versions: Versions
    _mangled: dict[Source, frozenset[str]] = field(default_factory=dict, init=False)

    def find_objection(self, key: KeyVersions, action: Action) -> str:
        """Return why an action is for a person to choose; empty if it is not."""
        for source in _USED[action]:
            if key.of(source) is None:
                is_removal = key.base is not None and key.key in self._find_mangled(source)
                if is_removal:
                    return f"{source} has a record with an error in its place"
                continue
            fault = key.fault(source)
            if fault is not None and self._is_worse(key, source):
                return f"{source}: {fault.problem}"
        return ""

    def _is_worse(self, key: KeyVersions, source: Source) -> bool:
        fault = key.fault(source)
        others = [other for other in Source if other is not source and key.of(other) is not None]
        if others:
            return rank_of(fault) > min(rank_of(key.fault(other)) for other in others)
        if fault is None:
            return False
        return fault.is_unreadable or key.key in self._find_mangled(source)

    def _find_mangled(self, source: Source) -> frozenset[str]:
        """Return the keys a side removed, and those with an error it has in their places."""
        if source not in self._mangled:
            base, side = self.versions.base, self.versions.of(source)
            self._mangled[source] = frozenset()
            if base is not None and side is not None:
                self._mangled[source] = frozenset(_iter_mangled(base, side))
        return self._mangled[source]


def _iter_mangled(base: ParsedFile, side: ParsedFile) -> Iterator[str]:
    """Yield keys that went and keys of bad records that came behind the same record."""
    gone, new = _runs(base, side), _runs(side, base)
    for neighbour in gone.keys() & new.keys():
        bad = [key for key in new[neighbour] if _is_bad(side, key)]
        if bad:
            yield from (*bad, *gone[neighbour])


def _runs(parsed: ParsedFile, other: ParsedFile) -> dict[str, list[str]]:
    """Return the keys another file has not, by the key they follow that it has."""
    found: dict[str, list[str]] = {}
    neighbour = ""
    for key in parsed.keys:
        if other.find(key) is None:
            found.setdefault(neighbour, []).append(key)
        else:
            neighbour = key
    return found


def _is_bad(parsed: ParsedFile, key: str) -> bool:
    number = parsed.find(key)
    return number is not None and find_fault(parsed, number) is not None
