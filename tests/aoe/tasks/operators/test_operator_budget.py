"""What is tuned first, and with how many trials."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from support.engine.convolutions import convolution
from support.engine.fakes import RATES, make_target
from support.engine.families import chain_workload
from support.engine.tuning import (
    make_estimate,
    make_measurement,
    matrix_product,
    placed_operator,
)

from aoe.kernels.family import KernelTarget
from aoe.kernels.matmul.family import MatMul
from aoe.kernels.registry import FAMILIES
from aoe.results.files import RepoOutcome
from aoe.schedule import Configuration, Schedule, Space
from aoe.tasks.operators.operator import TunedOperator
from aoe.tasks.operators.operator_budget import OperatorBudget
from aoe.tasks.operators.operators import Operator
from aoe.tuner.task_search import SearchResult, TrialRecord
from aoe.workload import Precision, Workload

_MODEL_US = 100_000.0
_TRIALS = 24


def _budget(model_us: float = _MODEL_US, trials: int = _TRIALS) -> OperatorBudget:
    return OperatorBudget(
        rates=RATES, target=KernelTarget.of(make_target()), model_us=model_us, trials=trials
    )


def _first(budget: OperatorBudget, *operators: Operator) -> Operator:
    return budget.next_slice(operators).task


def _chain(op_type: str = "Exp", rows: int = 64) -> Workload:
    return chain_workload((op_type,), shape=(1, 16, rows, 64))


def _tuned(operator: Operator, speedup: float | None) -> TunedOperator:
    """Return an operator that was searched with four trials; None: nothing was won."""
    measurement = make_measurement(speedup or 1.0)
    trial = TrialRecord(configuration=Configuration({}), measurement=measurement)
    return TunedOperator(
        operator=operator,
        outcome=RepoOutcome.ADD if speedup else RepoOutcome.UNSATISFIED,
        reason="",
        schedule=Schedule(()) if speedup else None,
        speedup=speedup or 1.0,
        estimate=make_estimate(speedup or 1.0),
        search=SearchResult(trials=(trial,) * 4),
    )


def test_what_takes_longest_comes_first_among_equals() -> None:
    short, long = placed_operator(_chain("Exp"), 2000), placed_operator(_chain("Tanh"), 3000)
    assert _first(_budget(), short, long) is long


def test_blocks_of_rows_get_trials_by_their_share_of_the_model() -> None:
    budget = _budget()
    large, small = (
        replace(placed_operator(_chain(), 0), default_us=0.0, share=share)
        for share in (0.01, 0.0001)
    )
    assert budget.budget(large) > budget.budget(small)
    before = budget.budget(large)
    budget.learn(_tuned(large, 1.02), seconds=1.0)
    assert budget.budget(large) < before, "operators like it gain little"


def test_distance_from_the_roofline_counts_not_time() -> None:
    # 512^3 multiply-adds at 1e5 a microsecond are 1,342 us; Tanh moves 0.5 MiB, 5 us
    product, chain = placed_operator(matrix_product(), 1400), placed_operator(_chain("Tanh"), 1000)
    assert _first(_budget(), product, chain) is chain


def test_large_weights_take_time_until_anything_is_measured() -> None:
    # 512 x 200,000 elements are 410 MB: four seconds, of a gain that is twice the other's
    small, large = matrix_product(), matrix_product(columns=200_000)
    budget, chain = _budget(model_us=1e6), placed_operator(_chain("Tanh"), 15_000)
    heavy = placed_operator(large, 292_000)  # 262,144 us at the roofline
    assert heavy.setting_up_s == pytest.approx(4.1, abs=0.1)
    assert placed_operator(small, 1400).setting_up_s < 0.02
    assert budget.screenings([heavy, chain]) == [chain, heavy]


def test_time_to_set_up_is_not_taken_for_the_pace_of_others() -> None:
    budget = _budget()
    large, other = (
        placed_operator(matrix_product(columns=columns), 30_000) for columns in (200_000, 512)
    )
    before = budget.seconds(other)
    budget.learn(_tuned(large, 1.5), seconds=large.setting_up_s + 4.2)
    assert budget.seconds(other) == pytest.approx(before)


def _at(operator: Operator, *nodes: int) -> Operator:
    """Return an operator with one place."""
    return replace(operator, regions=(replace(operator.regions[0], nodes=nodes),))


@pytest.mark.parametrize(
    ("won", "other", "left_us"),
    [
        ((1, 2, 3), (1, 2), 400),  # what a part saves, it saves instead of the whole
        ((2, 3), (1, 2, 3), 400),
        ((1, 2), (1, 3), 1600),  # both read through a reorder that others read, too
        ((1, 2), (3, 4), 1600),
    ],
)
def test_what_is_saved_is_no_room_for_kernels_of_the_same_nodes(
    won: tuple[int, ...], other: tuple[int, ...], left_us: int
) -> None:
    budget, still_open = _budget(), placed_operator(matrix_product(), 1342 + 1600)
    later = _at(still_open, *other)
    before_s = budget.seconds(later)
    budget.learn(_tuned(_at(placed_operator(_chain("Tanh"), 2400), *won), 2.0), seconds=0.0)
    same = _at(placed_operator(matrix_product(), 1342 + left_us), *other)
    assert budget.budget(later) == _budget().budget(same)
    assert (budget.seconds(later) < before_s) is (left_us < 1600)


def test_lower_precision_has_more_room() -> None:
    target = KernelTarget.of(make_target())
    budget = replace(_budget(), target=replace(target, vector_lanes=16, bf16_dot=True))
    exact, rounded = (
        placed_operator(matrix_product(precision=precision), 1400)
        for precision in (Precision.FLOAT32, Precision.BFLOAT16)
    )
    assert _first(budget, exact, rounded) is rounded


def test_operators_as_fast_as_they_can_be_get_two_trials() -> None:
    assert _budget().budget(placed_operator(matrix_product(), 1342)) == 2
    assert (
        _budget().budget(placed_operator(matrix_product(), 1000)) == 2
    )  # faster than the roofline: noise


def test_default_that_leaves_out_zeros_tells_nothing_of_the_rates() -> None:
    dilated = convolution((64, 64), blocks=(16, 16), dilations=(36, 36), pads=(36, 36, 36, 36))
    budget = _budget()
    budget.see([placed_operator(dilated, 200)])
    assert budget.rates == RATES


def test_a_default_above_the_rates_tells_that_they_were_taken_in_a_bad_moment() -> None:
    budget, wide = _budget(), placed_operator(matrix_product(columns=1024), 2000)
    assert budget.budget(wide) == 2  # 2,684 us at the rates that were measured
    budget.see([placed_operator(matrix_product(), 50)])
    assert budget.budget(wide) == 2  # 50 us may be anything from 49 to 51
    budget.see([placed_operator(matrix_product(), 671)])
    assert budget.budget(wide) == 8  # 1,342 us at twice the rates
    budget.see([wide])
    assert budget.budget(wide) == 8


@pytest.mark.parametrize(
    ("saved_us", "trials"),
    [(5000, 24), (1000, 24), (750, 18), (500, 12), (250, 6), (150, 6), (50, 4), (20, 2), (0, 2)],
)
def test_budget_follows_what_the_model_may_gain(saved_us: float, trials: int) -> None:
    operator = placed_operator(_chain(), saved_us + 8 * 65536 / 1e5)
    assert _budget().budget(operator) == trials


def test_sums_of_products_get_half_of_the_candidates() -> None:
    assert _budget().budget(placed_operator(matrix_product(), 9000)) == _TRIALS // 2


@pytest.mark.parametrize(
    ("left_s", "trials"), [(math.inf, 24), (33.0, 24), (16.2, 12), (8.1, 6), (1.0, 4), (0.0, 4)]
)
def test_little_time_is_shared_out_among_all_that_wait(left_s: float, trials: int) -> None:
    budget = replace(_budget(), left_s=lambda: left_s)
    waiting = [placed_operator(_chain(name), 9000) for name in ("Exp", "Tanh")]
    # (24 trials + 3) of 0.6 s for each of two
    assert budget.next_slice(waiting).trials == trials


def test_hurry_gives_nothing_more_trials_than_it_is_worth() -> None:
    budget = replace(_budget(), left_s=lambda: 0.1)
    assert budget.next_slice([placed_operator(matrix_product(), 1342)]).trials == 2


def test_budget_never_exceeds_what_the_user_gives() -> None:
    budget = _budget(trials=3)
    assert [budget.budget(placed_operator(_chain(), us)) for us in (9e4, 1.0)] == [3, 2]
    assert _budget(trials=1).budget(placed_operator(_chain(), 1.0)) == 1


def test_what_has_failed_thrice_waits_and_gets_fewer_trials() -> None:
    budget = _budget()
    known, other = placed_operator(matrix_product(768), 3800), placed_operator(_chain(), 1200)
    assert _first(budget, known, other) is known
    before = budget.budget(known)
    for columns in (256, 384, 640):
        budget.learn(_tuned(placed_operator(matrix_product(columns), 3000), None), seconds=4.0)
    assert _first(budget, known, other) is other
    assert budget.budget(known) < before


def test_what_was_won_raises_hopes_again() -> None:
    budget = _budget()
    operator = placed_operator(matrix_product(768), 3500)
    budget.learn(_tuned(placed_operator(matrix_product(256), 3000), None), seconds=4.0)
    low = budget.budget(operator)
    for columns in (384, 640):
        budget.learn(_tuned(placed_operator(matrix_product(columns), 3000), 3.0), seconds=4.0)
    assert budget.budget(operator) > low


class _Ranked(MatMul):
    """Counts how often its configurations are ranked."""

    rankings = 0

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        type(self).rankings += 1
        return super().space(workload, target)


def test_hits_teach_nothing_until_something_is_to_be_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FAMILIES, "matmul", _Ranked())
    budget = _budget()
    operator = placed_operator(matrix_product(256), 3000)
    known = replace(_tuned(operator, 1.4), outcome=RepoOutcome.RESERVED, search=None)
    budget.learn(known, seconds=0.0)
    assert not budget.is_hurried([])
    assert _Ranked.rankings == 0
    budget.budget(placed_operator(matrix_product(768), 3500))
    assert _Ranked.rankings == 2  # the hit, and what is asked for


def test_other_kinds_are_not_blamed() -> None:
    budget = _budget()
    before = budget.budget(placed_operator(_chain("Tanh"), 900))
    for rows in (8, 16, 32):
        budget.learn(_tuned(placed_operator(_chain("Exp", rows), 3000), None), seconds=1.0)
    assert budget.budget(placed_operator(_chain("Tanh"), 900)) == before


def test_slow_trials_cost_a_place_in_the_queue() -> None:
    budget = _budget()
    product, chain = placed_operator(matrix_product(), 3300), placed_operator(_chain("Tanh"), 1000)
    assert _first(budget, product, chain) is product
    budget.learn(_tuned(placed_operator(matrix_product(256), 3000), 3.0), seconds=60.0)
    assert _first(budget, product, chain) is chain


def test_places_that_one_precision_has_won_leave_less_room_to_another() -> None:
    budget = _budget()
    exact, rounded = (
        placed_operator(matrix_product(precision=precision), 4000)
        for precision in (Precision.FLOAT32, Precision.BFLOAT16)
    )
    alone = budget.budget(exact)
    budget.learn(_tuned(rounded, 2.9), seconds=1.0)  # 1,379 us are left, the roof is at 1,342
    assert budget.budget(exact) == 2 < alone


def test_machine_too_busy_to_tell_teaches_nothing() -> None:
    budget = _budget()
    operator = placed_operator(_chain(), 700)
    before = budget.budget(operator)
    undecided = replace(_tuned(placed_operator(_chain(rows=32), 9000), None), estimate=None)
    for _ in range(3):
        budget.learn(undecided, seconds=1.0)
    assert budget.budget(operator) == before


def test_every_place_of_an_operator_counts() -> None:
    once, often = (
        placed_operator(_chain("Exp"), 300),
        placed_operator(_chain("Tanh"), 300, places=40),
    )
    # moving 0.5 MiB takes 5.2 us: forty places leave 90 of 300 us
    assert _first(_budget(), once, often) is once


# ---- where time is short ----


def _of_search(tuned: TunedOperator, trials: int) -> TunedOperator:
    assert tuned.search is not None
    return replace(tuned, search=replace(tuned.search, trials=tuned.search.trials[:1] * trials))


@pytest.mark.parametrize(("left_s", "hurried"), [(math.inf, False), (33.0, False), (32.0, True)])
def test_hurry_is_when_there_is_no_time_for_what_all_are_worth(
    left_s: float, hurried: bool
) -> None:
    budget = replace(_budget(), left_s=lambda: left_s)
    # (24 trials + 3) of 0.6 s for each of two
    assert budget.is_hurried([placed_operator(_chain(name), 9000) for name in _TWO]) is hurried
    assert not budget.is_hurried([])


def test_trials_are_reckoned_to_take_longer_beside_load_until_some_have_been_measured() -> None:
    operators = [placed_operator(_chain(name), 9000) for name in _TWO]
    quiet = replace(_budget(), left_s=lambda: 60.0)
    busy = replace(_budget(), left_s=lambda: 60.0, slowness=2.0)
    assert busy.seconds(operators[0]) == pytest.approx(2 * quiet.seconds(operators[0]))
    assert busy.is_hurried(operators) and not quiet.is_hurried(operators)
    for budget in (quiet, busy):
        for _ in range(50):
            budget.learn(_of_search(_tuned(operators[0], 1.5), 24), seconds=27 * 0.8)
    assert busy.seconds(operators[0]) == pytest.approx(quiet.seconds(operators[0]), rel=0.01)


_TWO = ("Exp", "Tanh")


def test_glances_go_by_what_a_second_of_them_should_bring() -> None:
    budget = _budget()
    product = placed_operator(matrix_product(), 9000)
    chain = placed_operator(_chain("Tanh"), 4000)
    assert budget.screenings([chain, product]) == [product, chain]
    slow = _of_search(_tuned(placed_operator(matrix_product(256), 3000), 3.0), 1)
    budget.learn(slow, seconds=60.0, is_screening=True)
    assert budget.screenings([product, chain]) == [chain, product]


def test_what_was_glanced_at_waits_for_what_was_not() -> None:
    budget = _budget()
    seen, other = placed_operator(_chain("Exp"), 9000), placed_operator(_chain("Tanh"), 2000)
    assert _first(budget, seen, other) is seen
    budget.learn(_of_search(_tuned(seen, 1.2), 1), seconds=0.5, is_screening=True)
    assert _first(budget, seen, other) is other
    assert budget.budget(seen) < budget.budget(other)


def test_glances_teach_what_glances_bring() -> None:
    budget = _budget()
    waiting = placed_operator(_chain("Exp"), 700)
    hoped = budget.budget(waiting)
    lost = _of_search(_tuned(placed_operator(_chain("Exp", rows=32), 9000), None), 1)
    budget.learn(lost, seconds=0.5, is_screening=True)
    low = budget.budget(waiting)
    assert low < hoped
    for _ in range(3):  # what more trials bring says nothing about first ones
        budget.learn(_tuned(lost.operator, None), seconds=3.0)
    assert budget.budget(waiting) == low
