"""Operator banks: strategies by workload, and results of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from aoe.bank.journal import CHANGES, KERNEL_SOURCE, BankJournal, rounding_of
from aoe.bank.records.operator import (
    StoredAnswer,
    strategy_of,
    strategy_to_json,
    workload_of,
)
from aoe.bank.sources import kernel_source
from aoe.bank.task_bank import TaskBank
from aoe.bank.verdicts import (
    BankNote,
    DroppedKernel,
    FailedSearch,
    KeptKernel,
    UndecidedOperator,
    busy_search_of,
    failed_search_of,
    is_of_nothing,
    is_settled,
    note_of,
    proven_gain_of,
    surroundings_of,
    undecided_operator_of,
)
from aoe.schedule import Configuration, Schedule
from aoe.workload import Precision, Workload, gain_kind, workload_to_json
from aoebank import (
    Bank,
    Drift,
    Event,
    Provenance,
    Record,
    RecordError,
    Resolution,
    make_unified_record,
    old_soc_versions,
    resolve_bank,
    workload_key,
)

_COMPARED = ("cpu_model", "onnxruntime", "halide", "core_num")
"""Parts of the fingerprint that must agree before an earlier verdict is believed."""


class OperatorBank(TaskBank[Workload]):
    """The custom operator bank of one target, as the engine uses it, and the built-in one behind.

    Args:
        journal: Below the root of the bank, see `bank_root`.
        core_num: Cores of the target, names the files.
        built_in: Looked up where the custom bank has no record; it is never written.
        source_of: Digest of what kernels of a family are made by, None for no such family.
        base: Bank of an earlier result, looked up before the built-in one; it is never written.
    """

    def __init__(
        self,
        journal: BankJournal,
        *,
        core_num: int,
        built_in: Bank | None = None,
        source_of: Callable[[str], str | None] = kernel_source,
        base: Bank | None = None,
    ) -> None:
        super().__init__(journal, base=base, compared=_COMPARED)
        self._core_num = core_num
        self._built_in = built_in
        self._source_of = journal.source_of = source_of
        self._saved: set[str] = set()

    @property
    def core_num(self) -> int:
        """Cores of the target."""
        return self._core_num

    def file(self, op_type: str, soc_version: str | None = None) -> Path:
        """Return the bank file of a kernel family, for the target of this run if for no other."""
        return self._unified_file(self._bank, op_type, soc_version)

    def _unified_file(self, bank: Bank, op_type: str, soc_version: str | None = None) -> Path:
        return bank.unified_file(
            soc_version=soc_version or self._journal.soc_version,
            core_num=self._core_num,
            op_type=op_type,
        )

    def find(self, workload: Workload) -> StoredAnswer | None:
        """Return the stored answer for a workload, None on a miss.

        A record whose strategy this version cannot replay is a miss: it gets replaced. So is
        one in quarantine, see `quarantine_reason`, and one whose fingerprint is another in a hard
        fact, see `Drift`. Where the target has no record, one under an old name of the target
        counts, then one of the earlier result, then one of the built-in bank, if it needs no
        feature this machine lacks.

        Raises:
            BankFormatError: the bank file or the quarantine is corrupt.
        """
        file = self.file(workload.op_type)
        record = self._record_at(file, key_of(workload))
        if record is None:
            found = self._find_under_old_name(workload) or self._find_in_base(workload)
            has_flaw = self.invalid_reason(workload) is not None  # it is tuned again, and replaced
            return found if found is not None or has_flaw else self._find_built_in(workload)
        if self._journal.stored_quarantine_reason(file, record) is not None:
            return None
        if self._drift(record, file).is_stale:
            return self._find_in_base(workload)
        return self._answer(record, file) or self._find_in_base(workload)

    def range_records(self, op_type: str) -> Iterator[tuple[Workload, StoredAnswer]]:
        """Yield the workloads of a family with records that models over ranges of shapes use.

        Their times and speed-ups are left out: they are of other shapes than those asked for.

        Raises:
            BankFormatError: the bank file or the quarantine is corrupt.
        """
        file, models = self.file(op_type), dict[str, str]()
        for line in self._bank.iter_provenance(file):
            if "shape_range" in line.model:
                name, text = line.model.get("name", "a model"), line.model["shape_range"]
                models[line.key] = f"{name} over {text}"
        for key, model in models.items():
            record = self._record_at(file, key)
            workload = workload_of(record) if record is not None else None
            answer = self.find(workload) if workload is not None else None
            if workload is not None and answer is not None:
                yield (
                    workload,
                    replace(
                        answer, range_model=model, cost_us=None, speedup=None, speedup_low=None
                    ),
                )

    def _usable(self, record: Record, file: Path, *names: str | None) -> StoredAnswer | None:
        """Return the answer of a record, None for one in quarantine under a name of the target."""
        if any(self._journal.quarantine_reason(record, name) for name in names or (None,)):
            return None
        return self._answer(record, file)

    def file_of(self, workload: Workload) -> Path:
        """Return the file with the answer for a workload, on a miss the one it would go to."""
        found = self.find(workload)
        return found.file if found is not None else self.file(workload.op_type)

    def _find_under_old_name(self, workload: Workload) -> StoredAnswer | None:
        for old_name in old_soc_versions(self._journal.soc_version):
            file = self.file(workload.op_type, old_name)
            record = self._record_at(file, key_of(workload))
            if record is None or not self._fits(record, file):
                continue
            answer = self._usable(record, file, old_name, None)
            if answer is not None:
                return replace(answer, old_name=old_name)
        return None

    def _find_in_base(self, workload: Workload) -> StoredAnswer | None:
        file, record = self._in_base(workload)
        if file is None or record is None or self._drift(record, file).is_stale:
            return None
        answer = self._usable(record, file)
        return None if answer is None else replace(answer, is_base=True)

    def _in_base(self, workload: Workload) -> tuple[Path | None, Record | None]:
        """Return the file and the record of the earlier result, None for what is not there."""
        file = self._base_file(workload.op_type)
        if file is None:
            return None, None
        return file, self._record_at(file, key_of(workload), self._base)

    def _base_file(self, op_type: str) -> Path | None:
        return None if self._base is None else self._unified_file(self._base, op_type)

    def base_drift(self, workload: Workload) -> Drift | None:
        """Return the changes since the earlier result, None if it has no such workload."""
        file, record = self._in_base(workload)
        if file is None:
            return None
        if record is not None:
            return self._drift(record, file)
        lines = [*self._journal.entries(file, key_of(workload))]
        return (
            self._journal.drift_of(lines[-1], self._source_of(workload.op_type)) if lines else None
        )

    def base_workloads(self, op_type: str) -> Iterator[Workload]:
        """Yield the workloads of a family the earlier result has records of."""
        file = self._base_file(op_type)
        for record in self._base.iter_records(file) if self._base and file else ():
            workload = workload_of(record)
            if workload is not None:
                yield workload

    def _find_built_in(self, workload: Workload) -> StoredAnswer | None:
        if self._built_in is None:
            return None
        file = self._unified_file(self._built_in, workload.op_type)
        record = self._built_in.find(file, key_of(workload))
        if record is None or not self._fits(record, file):
            return None
        answer = self._usable(record, file)
        return None if answer is None else replace(answer, is_built_in=True)

    def _fits(self, record: Record, file: Path) -> bool:
        """True if a record is known to have been measured without features missing here."""
        last = self._journal.last_change(file, record.key)
        if last is None or "features" not in last.fingerprint:
            return False
        if self._has_other_source(last, record.op_type or ""):
            return False
        here = str(self._journal.fingerprint.get("features", "")).split("-")
        return set(str(last.fingerprint["features"]).split("-")) <= set(here)

    def quarantine_reason(self, workload: Workload) -> str | None:
        """Return why the record of a workload is passed over, None if it is not."""
        file = self.file(workload.op_type)
        record = self._record_at(file, key_of(workload))
        return None if record is None else self._journal.stored_quarantine_reason(file, record)

    def invalid_reason(self, workload: Workload) -> str | None:
        """Return why the record of a workload cannot be used, None if it can or there is none."""
        file = self.file(workload.op_type)
        try:
            record = self._bank.find(file, key_of(workload))
            if record is None or strategy_of(record) is None:
                return None
        except (RecordError, ValueError) as error:
            return str(error)
        return "; ".join(self._drift(record, file).hard) or None

    def refusal(
        self, workload: Workload, schedule: Schedule, configuration: Configuration
    ) -> str | None:
        """Return why a strategy must not be saved for a workload, None if it may be."""
        strategy = strategy_to_json(schedule, configuration)
        return self._journal.quarantine_reason(self._record(workload, strategy, cost_us=None))

    def nearest(self, workload: Workload, limit: int = 3) -> tuple[StoredAnswer, ...]:
        """Return the answers for the most similar workloads, most similar first.

        Of answers with the same knobs the nearest one is returned. None is from the built-in bank.
        A speed-up of another machine, of other versions, of a kernel made another way or of another
        geometry (`gain_kind`) is left out: here another one is to be expected.
        """
        ranked = []
        own, base = self.file(workload.op_type), self._base_file(workload.op_type)
        places = [(own, record) for record in self._bank.iter_records(own)]
        if base is not None and self._base is not None:
            places += [(base, record) for record in self._base.iter_records(base)]
        for file, record in places:
            other = workload_of(record)
            if other is None or _kind(other) != _kind(workload):
                continue
            answer = self._answer(record, file)
            if answer is None:
                continue
            answer = replace(answer, is_of_this_run=record.key in self._saved)
            if gain_kind(other) != gain_kind(workload):
                answer = replace(answer, speedup=None)
            ranked.append((_distance(workload, other), record.key, answer, record))
        ranked.sort(key=lambda item: item[:2])
        nearest: dict[Configuration, StoredAnswer] = {}
        for _, _, answer, record in ranked:
            reason = self._journal.stored_quarantine_reason(answer.file, record)
            if len(nearest) < limit and reason is None:
                nearest.setdefault(answer.configuration, answer)
        return tuple(
            one if self._was_measured_alike(one, workload.op_type) else replace(one, speedup=None)
            for one in nearest.values()
        )

    def _was_measured_alike(self, answer: StoredAnswer, op_type: str) -> bool:
        """True if the speed-up of an answer is one over the default of this run."""
        last = self._journal.last_figure(answer.file, answer.key)
        return (
            last is not None
            and self._is_from_here(last)
            and not self._has_other_source(last, op_type)
        )

    def failed_search(
        self,
        workload: Workload,
        trials: int,
        *,
        threshold: float,
        trials_in_base: int | None = None,
    ) -> FailedSearch | None:
        """Return the last search here, as large or larger, if it found nothing better.

        Args:
            workload: What was searched.
            trials: Least size of that search.
            threshold: Speed-up that was asked for; a wide interval around it proves nothing, unless
                it was the second one.
            trials_in_base: Least size of a search of the earlier result; None for the same.
        """
        own, base = self.file(workload.op_type), self._base_file(workload.op_type)
        last = self._last_failure(own, workload)
        if last is None and base is not None:
            last = self._last_failure(base, workload)
            trials = trials if trials_in_base is None else trials_in_base
        if last is None or self._has_other_source(last, workload.op_type):
            return None
        if (busy := busy_search_of(last)) is not None:
            return busy
        limit = last.search.get("limit")
        if not isinstance(limit, int) or limit < trials or is_of_nothing(last):
            return None
        return failed_search_of(last, threshold)

    def _last_failure(self, file: Path, workload: Workload) -> Provenance | None:
        return self._journal.last_failure(file, key_of(workload), where=self._here)

    def undecided(self, op_type: str) -> Iterator[UndecidedOperator]:
        """Yield the operators of a family that a busy machine has left without a decision here."""
        file = self.file(op_type)
        for key in dict.fromkeys(line.key for line in self._bank.iter_provenance(file)):
            last = self._journal.last_failure(file, key, where=self._here)
            found = None if last is None else undecided_operator_of(last)
            if last is None or found is None:
                continue
            if (found.workload.op_type, key_of(found.workload)) != (op_type, key):
                continue
            if not self._has_other_source(last, op_type) and self._record_at(file, key) is None:
                yield found

    def model_verdict(self, workload: Workload, ignored: str | None = None) -> Event | None:
        """Return the event by which this very model kept or dropped the kernel, None if unsettled.

        A record that was replaced since has not been judged yet, and one that was judged by an
        interval too wide to decide is to be judged once more.

        Args:
            workload: Of the kernel.
            ignored: Beginning of a reason that does not count now; None where all count.
        """
        verdict, last = None, None
        for entry in self._model_verdicts(self.file(workload.op_type), workload):
            if entry is None or (ignored is not None and _reason(entry).startswith(ignored)):
                verdict = last = None
            elif self._journal.is_of_this_model(entry):
                is_settled_now = is_settled(entry) or entry.event is last
                verdict, last = (entry.event if is_settled_now else None), entry.event
        return verdict

    def proven_gain(self, workload: Workload, kernel: str) -> float | None:
        """Return the least speed-up this very model was proven to have with a kernel it has kept.

        None if it has not kept it, or nobody knows whether it was this kernel. It was proven on
        such a machine, with the same versions and sources.

        Args:
            workload: Of the kernel.
            kernel: Its name.
        """
        gain = None
        for entry in self._model_verdicts(self.file(workload.op_type), workload):
            if entry is None:
                gain = None
            elif self._journal.is_of_this_model(entry):
                gain = proven_gain_of(entry, kernel)
        return gain

    def last_facts(
        self, workload: Workload, method: str, *, of_this_model: bool
    ) -> Mapping[str, Any] | None:
        """Return `BankNote.search` of the last note on the present record by a method, if any.

        Args:
            workload: Of the record.
            method: Member `method` of the note.
            of_this_model: True for notes of this model alone, over the same range.
        """
        last = None
        for entry in self._journal.entries(self.file_of(workload), key_of(workload)):
            is_meant = not of_this_model or self._journal.is_of_this_model(entry)
            if entry.event in CHANGES:
                last = None
            elif entry.search.get("method") == method and is_meant:
                last = entry.search
        return last

    def kept_before(self, workload: Workload) -> KeptKernel | None:
        """Return the verdict of an earlier model on the kernel that is used here.

        That is the model of the earlier result, else the one that was judged last with the kernel
        into this bank. None if that has not kept it.
        """
        last = self._verdict_in_base(workload) or self._verdict_of_another(workload)
        return KeptKernel.of(last) if last is not None and last.event is Event.KEPT else None

    def dropped_in_base(
        self, workload: Workload, ignored: tuple[str, ...] = ()
    ) -> DroppedKernel | None:
        """Return the earlier model's verdict on the kernel that is used here.

        None if it has not dropped it, or noise decided that.

        Args:
            workload: Of the kernel.
            ignored: Beginnings of reasons that do not count now.
        """
        last = self._verdict_in_base(workload)
        if last is None or last.event is not Event.DROPPED or not is_settled(last):
            return None
        if _reason(last).startswith(ignored):
            return None
        return DroppedKernel(reason=_reason(last), surroundings=surroundings_of(last))

    def usual_kept_share(self, op_types: Iterable[str]) -> float | None:
        """Return the share of their promise that kernels keep in models judged on this machine.

        It is the median of the models in the bank and in the earlier result, None without any.

        Args:
            op_types: Kernel families whose files are read.
        """
        shares: dict[str, float] = {}
        for op_type in sorted(set(op_types)):
            for file in (self.file(op_type), self._base_file(op_type)):
                for line in self._bank.iter_provenance(file) if file is not None else ():
                    share = self._kept_share(line)
                    if share is not None:
                        shares[str(line.model.get("sha256"))] = share
        return median(shares.values()) if shares else None

    def _kept_share(self, line: Provenance) -> float | None:
        """Return the share of their promise kernels have kept by a line of a model judged alike."""
        if line.event is not Event.KEPT or not self._journal.is_validated_alike(line):
            return None
        if not self._is_from_here(line):
            return None
        found = KeptKernel.of(line)
        return found.kept_share if found.is_settled else None

    def _is_from_here(self, line: Provenance) -> bool:
        """True if a line was written on such a machine, with the same versions."""
        return all(line.fingerprint.get(name) == value for name, value in self._here.items())

    def _verdict_in_base(self, workload: Workload) -> Provenance | None:
        """Return the line of the earlier model's verdict on the kernel used here, None without."""
        found, file = self.find(workload), self._base_file(workload.op_type)
        in_base = self._in_base(workload)[1]
        if found is None or file is None or in_base is None:
            return None
        verdicts = [*self._model_verdicts(file, workload)]
        same = self._answer(in_base, file)
        is_same = same is not None and same.schedule == found.schedule
        last = verdicts[-1] if verdicts else None
        if not is_same or last is None or not self._journal.is_validated_alike(last):
            return None
        return last

    def _verdict_of_another(self, workload: Workload) -> Provenance | None:
        """Return the last verdict in the bank on a kernel, None if it is of this very model.

        Only those count that were taken on such a machine, with the same versions.
        """
        *_, last = (None, *self._model_verdicts(self.file(workload.op_type), workload))
        if last is None or self._journal.is_of_this_model(last):
            return None
        return last if self._journal.is_validated_alike(last) else None

    def save(
        self,
        workload: Workload,
        schedule: Schedule,
        configuration: Configuration,
        verdict: BankNote,
    ) -> None:
        """Write a record and its provenance; the record is whole on disk when this returns.

        Raises:
            ValueError: the strategy is in quarantine; ask `refusal` first.
        """
        assert verdict.measurement is not None
        strategy = strategy_to_json(schedule, configuration)
        cost_us = round(verdict.measurement.latency_us, 3)
        record = self._record(workload, strategy, cost_us=cost_us)
        reason = self._journal.quarantine_reason(record)
        if reason is not None:
            raise ValueError(f"{record.key} is {reason}")
        note = note_of(record.key, verdict, self._cluster(workload))
        self._journal.put(self.file(workload.op_type), record, [note])
        self._saved.add(record.key)

    def _copied(self, source: Path, root: Path) -> Path:
        if self._built_in is not None and source.is_relative_to(self._built_in.root):
            return root / source.relative_to(self._built_in.root)
        return super()._copied(source, root)

    def _key(self, task: Workload) -> str:
        return key_of(task)

    def _file_in(self, bank: Bank, task: Workload) -> Path:
        return self._unified_file(bank, task.op_type)

    def _cluster(self, task: Workload) -> Mapping[str, Any]:
        source = self._source_of(task.op_type)
        return {KERNEL_SOURCE: source} if source else {}

    def _is_made_alike(self, entry: Provenance, task: Workload) -> bool:
        return not self._has_other_source(entry, task.op_type)

    def _record(
        self, workload: Workload, strategy: Mapping[str, Any], *, cost_us: float | None
    ) -> Record:
        record = make_unified_record(
            workload=workload_to_json(workload),
            strategy=strategy,
            cost_us=cost_us,
            origin=self._journal.engine,
        )
        return replace(record, soc_version=self._journal.soc_version, op_type=workload.op_type)

    def _answer(self, record: Record, file: Path) -> StoredAnswer | None:
        try:
            strategy = strategy_of(record)
        except ValueError:
            return None
        if strategy is None:
            return None
        schedule, configuration = strategy
        last = self._journal.last_figure(file, record.key)
        return StoredAnswer(
            key=record.key,
            schedule=schedule,
            configuration=configuration,
            cost_us=record.cost_us,
            speedup=last.speedup if last is not None else None,
            speedup_low=last.speedup_low if last is not None else None,
            rounding=rounding_of(last) if last is not None else None,
            file=file,
            remeasure_reasons=self._drift(record, file).soft,
        )

    def _drift(self, record: Record, file: Path) -> Drift:
        """Return the changes of the environment since a record was written."""
        return self._journal.drift(file, record.key, self._source_of(record.op_type or ""))

    def _has_other_source(self, entry: Provenance, op_type: str) -> bool:
        """True if a line is known to be about kernels that were made another way."""
        then, now = entry.fingerprint.get(KERNEL_SOURCE), self._source_of(op_type)
        return then is not None and now is not None and then != now


