"""Records that can be measured again alone, and what becomes of their figures then."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.journal import KERNEL_SOURCE, VERIFYING, BankJournal, Note, samples_of
from aoe.bank.records.operator import strategy_of, workload_of
from aoe.bank.records.subgraph import SubgraphStrategy, nanoseconds
from aoe.bank.records.subgraph import strategy_of as subgraph_strategy_of
from aoe.bank.sources import kernel_source
from aoe.bank.subgraphs import source_of_strategy
from aoe.measurement import Measurement, SpeedupEstimate
from aoe.schedule import Schedule
from aoe.workload import Workload
from aoebank import Drift, Event, Provenance, Record, RecordError

SUBGRAPH = "subgraph"
_TIME = "end2EndTime"


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
class OperatorAnswer:
    """The answer of an operator's record: it is measured without a model."""

    workload: Workload
    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurableRecord:
    """A record that can be measured again.

    Attributes:
        file: Bank file it is in.
        record: As it is there.
        op_type: Kernel family, `subgraph` for a subgraph.
        answer: What is measured: an operator's, or the strategy of a subgraph, whose model has to
            be given.
        op_names: Nodes of the model it was tuned in, as far as noted.
        recorded: What it is said to be worth, None if nobody noted that.
        drift: How far the present environment is from that of its last measurement.
        source: Digest of the sources of its kernels, None where none is known.
    """

    file: Path
    record: Record
    op_type: str
    answer: OperatorAnswer | SubgraphStrategy
    op_names: tuple[str, ...]
    recorded: RecordedGain | None
    drift: Drift
    source: str | None = None

    @property
    def strategy(self) -> SubgraphStrategy:
        """What is done with a subgraph; of an operator there is none."""
        assert isinstance(self.answer, SubgraphStrategy)
        return self.answer

    def timed(self, now: Record, latency_us: float) -> Record:
        """Return the record with a new time; its strategy stays."""
        if isinstance(self.answer, OperatorAnswer):
            return replace(now, cost_us=round(latency_us, 3))
        strategy: Any = now.strategy
        return replace(now, strategy={**strategy, _TIME: nanoseconds(latency_us)})


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """A record that is not measured, and why."""

    file: Path
    key: str
    reason: str


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


class RemeasuredBank:
    """The records of one target below a root, to be measured again.

    Args:
        journal: Whose root, target and environment count.
        core_num: Cores of the target; records of operators for another number are passed over.
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
        """Yield every record of the target, file by file, or why it is not measured.

        Operators come first, then subgraphs.

        Raises:
            BankFormatError: a file or the quarantine is corrupt.
        """
        bank = self._journal.bank
        folder = bank.root / self._journal.soc_version
        for file in bank.iter_files():
            if file.is_relative_to(folder):
                for record in bank.iter_records(file):
                    yield self._looked_at(file, record, self._operator)
        graphs = bank.graph_file(self._journal.soc_version)
        for record in bank.iter_records(graphs) if graphs.exists() else ():
            yield self._looked_at(graphs, record, self._subgraph)

    def _looked_at(
        self,
        file: Path,
        record: Record,
        read: Callable[[Path, Record], tuple[OperatorAnswer | SubgraphStrategy, str | None] | str],
    ) -> MeasurableRecord | PassedOver:
        try:
            found = read(file, record)
        except ValueError as error:
            found = str(error)
        if not isinstance(found, str):
            found = self._journal.quarantine_reason(record) or found
        if isinstance(found, str):
            return PassedOver(file=file, key=record.key, reason=found)
        answer, source = found
        last = self._journal.last_figure(file, record.key)
        return MeasurableRecord(
            file=file,
            record=record,
            op_type=answer.workload.op_type if isinstance(answer, OperatorAnswer) else SUBGRAPH,
            answer=answer,
            op_names=last.op_names if last is not None else (),
            recorded=recorded_gain(last),
            drift=self._journal.drift(file, record.key, source),
            source=source,
        )

    def _operator(self, file: Path, record: Record) -> tuple[OperatorAnswer, str | None] | str:
        """Return the answer of an operator's record with its source, or why there is none."""
        op_type, workload, strategy = record.op_type, workload_of(record), strategy_of(record)
        if strategy is None or workload is None or op_type is None:
            return "its strategy is another engine's"
        own = self._journal.bank.unified_file(
            soc_version=self._journal.soc_version, core_num=self._core_num, op_type=op_type
        )
        if file != own:
            return f"made for another number of cores than {self._core_num}"
        return OperatorAnswer(workload=workload, schedule=strategy[0]), self._source_of(op_type)

    def _subgraph(self, file: Path, record: Record) -> tuple[SubgraphStrategy, str | None] | str:
        """Return the strategy of a subgraph's record with its source."""
        strategy = subgraph_strategy_of(record)
        return strategy, source_of_strategy(strategy)

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
        bank = self._journal.bank
        try:
            now = bank.find(one.file, one.record.key)
        except RecordError:
            now = None
        if now is None or now.strategy != one.record.strategy:
            return False
        bank.put(one.file, [one.timed(now, measurement.latency_us)])
        note = Note(
            key=one.record.key,
            event=Event.RESERVED,
            op_names=one.op_names,
            estimate=estimate,
            **samples_of(measurement),
            cluster={KERNEL_SOURCE: one.source} if one.source else {},
            search={"method": VERIFYING, **facts},
        )
        self._journal.append(one.file, [note])
        return True
