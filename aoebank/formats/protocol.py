"""The seam every bank file format fits into."""

from __future__ import annotations

import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aoebank.errors import BankFormatError, RecordError, shell_word
from aoebank.formats.lines import LineIndex
from aoebank.formats.names import BankName
from aoebank.formats.release import Release, StrategyField
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record
from aoebank.model.resolution import Query

_POINTER = "AB117"  # the one error whose way out is no edit of the file


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldEdit:
    """Fields of a strategy that get a value, and those that go."""

    assign: Mapping[str, JsonValue]
    unset: Collection[str]


class Format(Protocol):
    """One on-disk encoding of records; a format inherits what it does as most do.

    `parse` finds where records are and what their keys are, no more: a record becomes a
    value only when asked for, so a million of them fit into memory.
    """

    name: str  # How it is called in options, reports and quarantine entries
    empty: bytes  # Bytes of a file without records, the start of a new one
    first_wins: bool  # Whether readers use the first (else the last) of two equal keys
    name_pattern: str  # How its files are called, for people
    # What the first bytes of its files look like; nothing where `recognizes_content` asks for more.
    content: re.Pattern[bytes] = re.compile(rb"(?!)")
    # Patterns for git that no name of its files escapes; the broader ones take in what another
    # reader added to a name.
    globs: tuple[str, ...]
    target_word: str = "soc_version"  # What people call the device a file or record is for
    folder: str = ""  # The folder of its files below the one of a soc_version, empty for none
    # The byte that opens and the byte that closes the one list or object of a file; empty where
    # each record is a line.
    brackets: bytes = b""
    indent: bytes = b""  # What stands before a record in a file that shows no example
    # Whether the order of the records means nothing: no twin, no header line and no placeholder
    # ties them to their places.
    may_be_sorted: bool = False
    # Whether its readers find a file by its name; else they take the name a person gives them.
    is_found_by_name: bool = True
    head_member: str = ""  # Member of the `extra` of records that repeats the head of their file
    is_found_by_key: bool = True  # Whether the key of a workload is all its readers look for
    keeps_alternatives: bool = False  # Whether a key may have several answers
    keeps_times: bool = False  # Whether its records may hold a measured time
    # Whether readers put records of equal keys together: none hides another.
    joins_equal_keys: bool = False
    # Whether `check` has an error about each ASCII record `record` refuses.
    check_reads_all: bool = False
    # Whether files lie in any folder and are of the one target their name says: its records have a
    # place in no file of another target, whatever is asked for.
    is_of_one_target: bool = False
    # Whether each record names its target, which its key has a part for, and file names none.
    has_target_in_rows: bool = False
    # Whether `edit_strategy` writes the fields of a strategy, which is no JSON object in the file.
    edits_fields: bool = False
    companion_problem: str = ""  # Why nobody but its tuner writes a file that has its companion
    # Codes of findings that are notes elsewhere and break its readers.
    fatal_codes: frozenset[str] = frozenset()

    def parse_name(self, name: str) -> BankName | None:
        """Return target and operator from a file name, None where it is not one of this format."""
        ...

    def build_name(self, target: BankName | Query) -> str:
        """Return the name readers look for, parts nobody asked for in angle brackets."""
        ...

    def is_soc(self, spelled: str, soc_version: str) -> bool:
        """True if readers take a soc_version in a file name for `soc_version`."""
        return spelled == soc_version

    def fits_folder(self, spelled: str, soc_version: str) -> bool:
        """True if a file with `spelled` in its name may lie in a folder for a target."""
        return self.is_soc(spelled, soc_version)

    def check_name(self, path: Path) -> Iterator[Finding]:
        """Yield why a name is not of the pattern, where more than the pattern can be told."""
        return iter(())

    def recognizes_content(self, head: bytes) -> bool:
        """True if the first bytes of a file look like this format."""
        return self.content.match(head) is not None

    def companion(self, path: Path) -> Path | None:
        """Return the file that readers want beside `path`, or None if there is no such."""
        return None

    def check_companion(self, parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
        """Yield the contradictions between a file and its companion.

        Args:
            parsed: The file.
            data: Bytes of the companion, None if there is none.
        """
        return iter(())

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the records of a file; never raises, whatever the bytes are."""
        ...

    def parse_like(self, data: bytes, path: Path, like: ParsedFile | None) -> ParsedFile:
        """Parse a file, faster where it shares records with `like`; the result is the same.

        Args:
            like: Another version of it, of any format.
        """
        return self.parse(data, path)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position.

        Raises:
            RecordError: its members are not what the format says.
        """
        ...

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the operator type of each record, that of the file name where it tells none.

        Formats that know without reading records say so: a count by operator then costs a scan.
        """
        named = parsed.name.op_type if parsed.name else None
        found = (record.op_type if record else None for record in iter_or_none(parsed))
        return (op_type or named for op_type in found)

    def iter_targets(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the target of each record, that of the file name where it tells none."""
        named = parsed.name.soc_version if parsed.name else None
        return (named for _ in range(len(parsed)))

    def iter_times_us(self, parsed: ParsedFile) -> Iterator[float | None]:
        """Yield the measured time of each record, None where there is none to be read."""
        return (record.cost_us if record else None for record in iter_or_none(parsed))

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield everything wrong with the records, beyond what `parse` found."""
        ...

    def read_by(self, reader: Release) -> Format:
        """Return the format as a release reads it; most are read alike by all."""
        return self

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the keys its readers may know a workload by.

        Args:
            text: The workload as a person wrote it.
            value: What it says as JSON; the text itself where it is none.
        """
        yield text.strip()  # a feature text, a graphID or a modelhash is its own key
        if isinstance(value, str):
            yield value

    def iter_keys_of_id(self, parsed: ParsedFile, number: int) -> Iterator[str]:
        """Yield the keys of records that a reader's log or their file calls by a number."""
        return iter(())

    def value_name(self, op_type: str | None, member: str, value: JsonValue) -> str:
        """Return the name of a number in a workload, as in `FLOAT16`; empty for a plain one."""
        return ""

    def workload_words(self, record: Record) -> str:
        """Return the workload of a record in one line; empty where its members say it best."""
        return ""

    def strategy_words(self, record: Record) -> Iterable[str]:
        """Return a strategy in short, then in detail; nothing where its members say it best."""
        return ()

    def unread_reason(self, op_type: str | None, member: str) -> str:
        """Return why no reader uses a member of a strategy; empty if one may."""
        return ""

    def strategy_fields(self, op_type: str) -> Mapping[str, StrategyField] | None:
        """Return the fields its reader knows in strategies of an operator; None: nobody knows."""
        return None

    def strategy_places(self, parsed: ParsedFile, number: int) -> Sequence[int]:
        """Return the offsets of the strategies in the text of a record, those of all its answers.

        None where a strategy is no JSON object with members that can be named.
        """
        return ()

    def edit_strategy(self, parsed: ParsedFile, number: int, edit: FieldEdit) -> bytes | None:
        """Return a record with members of its strategy set and taken out.

        None where `strategy_places` tells where they stand in its text.

        Raises:
            BankFormatError: the file has no room for such a member.
        """
        return None

    def respell_key(self, parsed: ParsedFile, number: int) -> bytes:
        """Return a record with its key in the spelling its readers compare."""
        return parsed.raw(number)

    def header(self, parsed: ParsedFile) -> str:
        """Return the text before the records, which has to be one in files that are merged."""
        return ""

    def complements(self, base: bytes | None, ours: bytes, theirs: bytes) -> bool:
        """True if `unite` gives all answers of two records of one key, and none that was removed.

        Args:
            base: The record both were made from, None without one.
        """
        return False

    def unite(self, ours: bytes, theirs: bytes) -> bytes:
        """Return one record with the answers of two of one key; ours where it holds only one."""
        return ours

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied and every other byte as it was.

        Args:
            parsed: A file without error findings.
            changes: Record to store under each key; None removes the key.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedFile:
    """A file with the places of its records, in file order."""

    path: Path
    format: Format
    name: BankName | None  # Parts of the file name, when it has the usual form
    data: bytes
    keys: list[str]  # Key of each record; equal keys may come twice
    starts: array[int]  # First byte of each record
    ends: array[int]  # One past its last byte
    # What kept parts of the file from being read, or is odd about its text.
    findings: tuple[Finding, ...]
    lines: LineIndex
    # First byte and end of what stands among the records of a bracketed file and is none.
    properties: tuple[tuple[int, int], ...] = ()
    # First byte and end of what is in the brackets around the records, where a file has more than
    # these; the end of the file where the closing one is missing.
    inside: tuple[int, int] | None = None
    # Position of the record `find` gives for a key, where it is not that of readers.
    preferred: Mapping[str, int] = field(default_factory=dict)
    _places: dict[str, int] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self.keys)

    def raw(self, number: int) -> bytes:
        """Return the bytes of the record at a position."""
        return self.data[self.starts[number] : self.ends[number]]

    def text(self, number: int) -> str:
        """Return the text of the record at a position, undecodable bytes replaced."""
        return self.raw(number).decode("utf-8", errors="replace")

    def find(self, key: str) -> int | None:
        """Return the position of the record readers use for `key`."""
        return self.places.get(key)

    @property
    def places(self) -> Mapping[str, int]:
        """Result of `find` by key, for callers that ask about a million keys."""
        if not self._places and self.keys:
            numbers = range(len(self.keys))
            order = reversed(numbers) if self.format.first_wins else numbers
            self._places.update((self.keys[number], number) for number in order)
            self._places.update(self.preferred)
        return self._places

    def repeated(self) -> dict[str, tuple[int, ...]]:
        """Return the positions of the records of each key that comes several times."""
        if len(self.places) == len(self.keys):
            return {}
        found: dict[str, list[int]] = {}
        for number, key in enumerate(self.keys):
            found.setdefault(key, []).append(number)
        return {key: tuple(numbers) for key, numbers in found.items() if len(numbers) > 1}

    def iter_records(self) -> Iterator[Record]:
        """Yield the records in file order, passing over those that cannot be read."""
        return (record for record in iter_or_none(self) if record is not None)


def iter_or_none(parsed: ParsedFile) -> Iterator[Record | None]:
    """Yield the records in file order, None for one that cannot be read."""
    for number in range(len(parsed)):
        try:
            yield parsed.format.record(parsed, number)
        except RecordError:
            yield None


def find_error(parsed: ParsedFile) -> Finding | None:
    """Return the first error `parse` met, or None when readers can use the file."""
    errors = (finding for finding in parsed.findings if finding.severity is Severity.ERROR)
    return next(errors, None)


def raise_if_broken(parsed: ParsedFile) -> None:
    """Raise `BankFormatError` for the first error `parse` met, if it met one."""
    finding = find_error(parsed)
    if finding is not None:
        raise BankFormatError(
            finding.message,
            path=parsed.path,
            line=finding.location.line,
            column=finding.location.column,
            got=finding.got,
            expected=finding.expected,
            hint=finding.hint if finding.code == _POINTER else _validate_hint(parsed.path),
        )


def _validate_hint(path: Path) -> str:
    return f"aoebank validate {shell_word(path)}"