def bank_root(env: Mapping[str, str], cwd: Path, *, writes: bool = True) -> Path:
    """Return the root of the custom bank that is written; `custom_banks` has all looked up."""
    return custom_banks(env, cwd, writes=writes).root


def custom_banks(env: Mapping[str, str], cwd: Path, *, writes: bool = True) -> Resolution:
    """Return the custom operator banks: TUNE_BANK_PATH > ASCEND_CACHE_PATH > home.

    Args:
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        writes: False for what only looks records up.

    Raises:
        BankNotFoundError: an explicit path does not exist.
        BankPermissionError: it may not be read and searched, or written by what writes.
    """
    return resolve_bank(env=env, cwd=cwd, writes=writes)


def _reason(entry: Provenance) -> str:
    return str(entry.search.get("reason", ""))


def key_of(workload: Workload) -> str:
    """Return the record key of a workload."""
    return workload_key(workload_to_json(workload))


def _kind(workload: Workload) -> tuple[Precision, tuple[tuple[str, str], ...]]:
    """Return the properties that workloads share whose knobs are guesses for each other."""
    return workload.precision, tuple((op.domain, op.op_type) for op in workload.operations)


def _distance(one: Workload, other: Workload) -> float:
    """Return the distance of the extents of two workloads: the sum of the logarithms of ratios.

    Filters of another size and depthwise ones are far apart that way, whatever both write.
    """
    shapes = zip((*one.inputs, one.output), (*other.inputs, other.output), strict=False)
    return sum(_shape_distance(a.shape, b.shape) for a, b in shapes)


def _shape_distance(one: Sequence[int], other: Sequence[int]) -> float:
    if len(one) != len(other):
        one, other = (math.prod(one),), (math.prod(other),)
    return sum(abs(math.log(max(1, a) / max(1, b))) for a, b in zip(one, other, strict=True))
