"""Findings about the quarantine of a bank: records that should be out, entries out of use."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

from aoebank.errors import BankFormatError, BankPathError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.finding import Finding, Location, make_finding
from aoebank.model.quarantine import Quarantine, QuarantineEntry
from aoebank.selection import parts_of
from aoebank.storage.quarantine import find_entry, quarantine_path
from aoebank.validation.source import DiskFiles


class QuarantineCheck:
    """The quarantines of the banks checked, each read when a file of its bank is.

    Args:
        today: Entries whose last day is before it do not hold; None: all hold.
        files: Where they are read.
    """

    def __init__(self, today: date | None, files: DiskFiles) -> None:
        self._today = today or date.min
        self._files = files
        self._roots: dict[Path, Path | None] = {}
        self._loaded: dict[Path, Quarantine] = {}
        self._unreadable: list[Finding] = []

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield a finding per record of a file that should not be there."""
        quarantine = self._of(parsed.path)
        if not len(quarantine):
            return
        for number, key in enumerate(parsed.keys):
            entry = find_entry(parsed, number, quarantine, today=self._today)
            if entry is not None and parsed.find(key) == number:
                yield _kept_in(parsed, number, entry)

    def findings(self) -> Iterator[Finding]:
        """Yield the problems of the quarantines themselves."""
        yield from self._unreadable
        for root, quarantine in self._loaded.items():
            targets = [*self._targets(root)] if len(quarantine) else []
            for entry in quarantine:
                yield from self._stale(entry, targets)

    def _of(self, path: Path) -> Quarantine:
        folder = path.parent
        if folder not in self._roots:
            self._roots[folder] = root = self._files.find_quarantine_root(folder)
            if root is not None and root not in self._loaded:
                self._loaded[root] = self._load(root)
        root = self._roots[folder]
        return self._loaded[root] if root is not None else Quarantine()

    def _load(self, root: Path) -> Quarantine:
        try:
            return self._files.load_quarantine(root)
        except BankFormatError as error:
            place = Location(path=quarantine_path(root), line=error.line, column=error.column)
            self._unreadable.append(make_finding("AB515", place, error.problem, hint=error.hint))
        except BankPathError as error:
            place = Location(path=quarantine_path(root))
            self._unreadable.append(make_finding("AB515", place, error.problem, hint=error.hint))
        return Quarantine()

    def _targets(self, root: Path) -> Iterator[tuple[frozenset[str], str | None]]:
        for name in self._files.iter_banks(root):
            parts = parts_of(name)
            yield parts.soc_versions, parts.op_type

    def _stale(
        self, entry: QuarantineEntry, targets: list[tuple[frozenset[str], str | None]]
    ) -> Iterator[Finding]:
        place = entry.location
        assert place is not None  # it was read from a file
        if not entry.is_active(self._today):
            yield make_finding(
                "AB514",
                place,
                "quarantine entry is expired",
                got=f"until {entry.until}",
                hint=f"aoebank quarantine rm {entry.key}, or add it again with a later day",
            )
        elif not any(_may_hold(entry, *target) for target in targets):
            yield make_finding(
                "AB514",
                place,
                "quarantine entry is for nothing the bank has",
                got=f"{entry.soc_version or 'any soc_version'}, {entry.op_type or 'any op_type'}",
                hint=f"mend the names, or aoebank quarantine rm {entry.key} if it is for good",
            )


def _may_hold(entry: QuarantineEntry, socs: frozenset[str], op_type: str | None) -> bool:
    """True if a record the entry names could lie in a file for this target."""
    if entry.soc_version is not None and entry.soc_version not in socs:
        return False
    return None in (entry.op_type, op_type) or entry.op_type == op_type


def _kept_in(parsed: ParsedFile, number: int, entry: QuarantineEntry) -> Finding:
    return make_finding(
        "AB513",
        parsed.format.record(parsed, number).location or Location(path=parsed.path),
        "record is in quarantine",
        got=_words(entry),
        hint=f"remove the record, or aoebank quarantine rm {entry.key} if it is good after all",
    )


def _words(entry: QuarantineEntry) -> str:
    ticket = f", {entry.ticket}" if entry.ticket else ""
    return f"{entry.reason}{ticket}"
