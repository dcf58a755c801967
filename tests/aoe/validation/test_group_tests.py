"""Which kernels slow a model down is found by leaving groups of them out.

The noise is that of a shared machine: samples that drift and jitter, and sessions whose memory
lies better or worse. True times are known, so that wrong decisions can be counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.engine.validating import ValidatedModel, model_of
from support.tiers import few_every_day

from aoe.errors import RunError
from aoe.execute.messages import ModelPart
from aoe.measurement import Measurement, Outcome, Scatter
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tuner.policies import final_policy, variant_policy
from aoe.validation.comparing import TimeIsUpError
from aoe.validation.group_tests import MOST_COMPARISONS, GroupTests, Saving


def _tests(case: ValidatedModel) -> int:
    """Return how many group tests a judgement took."""
    return len(case.runner.asked("compare_models")) - case.runner.restarts


# ---- without noise to speak of ----


@pytest.mark.parametrize("harmful", range(20))
def test_one_among_twenty_takes_about_log_n_tests(harmful: int) -> None:
    saves = [0.005] * 20
    saves[harmful] = -0.03
    case = model_of(*saves, promised=[0.005] * 20)
    assert case.numbers(case.judged().kept) == [n for n in range(20) if n != harmful]
    # the whole, two halves, one test a level below, twice the culprit
    assert _tests(case) <= 3 + 4 + 2


def test_several_harmful_kernels_are_all_dropped() -> None:
    case = model_of(0.3, -0.05, 0.2, -0.06, 0.1, -0.04, promised=[0.3, 0.03, 0.2, 0.03, 0.1, 0.03])
    assert case.numbers(case.judged().kept) == [0, 2, 4]


@pytest.mark.parametrize("streams", [1, 4])
def test_whole_that_keeps_its_promise_is_not_taken_apart(streams: int) -> None:
    """A kernel promises a part of one call, of which several streams make several at a time."""
    case = model_of(*[0.05] * 10, streams=streams)
    assert len(case.judged().kept) == 10
    assert _tests(case) == 1


def test_proven_kernels_need_not_keep_their_promise() -> None:
    """Four that promise more than they bring are taken apart, unless a model has kept them."""
    promised = [0.05] * 5
    case = model_of(*[0.03] * 4, 0.05, promised=promised)
    assert len(case.judged().kept) == 5
    assert _tests(case) > 1
    case = model_of(*[0.03] * 4, 0.05, promised=promised)
    assert len(case.judged(proven=range(4)).kept) == 5
    assert _tests(case) == 1


def test_proven_kernels_that_lose_are_dropped_all_the_same() -> None:
    case = model_of(0.1, -0.2, 0.1, promised=[0.1] * 3)
    found = case.judged(proven=range(3))
    assert case.numbers(found.kept) == [0, 2]


def test_single_kernel_is_left_to_the_last_comparison() -> None:
    case = model_of(0.05)
    assert len(case.judged().kept) == 1
    assert _tests(case) == 0


def test_kernel_that_makes_no_difference_stays() -> None:
    case = model_of(0.2, 0.0, promised=(0.2, 0.02))
    assert case.numbers(case.judged().kept) == [0, 1]


def test_gain_smaller_than_promised_is_a_gain() -> None:
    case = model_of(*[0.03] * 8, promised=[0.05] * 8)
    assert len(case.judged().kept) == 8


def test_kernels_that_lose_only_together_go_together() -> None:
    """Each needs the reorder the other has paid for: without one of them nothing is saved."""
    case = model_of(
        *[0.05, 0.05, 0.01, 0.01],
        promised=[0.05, 0.05, 0.04, 0.04],
        cost=lambda held: 0.05 if held & {2, 3} else 0.0,
    )
    assert case.numbers(case.judged().kept) == [0, 1]


def test_kernels_that_win_only_together_stay() -> None:
    case = model_of(
        *[0.05, 0.05, 0.03, 0.03],
        promised=[0.05, 0.05, 0.03, 0.03],
        cost=lambda held: 0.04 if held & {2, 3} else 0.0,
    )
    assert case.numbers(case.judged().kept) == [0, 1, 2, 3]


def test_slower_unoptimised_graph_is_blamed_on_no_kernel() -> None:
    """Any kernel at all costs 3 %, as where ONNX Runtime's written graph is the slower one."""
    case = model_of(*[0.02] * 8, cost=lambda held: 0.03 if held else 0.0)
    assert len(case.judged().kept) == 8


