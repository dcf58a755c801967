"""The seam every bank file format fits into."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from aoebank.errors import BankFormatError, RecordError
from aoebank.formats.lines import LineIndex
from aoebank.model.codes import Severity
from aoebank.model.file_name import BankName
from aoebank.model.finding import Finding
from aoebank.model.record import Record


class Format(Protocol):
    """One on-disk encoding of records.

    `parse` finds where records are and what their keys are, no more: a record becomes a
    value only when asked for, so a million of them fit into memory.

    Attributes:
        empty: Bytes of a file without records, the start of a new one.
        first_wins: Whether readers use the first (else the last) of two equal keys.
        name_pattern: How its files are called, for people.
    """

    name: str
    empty: bytes
    first_wins: bool
    name_pattern: str

    def recognizes_name(self, name: str) -> bool:
        """Return whether a file of this name can only be of this format."""
        ...

    def recognizes_content(self, head: bytes) -> bool:
        """Return whether the first bytes of a file look like this format."""
        ...

    def companion(self, path: Path) -> Path | None:
        """Return the file that readers want beside `path`, or None if there is no such."""
        ...

    def check_companion(self, parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
        """Yield what does not fit between a file and its companion.

        Args:
            parsed: The file.
            data: Bytes of the companion, None if there is none.
        """
        ...

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the records of a file; never raises, whatever the bytes are."""
        ...

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position.

        Raises:
            RecordError: its members are not what the format says.
        """
        ...

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield everything wrong with the records, beyond what `parse` found."""
        ...

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied and every other byte as it was.

        Args:
            parsed: A file without error findings.
            changes: Record to store under each key; None removes the key.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ParsedFile:
    """A file with the places of its records, in file order.

    Attributes:
        name: Parts of the file name, when it has the usual form.
        keys: Key of each record; equal keys may come twice.
        starts: First byte of each record.
        ends: One past its last byte.
        findings: What kept parts of the file from being read, or is odd about its text.
    """

    path: Path
    format: Format
    name: BankName | None
    data: bytes
    keys: list[str]
    starts: array[int]
    ends: array[int]
    findings: tuple[Finding, ...]
    lines: LineIndex
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
        if not self._places and self.keys:
            numbers = range(len(self.keys))
            order = reversed(numbers) if self.format.first_wins else numbers
            self._places.update((self.keys[number], number) for number in order)
        return self._places.get(key)

    def iter_records(self) -> Iterator[Record]:
        """Yield the records in file order, passing over those that cannot be read."""
        for number in range(len(self)):
            try:
                yield self.format.record(self, number)
            except RecordError:
                continue


class NoCompanion:
    """The part of the protocol a format has that keeps everything in one file."""

    def companion(self, path: Path) -> Path | None:
        """Return None: there is no second file."""
        return None

    def check_companion(self, parsed: ParsedFile, data: bytes | None) -> Iterator[Finding]:
        """Yield nothing: there is no second file."""
        return iter(())


def find_error(parsed: ParsedFile) -> Finding | None:
    """Return the first error `parse` met, or None when readers can use the file."""
    errors = (each for each in parsed.findings if each.severity is Severity.ERROR)
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
            hint=f"aoebank validate {parsed.path}",
        )
