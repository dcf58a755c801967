"""Base of the banks of all kinds of tasks: one target, an earlier result behind, copies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from aoe.bank.journal import CHANGES, BankJournal, Note
from aoe.bank.remembered import RememberedOperator
from aoe.bank.stored import Stored
from aoe.bank.verdicts import BankNote, note_of
from aoebank import Bank, Event, Provenance, Record, RecordError

T = TypeVar("T")
"""Identity of a task: a `Workload`, or the graphID of a subgraph."""


class TaskBank(ABC, Generic[T]):
    """The records of one kind of task for one target.

    Args:
        journal: The run's hand in the bank.
        base: Bank of an earlier result, looked up behind the own one; it is never written.
        compared: Parts of the fingerprint that must agree before an earlier verdict is believed.
    """

    def __init__(self, journal: BankJournal, *, base: Bank | None, compared: Sequence[str]) -> None:
        self._journal = journal
        self._bank = journal.bank
        self._base = base
        self._compared = tuple(compared)

    # ---- what a kind says ----

    @abstractmethod
    def find(self, task: T) -> Stored | None:
        """Return the stored answer for a task, None on a miss."""

    @abstractmethod
    def _key(self, task: T) -> str:
        """Return the key of a task's record."""

    @abstractmethod
    def _file_in(self, bank: Bank, task: T) -> Path:
        """Return the file a bank has a task's record in."""

    def _copied(self, source: Path, root: Path) -> Path:
        """Return the file below another root for records of a file."""
        if self._base is not None and source.is_relative_to(self._base.root):
            return root / source.relative_to(self._base.root)
        return root / source.relative_to(self._bank.root)

    def _cost_us(self, record: Record) -> float | None:
        """Return the time in a record."""
        return record.cost_us

    def _cluster(self, task: T) -> Mapping[str, Any]:
        """Return the members a note on a task has besides the fingerprint of the run."""
        return {}

    def _is_made_alike(self, entry: Provenance, task: T) -> bool:
        """True if a line of the side-car is about the kernel the record would make now."""
        return True

    # ---- what all have ----

    @property
    def soc_version(self) -> str:
        """Target whose records are used."""
        return self._journal.soc_version

    @property
    def _here(self) -> Mapping[str, Any]:
        """Parts of the fingerprint that an earlier verdict must agree with."""
        return {name: self._journal.fingerprint.get(name) for name in self._compared}

    def file_of(self, task: T) -> Path:
        """Return the file with the answer for a task, on a miss the one it would go to."""
        return self._file_in(self._bank, task)

    def remembered(self, task: T) -> RememberedOperator:
        """Return the record of a task and the side-car lines that count."""
        file, key = self.file_of(task), self._key(task)
        record = self._record_at(file, key)
        strategy = record.strategy if record is not None else None
        return RememberedOperator(
            strategy=strategy if isinstance(strategy, Mapping) else None,
            cost_us=self._cost_us(record) if record is not None else None,
            lines=self._journal.lines_that_count(file, key),
        )

    def adopt(self, task: T) -> None:
        """Take over what the earlier result knows of a task, where it was of use.

        Its record goes into the bank, if that has none that holds; its lines of the side-car go
        with it, as do those of a search that found nothing. So the bank does without it later.
        """
        found, key = self.find(task), self._key(task)
        if self._base is None or (found is not None and not found.is_base):
            return
        file, base_file = self._file_in(self._bank, task), self._file_in(self._base, task)
        record = self._record_at(base_file, key, self._base) if found is not None else None
        known = [*self._journal.entries(file, key)]
        lines = [line for line in self._journal.entries(base_file, key) if line not in known]
        if record is not None:
            record = replace(record, soc_version=self.soc_version, location=None)
        self._bank.put(file, [record] if record is not None else [], lines)

    def note(self, notes: Sequence[tuple[T, BankNote]]) -> None:
        """Append provenance without touching any record."""
        by_file: dict[Path, list[Note]] = {}
        for task, verdict in notes:
            note = note_of(self._key(task), verdict, self._cluster(task))
            by_file.setdefault(self._file_in(self._bank, task), []).append(note)
        for file, own in by_file.items():
            self._journal.append(file, own)

    def copy_to(self, root: Path, tasks: Iterable[T]) -> None:
        """Put the records of tasks, with their lines of the side-car, into another bank.

        Args:
            root: Its root, which is made if need be; what it has besides stays.
            tasks: Those without a record are passed over.
        """
        if root.resolve() == self._bank.root.resolve():
            return
        found: dict[Path, list[Record]] = {}
        for task in tasks:
            source = self.file_of(task)
            record = self._record_at(source, self._key(task))
            if record is not None:
                found.setdefault(source, []).append(record)
        for source, records in found.items():
            self._copy(source, records, self._copied(source, root), root)

    def _copy(self, source: Path, records: Sequence[Record], file: Path, root: Path) -> None:
        other = Bank(root)
        file.parent.mkdir(parents=True, exist_ok=True)
        known = list(other.iter_provenance(file))
        noted = [n for r in records for n in self._bank.iter_provenance(source, r.key)]
        other.put(file, records, [entry for entry in noted if entry not in known])

    def _model_verdicts(self, file: Path, task: T) -> Iterator[Provenance | None]:
        """Yield the verdicts of models on an answer, None where its record was replaced."""
        for entry in self._journal.entries(file, self._key(task), where=self._here):
            if entry.event in CHANGES:
                yield None
            elif entry.event in (Event.KEPT, Event.DROPPED) and self._is_made_alike(entry, task):
                yield entry

    def _record_at(self, file: Path, key: str, bank: Bank | None = None) -> Record | None:
        """Return the record of a key, None if there is none anybody can read."""
        try:
            return (bank or self._bank).find(file, key)
        except RecordError:
            return None
