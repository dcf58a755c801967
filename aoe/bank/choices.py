"""Choices between forms of a whole model, by what they depend on, for later runs.

A choice is a record of the unified bank like those of operators. What it says is for the engine
alone, so its strategy bears another name, and readers of operators pass it over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from aoe.bank.journal import BankJournal, Note
from aoe.bank.stored import Stored
from aoe.bank.task_bank import TaskBank
from aoebank import Bank, Event, Record, make_unified_record, workload_key

SaveChoice = Callable[[Sequence[Mapping[str, Any]], int | None], None]
"""Writes the record of a choice: the forms that were measured, and which of them is taken."""
Choice = Mapping[str, Any]
"""What a choice depends on, but for the machine: model, arrays, bound, lists, versions."""
_COMPARED = ("cpu_model", "onnxruntime", "core_num")
"""Parts of the fingerprint that must agree: they decide which form is faster."""


class ChoiceKind(StrEnum):
    """What is chosen; the name stands for the operator in the name of the file."""

    CALIBRATION = "calibration"
    """Between forms of a model in integers."""
    FORM = "form"
    """Between the imported model and another form of it, which computes the same."""
    OPTIMIZATIONS = "optimizations"
    """The optimisations of ONNX Runtime with which the model is right."""

    @property
    def engine(self) -> str:
        """What a strategy names, so that nobody else reads it."""
        return f"aoe.{self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChoice(Stored):
    """Choice of an earlier run."""

    forms: tuple[Mapping[str, Any], ...]  # All forms that were measured, JSON values
    chosen: int | None  # Which of them was the fastest; None where the model stayed as it is


class ChoiceBank(TaskBank[Choice]):
    """The choices of a kind, of one target below one root.

    Args:
        kind: What is chosen.
        journal: The run's hand in the bank.
        core_num: Cores of the target, names the file.
        base: Bank of an earlier result, looked up behind the own one; it is never written.
    """

    def __init__(
        self, kind: ChoiceKind, journal: BankJournal, *, core_num: int, base: Bank | None = None
    ) -> None:
        super().__init__(journal, base=base, compared=_COMPARED)
        self._kind, self._core_num = kind, core_num

    def find(self, task: Choice) -> StoredChoice | None:
        """Return the choice of this machine and these versions, None if there is none.

        Raises:
            BankFormatError: the bank file or the quarantine is corrupt.
        """
        own = self._found(self._bank, task)
        if own is not None or self._base is None:
            return own
        other = self._found(self._base, task)
        return None if other is None else replace(other, is_base=True)

    def file_of(self, task: Choice) -> Path:
        """Return the file with a choice, on a miss the one it would go to."""
        found = self.find(task)
        if self._base is not None and found is not None and found.is_base:
            return self._file_in(self._base, task)
        return self._file_in(self._bank, task)

    def save(self, task: Choice, forms: Sequence[Mapping[str, Any]], chosen: int | None) -> None:
        """Write the record of a choice; one in quarantine stays as it is."""
        record = make_unified_record(
            workload=dict(task),
            strategy={"engine": self._kind.engine, "forms": [*forms], "chosen": chosen},
            cost_us=None,
            origin=self._journal.engine,
        )
        record = replace(record, soc_version=self.soc_version, op_type=self._kind.value)
        if self._journal.quarantine_reason(record) is None:
            file = self._file_in(self._bank, task)
            event = Event.ADD if self._record_at(file, record.key) is None else Event.UPDATE
            self._journal.put(file, record, [Note(key=record.key, event=event)])

    def _found(self, bank: Bank, task: Choice) -> StoredChoice | None:
        file, key = self._file_in(bank, task), self._key(task)
        record, last = self._record_at(file, key, bank), self._journal.last_change(file, key)
        if record is None or last is None:
            return None
        if self._journal.stored_quarantine_reason(file, record) is not None:
            return None
        is_from_here = all(last.fingerprint.get(name) == one for name, one in self._here.items())
        return self._choice_of(record) if is_from_here else None

    def _key(self, task: Choice) -> str:
        return workload_key(dict(task))

    def _file_in(self, bank: Bank, task: Choice) -> Path:
        return bank.unified_file(
            soc_version=self.soc_version, core_num=self._core_num, op_type=self._kind.value
        )

    def _choice_of(self, record: Record) -> StoredChoice | None:
        """Return the choice in a record, None for one that cannot be read."""
        strategy = record.strategy
        if not isinstance(strategy, Mapping) or strategy.get("engine") != self._kind.engine:
            return None
        match strategy.get("forms"), strategy.get("chosen"):
            case [*values], None | int() as chosen:
                forms = tuple(one for one in values if isinstance(one, Mapping))
                if len(forms) == len(values) and (chosen is None or 0 <= chosen < len(forms)):
                    return StoredChoice(forms=forms, chosen=chosen)
        return None
