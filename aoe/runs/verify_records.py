"""Records that can be measured again alone, and whether each still holds.

Fresh pairs of its answer and of the default decide about a record. The default of a kernel is ONNX
Runtime's own, that of a grouping of gradients DDP's buckets.

candidate                                                -> verdict
cannot be compiled, dies, or computes something else        lost
was kept from it by the clock, the harness or the worker    undecided
was measured on a busy machine                              undecided
is of gradients, and all-reduce or a step takes another
time than the record says                                   undecided
surely no faster than the default (high <= 1)               lost
surely less than was recorded, by more than 3 %             weaker
may be no faster (low <= 1; of a whole model the end of
the interval by which tuning accepts a gain)                undecided
else                                                        holds
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
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
from aoe.measurement import Measurement, MeasurePolicy, SpeedupEstimate, estimate_speedup
from aoe.target import Target
from aoe.tasks.operators.lookup import NOTABLE_SPEEDUP
from aoebank import Drift, Event, Provenance, Record, RecordError, RichDisplay

ONNX_RUNTIME = "ONNX Runtime's own"
"""Default of kernels and rewrites."""


class Holding(StrEnum):
    """Verdict on a recorded gain."""

    HOLDS = "holds"
    WEAKER = "weaker"
    LOST = "lost"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedGain:
    """Gain of a record, as a bank has it."""

    speedup: float  # Over the default, as it was last measured
    low: float  # Lower end of its interval; the speed-up itself where none was noted
    time: str  # When, RFC 3339 in UTC
    engine: str  # By what
    # What one inference of the model read and wrote besides, None if unknown.
    bytes_around: int | None = None


def recorded_gain(last: Provenance | None) -> RecordedGain | None:
    """Return the gain in the line of a record's last figure, None if the line has none.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A verdict with what it stands on."""

    verdict: Holding  # What has become of the gain
    reason: str = ""  # In words, where the figures do not say it
    measurement: Measurement | None = None  # Fresh pairs, None if the kernel does not work
    # What the kernel is worth now, None if it does not work.
    estimate: SpeedupEstimate | None = None

    def __str__(self) -> str:
        figure = f"{self.estimate.median:.2f}x" if self.estimate is not None else ""
        words = ", ".join(filter(None, (figure, self.reason)))
        return f"{self.verdict} ({words})" if words else str(self.verdict)

    @property
    def is_decided(self) -> bool:
        """True if its figures may take the place of the recorded ones."""
        return self.estimate is not None and self.verdict is not Holding.UNDECIDED


def verdict_on(
    recorded: RecordedGain | None,
    found: Measurement,
    *,
    estimate: SpeedupEstimate | None = None,
    surely: float | None = None,
    default: str = ONNX_RUNTIME,
) -> Verified:
    """Return the verdict of a measurement on a record.

    Args:
        recorded: What the bank says it is worth; None if nobody noted it, then it has to be faster.
        found: Fresh pairs, or why there are none.
        estimate: What they prove; None for what the pairs of this run prove alone.
        surely: Speed-up that is exceeded as surely as a tuning has to know it; None for the lower
            end of the estimate.
        default: What the answer is compared with, in words.
    """
    if found.is_of_machine:
        return Verified(
            verdict=Holding.UNDECIDED, reason=f"{found.outcome.value}: {_line(found.detail)}"
        )
    if not found.is_correct:
        return Verified(
            verdict=Holding.LOST, reason=f"{found.outcome.value}: {_line(found.detail)}"
        )
    estimate = estimate or estimate_speedup(found)
    if not found.counts:
        verdict, reason = Holding.UNDECIDED, f"the machine was busy: {found.busy_words}"
    elif estimate.high <= 1:
        verdict, reason = Holding.LOST, f"no faster than {default}"
    elif recorded is not None and estimate.high * NOTABLE_SPEEDUP < recorded.low:
        verdict, reason = Holding.WEAKER, ""
    elif estimate.low <= 1:
        verdict, reason = Holding.UNDECIDED, "its interval reaches below 1"
    elif surely is not None and surely <= 1:
        verdict, reason = Holding.UNDECIDED, f"its 99 % interval reaches to {surely:.3f}"
    else:
        verdict, reason = Holding.HOLDS, ""
    return Verified(verdict=verdict, reason=reason, measurement=found, estimate=estimate)


