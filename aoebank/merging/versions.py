"""The three versions of one bank file: read, checked, each key once.

Of several records of one key in one file, the one that counts:

    some kept out or with an error, others sound               a sound one
    two comparable times, the gap beyond the noise band        the fastest
    anything else                                              the one readers use
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from aoebank.errors import BankFormatError, BankNotFoundError, RecordError
from aoebank.formats.faults import find_fault, rank_of
from aoebank.formats.names import BankName
from aoebank.formats.plausibility import find_time_problem
from aoebank.formats.protocol import Format, ParsedFile, find_error, raise_if_broken
from aoebank.formats.text.checks import is_blank
from aoebank.merging.decisions import Changed, MergeRules, PersonalVerdict, Source, Three
from aoebank.model.quarantine import Quarantine
from aoebank.model.record import Record
from aoebank.model.timing import Measurements, are_comparable, is_beyond, noise_band
from aoebank.storage.quarantine import find_entry, find_quarantine_root, load_quarantine
from aoebank.storage.sides.open import quarantine_of
from aoebank.storage.sides.side import Side
from aoebank.validation.built_in import BuiltInBank, find_built_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """Records that a merge keeps out."""

    quarantines: tuple[Quarantine, ...] = ()  # Of the result and of the sides
    today: date = date.min  # Decides which entries still hold
    built_in: BuiltInBank | None = None  # Records slower than the ones here they hide go

    def find_quarantined(self, parsed: ParsedFile | None) -> Mapping[int, str]:
        """Return by position the records of a file under quarantine, each with the reason."""
        found: dict[int, str] = {}
        filled = [quarantine for quarantine in self.quarantines if len(quarantine)]
        if parsed is None or not filled:
            return found
        # every record is asked, since an entry may name a key or a strategy
        for number in range(len(parsed)):
            for quarantine in filled:
                entry = find_entry(parsed, number, quarantine, today=self.today)
                if entry is not None:
                    ticket = f" ({entry.ticket})" if entry.ticket else ""
                    found[number] = f"{entry.reason}{ticket}"
        return found

    def find_slower(self, parsed: ParsedFile) -> Mapping[int, str]:
        """Return by position the records that hide a faster built-in one, each with times."""
        assert self.built_in is not None
        numbers = {start: number for number, start in enumerate(parsed.starts)}
        return {
            numbers[finding.location.start]: f"{finding.got}, {finding.expected} in the built-in"
            for finding in self.built_in.check(parsed)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeContext:
    """Rules and facts that decide about the keys of one file, besides the records themselves."""

    rules: MergeRules = field(default_factory=MergeRules)
    is_two_way: bool = False  # There is no base at all: an absent record was never there
    exclusions: Exclusions = field(default_factory=Exclusions)  # Records that stay out
    # What a person decided, by key.
    verdicts: Mapping[str, PersonalVerdict] = field(default_factory=dict)
    # How ours was measured; asked only if two times are compared.
    times_of_ours: Measurements = field(default_factory=lambda: Measurements(tuple))
    times_of_theirs: Measurements = field(default_factory=lambda: Measurements(tuple))
    # Whether a conflict ends in the record of the base; else in that of ours.
    takes_base: bool = False
    # Whether every decision becomes a value; else conflicts do, and what keeps a record out, and
    # the rest is counted.
    verbose: bool = False
    # Whether the plan has the reason of each key, for merges of several steps.
    tells_reasons: bool = False


def find_exclusions(
    sides: Sequence[Side], *, output: Path | None, built_in: Path | None, today: date
) -> Exclusions:
    """Return the exclusions: quarantines of the sides and of the result, and a built-in bank.

    Args:
        output: Where the result goes, if that is known.
        built_in: Directory of a built-in bank.

    Raises:
        BankFormatError: a quarantine is broken: what it keeps out is not known.
        BankNotFoundError: there is no such built-in bank.
    """
    quarantines = [quarantine_of(side) for side in sides]
    root = find_quarantine_root(output) if output is not None else None
    if root is not None:
        quarantines.append(load_quarantine(root))
    found = None if built_in is None else find_built_in(built_in, env={}, cwd=Path())
    if found is not None and next(found.findings(), None) is not None:
        raise BankNotFoundError(
            "holds no built-in bank file", path=built_in, expected="the directory of a bank"
        )
    return Exclusions(quarantines=tuple(quarantines), today=today, built_in=found)


OTHER_TARGET_HINT = "--allow-other-soc merges them all the same"
_NOWHERE: dict[str, int] = {}
_TARGET = ("soc_version", "core_num", "core_type", "op_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions(Three[ParsedFile | None]):
    """The parsed files; None where a version has no such file."""

    # Format and target that the name in the result says; None if it says none.
    named: tuple[Format, BankName] | None = None

    def any(self) -> ParsedFile:
        """Return one that is there, ours first."""
        found = [parsed for parsed in (self.ours, self.theirs, self.base) if parsed is not None]
        return found[0]

    def iter_places(self) -> Iterator[tuple[str, int | None, int | None, int | None]]:
        """Yield each key with its positions in base, ours and theirs: ours, then new ones."""
        find_base, find_ours, find_theirs = (
            parsed.places.get if parsed is not None else _NOWHERE.get
            for parsed in (self.base, self.ours, self.theirs)
        )
        for number, key in enumerate(self.ours.keys if self.ours else ()):
            if find_ours(key) == number:  # of a repeated key the record that counts, once
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
            # bytes alone: records are parsed only where all three versions differ
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


def _reader(parsed: ParsedFile | None) -> Callable[[int | None], bytes | None]:
    """Return a reader of the bytes of a record, fast: it is called a million times."""
    if parsed is None:
        return lambda number: None
    data, starts, ends = parsed.data, parsed.starts, parsed.ends

    def read(number: int | None) -> bytes | None:
        return None if number is None else data[starts[number] : ends[number]]

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The versions of a file, ready for decisions."""

    versions: Versions  # Each key once
    # Records that do not count, since another one of their side has their key.
    repeated: Mapping[str, Mapping[Source, Sequence[int]]]
    frame: Source | None  # Whose file the edits are made to; None if no version has the file
    ours_out: Mapping[int, str]  # Records of ours that stay out, by position, with the reason
    theirs_out: Mapping[int, str]  # The same of theirs
    # Records that hide a faster built-in one, by side and position, with both times.
    slower: Mapping[Source, Mapping[int, str]]
    # Keys that records with an error took the place of, by side, as far as asked for.
    mangled: dict[Source, frozenset[str]] = field(default_factory=dict, init=False)


