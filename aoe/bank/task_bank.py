"""What the banks of all kinds of tasks share: one target, an earlier result behind, copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from aoe.bank.journal import BankJournal
from aoebank import Bank, Record


class TaskBank:
    """The records of one kind of task for one target.

    Args:
        journal: The run's hand in the bank.
        base: Bank of an earlier result, looked up behind the own one; it is never written.
        compared: Parts of the fingerprint that must agree before an earlier verdict is believed.
    """

    def __init__(self, journal: BankJournal, *, base: Bank | None, compared: Sequence[str]) -> None:
        self._journal = journal
        self._base = base
        self._compared = tuple(compared)

    @property
    def soc_version(self) -> str:
        """Target whose records are used."""
        return self._journal.soc_version

    @property
    def _here(self) -> Mapping[str, Any]:
        """What the fingerprint of an earlier verdict must agree with."""
        return {name: self._journal.fingerprint.get(name) for name in self._compared}

    def _take_over(self, key: str, record: Record | None, base_file: Path, file: Path) -> None:
        """Put a record of the earlier result into the bank, with its lines of the side-car.

        Without a record the lines go alone: a search that found nothing is known, too.
        """
        bank = self._journal.bank
        if record is not None:
            bank.put(file, [replace(record, soc_version=self.soc_version, location=None)])
        known = [*self._journal.entries(file, key)]
        lines = [line for line in self._journal.entries(base_file, key) if line not in known]
        bank.append_provenance(file, lines)

    def _copy(self, source: Path, records: Sequence[Record], file: Path, root: Path) -> None:
        """Put records into a file of another bank, with their lines of the side-car.

        Args:
            source: File they are in.
            records: None of them leaves the other bank as it is.
            file: Of the other bank; what it has besides stays.
            root: Root of the other bank.
        """
        if not records:
            return
        other = Bank(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        other.put(file, records)
        known = list(other.iter_provenance(file))
        noted = [n for r in records for n in self._journal.bank.iter_provenance(source, r.key)]
        other.append_provenance(file, [entry for entry in noted if entry not in known])
