"""Subgraph banks: strategies by graphID, and results of earlier runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from aoe.bank.journal import CHANGES, KERNEL_SOURCE, BankJournal
from aoe.bank.records.subgraph import (
    NodeFeature,
    SubgraphStrategy,
    cost_us_of,
    feature_to_json,
    features_from_json,
    group_to_json,
    nanoseconds,
    strategy_of,
)
from aoe.bank.sources import rule_source
from aoe.bank.stored import Stored
from aoe.bank.task_bank import TaskBank
from aoe.bank.verdicts import BankNote, KeptKernel, is_narrow, is_of_nothing, note_of
from aoebank import Bank, Event, Provenance, Record, RecordError, make_graph_record

_COMPARED = ("cpu_model", "onnxruntime", "core_num")
"""Parts of the fingerprint that must agree before an earlier verdict is believed."""
BESIDE_OPERATORS = "beside_operators"
"""Member of `BankNote.search` that says what the whole model made of a rewrite was decided against
operator tuning alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSubgraph(Stored):
    """Stored answer for a subgraph."""

    graph_id: str  # Its identity
    # What to do with it; None if that makes no sense to this version.
    strategy: SubgraphStrategy | None
    invalid_reason: str = ""  # Why not, empty if it does


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeSubgraph:
    """A record of the same operators in the same order, of other shapes or attributes."""

    graph_id: str  # Its identity
    nodes: tuple[NodeFeature, ...]  # What its record tells of them
    strategy: SubgraphStrategy  # What is done with it