# ---- read and check ----


def find_untouched(versions: Versions) -> ParsedFile | None:
    """Return the file of the side that is the result whatever else is broken; None if both count.

    Where both sides have the same bytes, or only one side changed them, nothing is chosen
    among records. So a file that is broken everywhere stops no merge, and one that a side mended
    comes in. But a broken file never takes the place of a whole one.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    if ours is None or theirs is None or not any(map(_is_broken, (base, ours, theirs))):
        return None
    if ours.data == theirs.data:
        return ours
    for changed, kept in ((ours, theirs), (theirs, ours)):
        is_unchanged = base is not None and base.data == kept.data
        if is_unchanged and (not _is_broken(changed) or _is_broken(kept)):
            return changed
    return None


def _is_broken(parsed: ParsedFile | None) -> bool:
    return parsed is not None and find_error(parsed) is not None


def read_inputs(versions: Versions, context: MergeContext) -> Inputs:
    """Return versions ready for decisions.

    Args:
        context: What decides which records count.

    Raises:
        BankFormatError: a version is broken, or they do not fit together.
    """
    _demand_mergeable(versions, may_differ_in_soc=context.rules.may_differ_in_soc)
    out = {
        source: context.exclusions.find_quarantined(versions.of(source))
        for source in Source
        if source is not Source.BASE or _repeats(versions.base)
    }
    times, rules = context.times_of_ours, context.rules
    # each version picks its record of a repeated key before the versions are compared
    versions = replace(
        versions,
        base=_prefer_best(versions.base, out.get(Source.BASE, {}), times, rules),
        ours=_prefer_best(versions.ours, out[Source.OURS], times, rules),
        theirs=_prefer_best(versions.theirs, out[Source.THEIRS], context.times_of_theirs, rules),
    )
    return Inputs(
        versions=versions,
        repeated=_find_repeated_keys(versions),
        frame=_find_frame(versions),
        ours_out=out[Source.OURS],
        theirs_out=out[Source.THEIRS],
        slower={
            source: context.exclusions.find_slower(parsed)
            for source in (Source.OURS, Source.THEIRS)
            if (parsed := versions.of(source)) is not None
        }
        if context.exclusions.built_in is not None
        else {},
    )


def _demand_mergeable(versions: Versions, *, may_differ_in_soc: bool) -> None:
    """Raise `BankFormatError` unless the versions are whole, of one format and for one target."""
    for source in Source:
        parsed = versions.of(source)
        # a base without bytes has no record to lose: each side added its own
        if parsed is not None and not (source is Source.BASE and is_blank(parsed.data)):
            raise_if_broken(parsed)
    there = (versions.ours, versions.theirs, versions.base)
    found = [parsed for parsed in there if parsed is not None and not is_blank(parsed.data)]
    if found and versions.named is not None:
        _demand_same_kind(*versions.named, found[0], may_differ_in_soc=may_differ_in_soc)
    for other in found[1:]:
        one = found[0]
        _demand_same_kind(one.format, one.name, other, may_differ_in_soc=may_differ_in_soc)
    _demand_one_header(versions)


def differing_target(one: BankName | None, other: BankName | None) -> tuple[str, ...]:
    """Return the members of the target in which two file names differ; what one leaves out fits."""
    pairs = {name: (getattr(one, name, None), getattr(other, name, None)) for name in _TARGET}
    return tuple(name for name, (a, b) in pairs.items() if None not in (a, b) and a != b)


def _demand_same_kind(
    known: Format, target: BankName | None, b: ParsedFile, *, may_differ_in_soc: bool
) -> None:
    if known.name != b.format.name:
        raise BankFormatError(
            "banks of different formats cannot be merged",
            path=b.path,
            got=b.format.name,
            expected=known.name,
        )
    # another operator is another workload: no option merges these
    for member in differing_target(target, b.name):
        one, other = getattr(target, member), getattr(b.name, member)
        is_fixed = member == "op_type" or known.is_of_one_target
        if may_differ_in_soc and not is_fixed:
            continue
        word = known.target_word if member == "soc_version" else member
        raise BankFormatError(
            f"bank file is for another {word}",
            path=b.path,
            got=other,
            expected=one,
            hint="" if is_fixed else OTHER_TARGET_HINT,
        )


def _demand_one_header(versions: Versions) -> None:
    """Raise if two version lines would have to become one."""
    ours, theirs, base = versions.ours, versions.theirs, versions.base
    if ours is None or theirs is None or not (len(ours) and len(theirs)):
        return
    one, other = ours.format.header(ours), theirs.format.header(theirs)
    # where one side left the file alone, the other side's version line comes with its file
    is_one_sided = base is not None and base.data in (ours.data, theirs.data)
    # a head with the device is part of every key: records would come under another one
    is_one_sided = is_one_sided and ours.inside is None
    if one != other and not is_one_sided:
        own, their = one.split("\n"), other.split("\n")
        raise BankFormatError(
            "version line differs" if len(own) == len(their) == 1 else "head differs",
            path=theirs.path,
            got=", ".join(line for line in their if line not in own)[:300],
            expected=", ".join(line for line in own if line not in their)[:300],
            hint="bring both to one version first",
        )


# ---- each key once ----


def _repeats(parsed: ParsedFile | None) -> bool:
    return parsed is not None and not parsed.format.joins_equal_keys and bool(parsed.repeated())


def _prefer_best(
    parsed: ParsedFile | None, bad: Mapping[int, str], times: Measurements, rules: MergeRules
) -> ParsedFile | None:
    """Return a file whose `find` gives the record that counts for each key.

    Args:
        bad: Records under quarantine, by position.
        times: How the times of the file were measured.
    """
    if parsed is None or not _repeats(parsed):
        return parsed
    preferred = {}
    for key, numbers in parsed.repeated().items():
        used, sound = _sound(parsed, numbers, bad)
        preferred[key] = _fastest(parsed, used, sound, times, rules)
    return replace(parsed, preferred=preferred)


def _sound(
    parsed: ParsedFile, numbers: Sequence[int], kept_out: Mapping[int, str]
) -> tuple[int, list[int]]:
    """Return the record readers use among the soundest records, and all soundest records."""
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
    # a faster record has to beat the one readers use today by more than noise
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


def _find_repeated_keys(versions: Versions) -> dict[str, dict[Source, Sequence[int]]]:
    """Return the records of both sides that do not count."""
    found: dict[str, dict[Source, Sequence[int]]] = {}
    for source in (Source.OURS, Source.THEIRS):
        parsed = versions.of(source)
        if parsed is not None and not parsed.format.joins_equal_keys:
            for key, numbers in versions.hidden(source).items():
                found.setdefault(key, {})[source] = numbers
    return found


def _find_frame(versions: Versions) -> Source | None:
    """Return whose file the edits are made to; None if no version has the file.

    It is ours; theirs where ours is the base or is no longer there, so that a file only they
    changed comes out as they wrote it. Where ours has no record left, the head that the records of
    theirs stand under comes with them: under another one they would say something else.
    """
    base, ours, theirs = versions.base, versions.ours, versions.theirs
    if theirs is None:
        return None if ours is None else Source.OURS
    is_unchanged = ours is None or (base is not None and ours.data == base.data)
    has_other_head = ours is not None and not len(ours) and len(theirs) and _differ(ours, theirs)
    return Source.THEIRS if is_unchanged or has_other_head else Source.OURS


def _differ(ours: ParsedFile, theirs: ParsedFile) -> bool:
    """True if what stands before the records of two files differs."""
    return ours.format.header(ours) != theirs.format.header(theirs)