def _line(text: str) -> str:
    return (text.strip().splitlines() or ["no reason was given"])[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidedOperator:
    """An undecided operator after its measurement."""

    file: Path  # Bank file of its kernel family
    one: UndecidedOperator  # The operator and its candidate
    found: Verified  # What the candidate is worth; `holds` makes it a record
    written: bool = False  # True if the bank has a record of it, or the note that it gains nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyContext:
    """Bank, machine, models and policy to measure records again with."""

    journal: BankJournal  # The bank
    device: Device  # Runs and optimises models
    target: Target  # What records have to be made for
    models: Sequence[ModelSource]  # Models that are given for what is measured in its model
    rules: Mapping[str, RewriteRule]  # Rewrite rules by name
    scratch: Path  # Directory for files while something is measured
    policy: MeasurePolicy  # Of the pairs
    seed: int  # Of inputs
    who: Mapping[str, Any]  # Host, user and seed, noted with each measurement
    dry_run: bool  # True to write nothing


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

    @property
    def default(self) -> str:
        """What it is compared with, in words."""
        ...

    def measure(self, recorded: RecordedGain | None, compilers: KernelCompilers) -> Measurement:
        """Return fresh pairs of the answer and of the default, as after a search."""
        ...

    def timed(self, record: Record, latency_us: float) -> Record:
        """Return the record with a new time; its strategy stays."""
        return replace(record, cost_us=round(latency_us, 3))

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
    """A record that can be measured again."""

    file: Path  # Bank file it is in
    record: Record  # As it is there
    answer: MeasurableAnswer  # What is measured
    op_names: tuple[str, ...]  # Nodes of the model it was tuned in, as far as noted
    recorded: RecordedGain | None  # What it is said to be worth, None if nobody noted that
    drift: Drift  # How far the present environment is from that of its last measurement

    @property
    def op_type(self) -> str:
        """Kernel family, `subgraph` for a subgraph."""
        return self.answer.op_type


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A record that is not measured, and why."""

    file: Path  # Bank file
    key: str  # Record key
    reason: str  # In words
    is_there: bool = True  # False if the bank has no such record


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRecord:
    """A record that was measured again."""

    one: MeasurableRecord  # The record, with what was recorded
    found: Verified  # What it is worth now
    written: bool  # True if the bank has the new figures

    @property
    def model(self) -> Path | None:
        """File of the model it was measured in, None where it needs none."""
        return self.one.answer.model


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedModel:
    """A whole model after the kernels and rewrites a bank has for it were judged."""

    model: Path  # Its file
    shapes: str  # The shapes it was judged with, empty where the file says them
    # What its kernels and rewrites are worth in it; None where the bank has none.
    found: Verified | None
    kept: tuple[str, ...]  # Names of those that stay
    dropped: Mapping[str, str]  # Names of those that go, with the reason
    was_kept: bool  # True if an earlier run had kept some of them in this model
    written: bool  # True if the bank has new verdicts
    processes: int = 0  # How many compared it with the untuned one to decide that
    om_file: Path | None = None  # The tuned model, None if none was asked for
    # Why it could not be judged; None also where a process of it could not be run, which leaves it
    # undecided.
    error: AoeError | None = None

    @property
    def has_lost(self) -> bool:
        """True if the model had a gain, and has none any more."""
        return self.was_kept and self.found is not None and self.found.verdict is Holding.LOST


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifiedBank(RichDisplay):
    """Result of measuring a bank again."""

    shown_by = "aoe.report.verify:VerifiedBankReport"
    rows_in = "records"

    root: Path  # Of the bank
    target: Target  # What was measured on
    # Those that were measured, in the order of the bank's files.
    records: tuple[VerifiedRecord, ...]
    passed_over: tuple[PassedOver, ...]  # Those that cannot be, with the reason
    left: int  # How many that could be were not asked for
    # Operators a busy machine had left undecided, measured alone.
    decided: tuple[DecidedOperator, ...] = ()
    models: tuple[VerifiedModel, ...] = ()  # The given models, each judged whole
    dry_run: bool = False  # True if nothing was written

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
