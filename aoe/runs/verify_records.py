"""Records that can be measured again alone, and what becomes of their figures then."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from aoe.bank.gradients import GradientBank
from aoe.bank.journal import KERNEL_SOURCE, VERIFYING, BankJournal, Note, samples_of
from aoe.bank.verdicts import UndecidedOperator
from aoe.device.protocol import Device
from aoe.entry.protocol import ModelSource
from aoe.errors import AoeError
from aoe.execute.compiling import KernelCompilers
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.measurement import Measurement, MeasurePolicy, SpeedupEstimate
from aoe.runs.verify_verdict import Holding, RecordedGain, Verified, recorded_gain
from aoe.target import Target
from aoebank import Drift, Event, Record, RecordError


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedOperator:
    """An undecided operator after its measurement.

    Attributes:
        file: Bank file of its kernel family.
        one: The operator and its candidate.
        found: What the candidate is worth; `holds` makes it a record.
        written: True if the bank has a record of it, or the note that it gains nothing.
    """

    file: Path
    one: UndecidedOperator
    found: Verified
    written: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """What records are measured again with.

    Attributes:
        journal: The bank.
        device: Runs and optimises models.
        target: What records have to be made for.
        models: Models that are given for what is measured in its model.
        rules: Rewrite rules by name.
        scratch: Directory for files while something is measured.
        policy: Of the pairs.
        seed: Of inputs.
        who: Host, user and seed, noted with each measurement.
        dry_run: True to write nothing.
    """

    journal: BankJournal
    device: Device
    target: Target
    models: Sequence[ModelSource]
    rules: Mapping[str, RewriteRule]
    scratch: Path
    policy: MeasurePolicy
    seed: int
    who: Mapping[str, Any]
    dry_run: bool


class MeasurableAnswer(Protocol):
    """The answer of a record, ready to be measured; a kind of task has one class of them."""

    @property
    def op_type(self) -> str:
        """Kernel family, or what the record is of."""
        ...

    @property
    def source(self) -> str | None:
        """Digest of the sources that carry the answer out, None where none is known."""
        ...

    @property
    def model(self) -> Path | None:
        """File of the model it is measured in, None if it needs none."""
        ...

    def measure(self, recorded: RecordedGain | None, compilers: KernelCompilers) -> Measurement:
        """Return fresh pairs of the answer and of the default, as after a search."""
        ...

    def timed(self, record: Record, latency_us: float) -> Record:
        """Return the record with a new time; its strategy stays."""
        ...

    def facts(self, recorded: RecordedGain | None) -> Mapping[str, Any]:
        """Return notes on the measurement, JSON values."""
        ...


class RecordReader(Protocol):
    """Reads the records of one kind of task for a new measurement."""

    def read(self, file: Path, record: Record) -> MeasurableAnswer | str | None:
        """Return the answer of a record, or why it is not measured; None for another kind's.

        Raises:
            ValueError: its strategy cannot be read.
        """
        ...

    def undecided(self) -> Iterable[Callable[[KernelCompilers], DecidedOperator]]:
        """Return the task that decides each one a busy machine has left open."""
        return ()


class Verifier(Protocol):
    """The module of a kind of task whose records can be measured again."""

    def reader(self, context: VerifyContext) -> RecordReader:
        """Return the reader of its records."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurableRecord:
    """A record that can be measured again.

    Attributes:
        file: Bank file it is in.
        record: As it is there.
        answer: What is measured.
        op_names: Nodes of the model it was tuned in, as far as noted.
        recorded: What it is said to be worth, None if nobody noted that.
        drift: How far the present environment is from that of its last measurement.
    """

    file: Path
    record: Record
    answer: MeasurableAnswer
    op_names: tuple[str, ...]
    recorded: RecordedGain | None
    drift: Drift

    @property
    def op_type(self) -> str:
        """Kernel family, `subgraph` for a subgraph."""
        return self.answer.op_type


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A record that is not measured, and why.

    Attributes:
        file: Bank file.
        key: Record key.
        reason: In words.
        is_there: False if the bank has no such record.
    """

    file: Path
    key: str
    reason: str
    is_there: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecord:
    """A record that was measured again.

    Attributes:
        one: The record, with what was recorded.
        found: What it is worth now.
        written: True if the bank has the new figures.
    """

    one: MeasurableRecord
    found: Verified
    written: bool

    @property
    def model(self) -> Path | None:
        """File of the model it was measured in, None where it needs none."""
        return self.one.answer.model


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedModel:
    """A whole model after the kernels and rewrites a bank has for it were judged.

    Attributes:
        model: Its file.
        shapes: The shapes it was judged with, empty where the file says them.
        found: What its kernels and rewrites are worth in it; None where the bank has none.
        processes: How many compared it with the untuned one to decide that.
        kept: Names of those that stay.
        dropped: Names of those that go, with the reason.
        was_kept: True if an earlier run had kept some of them in this model.
        written: True if the bank has new verdicts.
        om_file: The tuned model, None if none was asked for.
        error: Why it could not be judged; None also where a process of it could not be run, which
            leaves it undecided.
    """

    model: Path
    shapes: str
    found: Verified | None
    kept: tuple[str, ...]
    dropped: Mapping[str, str]
    was_kept: bool
    written: bool
    processes: int = 0
    om_file: Path | None = None
    error: AoeError | None = None

    @property
    def has_lost(self) -> bool:
        """True if the model had a gain, and has none any more."""
        return self.was_kept and self.found is not None and self.found.verdict is Holding.LOST


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBank:
    """What was found out about a bank.

    Attributes:
        root: Of the bank.
        target: What was measured on.
        records: Those that were measured, in the order of the bank's files.
        decided: Operators a busy machine had left undecided, measured alone.
        models: The given models, each judged whole.
        passed_over: Those that cannot be, with the reason.
        left: How many that could be were not asked for.
        dry_run: True if nothing was written.
    """

    root: Path
    target: Target
    records: tuple[VerifiedRecord, ...]
    passed_over: tuple[PassedOver, ...]
    left: int
    decided: tuple[DecidedOperator, ...] = ()
    models: tuple[VerifiedModel, ...] = ()
    dry_run: bool = False

    @property
    def holds(self) -> bool:
        """True if no gain was found to be weaker or lost."""
        broken = (Holding.WEAKER, Holding.LOST)
        lost = any(record.found.verdict in broken for record in self.records)
        return not lost and not any(model.has_lost for model in self.models)


def records_to_measure(
    journal: BankJournal, readers: Sequence[RecordReader]
) -> Iterator[MeasurableRecord | PassedOver]:
    """Yield every record of the target, file by file, or why it is not measured.

    Files of operators come first, then that of subgraphs, then that of gradients.

    Args:
        journal: Whose root, target and environment count.
        readers: Of all kinds of tasks; the last one that knows a record reads it.

    Raises:
        BankFormatError: a file or the quarantine is corrupt.
    """
    bank, folder = journal.bank, journal.bank.root / journal.soc_version
    files = [file for file in bank.iter_files() if file.is_relative_to(folder)]
    others = (bank.graph_file(journal.soc_version), GradientBank(journal).file)
    for file in dict.fromkeys((*files, *(one for one in others if one.exists()))):
        for record in bank.iter_records(file):
            yield _looked_at(journal, file, record, readers)


def _looked_at(
    journal: BankJournal, file: Path, record: Record, readers: Sequence[RecordReader]
) -> MeasurableRecord | PassedOver:
    found = journal.quarantine_reason(record) or _read(file, record, readers)
    if isinstance(found, str):
        return PassedOver(file=file, key=record.key, reason=found)
    last = journal.last_figure(file, record.key)
    return MeasurableRecord(
        file=file,
        record=record,
        answer=found,
        op_names=last.op_names if last is not None else (),
        recorded=recorded_gain(last),
        drift=journal.drift(file, record.key, found.source),
    )


def _read(file: Path, record: Record, readers: Sequence[RecordReader]) -> MeasurableAnswer | str:
    for reader in reversed(readers):
        try:
            found = reader.read(file, record)
        except ValueError as error:
            return str(error)
        if found is not None:
            return found
    return "its strategy is another engine's"


def measured_by() -> Mapping[str, str]:
    """Return host and user, as they are noted with a measurement; no user where there is none."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return {"host": socket.gethostname(), "by": user}


def write_back(
    journal: BankJournal,
    one: MeasurableRecord,
    measurement: Measurement,
    estimate: SpeedupEstimate,
    facts: Mapping[str, Any],
) -> bool:
    """Give a record its new time and note who measured it; its strategy stays.

    Args:
        journal: Its bank.
        one: The record, as it was when it was measured.
        measurement: Of its strategy, now.
        estimate: What that proves.
        facts: Noted with it, JSON values.

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
    source = one.answer.source
    note = Note(
        key=one.record.key,
        event=Event.RESERVED,
        op_names=one.op_names,
        estimate=estimate,
        **samples_of(measurement),
        cluster={KERNEL_SOURCE: source} if source else {},
        search={"method": VERIFYING, **facts},
    )
    journal.put(one.file, one.answer.timed(now, measurement.latency_us), [note])
    return True
