"""The three versions of one bank file, and its keys with their places in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from aoebank.errors import RecordError
from aoebank.formats.faults import Fault, find_fault
from aoebank.formats.protocol import ParsedFile
from aoebank.model.digest import sha256_of
from aoebank.model.record import Record
from aoebank.ops.merge.choose import Choice
from aoebank.ops.merge.plan import CLEAN, KeptDuplicate, KeptRecord, Reason, Source, Three

_NOWHERE: dict[str, int] = {}


class Changed(StrEnum):
    """Who changed a key."""

    NOBODY = "nobody"
    OURS = "ours"
    THEIRS = "theirs"
    BOTH = "both"


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
        """Return what is wrong with the record of one version, None if nothing or no record is."""
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
        """Return a choice that says which records of its key are left out."""
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
    """Return what gives the bytes of a record, fast: it is called a million times."""
    if parsed is None:
        return lambda number: None
    data, starts, ends = parsed.data, parsed.starts, parsed.ends

    def read(number: int | None) -> bytes | None:
        return None if number is None else data[starts[number] : ends[number]]

    return read
