"""What of a time limit is kept for what follows the search."""

from __future__ import annotations

import pytest

from aoe.measurement import MeasurePolicy
from aoe.ort.profile import ModelProfile
from aoe.tuner.policies import final_policy, variant_policy
from aoe.validation.time_reserve import (
    HURRIED_PROCESSES,
    LEAST_PROCESSES,
    NO_COSTS,
    ModelCosts,
    ProcessPace,
    one_process_of,
)

_SCREEN, _FINAL = variant_policy(2), one_process_of(final_policy(2))


def test_costs_follow_from_the_first_profile() -> None:
    profile = ModelProfile(node_us={}, model_us=100_000.0, runs=10, load_s=2.1)
    costs = ModelCosts.of(profile, write_s=0.5)
    assert costs.run_s == 0.1
    assert costs.load_s == pytest.approx(2.0)
    assert costs.profiling_s(10) == pytest.approx(3.3)


@pytest.mark.parametrize(("given_share", "process_s"), [(1.0, 1.0), (0.5, 2.0), (0.01, 5.0)])
def test_processes_start_slower_beside_others_and_more_time_is_kept(
    given_share: float, process_s: float
) -> None:
    quiet = ModelProfile(node_us={}, model_us=70_000.0, load_s=0.1)
    busy = ModelProfile(node_us={}, model_us=70_000.0, load_s=0.1, given_share=given_share)
    costs = ModelCosts.of(busy, write_s=0.4)
    assert costs.process_s == costs.link_s == process_s
    one_s = costs.hurried_s(_FINAL)
    assert _kept_s(costs, 60.0) >= costs.link_s + HURRIED_PROCESSES * one_s
    if given_share < 1:  # processes scatter more: there is time for twice as many, if any
        wanted_s = costs.link_s + 2 * HURRIED_PROCESSES * one_s
        assert _kept_s(costs, 60.0) >= min(wanted_s, 0.6 * 60.0)
        assert _kept_s(costs, 40.0) > _kept_s(ModelCosts.of(quiet, write_s=0.4), 40.0)


def test_early_proof_has_as_many_processes_as_its_time_allows() -> None:
    costs = ModelCosts(load_s=0.2, run_s=0.05)
    for count in (0, 2, 5):
        left_s = costs.early_proof_s(2, count)
        assert costs.early_processes(2, left_s + 0.001) == count


def test_costs_of_a_comparison_leave_its_runs_and_its_process_out() -> None:
    costs = ModelCosts.of_comparison(5.0, 100_000.0)
    assert (costs.run_s, costs.load_s) == (0.1, pytest.approx(1.3))
    again_s = costs.comparison_s(NO_COSTS.hurried(_SCREEN))  # as that was taken
    assert again_s == pytest.approx(5.0, abs=0.5)
    assert ModelCosts.of_comparison(0.5, 100_000.0).load_s == 0.0


def test_large_model_keeps_more_than_a_small_one_and_never_more_than_the_limit() -> None:
    small, large = ModelCosts(run_s=0.001), ModelCosts(load_s=3.0, run_s=0.2, write_s=1.0)
    for limit_s in (0.0, 20.0, 120.0, 3600.0):
        kept = [costs.validation_s(limit_s, _SCREEN, _FINAL) for costs in (small, large)]
        assert kept[0] <= kept[1] <= limit_s


def test_little_time_goes_to_the_least_proof_much_to_a_thorough_one() -> None:
    costs = ModelCosts(load_s=2.0, run_s=0.1, write_s=0.5)
    one_s = costs.hurried_s(_FINAL)
    kept = {left_s: _kept_s(costs, left_s) for left_s in (16.0, 30.0, 120.0, 600.0, 3600.0)}
    assert kept[16.0] == pytest.approx(0.75 * (16.0 - costs.finishing_s))
    assert LEAST_PROCESSES * one_s < kept[30.0] < HURRIED_PROCESSES * one_s
    assert HURRIED_PROCESSES * one_s < kept[120.0] < kept[600.0]
    assert kept[600.0] < 600.0 / 4
    assert kept[3600.0] == _kept_s(costs, 7200.0)