def test_group_that_cannot_be_compared_is_kept_for_the_end() -> None:
    case = model_of(0.1, -0.1, promised=(0.1, 0.1))
    scripted = case.runner.model

    def dies_without(baseline: ModelPart, tuned: ModelPart) -> float | Outcome | RunError:
        lonely = str(baseline.model) == "variant_without.onnx"
        return RunError("compare_models", "died") if lonely else scripted(baseline, tuned)

    case.runner.model = dies_without
    found = case.judged()
    (reason,) = {*found.dropped.values()}
    assert reason.startswith("the whole model is not proven faster with it: ")


# ---- with what the graph and profiles of the model say ----


def _costs_until_both_go(held: frozenset[int]) -> float:
    """Return the cost of a reorder that either of two kernels needs."""
    return 0.06 if held & {0, 7} else 0.0


def test_neighbours_that_lose_only_together_are_left_out_together() -> None:
    saves = (*([0.01] * 7), 0.02)
    alone = model_of(*saves, cost=_costs_until_both_go)
    assert {0, 7} <= set(alone.numbers(alone.judged().kept))  # each is free beside the other
    case = model_of(*saves, cost=_costs_until_both_go, groups=[[0, 7]])
    assert case.numbers(case.judged().kept) == [1, 2, 3, 4, 5, 6]


def test_chain_of_neighbours_is_halved_along_the_graph() -> None:
    """All are connected; the two that lose together may be on both sides of a cut."""
    for order in ([3, 0, 7, 5, 1, 6, 2, 4], [0, 7, 3, 5, 1, 6, 2, 4], [3, 5, 1, 0, 7, 6, 2, 4]):
        case = model_of(*([0.01] * 7), 0.02, cost=_costs_until_both_go, groups=[order])
        assert case.numbers(case.judged().kept) == [1, 2, 3, 4, 5, 6]
        assert _tests(case) <= 12


def test_promise_of_kernels_is_what_they_save_in_the_model() -> None:
    promised = [0.05] * 5
    case = model_of(*[0.02] * 5, promised=promised)
    assert len(case.judged().kept) == 5
    assert _tests(case) > 1
    in_model = dict.fromkeys(range(5), 0.019)
    case = model_of(*[0.02] * 5, promised=promised, in_model=in_model)
    assert len(case.judged().kept) == 5
    assert _tests(case) == 1


def test_profile_that_promises_more_than_a_kernel_has_proven_is_not_believed() -> None:
    saves = [0.05, -0.05, 0.05, 0.05]
    case = model_of(*saves, promised=[0.05] * 4, in_model=dict.fromkeys(range(4), 0.2))
    assert case.numbers(case.judged().kept) == [0, 2, 3]


def test_kernels_that_lose_by_profiles_are_compared_first_and_the_reason_is_kept() -> None:
    saves = [0.005] * 20
    saves[3] = saves[16] = -0.03
    found = {n: (-0.03 if n in (3, 16) else 0.005) for n in range(20)}
    case = model_of(*saves, promised=[0.005] * 20, in_model=found, losses=[3, 16])
    result = case.judged()
    assert case.numbers(result.kept) == [n for n in range(20) if n not in (3, 16)]
    assert _tests(case) == 4  # with all, without the two twice, with the rest
    assert all(
        reason.endswith("without it: its neighbours take longer")
        for reason in result.dropped.values()
    )
    assert len(result.dropped) == 2


def test_kernel_that_is_left_behind_others_is_left_to_the_last_comparison() -> None:
    found = {0: 0.1, 1: -0.05}
    case = model_of(0.05, -0.05, promised=[0.1, 0.1], in_model=found, losses=[1])
    assert case.numbers(case.judged().kept) == [0]
    # all of them, then twice without the one that loses
    assert _tests(case) == 3


