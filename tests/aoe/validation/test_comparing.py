"""The final comparison where time is short: fewer loads of the models, an honest interval."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from support.engine.fakes import ScriptedRunner
from support.engine.tuning import make_kernel
from support.engine.validating import SCREEN, FakeAssembly

from aoe.execute.messages import ModelPart
from aoe.execute.tasks import WHOLE_MODELS, ComparisonTerms, ModelComparison
from aoe.measurement import (
    Clock,
    CpuUse,
    MachineLoad,
    MeasurePolicy,
    Outcome,
    PairedSamples,
    Scatter,
    measured,
)
from aoe.ort.inputs import MADE_UP
from aoe.validation.comparing import ModelComparer, TimeIsUpError
from aoe.validation.model_validator import ModelValidator
from aoe.validation.time_reserve import (
    HURRIED_PROCESSES,
    LEAST_PROCESSES,
    PROCESSES,
    ModelCosts,
    starting_s,
)

_COSTS = ModelCosts(load_s=2.0, run_s=0.1)
_FINAL = MeasurePolicy(pairs_min=60, pairs_max=60, warmup=0)
_HURRIED = _COSTS.hurried(_FINAL)


@dataclass(slots=True, kw_only=True)
class _OrderedRunner(ScriptedRunner):
    """A machine where the model loaded first is faster, on whose clock comparisons take time."""

    rng: random.Random
    speedup: float = 1.5  # True one of the tuned model
    first: float = 1.0  # By how much the model loaded first is faster, in processes of one round
    fresh: float = 1.0  # The same of the first round, in processes of two
    noise: float = 0.0  # Standard deviation of what a process does to the figures
    left_s: float = math.inf  # Seconds until the time limit
    each_s: float = 8.0  # Seconds of a comparison
    is_wrong: bool = False
    # Comparisons during which the machine is busy and the tuned model slow, from 0.
    busy: tuple[int, ...] = ()
    # Comparisons in which the tuned model is slow, without a load that tells why.
    slow: tuple[int, ...] = ()
    # Processes that wait behind each one that was asked for.
    following: list[int] = field(default_factory=list)

    def restart(self, following: int = 0) -> None:
        self.following.append(following)
        ScriptedRunner.restart(self, following)

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        if task == "compare_unusual":  # runs alone: next to nothing beside a comparison
            return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)
        terms: ComparisonTerms = arguments.get("terms", WHOLE_MODELS)
        effect = self.first if len(terms.orders) == 1 else self.fresh
        order = effect if terms.orders[0] else 1 / effect
        ratio = self.speedup * order * math.exp(self.rng.gauss(0.0, self.noise))
        number = len(self.asked("compare_models"))
        is_busy, ratio = number in self.busy, ratio / (1.35 if number in self.slow else 1)
        if self.busy:
            self.given_share, ratio = (0.5, ratio / 3) if is_busy else (1.0, ratio)

        def model(baseline: ModelPart, tuned: ModelPart) -> float | Outcome:
            return Outcome.CORRECTNESS if self.is_wrong else ratio

        self.model = model
        self.left_s -= self.each_s
        return ScriptedRunner.call(self, task, timeout_s=timeout_s, **arguments)

    def orders(self) -> list[tuple[bool, ...]]:
        """Return which model is loaded first in the rounds of each comparison."""
        return [call.arguments["terms"].orders for call in self.asked("compare_models")]


_BOTH = [(False, True), (True, False)]
"""Rounds of two processes that load both models in either order."""
_LONE = [(False,), (True,)]
"""Rounds of two processes of a short time limit."""


def _runner(seed: int = 0, **facts: Any) -> _OrderedRunner:
    return _OrderedRunner(rng=random.Random(seed), seed=1000 * seed, drift=0.0, **facts)


def _comparer(runner: _OrderedRunner, costs: ModelCosts = _COSTS) -> ModelComparer[Any]:
    return ModelComparer(
        FakeAssembly(),
        runner,  # type: ignore[arg-type]
        screen=SCREEN,
        final=_FINAL,
        inputs=MADE_UP,
        left_s=lambda: runner.left_s,
        costs=costs,
    )


def test_with_time_enough_every_process_loads_both_orders_in_turns() -> None:
    runner = _runner(speedup=1.05, noise=0.01)
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert runner.orders() == (_BOTH * PROCESSES)[:PROCESSES]
    assert found.estimate.median == pytest.approx(1.05, rel=0.02)


def test_comparisons_that_take_longer_than_reckoned_make_the_last_ones_hurried() -> None:
    runner = _runner(left_s=200.0, each_s=40.0)
    comparer = _comparer(runner)
    assert not comparer.is_hurried
    comparer.without([make_kernel(1)], [make_kernel(1)])
    assert comparer.is_hurried  # 160 s are enough for what is reckoned, not at that pace


@pytest.mark.parametrize(("noise", "fewest", "most"), [(0.0, 3, 3), (0.006, 3, 5), (0.03, 5, 5)])
def test_gain_far_beyond_the_scatter_takes_fewer_processes(
    noise: float, fewest: int, most: int
) -> None:
    counts = set()
    for seed in range(40):
        runner = _runner(seed, speedup=1.16, noise=noise)
        assert _comparer(runner).for_the_record([make_kernel(1)]).surely > 1
        counts.add(len(runner.orders()))
    assert min(counts) <= fewest and max(counts) <= max(most, PROCESSES)
    assert noise > 0 or counts == {fewest}


@pytest.mark.parametrize(
    ("noise", "known", "counts"),
    [
        (0.0, 0.012, {1}),  # 16 % are far beyond what such processes may scatter
        (0.006, 0.012, {1, 2}),
        (0.012, 0.03, {2, 3, PROCESSES}),
        (0.03, 0.001, {1, 2, 3, PROCESSES}),
    ],
)
def test_scatter_known_from_a_model_like_it_spares_processes(
    noise: float, known: float, counts: set[int]
) -> None:
    found = set()
    for seed in range(30):
        runner = _runner(seed, speedup=1.16, noise=noise)
        scatter = Scatter(deviation=known, processes=PROCESSES)
        gain = _comparer(runner).for_the_record([make_kernel(1)], known=scatter)
        found.add(len(runner.orders()))
        assert gain.surely > 1
        assert gain.scatter is not None and gain.scatter.processes >= PROCESSES
        assert gain.estimate.low < 1.16 < gain.estimate.high or noise > 0
    assert found <= counts


@pytest.mark.parametrize("seed", [16, 17, 22])  # gains within the bound of five processes alone
def test_known_scatter_stays_known_where_no_time_is_left_for_more_processes(seed: int) -> None:
    runner = _runner(seed, speedup=1.05, noise=0.02, left_s=69.3, each_s=12.6)
    scatter = Scatter(deviation=0.001, processes=PROCESSES)
    gain = _comparer(runner).for_the_record([make_kernel(1)], known=scatter)
    assert len(runner.orders()) == PROCESSES
    assert gain.surely <= 1 < gain.estimate.low


def test_early_end_is_one_a_later_run_believes() -> None:
    """What is sure may still be known so badly that the next run would judge it again."""
    scatter = Scatter(deviation=0.02, processes=PROCESSES)
    for seed in range(40):
        runner = _runner(seed, speedup=1.13, noise=0.02)
        gain = _comparer(runner).for_the_record([make_kernel(1)], known=scatter)
        ends_early = len(runner.orders()) < PROCESSES
        estimate = gain.estimate
        assert not ends_early or estimate.low - 1 > estimate.high - estimate.low


def test_scatter_of_few_processes_is_none() -> None:
    runner = _runner(left_s=17.0)
    assert _comparer(runner).for_the_record([make_kernel(1)]).scatter is None  # in turns
    many = _comparer(_runner(speedup=1.05, noise=0.02)).for_the_record([make_kernel(1)])
    assert many.scatter is not None and 0.005 < many.scatter.deviation < 0.06


def test_wrong_or_busy_processes_are_no_early_proof() -> None:
    runner = _runner(speedup=1.5, is_wrong=True)
    _comparer(runner).for_the_record([make_kernel(1)])
    assert len(runner.orders()) >= PROCESSES
    runner = _runner(speedup=1.5, given_share=0.5)
    _comparer(runner).for_the_record([make_kernel(1)])
    assert len(runner.orders()) >= PROCESSES


def test_session_that_is_slower_in_a_fresh_process_is_no_gain_of_the_other() -> None:
    runner = _runner(speedup=1.0, fresh=1 / 1.002, noise=0.0004)
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert found.surely < 1 and found.estimate.low < 1 < found.estimate.high


@pytest.mark.parametrize("left_s", [math.inf, 45.0])
def test_what_was_taken_on_a_busy_machine_is_taken_again(left_s: float) -> None:
    runner = _runner(speedup=1.5, busy=(0, 2), left_s=left_s)
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert found.estimate.median == pytest.approx(1.5, rel=0.01) and found.surely > 1
    assert found.comparison.measurement.counts
    orders = runner.orders()
    if left_s < math.inf:  # the order of loading is the one that is missing
        assert [order[0] for order in orders] == [False, False, True, True, False]
    else:
        assert len(orders) == 5


def test_what_was_taken_on_a_busy_machine_counts_where_there_is_nothing_else() -> None:
    runner = _runner(speedup=1.5, busy=tuple(range(100)))
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert not found.comparison.measurement.counts
    assert len(runner.orders()) <= 2 * (PROCESSES + 1)


@dataclass(slots=True, kw_only=True)
class _TwoClockRunner(_OrderedRunner):
    """A busy machine with two threads, whose processes read what is listed by either clock."""

    # Speed-up by CPU time and by wall time, process by process; the last one stays.
    read: Sequence[tuple[float, float]]
    taken: list[float] = field(default_factory=list)  # By CPU time, in order
    wrong_from: float = math.inf  # Process from which on results are wrong, from 0

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        self.is_wrong = len(self.taken) >= self.wrong_from
        found = _OrderedRunner.call(self, task, timeout_s=timeout_s, **arguments)
        if not isinstance(found, ModelComparison):
            return found
        cpu, wall = self.read[min(len(self.taken), len(self.read) - 1)]
        self.taken.append(cpu)
        # neighbours make wall time of a pair scatter, so that both intervals meet
        samples = PairedSamples(
            baseline_us=tuple(200.0 * wall * one for one in (0.4, 0.4, 1.0, 2.5, 2.5) * 4),
            tuned_us=(200.0,) * 20,
            baseline_cpu_us=tuple(100.0 * cpu * one for one in (1.0, 1.002) * 10),
            tuned_cpu_us=(100.0,) * 20,
        )
        load = MachineLoad(use=CpuUse(wall_s=2.0, cpu_s=1.0, waited_s=1.0), threads=2)
        return replace(found, measurement=measured(samples, load))


def _read(*read: tuple[float, float]) -> _TwoClockRunner:
    return _TwoClockRunner(rng=random.Random(0), drift=0.0, read=read)


def test_no_process_is_taken_again_for_a_gain_that_wall_time_does_not_show() -> None:
    """Else what a model against itself reads lies below 1: its losses stay, half its gains go."""
    runner = _read((1.02, 0.9), (0.97, 1.1), (1.03, 0.8), (0.98, 0.9), (0.96, 1.2))
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert len(runner.taken) == len(found.processes) == PROCESSES
    assert found.processes == pytest.approx([1.021, 0.971, 1.031, 0.981, 0.961], abs=1e-3)
    assert found.comparison.counts and found.comparison.measurement.clock is Clock.CPU


@pytest.mark.parametrize(("walls", "is_gain"), [((1.3, 0.9, 1.3), True), ((0.7, 1.1, 0.7), False)])
@pytest.mark.parametrize("left_s", [math.inf, 80.0])
def test_gain_of_threads_needs_the_wall_time_of_all_processes_together(
    walls: tuple[float, ...], is_gain: bool, left_s: float
) -> None:
    runner = _read(*((1.4, wall) for _ in range(5) for wall in walls))
    runner.left_s = left_s
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert found.surely > 1
    measurement = found.comparison.measurement
    assert (found.comparison.is_timed, found.comparison.counts) == (True, is_gain)
    assert ("by wall time: the tuned side waits longer" in measurement.disagreement) is not is_gain


def test_wrong_result_on_a_busy_machine_is_wrong() -> None:
    runner = _runner(speedup=1.5, busy=tuple(range(100)), is_wrong=True)
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert not found.comparison.deviation.acceptable


@pytest.mark.parametrize("is_wrong", [False, True])
def test_processes_beyond_the_limit_count_whatever_side_of_1_their_wall_time_lies_on(
    is_wrong: bool,
) -> None:
    """Three in time leave a gain open; one more follows, whose CPU time alone gains."""
    runner = _read((1.02, 1.1), (1.08, 1.1), (1.04, 1.1), (1.08, 0.9))
    runner.left_s = 29.0
    comparer = ModelComparer(
        FakeAssembly(),
        runner,  # type: ignore[arg-type]
        screen=SCREEN,
        final=_FINAL,
        inputs=MADE_UP,
        left_s=lambda: runner.left_s,
        at_most_s=lambda: runner.left_s + 20.0,
        costs=_COSTS,
    )
    runner.wrong_from = 3 if is_wrong else math.inf
    found = comparer.for_the_record([make_kernel(1)])
    assert len(runner.taken) == len(found.processes) == HURRIED_PROCESSES
    assert found.comparison.deviation.acceptable is not is_wrong


@pytest.mark.parametrize(
    ("speedup", "noise", "left_s", "processes"),
    [
        (1.05, 0.04, math.inf, 2 * PROCESSES),  # shown, not proven
        (1.05, 0.04, 80.0, 9),
        (1.05, 0.008, math.inf, PROCESSES),  # proven
        (1.05, 0.0001, math.inf, 3),  # proven by far
        (0.9, 0.04, math.inf, PROCESSES),  # not even shown
    ],
)
def test_gain_that_is_shown_and_not_proven_is_looked_at_once_more(
    speedup: float, noise: float, left_s: float, processes: int
) -> None:
    runner = _runner(2, speedup=speedup, noise=noise, left_s=left_s)
    _comparer(runner).for_the_record([make_kernel(1)])
    assert runner.orders() == (_BOTH * processes)[:processes]


@pytest.mark.parametrize(("each_s", "is_cut"), [(18.0, True), (12.0, False)])
def test_gain_is_left_open_where_processes_take_longer_than_there_was_time_for(
    each_s: float, is_cut: bool
) -> None:
    runner = _runner(3, speedup=0.999, noise=0.006, left_s=70.0, each_s=each_s)
    comparer = _comparer(runner)
    assert not comparer.is_hurried
    found = comparer.for_the_record([make_kernel(1)])
    assert found.surely <= 1 < found.estimate.high
    assert found.is_open is is_cut is (len(found.processes) < PROCESSES)


@pytest.mark.slow
def test_second_look_finds_gains_of_small_models_and_hardly_more_that_are_none() -> None:
    """Each look accepts a two-hundredth of models that are no faster: both together a hundredth."""
    accepted = {1.0: 0, 1.1: 0}
    for seed, speedup in itertools.product(range(300), accepted):
        runner = _runner(seed, speedup=speedup, noise=0.05, jitter=0.002)
        accepted[speedup] += _comparer(runner).for_the_record([make_kernel(1)]).surely > 1
    assert accepted[1.0] <= 8
    assert accepted[1.1] >= 240  # by one look it is 140 or so


@pytest.mark.parametrize(("left_s", "processes"), [(45.0, 4), (33.0, 4), (29.0, 3), (20.0, 2)])
def test_in_a_hurry_processes_load_the_one_first_and_the_other_in_turns(
    left_s: float, processes: int
) -> None:
    runner = _runner(left_s=left_s, first=1.04)
    comparer = _comparer(runner)
    assert comparer.is_hurried
    found = comparer.for_the_record([make_kernel(1)])
    assert runner.orders() == (_LONE * 2)[:processes]
    pairs = found.estimate.pairs / processes
    assert _HURRIED.pairs_min <= pairs < _HURRIED.pairs_max  # theirs hardly scatter
    assert len(found.processes) == processes
    assert found.estimate.median == pytest.approx(1.5, rel=0.005)  # the order cancels


def test_time_for_one_process_proves_a_large_gain_and_decides_nothing_else() -> None:
    found = _comparer(_runner(left_s=12.0, speedup=1.5)).for_the_record([make_kernel(1)])
    assert found.surely > 1 and len(found.processes) == 1
    for speedup in (1.15, 0.8):
        with pytest.raises(TimeIsUpError):
            _comparer(_runner(left_s=12.0, speedup=speedup)).for_the_record([make_kernel(1)])


def test_time_for_no_process_proves_nothing() -> None:
    with pytest.raises(TimeIsUpError):
        _comparer(_runner(left_s=5.0)).for_the_record([make_kernel(1)])


@pytest.mark.parametrize(
    ("processes", "speedup", "least"),
    [(6, 1.1, 1.08), (4, 1.5, 1.34), (2, 1.5, 1.29), (2, 1.05, 0.0)],
)
def test_what_the_order_does_is_noise_with_four_processes_and_known_with_six(
    processes: int, speedup: float, least: float
) -> None:
    runner = _runner(left_s=1.0 + 8 * processes, speedup=speedup, first=1.02, noise=0.001)
    found = _comparer(runner).for_the_record([make_kernel(1)])
    assert least < found.surely < speedup if least else found.surely < 1
    assert found.is_open == (not least)


def test_gain_that_few_processes_show_and_do_not_prove_gets_two_more_where_there_is_time() -> None:
    """Two of four processes in a bad moment: not accepted, and not refused for ever either."""
    runner = _runner(left_s=33.0, slow=(1, 2), speedup=1.35)
    validation = ModelValidator(_comparer(runner), lambda text: None).validate([make_kernel(1)])
    assert runner.orders() == _LONE * 2
    assert validation.kept == () and not validation.is_decided(make_kernel(1))
    assert "too few comparisons of the whole model: 1.0" in validation.undecided
    runner = _runner(left_s=44.0, each_s=7.0, slow=(1, 2), speedup=1.35)
    assert _comparer(runner).for_the_record([make_kernel(1)]).surely > 1
    assert runner.orders() == _LONE * 3
    assert runner.following == [3, 0, 0, 0, 1, 0]  # four start together, and the two behind them


def test_few_processes_that_show_no_gain_at_all_decide() -> None:
    runner = _runner(left_s=44.0, speedup=0.7)
    assert _comparer(runner).for_the_record([make_kernel(1)]).estimate.high < 1
    assert len(runner.orders()) == LEAST_PROCESSES  # no others would prove a gain
    runner = _runner(left_s=44.0, speedup=0.97)
    assert _comparer(runner).for_the_record([make_kernel(1)]).surely < 1
    assert len(runner.orders()) <= HURRIED_PROCESSES


def test_hurried_judgement_loads_nothing_but_for_the_proof() -> None:
    runner = _runner(left_s=45.0)
    validation = ModelValidator(_comparer(runner), lambda text: None).validate([make_kernel(1)])
    assert validation.kept and len(runner.asked("compare_models")) == HURRIED_PROCESSES


_LONG_CALLS = ModelCosts(load_s=0.35, run_s=0.137)
"""BERT of six layers, 128 tokens, on one thread of 2 cores."""


def _long_calls(speedup: float, left_s: float, **facts: Any) -> tuple[_OrderedRunner, Any]:
    runner = _runner(speedup=speedup, left_s=left_s, each_s=2.2, **facts)
    return runner, _comparer(runner, _LONG_CALLS)


def test_long_calls_are_decided_by_more_processes_of_fewer_pairs() -> None:
    """Eleven seconds of a limit of twenty, a gain of 11 %: two processes of four would not do."""
    for seed in range(10):
        runner, comparer = _long_calls(1.11, 10.5)
        runner.rng, runner.noise = random.Random(seed), 0.01
        found = comparer.for_the_record([make_kernel(1)])
        assert found.surely > 1, found.processes
        pairs = [call.arguments["policy"].pairs_max for call in runner.asked("compare_models")]
        assert pairs == [2] * HURRIED_PROCESSES


def test_pairs_that_scatter_are_more_in_the_next_process() -> None:
    runner, comparer = _long_calls(1.3, 30.0, jitter=0.2)
    comparer.for_the_record([make_kernel(1)])
    pairs = [call.arguments["policy"].pairs_min for call in runner.asked("compare_models")]
    assert pairs[0] == 2 and 4 in pairs


def test_time_that_decides_nothing_is_handed_back() -> None:
    """A model that is as fast as before, and no time for the look that says so."""
    runner, comparer = _long_calls(0.95, 8.2)
    found = comparer.for_the_record([make_kernel(1)])
    assert found.surely < 1 and found.is_open == (found.estimate.high > 1)
    assert len(runner.orders()) == 2 and runner.left_s > 3.5
    runner, comparer = _long_calls(1.05, 8.2)  # which three may prove, if these two read too low
    comparer.for_the_record([make_kernel(1)])
    assert len(runner.orders()) == 3


def test_wrong_result_that_only_the_proof_has_shown_is_looked_at_by_the_next_run() -> None:
    runner = _runner(left_s=45.0, is_wrong=True)
    validation = ModelValidator(_comparer(runner), lambda text: None).validate([make_kernel(1)])
    assert validation.kept == ()
    assert "computes something else" in validation.undecided


@dataclass(slots=True, kw_only=True)
class _StartingRunner(_OrderedRunner):
    """A machine on whose clock processes start, two in the time of one, before one is asked."""

    process_s: float = 4.0
    starting: int = 1
    waiting: int = 0

    def restart(self, following: int = 0) -> None:
        _OrderedRunner.restart(self, following)
        self.starting = 0 if self.waiting else 1 + following
        self.waiting = self.waiting - 1 if self.waiting else following

    def call(self, task: str, *, timeout_s: float, **arguments: Any) -> Any:
        if task == "compare_models":
            self.left_s -= starting_s(self.process_s, self.starting)
            self.starting = 0
        return _OrderedRunner.call(self, task, timeout_s=timeout_s, **arguments)


_BUSY_COSTS = ModelCosts(load_s=0.5, run_s=0.01, process_s=4.0)


def _starting(speedup: float, left_s: float, **facts: Any) -> tuple[_StartingRunner, Any]:
    runner = _StartingRunner(
        rng=random.Random(0), drift=0.0, speedup=speedup, left_s=left_s, each_s=1.5, **facts
    )
    return runner, _comparer(runner, _BUSY_COSTS)


def test_processes_that_start_beside_each_other_do_not_make_a_comparison_look_slow() -> None:
    runner, comparer = _starting(1.5, 32.0)
    before = comparer.early_processes
    comparer.for_the_record([make_kernel(1)])
    assert runner.following[0] == HURRIED_PROCESSES - 1  # 10 s, of which each is reckoned with 4
    runner.left_s = 32.0
    assert comparer.early_processes == before