def test_every_final_comparison_has_its_time() -> None:
    costs = ModelCosts(load_s=0.2, run_s=0.05)
    for left_s in (60.0, 600.0, 3600.0):
        one, three = (costs.validation_s(left_s, _SCREEN, _FINAL, finals) for finals in (1, 3))
        assert one < three < left_s


def test_large_model_is_left_time_to_search_what_a_minute_has_left() -> None:
    # VGG-19 of the onnx package on 2 cores: 20 s until its operators are known
    costs = ModelCosts(load_s=0.35, run_s=0.11, write_s=0.85)
    assert 25.0 - costs.validation_s(25.0, _SCREEN, _FINAL) > 8.0


def _kept_s(costs: ModelCosts, left_s: float) -> float:
    """Return what is kept for judging alone."""
    return costs.validation_s(left_s, _SCREEN, _FINAL) - costs.finishing_s


def test_hurried_policy_takes_fewer_pairs_and_one_try() -> None:
    costs = ModelCosts(run_s=1.0)
    policy = costs.hurried(_FINAL)
    assert (policy.pairs_min, policy.pairs_max, policy.tries) == (2, 2, 1)
    assert costs.comparison_s(policy) < costs.comparison_s(_FINAL)
    assert costs.hurried(MeasurePolicy(warmup=0)).warmup == 0


@pytest.mark.parametrize(("run_s", "pairs"), [(0.014, 10), (0.1, 6), (0.3, 4)])
def test_pairs_that_cost_little_beside_loading_are_taken(run_s: float, pairs: int) -> None:
    costs = ModelCosts(load_s=2.0, run_s=run_s)
    policy = costs.hurried(_FINAL)
    assert policy.pairs_min == pairs
    assert costs.hurried_s(_FINAL) < 1.3 * costs.comparison_s(NO_COSTS.hurried(_FINAL))


@pytest.mark.parametrize(
    ("load_s", "run_s", "pairs"), [(0.35, 0.137, 2), (0.1, 0.3, 2), (2.0, 0.3, 4), (0.1, 0.01, 10)]
)
def test_processes_in_a_hurry_have_two_pairs_where_four_cost_half_of_beginning_one(
    load_s: float, run_s: float, pairs: int
) -> None:
    costs = ModelCosts(load_s=load_s, run_s=run_s)
    assert costs.hurried(_FINAL).pairs_min == pairs
    assert costs.hurried(_FINAL, is_scattered=True).pairs_min == max(4, pairs)


def test_processes_that_have_run_tell_what_starting_and_comparing_take() -> None:
    """Four that started together in 2 s and compared in 1 s each, where half of that was reckoned.

    Starting one is reckoned as a second, two of them start in the time of one.
    """
    pace = ProcessPace(1.0)
    assert pace.seconds(0.5, started=4) == 3.0 and pace.seconds(0.5, started=0) == 0.5
    pace.note(3.0, 0.5, started=4)
    assert pace.seconds(0.5, started=4) == pytest.approx(3.0)
    pace.note(1.0, 0.5, started=0)
    assert pace.seconds(0.5, started=0) == 1.0
    assert pace.seconds(0.5, started=2, count=2) == pytest.approx(1.5 + 2.0)
    pace.note(1.3, 0.5, started=1)  # starts faster than was reckoned
    assert pace.seconds(0.5, started=1) == pytest.approx(1.3)
    pace.note(0.9, 0.5, started=1)  # faster than the last one compared: no time below none
    assert pace.seconds(0.5, started=1) == 1.0


@pytest.mark.parametrize(
    ("left_s", "started", "waiting", "processes"),
    [
        (20.0, 0, 2, 5),  # this one and two that wait, 6 s; two start in 6 s and take 4 s
        (15.9, 0, 2, 4),  # both start for the one there is time for
        (10.1, 2, 1, 2),  # both start in 6 s, and take 4 s
        (100.0, 2, 1, 8),  # no more are asked for
    ],
)
def test_processes_there_is_time_for_start_beside_each_other(
    left_s: float, started: int, waiting: int, processes: int
) -> None:
    pace = ProcessPace(4.0)
    found = pace.processes_in(left_s, 2.0, started=started, waiting=waiting, beside=2, most=8)
    assert found == processes
