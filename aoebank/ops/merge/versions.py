"""The three versions of one bank file, and its keys with their places in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from aoebank.errors import RecordError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.digest import sha256_of
from aoebank.model.record import Record
from aoebank.ops.merge.plan import Pick, Source, Version


class Changed(StrEnum):
    """Who changed a key."""

    NOBODY = "nobody"
    OURS = "ours"
    THEIRS = "theirs"
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a key is in each version; None where it is not."""

    key: str
    base: int | None
    ours: int | None
    theirs: int | None

    def of(self, source: Source) -> int | None:
        """Return the position in one version."""
        if source is Source.OURS:
            return self.ours
        return self.theirs if source is Source.THEIRS else self.base

    def pick(self, source: Source) -> Pick | None:
        """Return the record of one version, or None if the key is not there."""
        number = self.of(source)
        return None if number is None else Pick(source, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """The parsed files; None where a version has no such file."""

    base: ParsedFile | None
    ours: ParsedFile | None
    theirs: ParsedFile | None
    _read: dict[tuple[Source, int], Record | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def forget(self) -> None:
        """Let go of the records read so far: a key is looked at from several sides, then done."""
        self._read.clear()

    def of(self, source: Source) -> ParsedFile | None:
        """Return one of them."""
        if source is Source.OURS:
            return self.ours
        return self.theirs if source is Source.THEIRS else self.base

    def any(self) -> ParsedFile:
        """Return one that is there, ours first."""
        found = [each for each in (self.ours, self.theirs, self.base) if each is not None]
        return found[0]

    def iter_places(self) -> Iterator[tuple[str, int | None, int | None, int | None]]:
        """Yield key and position in base, ours and theirs: those of ours, then new ones."""
        find_base, find_theirs = _finder(self.base), _finder(self.theirs)
        find_ours = _finder(self.ours)
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
        raw_base, raw_ours, raw_theirs = (
            _reader(each) for each in (self.base, self.ours, self.theirs)
        )
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

    def raw(self, source: Source, number: int) -> bytes:
        """Return the bytes of a record."""
        parsed = self.of(source)
        assert parsed is not None
        return parsed.raw(number)

    def record(self, source: Source, number: int | None) -> Record | None:
        """Return a record, or None if there is none or it cannot be read."""
        parsed = self.of(source)
        if parsed is None or number is None:
            return None
        if (source, number) not in self._read:
            self._read[source, number] = _record(parsed, number)
        return self._read[source, number]

    def version(self, source: Source, number: int | None) -> Version | None:
        """Return a record as decisions hold it."""
        if number is None:
            return None
        raw, record = self.raw(source, number), self.record(source, number)
        return Version(
            raw=raw,
            sha256=sha256_of(raw),
            cost_us=record.cost_us if record else None,
            strategy=record.strategy if record else None,
        )

    def hidden(self, source: Source) -> dict[str, list[int]]:
        """Return by key the records no reader uses, since another one has their key."""
        parsed = self.of(source)
        found: dict[str, list[int]] = {}
        if parsed is None or len({*parsed.keys}) == len(parsed.keys):
            return found
        for number, key in enumerate(parsed.keys):
            if parsed.find(key) != number:
                found.setdefault(key, []).append(number)
        return found


def _record(parsed: ParsedFile, number: int) -> Record | None:
    try:
        return parsed.format.record(parsed, number)
    except RecordError:
        return None


def _reader(parsed: ParsedFile | None) -> Callable[[int | None], bytes | None]:
    """Return what gives the bytes of a record, fast: it is called a million times."""
    if parsed is None:
        return lambda number: None
    data, starts, ends = parsed.data, parsed.starts, parsed.ends

    def read(number: int | None) -> bytes | None:
        return None if number is None else data[starts[number] : ends[number]]

    return read


def _finder(parsed: ParsedFile | None) -> Callable[[str], int | None]:
    return parsed.find if parsed is not None else lambda key: None
