"""Gradient banks: format F, looked up and stored by modelhash."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.journal import CHANGES, BankJournal, Note
from aoe.bank.records.gradient import (
    GradientConditions,
    GradientVerdict,
    Miss,
    StoredGradients,
    conditions_of,
    lists_digest,
    record_of,
    search_facts,
    stored_gradients,
    usable_lists,
)
from aoe.gradients.trace import GradientTrace
from aoebank import (
    Bank,
    Drift,
    Event,
    Provenance,
    Reader,
    Record,
    RecordError,
    Resolution,
    UnionBank,
    resolve_bank,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLookup:
    """Outcome of a look-up: one of both is there."""

    stored: StoredGradients | None = None
    miss: Miss | None = None


class GradientBank:
    """The gradient bank of one target.

    Args:
        journal: Below the folder of the file, see `gradient_banks`.
        cluster: Of several banks, the first one with a record that was measured so answers;
            None for any cluster.
    """

    def __init__(self, journal: BankJournal, *, cluster: Mapping[str, Any] | None = None) -> None:
        self.file = journal.bank.root / f"{journal.soc_version}_gradient_fusion.json"
        self._bank = journal.bank
        self._journal = journal
        self._cluster = cluster
        if isinstance(self._bank, UnionBank):
            self._bank.fits = self._fits

    def find(
        self, modelhash: int, sizes_bytes: Sequence[int] | None = None
    ) -> StoredGradients | None:
        """Return the record of a model, None on any kind of miss."""
        return self.look_up(modelhash, sizes_bytes).stored

    def look_up(self, modelhash: int, sizes_bytes: Sequence[int] | None = None) -> GradientLookup:
        """Look a model up; a record nobody should use is a miss that says why.

        Args:
            modelhash: See `model_hash`.
            sizes_bytes: Gradients of the model in any order; a record with others is foreign.

        Raises:
            BankFormatError: the bank file is corrupt.
        """
        key = str(modelhash)
        try:
            record = self._bank.find(self.file, key)
        except RecordError:
            return GradientLookup(miss=Miss.BROKEN)
        if record is None:
            return GradientLookup(miss=Miss.ABSENT)
        if self._journal.stored_quarantine_reason(self.file, record) is not None:
            return GradientLookup(miss=Miss.QUARANTINED)
        if self._count(key) > 1:
            return GradientLookup(miss=Miss.TWICE)
        lists = usable_lists(record)
        if isinstance(lists, Miss):
            return GradientLookup(miss=lists)
        sizes, times = lists
        if sizes_bytes is not None and sorted(sizes) != sorted(sizes_bytes):
            return GradientLookup(miss=Miss.FOREIGN)
        return GradientLookup(stored=stored_gradients(key, sizes, times, self._line_of(record)))

    def save(self, modelhash: int, trace: GradientTrace, verdict: GradientVerdict) -> None:
        """Write the record of a model and its provenance, in place of all its older records.

        Where the quarantine wants no record of this model at all, only the provenance is written.
        """
        record = record_of(modelhash, trace, self._journal.clock())
        if self._journal.quarantine_reason(record) is not None:
            self.note(modelhash, replace(verdict, event=Event.UNSATISFIED), trace)
            return
        note = _note(modelhash, verdict, trace, lists_digest(record))
        self._journal.put(self.file, record, [note])

    def note(
        self, modelhash: int, verdict: GradientVerdict, trace: GradientTrace | None = None
    ) -> None:
        """Append provenance without touching the record."""
        self._journal.append(self.file, [_note(modelhash, verdict, trace, None)])

    def last_failure(
        self, modelhash: int, *, world_size: int, backend: str
    ) -> GradientConditions | None:
        """Return the conditions of the last tuning there that beat nothing, else None."""
        cluster = {"world_size": world_size, "backend": backend}
        found = self._journal.last_failure(self.file, str(modelhash), where=cluster)
        return None if found is None else conditions_of(found)

    def record(self, modelhash: int) -> Record | None:
        """Return the record of a model as it is in the file, None where nobody can read one."""
        try:
            return self._bank.find(self.file, str(modelhash))
        except RecordError:
            return None

    def modelhashes(self) -> tuple[str, ...]:
        """Return the modelhashes in the file."""
        return tuple(record.key for record in self._bank.iter_records(self.file))

    def last_figure(self, modelhash: int) -> Provenance | None:
        """Return the side-car line of the last measurement of a model's grouping."""
        return self._journal.last_figure(self.file, str(modelhash))

    def drift(self, modelhash: int) -> Drift:
        """Return the changes of the environment since a model's grouping was last measured."""
        return self._journal.drift(self.file, str(modelhash), None)

    def _count(self, key: str) -> int:
        """Return the number of records with a key; broken ones of other models do not matter."""
        return _count(self._journal.root_of(self.file, key) / self.file.name, key)

    def _fits(self, record: Record, lines: Sequence[Provenance], root: Path) -> bool:
        """True if a record of one of several banks can be used, and was measured in this cluster.

        A record of another cluster is of use where no bank has one of this: its lists are the
        model's, and a grouping is computed from them.
        """
        if not self._journal.fits(record, lines, root) or isinstance(usable_lists(record), Miss):
            return False
        changes = [line for line in lines if line.event in CHANGES]
        measured = changes[-1].fingerprint if changes else {}
        is_here = all(measured.get(name) == value for name, value in (self._cluster or {}).items())
        return is_here and _count(root / self.file.name, record.key) == 1

    def _line_of(self, record: Record) -> Provenance | None:
        """Return the side-car line that wrote the record, None if this engine did not write it."""
        found = self._journal.last_change(self.file, record.key)
        return found if found and found.search.get("lists") == lists_digest(record) else None


def _note(
    modelhash: int, verdict: GradientVerdict, trace: GradientTrace | None, digest: str | None
) -> Note:
    return Note(
        key=str(modelhash),
        event=verdict.event,
        op_names=trace.names if trace else (),
        estimate=verdict.estimate,
        baseline_us=verdict.baseline_us,
        tuned_us=verdict.tuned_us,
        cluster={"world_size": verdict.world_size, "backend": verdict.backend},
        search=search_facts(verdict, trace, digest),
    )


def _count(file: Path, key: str) -> int:
    return sum(record.key == key for record in Bank(file.parent).iter_records(file))


def gradient_banks(
    env: Mapping[str, str], cwd: Path, soc_version: str, *, writes: bool = True
) -> Resolution:
    """Return the folder CANN's own tuner would write the bank of a target to, as `root`.

    That is `TUNE_BANK_PATH` itself, without a folder per target, or one per target below the
    default in the home directory. Of a list, which CANN's tuner does not know, all members are
    looked up.

    Args:
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        soc_version: Target.
        writes: False for what only looks records up: no member of a list has to be writable.

    Raises:
        BankNotFoundError: `TUNE_BANK_PATH` names no directory, or there is no home.
        BankPermissionError: it may not be used.
    """
    named = env.get("TUNE_BANK_PATH", "")
    if os.pathsep in named and not (cwd / named).exists():
        return resolve_bank(env=env, cwd=cwd, writes=writes)
    resolution = resolve_bank(env=env, cwd=cwd, reader=Reader.GRADIENT_WRITER)
    if resolution.variable != "HOME":
        return resolution
    return replace(resolution, root=resolution.root / soc_version, roots=())
