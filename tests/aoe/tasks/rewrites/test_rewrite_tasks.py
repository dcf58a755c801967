"""Subgraphs side by side on workers with simulated devices: the same records as on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.remote_pools import OpenedPools, SimulatedProcesses, simulated_workers
from support.engine.subgraph_runs import Run
from support.engine.subgraphs import NetworkBuilder, graph_of
from support.engine.tuning import make_measurement

from aoe.bank.records.subgraph import SubgraphStrategy, strategy_of
from aoe.graph.rewrites.registry import RULES
from aoe.measurement import CpuUse, MachineLoad
from aoe.results.files import RepoOutcome
from aoe.runs.subgraphs.result import SgatResult
from aoe.tasks.rewrites.experience import Experience
from aoe.tasks.rewrites.lookup import StrategyTrial, TunedSubgraph
from aoe.tasks.rewrites.rewrite_tasks import RewriteBudget
from aoe.tasks.rewrites.subgraphs import Subgraph, find_subgraphs, work_of
from aoe.tuner.mode import JobType
from aoebank import Bank

_NAMES = ("good1", "good2", "other")


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedProcesses]:
    """Return two sound workers and one of another machine."""
    with simulated_workers(tmp_path_factory.mktemp("farm"), _NAMES) as processes:
        yield processes


@pytest.fixture
def opened(workers: SimulatedProcesses) -> OpenedPools:
    return OpenedPools(workers, _NAMES)


@pytest.fixture
def run(tmp_path: Path, opened: OpenedPools) -> Run:
    return Run(tmp_path, open_remote_pool=opened.open)


def _records(run: Run, result: SgatResult) -> dict[str, str]:
    bank = Bank(run.place / "bank")
    return {one.key: str(strategy_of(one)) for one in bank.iter_records(result.bank_file)}


def _again(run: Run) -> None:
    (run.place / "bank").rename(run.place / "bank.before")
    (run.place / "bank").mkdir()


@pytest.mark.slow
def test_records_and_model_are_those_of_one_machine(run: Run, opened: OpenedPools) -> None:
    alone = run.tune()
    expected, rewrites = _records(run, alone), run.comparisons
    _again(run)
    together = run.tune(workers="3")
    assert _records(run, together) == expected
    assert together.used_ids == alone.used_ids
    assert [one.subgraph.graph_id for one in together.subgraphs] == [
        one.subgraph.graph_id for one in alone.subgraphs
    ]
    compared = opened.asked("compare_models")
    assert compared["good1"] and compared["good2"] and not compared["other"]
    # what is left here is the whole model
    assert run.comparisons < rewrites


@pytest.mark.slow
def test_farm_is_opened_once_for_all_modes_and_shapes(run: Run, opened: OpenedPools) -> None:
    run.tune(workers="3", job_types=(JobType.SGAT, JobType.OPAT), trials=1)
    assert len(opened.remote_pools) == 1
    assert opened.remote_pools[0].remote_pool.is_stopped  # given back at the end


@pytest.mark.slow
def test_hits_ask_no_worker(run: Run, opened: OpenedPools) -> None:
    run.tune()
    run.tune(workers="3")
    assert sum(opened.asked("compare_models").values()) == 0


@pytest.mark.slow
@pytest.mark.parametrize("most", [0, 1, 3])
def test_most_trials_hold_for_all_workers_together(
    run: Run, opened: OpenedPools, most: int
) -> None:
    result = run.tune(workers="3", max_tuning_count=most)
    assert sum(len(tuned.trials) for tuned in result.subgraphs) == most


# ---- what is next where time is short ----


@pytest.fixture(scope="module")
def waiting() -> tuple[Subgraph, ...]:
    """Return two subgraphs with a Split, the second with more to do, and one with a mean."""
    net = NetworkBuilder()
    x = net.silu(net.conv("x", 4, 16))
    x = net.silu(net.conv(net.c2f(x, 16), 16, 64, 1))
    graph = graph_of(net.model("x", 4, 8, [net.mean(net.c2f(x, 64))]))
    rules = {name: RULES[name] for name in ("convolution-split", "mean-to-global-pool")}
    found = find_subgraphs(graph, rules, uneven=False, blocked=False)
    assert 0 < found.work < float("inf")
    return found.subgraphs


def _rules(subgraph: Subgraph) -> set[str]:
    return {applied.rule for applied in subgraph.matches}


def _tried(
    subgraph: Subgraph, speedup: float, strategy: SubgraphStrategy | None = None
) -> TunedSubgraph:
    strategy = strategy or SubgraphStrategy(rewrites=tuple(subgraph.matches))
    trial = StrategyTrial(strategy=strategy, measurement=make_measurement(speedup))
    return TunedSubgraph(
        subgraph=subgraph, outcome=RepoOutcome.UNSATISFIED, reason="", trials=(trial,)
    )


def test_without_a_limit_subgraphs_come_as_they_are_given(waiting: tuple[Subgraph, ...]) -> None:
    assert RewriteBudget().next(waiting) == (waiting[0], None)


def test_most_work_comes_first_until_more_is_known(waiting: tuple[Subgraph, ...]) -> None:
    first, affordable = RewriteBudget(left_s=lambda: 20.0).next(waiting)
    assert work_of(first) == max(map(work_of, waiting))
    assert affordable is not None and 1 <= affordable < 20


def test_rule_that_has_lost_waits_for_others(waiting: tuple[Subgraph, ...]) -> None:
    scheduler = RewriteBudget(left_s=lambda: 20.0)
    largest, _ = scheduler.next(waiting)
    rest = [one for one in waiting if one is not largest]
    assert _rules(largest) == {"convolution-split"}
    for _ in range(3):
        assert scheduler.next([largest])[1] != 0
        scheduler.learn(_tried(largest, 0.7), seconds=2.0)
    assert "mean-to-global-pool" in _rules(scheduler.next(rest)[0])
    assert scheduler.next([largest]) == (largest, 0)
    scheduler = RewriteBudget(left_s=lambda: 20.0)
    scheduler.learn(_tried(largest, 2.0), seconds=2.0)
    assert _rules(scheduler.next(rest)[0]) == {"convolution-split"}


def test_slow_trials_leave_fewer_but_each_subgraph_has_one(waiting: tuple[Subgraph, ...]) -> None:
    scheduler = RewriteBudget(left_s=lambda: 20.0)
    before = scheduler.next(waiting)[1]
    scheduler.learn(_tried(waiting[0], 1.0), seconds=100.0)
    assert before is not None and before > 1
    assert scheduler.next(waiting)[1] == 1


def test_subgraphs_that_promise_less_than_what_follows_leave_it_the_time(
    waiting: tuple[Subgraph, ...],
) -> None:
    whole = sum(map(work_of, waiting))
    little, much = (
        RewriteBudget(left_s=lambda: 20.0, work=whole, rival_per_s=rival) for rival in (1e-6, 1.0)
    )
    assert little.next(waiting)[1] != 0
    assert much.next(waiting)[1] == 0
    little.learn(_tried(waiting[0], 1.0), seconds=1e6)  # as much work, far less for each second
    assert little.next(waiting)[1] == 0


def test_what_other_models_say_of_a_rule_is_hoped_for(waiting: tuple[Subgraph, ...]) -> None:
    largest, _ = RewriteBudget(left_s=lambda: 20.0).next(waiting)
    rest = [one for one in waiting if one is not largest]
    for effect, expected in ((-0.5, "mean-to-global-pool"), (0.5, "convolution-split")):
        taught = Experience(effects={"convolution-split@1": effect})
        scheduler = RewriteBudget(left_s=lambda: 20.0, experience=taught)
        assert expected in _rules(scheduler.next(rest)[0])


def test_reason_is_told_where_no_rewrite_is_tried(waiting: tuple[Subgraph, ...]) -> None:
    whole = sum(map(work_of, waiting))
    taught = Experience(effects={"convolution-split@1": -0.1, "mean-to-global-pool@1": -0.1})
    for scheduler, expected in (
        (RewriteBudget(work=whole, rival_per_s=1.0, experience=taught), ""),  # no limit
        (RewriteBudget(left_s=lambda: 20.0, work=whole), ""),
        (RewriteBudget(left_s=lambda: 20.0, work=whole, rival_per_s=1.0), "promises more"),
        (RewriteBudget(left_s=lambda: 20.0, work=whole, experience=taught), "has not won"),
    ):
        reasons = [scheduler.why_untried(one) for one in waiting]
        assert all(expected in one for one in reasons) and all(map(bool, reasons)) == bool(expected)


def test_plain_layout_that_has_lost_is_not_tried_for_the_same_nodes_of_another_size() -> None:
    first, alike = _convolution(16), _convolution(64)
    scheduler = RewriteBudget()
    assert _offers_plain(scheduler, first) and _offers_plain(scheduler, alike)
    scheduler.learn(_tried(first, 1.2, SubgraphStrategy(blocked=False)), seconds=1.0)
    assert _offers_plain(scheduler, alike)
    scheduler.learn(_tried(first, 0.5, SubgraphStrategy(blocked=False)), seconds=1.0)
    assert not _offers_plain(scheduler, alike)
    assert _offers_plain(scheduler, _convolution(64, size=1))


def test_pairs_of_a_busy_machine_say_nothing_of_other_subgraphs(
    waiting: tuple[Subgraph, ...],
) -> None:
    scheduler, first = RewriteBudget(left_s=lambda: 20.0), _convolution(16)
    largest, _ = scheduler.next(waiting)
    for _ in range(3):
        scheduler.learn(_on_a_busy_machine(_tried(largest, 0.7)), seconds=2.0)
    plain = _tried(first, 0.5, SubgraphStrategy(blocked=False))
    scheduler.learn(_on_a_busy_machine(plain), seconds=1.0)
    assert scheduler.next([largest])[1] != 0
    assert _offers_plain(scheduler, _convolution(64))


def _on_a_busy_machine(tuned: TunedSubgraph) -> TunedSubgraph:
    load = MachineLoad(use=CpuUse(wall_s=1.0, cpu_s=0.5, waited_s=0.5))
    (trial,) = tuned.trials
    busy = replace(trial, measurement=replace(trial.measurement, load=load))
    return replace(tuned, trials=(busy,))


def _convolution(channels: int, size: int = 3) -> Subgraph:
    net = NetworkBuilder()
    graph = graph_of(net.model("x", 4, 8, [net.node("Relu", [net.conv("x", 4, channels, size)])]))
    (found,) = find_subgraphs(graph, {}, uneven=False, blocked=True).subgraphs
    return found


def _offers_plain(scheduler: RewriteBudget, subgraph: Subgraph) -> bool:
    choices = scheduler.space(subgraph)
    return any(not choices.strategy(guess).blocked for guess in choices.space.first_guesses)


@pytest.mark.parametrize(("effect", "trials"), [(None, 0), (-0.1, 0), (0.1, 2)])
def test_plain_layout_alone_has_time_within_a_limit_where_it_has_won_before(
    effect: float | None, trials: int
) -> None:
    found = _convolution(16)
    taught = Experience(effects={} if effect is None else {"plain layout": effect})
    assert RewriteBudget(left_s=lambda: 3.0, experience=taught).next([found]) == (found, trials)
    assert RewriteBudget(experience=taught).next([found]) == (found, None)
