"""The three versions of one bank file, by key: what decisions are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from aoebank.errors import RecordError
from aoebank.formats.faults import Fault, find_fault
from aoebank.formats.protocol import ParsedFile
from aoebank.merging.decisions import Changed, Source, Three
from aoebank.model.record import Record

OTHER_TARGET_HINT = "--allow-other-soc merges them all the same"
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


def _reader(parsed: ParsedFile | None) -> Callable[[int | None], bytes | None]:
    """Return a reader of the bytes of a record, fast: it is called a million times."""
    if parsed is None:
        return lambda number: None
    data, starts, ends = parsed.data, parsed.starts, parsed.ends

    def read(number: int | None) -> bytes | None:
        return None if number is None else data[starts[number] : ends[number]]

    return read


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
class Inputs:
    """The versions of a file, ready for decisions.

    Attributes:
        versions: Each key once.
        repeated: Records that do not count, since another one of their side has their key.
        frame: Whose file the edits are made to; None if no version has the file.
        ours_out: Records of ours that stay out, by position, with the reason.
        theirs_out: The same of theirs.
        mangled: Keys that records with an error took the place of, by side, as far as asked for.
    """

    versions: Versions
    repeated: Mapping[str, Mapping[Source, Sequence[int]]]
    frame: Source | None
    ours_out: Mapping[int, str]
    theirs_out: Mapping[int, str]
    mangled: dict[Source, frozenset[str]] = field(default_factory=dict, init=False)

    def iter_keys(self, *, is_two_way: bool) -> Iterator[tuple[KeyVersions | str, Changed]]:
        """Yield keys with who changed them; of those nobody changed the name alone."""
        versions, repeated = self.versions, self.repeated
        is_plain = not (self.ours_out or self.theirs_out)
        for key, base, ours, theirs, who in versions.iter_compared(is_two_way=is_two_way):
            if who is Changed.NOBODY and is_plain and key not in repeated:
                yield key, who
            else:
                yield (
                    KeyVersions(key=key, base=base, ours=ours, theirs=theirs, files=versions),
                    who,
                )