def test_kernels_that_only_profiles_call_slow_stay() -> None:
    case = model_of(*[0.02] * 6, losses=[2, 4])
    assert len(case.judged().kept) == 6


# ---- with little time ----


@pytest.mark.parametrize("limit_s", [0.0, 3.0, 9.0, 30.0, math.inf])
def test_comparisons_leave_time_for_the_last_one(limit_s: float) -> None:
    """A comparison takes a second, the last one three; no test begins that would cut it short."""
    case = model_of(*[0.005] * 19, -0.05, promised=[0.005] * 20)
    spent_s = [0.0]

    def without(kept: Sequence[ChosenKernel], group: Sequence[ChosenKernel]) -> Measurement:
        spent_s[0] += 1.0
        return case.comparer.without(kept, group)

    tests = GroupTests(
        case.kernels,
        without,
        case.steps.append,
        left_s=lambda: max(0.0, limit_s - spent_s[0]),
        following_comparisons=3,
    )
    tests.run()
    assert spent_s[0] <= max(limit_s - 3, 0.0) + 1  # how long one takes is known after the first
    if limit_s == math.inf:
        assert len(tests.kept) == 19
    elif limit_s <= 3:
        assert len(tests.kept) == 20


# ---- what follows ----


def test_rest_of_a_group_is_known_less_exactly_than_what_was_measured() -> None:
    whole, part = Saving(middle=0.1, half_width=0.03), Saving(middle=0.04, half_width=0.04)
    rest = whole.less(part)
    assert (rest.middle, rest.half_width) == (pytest.approx(0.06), pytest.approx(0.05))
    assert not rest.measured


@pytest.mark.parametrize(
    ("middle", "measured", "doubtful"),
    [(0.06, False, True), (0.06, True, False), (0.02, False, False), (0.09, False, False)],
)
def test_only_what_follows_can_be_in_doubt(middle: float, measured: bool, doubtful: bool) -> None:
    saving = Saving(middle=middle, half_width=0.05, measured=measured)
    assert saving.is_doubtful(0.1) is doubtful


# ---- with noise ----


@dataclass
class Tally:
    """Decisions of many judgements on one kind of model."""

    accepted: int = 0  # Judgements that keep any kernel
    false_drops: int = 0  # Kernels that save time and were left out
    false_keeps: int = 0  # Kernels that cost time and stay
    covered: int = 0  # Intervals that hold the true speed-up, of those accepted
    tests: int = 0  # Largest number of group tests
    errors: list[float] = field(default_factory=list)


def _many(
    runs: int,
    saves: Sequence[float],
    promised: Sequence[float],
    *,
    placing: float = 0.004,
    jitter: float = 0.01,
    cost: Callable[[frozenset[int]], float] = lambda held: 0.0,
    **prior_result: Any,
) -> Tally:
    tally = Tally()
    for seed in range(runs):
        case = model_of(
            *saves,
            promised=promised,
            cost=cost,
            jitter=jitter,
            drift=0.02,
            placing=placing,
            seed=seed,
            screen=variant_policy(2),
            final=final_policy(2),
        )
        found = case.judged(**prior_result)
        kept = set(case.numbers(found.kept))
        tally.tests = max(tally.tests, _tests(case))
        if not kept:
            continue
        truth = case.true_speedup(found.kept)
        tally.accepted += 1
        tally.false_drops += sum(n not in kept for n, saved in enumerate(saves) if saved > 0)
        tally.false_keeps += sum(saves[n] < 0 for n in kept)
        tally.covered += found.estimate.low <= truth <= found.estimate.high
        tally.errors.append(found.estimate.median / truth - 1)
    return tally


def test_twenty_kernels_of_half_a_percent_are_all_kept() -> None:
    tally = _many(40, [0.005] * 20, [0.005] * 20)
    assert tally.accepted == 40
    assert tally.false_drops == 0


def test_twenty_kernels_that_promised_more_are_all_kept() -> None:
    tally = _many(40, [0.005] * 20, [0.008] * 20)
    assert tally.accepted == 40
    assert tally.false_drops <= 4  # of 800


