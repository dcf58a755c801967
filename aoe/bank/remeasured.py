"""Records that can be measured again alone, and what becomes of their figures then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from aoe.bank.journal import KERNEL_SOURCE, VERIFYING, BankJournal, Note, samples_of
from aoe.bank.records.operator import strategy_of, workload_of
from aoe.bank.sources import kernel_source
from aoe.measurement import Measurement, SpeedupEstimate
from aoe.schedule import Schedule
from aoe.workload import Workload
from aoebank import Drift, Event, Provenance, Record, RecordError


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGain:
    """What a bank says a record is worth.

    Attributes:
        speedup: Over the default, as it was last measured.
        low: Lower end of its interval; the speed-up itself where none was noted.
        time: When, RFC 3339 in UTC.
        engine: By what.
        bytes_around: What one inference of the model read and wrote besides, None if unknown.
    """

    speedup: float
    low: float
    time: str
    engine: str
    bytes_around: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurableRecord:
    """An operator's record that can be measured without its model.

    Attributes:
        file: Bank file it is in.
        record: As it is there.
        op_type: Kernel family.
        workload: What it computes.
        schedule: How.
        op_names: Nodes of the model it was tuned in, as far as noted.
        recorded: What it is said to be worth, None if nobody noted that.
        drift: How far the present environment is from that of its last measurement.
    """

    file: Path
    record: Record
    op_type: str
    workload: Workload
    schedule: Schedule
    op_names: tuple[str, ...]
    recorded: RecordedGain | None
    drift: Drift


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A record that is not measured, and why."""

    file: Path
    key: str
    reason: str


def recorded_gain(last: Provenance | None) -> RecordedGain | None:
    """Return what the line of a record's last figure says it is worth, None if that says nothing.

    Args:
        last: The line, None where there is none.
    """
    if last is None or last.speedup is None:
        return None
    around = last.search.get("bytes_around")
    return RecordedGain(
        speedup=last.speedup,
        low=last.speedup_low or last.speedup,
        time=last.time,
        engine=last.engine,
        bytes_around=around if type(around) is int and around >= 0 else None,
    )


class Remeasured(Protocol):
    """A record that was measured again, as it was before."""

    @property
    def file(self) -> Path:
        """Bank file it is in."""
        ...

    @property
    def record(self) -> Record:
        """As it was there."""
        ...

    @property
    def op_names(self) -> tuple[str, ...]:
        """Nodes of the model it was tuned in, as far as noted."""
        ...


def write_back_timed(
    journal: BankJournal,
    one: Remeasured,
    timed: Callable[[Record], Record],
    measurement: Measurement,
    estimate: SpeedupEstimate,
    facts: Mapping[str, Any],
    *,
    source: str | None,
) -> bool:
    """Give a record its new time and note who measured it.

    Args:
        journal: Of the bank.
        one: The record, as it was when it was measured.
        timed: Returns a record with the new time; what is done stays.
        measurement: Of its strategy, now.
        estimate: What that proves.
        facts: Noted with it, JSON values.
        source: Digest of the sources of its kernels, None where none is known.

    Returns:
        False if another run has changed the record meanwhile: nothing is written then.

    Raises:
        AoebankError: the bank cannot be written.
    """
    try:
        now = journal.bank.find(one.file, one.record.key)
    except RecordError:
        now = None
    if now is None or now.strategy != one.record.strategy:
        return False
    journal.bank.put(one.file, [timed(now)])
    note = Note(
        key=one.record.key,
        event=Event.RESERVED,
        op_names=one.op_names,
        estimate=estimate,
        **samples_of(measurement),
        cluster={KERNEL_SOURCE: source} if source else {},
        search={"method": VERIFYING, **facts},
    )
    journal.append(one.file, [note])
    return True


class RemeasuredBank:
    """The operator records of one target below a root, to be measured again.

    Args:
        journal: Whose root, target and environment count.
        core_num: Cores of the target; records for another number are passed over.
        source_of: Digest of the sources kernels of a family are made by.
    """

    def __init__(
        self,
        journal: BankJournal,
        *,
        core_num: int,
        source_of: Callable[[str], str | None] = kernel_source,
    ) -> None:
        self._journal = journal
        self._core_num = core_num
        self._source_of = source_of

    def records(self) -> Iterator[MeasurableRecord | PassedOver]:
        """Yield every operator record of the target, file by file, or why it is not measured.

        Raises:
            BankFormatError: a file or the quarantine is corrupt.
        """
        bank = self._journal.bank
        folder = bank.root / self._journal.soc_version
        for file in bank.iter_files():
            if not file.is_relative_to(folder):
                continue
            for record in bank.iter_records(file):
                yield self._looked_at(file, record)

    def _looked_at(self, file: Path, record: Record) -> MeasurableRecord | PassedOver:
        op_type, workload = record.op_type, workload_of(record)
        try:
            strategy = strategy_of(record)
        except ValueError as error:
            return PassedOver(file=file, key=record.key, reason=str(error))
        if strategy is None or workload is None or op_type is None:
            reason = "its strategy is another engine's"
        elif file != self._file(op_type):
            reason = f"made for another number of cores than {self._core_num}"
        else:
            reason = self._journal.quarantine_reason(record) or ""
        if reason or strategy is None or workload is None or op_type is None:
            return PassedOver(file=file, key=record.key, reason=reason)
        last = self._journal.last_figure(file, record.key)
        return MeasurableRecord(
            file=file,
            record=record,
            op_type=op_type,
            workload=workload,
            schedule=strategy[0],
            op_names=last.op_names if last is not None else (),
            recorded=recorded_gain(last),
            drift=self._journal.drift(file, record.key, self._source_of(op_type)),
        )

    def _file(self, op_type: str) -> Path:
        return self._journal.bank.unified_file(
            soc_version=self._journal.soc_version, core_num=self._core_num, op_type=op_type
        )

    def write_back(
        self,
        one: MeasurableRecord,
        measurement: Measurement,
        estimate: SpeedupEstimate,
        facts: Mapping[str, Any],
    ) -> bool:
        """Give a record its new time and note who measured it; its strategy stays.

        Args:
            one: The record, as it was when it was measured.
            measurement: Of its strategy, now.
            estimate: What that proves.
            facts: Noted with it, JSON values.

        Returns:
            False if another run has changed the record meanwhile: nothing is written then.

        Raises:
            AoebankError: the bank cannot be written.
        """
        time_us = round(measurement.latency_us, 3)
        return write_back_timed(
            self._journal,
            one,
            lambda now: replace(now, cost_us=time_us),
            measurement,
            estimate,
            facts,
            source=self._source_of(one.op_type),
        )
