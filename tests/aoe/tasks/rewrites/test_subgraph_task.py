"""A search for a subgraph that has a record: when it is replaced, and when nothing is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.engine.subgraphs import NetworkBuilder, graph_of
from support.engine.tuning import make_journal, make_measurement

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.bank.subgraphs import SubgraphBank
from aoe.bank.verdicts import BankNote
from aoe.graph.rewrites.registry import RULES
from aoe.measurement import (
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    Outcome,
    estimate_speedup,
)
from aoe.results.files import RepoOutcome
from aoe.tasks.rewrites.lookup import TunedSubgraph
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraph_task import SubgraphContext, looked_up, search_subgraph
from aoe.tasks.rewrites.subgraphs import Subgraph, features_of, find_subgraphs
from aoe.tuner.mode import TuneSettings
from aoe.tuner.progress import SilentProgress
from aoebank import Event

_RULES = {name: RULES[name] for name in ("gate-into-weights", "mean-to-global-pool")}


def _subgraph() -> Subgraph:
    """Return a subgraph where two rules match."""
    net = NetworkBuilder()
    x = net.conv("x", 4, 16)
    gate = net.node("Sigmoid", [net.conv(net.mean(x), 16, 16, 1)])
    x = net.conv(net.node("Mul", [x, gate]), 16, 16, 1)
    graph = graph_of(net.model("x", 4, 8, [x]))
    (subgraph,) = find_subgraphs(graph, _RULES, uneven=False, blocked=False).subgraphs
    return subgraph


class _Measurer:
    """Measures by a script; all other strategies are as fast as the default."""

    def __init__(self, script: Mapping[SubgraphStrategy, Measurement]) -> None:
        self._script = script

    def measure(self, strategy: SubgraphStrategy, policy: MeasurePolicy) -> Measurement:
        found = self._script.get(strategy, make_measurement(1.0))
        if found.load is None:
            return found
        return replace(found, load=replace(found.load, least_quiet=policy.least_quiet))

    def close(self) -> None:
        pass


def _busy(speedup: float) -> Measurement:
    load = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=0.5, waited_s=0.5))
    return replace(make_measurement(speedup), load=load)


def _context(
    bank: SubgraphBank, script: Mapping[SubgraphStrategy, Measurement], **settings: Any
) -> SubgraphContext:
    runner: Any = SimpleNamespace(target=SimpleNamespace(core_num=1))
    return SubgraphContext(
        settings=TuneSettings(model=Path("net.onnx"), search="exhaustive", **settings),
        runner=runner,
        bank=bank,
        progress=SilentProgress(),
        rules=_RULES,
        measurer=lambda subgraph, runner: _Measurer(script),
        final=MeasurePolicy(),
        budget=8,
    )


def _single_rewrites(subgraph: Subgraph) -> list[SubgraphStrategy]:
    choices = strategy_space(subgraph)
    strategies = {choices.strategy(one) for one in choices.space.configurations()}
    found = (found for found in strategies if len(found.rewrites) == 1 and found.blocked)
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("now", "outcome"),
    [
        (make_measurement(1.2), RepoOutcome.UPDATE),
        (make_measurement(1.5), RepoOutcome.RESERVED),
        (Measurement.failure(Outcome.CORRECTNESS, "2 instead of 1"), RepoOutcome.UPDATE),
        (Measurement.failure(Outcome.TIMEOUT, "no answer"), RepoOutcome.RESERVED),
        (_busy(0.5), RepoOutcome.RESERVED),
    ],
    ids=["slower", "as fast", "wrong", "late", "busy"],
)
def test_record_gives_way_only_to_what_was_measured_beside_it(
    now: Measurement, outcome: RepoOutcome, tmp_path: Path
) -> None:
    subgraph = _subgraph()
    one, other = _single_rewrites(subgraph)[:2]
    bank = SubgraphBank(make_journal(tmp_path))
    then = make_measurement(1.5)
    note = BankNote(event=Event.ADD, estimate=estimate_speedup(then), measurement=then)
    bank.save(subgraph.graph_id, features_of(subgraph.segment), one, note)
    script = {one: now, other: make_measurement(1.5)}
    context = _context(bank, script, repeat_tune=True)
    found: TunedSubgraph = search_subgraph(subgraph, looked_up(subgraph, context), context)
    assert found.outcome is outcome
    assert found.strategy == (other if outcome is RepoOutcome.UPDATE else one)


@pytest.mark.parametrize(
    ("lost", "accept_busy", "is_decided"),
    [(make_measurement(0.8), False, True), (_busy(0.8), False, False), (_busy(0.8), True, True)],
    ids=["quiet", "busy", "busy and accepted"],
)
def test_loss_is_noted_only_of_pairs_that_count(
    lost: Measurement, accept_busy: bool, is_decided: bool, tmp_path: Path
) -> None:
    subgraph = _subgraph()
    bank = SubgraphBank(make_journal(tmp_path))
    script = {_single_rewrites(subgraph)[0]: lost}  # all others are as fast as the default
    context = _context(bank, script, accept_busy=accept_busy)
    found = search_subgraph(subgraph, looked_up(subgraph, context), context)
    assert found.outcome is RepoOutcome.UNSATISFIED
    assert found.is_undecided is not is_decided
    assert looked_up(subgraph, context).tune is not is_decided


def test_loss_is_accepted_of_a_busy_machine_where_all_of_it_is_busy(tmp_path: Path) -> None:
    subgraph = _subgraph()
    bank = SubgraphBank(make_journal(tmp_path))
    choices = strategy_space(subgraph)
    script = {choices.strategy(one): _busy(0.8) for one in choices.space.configurations()}
    context = _context(bank, script, accept_busy=True)
    found = search_subgraph(subgraph, looked_up(subgraph, context), context)
    assert not found.is_undecided
    assert not looked_up(subgraph, context).tune