@pytest.mark.parametrize("harmful", [0, 7, 19])
def test_one_bad_kernel_among_twenty_is_found_in_noise(harmful: int) -> None:
    saves = [0.005] * 20
    saves[harmful] = -0.05
    tally = _many(30, saves, [0.005] * 20)
    assert tally.accepted == 30
    assert tally.false_keeps <= 2
    assert tally.false_drops <= 6  # of 570
    assert tally.tests <= 16


def test_printed_gain_is_no_winner_s_curse() -> None:
    """Intervals of 95 % hold the truth at that rate, and their middle is no larger than it."""
    tally = _many(100, [0.01] * 6 + [-0.02], [0.012] * 7)
    assert tally.accepted == 100
    assert tally.covered >= 88
    assert abs(sum(tally.errors) / 100) < 0.001


def test_reorders_shared_by_neighbours_do_not_mislead() -> None:
    tally = _many(
        *(30, [0.02] * 8, [0.02] * 8),
        cost=lambda held: 0.02 * bool(held & {2, 3}) + 0.01 * bool(held & {5, 6, 7}),
    )
    assert tally.accepted == 30
    assert tally.false_drops <= 3  # of 240


@pytest.mark.parametrize(("placing", "jitter"), few_every_day([(0.001, 0.005), (0.01, 0.03)]))
def test_model_that_is_no_faster_is_hardly_ever_accepted(placing: float, jitter: float) -> None:
    tally = _many(150, [0.0] * 4, [0.01] * 4, placing=placing, jitter=jitter)
    assert tally.accepted <= 3
    assert tally.tests <= MOST_COMPARISONS


_BELIEVED: dict[str, Any] = {
    "believed": (0, 1, 2),
    "proven": (0, 1, 2),
    "scatter": Scatter(deviation=0.004, processes=3),
}
"""What an earlier model says whose processes lay close together."""


@pytest.mark.slow
def test_believing_kernels_that_save_nothing_here_accepts_hardly_any_model() -> None:
    tally = _many(150, [0.0] * 4, [0.01] * 4, placing=0.01, jitter=0.03, **_BELIEVED)
    assert tally.accepted <= 3


def test_believed_kernels_that_gain_take_a_test_and_a_few_processes() -> None:
    tally = _many(40, [0.03] * 4, [0.04] * 4, **_BELIEVED)
    assert tally.accepted == 40
    assert tally.false_drops == 0
    assert tally.tests <= 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior_result", "runs"), [({}, 500), (_BELIEVED, 1000)], ids=["nothing known", "believed"]
)
def test_rate_of_false_accepts_is_below_one_percent(
    prior_result: dict[str, Any], runs: int
) -> None:
    assert _many(runs, [0.0] * 4, [0.01] * 4, **prior_result).accepted < runs / 100


@pytest.mark.slow
def test_rate_of_false_accepts_where_processes_scatter_and_the_whole_is_proven_first() -> None:
    known = {**_BELIEVED, "scatter": Scatter(deviation=0.01, processes=3), "kept_share": 0.8}
    assert _many(1000, [0.0] * 4, [0.01] * 4, placing=0.02, **known).accepted < 10


@pytest.mark.slow
def test_rate_of_false_accepts_of_kernels_that_lose_in_this_model() -> None:
    """What slows the model down is found by a second look, which may not find a gain."""
    saves = [0.0, 0.0, -0.02, 0.0]
    assert _many(500, saves, [0.01] * 4, **_BELIEVED).accepted < 5


def test_whole_there_is_no_time_for_is_not_called_wrong() -> None:
    kernels = model_of(0.1, 0.1).kernels

    def late(kept: Sequence[Any], group: Sequence[Any]) -> Measurement:
        raise TimeIsUpError

    for left_s in (0.0, 100.0):
        tests = GroupTests(
            kernels, late, lambda text: None, left_s=lambda s=left_s: s, comparison_s=1.0
        )
        with pytest.raises(TimeIsUpError):
            tests.are_wrong()
        tests.run()
        assert tests.kept == tuple(kernels)