class SubgraphBank(TaskBank[str]):
    """The subgraph bank of one target below one root.

    Args:
        journal: The run's hand in the bank.
        anonymous: True to leave the name of the model out of records.
        base: Bank of an earlier result, looked up behind the own one; it is never written.
    """

    def __init__(
        self, journal: BankJournal, *, anonymous: bool = False, base: Bank | None = None
    ) -> None:
        super().__init__(journal, base=base, compared=_COMPARED)
        self.file: Path = journal.bank.graph_file(journal.soc_version)
        self._anonymous = anonymous
        self._alike: dict[tuple[str, ...], list[LikeSubgraph]] | None = None

    @property
    def core_num(self) -> int:
        """Threads of this run."""
        return int(self._journal.fingerprint.get("core_num", 0))

    def find(self, graph_id: str) -> StoredSubgraph | None:
        """Return the record of a subgraph, None on a miss.

        Where it has nothing that can be used, what the earlier result has counts.

        Raises:
            BankFormatError: the bank file or the quarantine is corrupt.
        """
        own = self._find_at(self._journal.bank, self.file, graph_id)
        if self._base is None or (own is not None and own.strategy is not None):
            return own
        other = self._find_at(self._base, self._base_file(self._base), graph_id)
        is_usable = other is not None and other.strategy is not None
        return replace(other, is_base=True) if other is not None and is_usable else own

    def _base_file(self, base: Bank) -> Path:
        return base.graph_file(self._journal.soc_version)

    def base_change(self, graph_id: str) -> str | None:
        """Return the changes since the earlier result, None if it has no such subgraph.

        The empty string if nothing has that anybody noted.
        """
        if self._base is None:
            return None
        file = self._base_file(self._base)
        stored = self._find_at(self._base, file, graph_id) if file.exists() else None
        if stored is not None:
            return stored.invalid_reason
        lines = [*self._journal.entries(file, graph_id)]
        return str(self._journal.drift_of(lines[-1], None)) if lines else None

    def alike(self, nodes: Sequence[NodeFeature]) -> list[LikeSubgraph]:
        """Return records of the same operators that hold: of the earlier result, then the own.

        What this run itself has found is not among them.
        """
        if self._alike is None:
            self._alike = {}
            for one in self._usable():
                key = tuple(node.op_type for node in one.nodes)
                self._alike.setdefault(key, []).append(one)
        return self._alike.get(tuple(node.op_type for node in nodes), [])

    def _usable(self) -> Iterator[LikeSubgraph]:
        places = [(self._base, self._base_file(self._base))] if self._base is not None else []
        for bank, file in (*places, (self._journal.bank, self.file)):
            for record in [*bank.iter_records(file)] if file.exists() else ():
                stored = self._find_at(bank, file, record.key)
                nodes = features_from_json(record.workload)
                if stored is not None and stored.strategy is not None and nodes:
                    yield LikeSubgraph(graph_id=record.key, nodes=nodes, strategy=stored.strategy)

    def _find_at(self, bank: Bank, file: Path, graph_id: str) -> StoredSubgraph | None:
        def unusable(reason: str, remeasure_reasons: tuple[str, ...] = ()) -> StoredSubgraph:
            return StoredSubgraph(
                graph_id=graph_id,
                strategy=None,
                invalid_reason=reason,
                remeasure_reasons=remeasure_reasons,
            )

        try:
            record = bank.find(file, graph_id)
        except RecordError as error:
            return unusable(str(error))
        if record is None:
            return None
        if (reason := self._journal.stored_quarantine_reason(file, record)) is not None:
            return unusable(reason)
        try:
            strategy = strategy_of(record)
        except ValueError as error:
            return unusable(str(error))
        last = self._journal.last_figure(file, graph_id)
        drift = self._journal.drift(file, graph_id, source_of_strategy(strategy))
        if drift.is_stale:
            return unusable("; ".join(drift.hard), drift.soft)
        return StoredSubgraph(
            graph_id=graph_id,
            strategy=strategy,
            cost_us=cost_us_of(record),
            speedup=last.speedup if last is not None else None,
            speedup_low=last.speedup_low if last is not None else None,
            remeasure_reasons=drift.soft,
        )

    def save(
        self,
        graph_id: str,
        nodes: Sequence[NodeFeature],
        strategy: SubgraphStrategy,
        note: BankNote,
    ) -> str:
        """Write the record of a subgraph and its provenance.

        Returns:
            Why that must not be: the quarantine; the empty string if it was done.

        Raises:
            AoebankError: the bank cannot be written.
        """
        assert note.measurement is not None
        record = make_graph_record(
            graph_id=graph_id,
            feature=feature_to_json(nodes),
            groups=[group_to_json(strategy, len(nodes))],
            end_to_end_ns=nanoseconds(note.measurement.latency_us),
            model_name=None if self._anonymous else self._journal.model["name"],
        )
        reason = self._journal.quarantine_reason(record)
        if reason is not None:
            return reason
        self._journal.put(self.file, record, [note_of(graph_id, note, _made_by(strategy))])
        return ""

    def measured(self) -> list[tuple[str, float]]:
        """Return strategies in words that were measured in this environment, with speed-ups.

        All subgraphs of all models the bank has seen; every trial, for whatever came of it.
        """
        here, found = self._here, []
        for entry in self._journal.bank.iter_provenance(self.file):
            if any(entry.fingerprint.get(name) != value for name, value in here.items()):
                continue
            tried = entry.search.get("tried")
            for trial in tried if isinstance(tried, list | tuple) else ():
                match trial:
                    case [str(strategy), int() | float() as speedup]:
                        found.append((strategy, float(speedup)))
        return found

    def is_hopeless(
        self, graph_id: str, options: Sequence[str], *, threshold: float = math.inf
    ) -> bool:
        """True if an earlier search among the same options found nothing here.

        Args:
            graph_id: What was searched.
            options: What there is to choose.
            threshold: Speed-up that was asked for; a wide interval around it proves nothing, unless
                that has happened twice.
        """
        files = [self.file] if self._base is None else [self.file, self._base_file(self._base)]
        found = (self._failures(file, graph_id) for file in files)
        failures = next(filter(None, found), [])
        if not failures or failures[-1].search.get("options") != list(options):
            return False
        if is_of_nothing(failures[-1]):
            return False
        low, high = failures[-1].speedup_low, failures[-1].speedup_high
        if low is None or high is None or high <= threshold or is_narrow(low, high):
            return True
        return sum(one.search.get("options") == list(options) for one in failures) > 1

    def _failures(self, file: Path, graph_id: str) -> list[Provenance]:
        """Return the searches there that found nothing since its record was last written."""
        found: list[Provenance] = []
        for entry in self._journal.entries(file, graph_id, where=self._here):
            if entry.event in CHANGES:
                found.clear()
            elif entry.event is Event.UNSATISFIED:
                found.append(entry)
        return found

    def model_verdict(self, graph_id: str) -> Event | None:
        """Return the verdict of this very model on the strategy of a record, None if open."""
        verdict = self._model_verdict(graph_id)
        return verdict.event if verdict is not None else None

    def kept_in_base(self, graph_id: str) -> KeptKernel | None:
        """Return the earlier model's verdict on the rewrite that is used here.

        None if it has not kept it.
        """
        if self._base is None:
            return None
        file = self._base_file(self._base)
        found, in_base = self.find(graph_id), self._find_at(self._base, file, graph_id)
        if found is None or in_base is None or found.strategy is None:
            return None
        if in_base.strategy != found.strategy:
            return None
        last: Provenance | None = None
        judged: Provenance | None = None
        for entry in self._model_verdicts(file, graph_id):
            last = entry
            if entry is None or entry.search.get(BESIDE_OPERATORS) is not True:
                judged = entry
        if last is None or judged is None or not self._journal.is_validated_alike(judged):
            return None
        is_kept = {last.event, judged.event} == {Event.KEPT}
        return KeptKernel.of(judged) if is_kept else None

    def is_kept_beside_operators(self, graph_id: str) -> bool:
        """True if the bank knows this very model to be faster with a rewrite and operators tuned.

        What the earlier result knows of it counts where the own bank has no verdict.
        """
        verdict = self._model_verdict(graph_id)
        if verdict is None and self._base is not None:
            verdict = self._model_verdict(graph_id, self._base_file(self._base))
        if verdict is None or verdict.event is not Event.KEPT:
            return False
        return verdict.search.get(BESIDE_OPERATORS) is True

    def _model_verdict(self, graph_id: str, file: Path | None = None) -> Provenance | None:
        verdict: Provenance | None = None
        for entry in self._model_verdicts(file or self.file, graph_id):
            if entry is None or self._journal.is_of_this_model(entry):
                verdict = entry
        return verdict

    def copy_to(self, root: Path, tasks: Iterable[str]) -> None:
        """Put records, in the order of their identities, into another bank."""
        TaskBank.copy_to(self, root, sorted(set(tasks)))

    def _copied(self, source: Path, root: Path) -> Path:
        return self._base_file(Bank(root))

    def _key(self, task: str) -> str:
        return task

    def _file_in(self, bank: Bank, task: str) -> Path:
        return self._base_file(bank)

    def _cost_us(self, record: Record) -> float | None:
        return cost_us_of(record)


def source_of_strategy(strategy: SubgraphStrategy) -> str | None:
    """Return the digest of the rules of a strategy, None if one of them is gone."""
    return rule_source(applied.rule for applied in strategy.rewrites)


def _made_by(strategy: SubgraphStrategy) -> Mapping[str, Any]:
    source = source_of_strategy(strategy)
    return {KERNEL_SOURCE: source} if source is not None else {}
