"""Records of subgraphs that can be measured again where their models are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.journal import BankJournal
from aoe.bank.records.subgraph import SubgraphStrategy, nanoseconds, strategy_of
from aoe.bank.remeasured import PassedOver, RecordedGain, recorded_gain, write_back_timed
from aoe.bank.subgraphs import source_of_strategy
from aoe.measurement import Measurement, SpeedupEstimate
from aoebank import Drift, Record

_TIME = "end2EndTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurableSubgraph:
    """A subgraph's record that can be measured in a model that has it.

    Attributes:
        file: Bank file it is in.
        record: As it is there; its key is the identity of the subgraph.
        strategy: What is done with it.
        op_names: Nodes of the model it was tuned in, as far as noted.
        recorded: What it is said to be worth, None if nobody noted that.
        drift: How far the present environment is from that of its last measurement.
    """

    file: Path
    record: Record
    strategy: SubgraphStrategy
    op_names: tuple[str, ...]
    recorded: RecordedGain | None
    drift: Drift

    @property
    def op_type(self) -> str:
        """What tables say in place of a kernel family."""
        return "subgraph"


class RemeasuredSubgraphs:
    """The subgraph records of one target below a root, to be measured again.

    Args:
        journal: Whose root, target and environment count.
    """

    def __init__(self, journal: BankJournal) -> None:
        self._journal = journal
        self._file = journal.bank.graph_file(journal.soc_version)

    def records(self) -> Iterator[MeasurableSubgraph | PassedOver]:
        """Yield every subgraph record of the target, or why it is not measured.

        Raises:
            BankFormatError: the file or the quarantine is corrupt.
        """
        if self._file.exists():
            for record in self._journal.bank.iter_records(self._file):
                yield self._looked_at(record)

    def _looked_at(self, record: Record) -> MeasurableSubgraph | PassedOver:
        file, journal = self._file, self._journal
        try:
            strategy = strategy_of(record)
        except ValueError as error:
            return PassedOver(file=file, key=record.key, reason=str(error))
        reason = journal.quarantine_reason(record)
        if reason is not None:
            return PassedOver(file=file, key=record.key, reason=reason)
        last = journal.last_figure(file, record.key)
        return MeasurableSubgraph(
            file=file,
            record=record,
            strategy=strategy,
            op_names=last.op_names if last is not None else (),
            recorded=recorded_gain(last),
            drift=journal.drift(file, record.key, source_of_strategy(strategy)),
        )

    def write_back(
        self,
        one: MeasurableSubgraph,
        measurement: Measurement,
        estimate: SpeedupEstimate,
        facts: Mapping[str, Any],
    ) -> bool:
        """Give a record its new time and note who measured it; what is done with it stays.

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
        time_ns = nanoseconds(measurement.latency_us)

        def timed(now: Record) -> Record:
            strategy: Any = now.strategy
            return replace(now, strategy={**strategy, _TIME: time_ns})

        source = source_of_strategy(one.strategy)
        return write_back_timed(
            self._journal, one, timed, measurement, estimate, facts, source=source
        )
