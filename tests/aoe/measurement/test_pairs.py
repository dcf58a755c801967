"""Paired measurement: order, racing, stopping, and an interval that keeps its promise."""

from __future__ import annotations

import math
import random
from itertools import islice
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.fake_runner import FakeRunner

from aoe.measurement import (
    Measurement,
    MeasurePolicy,
    Outcome,
    PairedSamples,
    SpeedupEstimate,
    accepts,
    estimate_speedup,
    median_interval,
    run_pairs,
)
from aoe.measurement.pairs import wanted_samples


def make_runner(seed: int = 0, *, speedup: float = 1.0, **noise: float) -> FakeRunner:
    return FakeRunner(rng=random.Random(seed), baseline_us=100.0, tuned_us=100.0 / speedup, **noise)


def make_pairs(*ratios: float) -> PairedSamples:
    return PairedSamples(tuple(ratio * 10.0 for ratio in ratios), (10.0,) * len(ratios))


def make_estimate(low: float, *, pairs: int = 10, coverage: float = 0.95) -> SpeedupEstimate:
    return SpeedupEstimate(
        median=low + 0.1, low=low, high=low + 0.2, pairs=pairs, coverage=coverage
    )


QUIET = {"jitter": 0.0, "drift": 0.0, "spike_chance": 0.0}
FIXED_20 = MeasurePolicy(pairs_min=20, pairs_max=20, warmup=0)


# The interval of the median. Expected values: tables of the binomial distribution.


@pytest.mark.parametrize(
    ("count", "rank", "coverage"),
    [
        (1, 1, 0.0),
        (5, 1, 0.9375),
        (6, 1, 0.96875),
        (8, 1, 0.9921875),
        (9, 2, 0.9609375),
        (10, 2, 0.978515625),
        (20, 6, 0.95861),
        (100, 40, 0.96480),
    ],
)
def test_interval_matches_the_table(count: int, rank: int, coverage: float) -> None:
    assert median_interval(count, 0.95) == (rank, pytest.approx(coverage, abs=1e-5))


@given(st.integers(1, 200), st.floats(0.5, 0.999))
def test_interval_is_the_narrowest_that_covers(count: int, confidence: float) -> None:
    def covered(rank: int) -> float:
        return 1 - 2 * sum(math.comb(count, below) for below in range(rank)) / 2**count

    rank, coverage = median_interval(count, confidence)
    assert coverage == pytest.approx(covered(rank))
    assert coverage >= confidence or rank == 1
    assert 2 * (rank + 1) > count + 1 or covered(rank + 1) < confidence


def test_interval_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="needs samples"):
        median_interval(0)


def test_interval_covers_the_truth_as_often_as_it_says() -> None:
    runs = 400
    hits = 0
    for seed in range(runs):
        runner = make_runner(seed, speedup=1.2, jitter=0.03)
        estimate = estimate_speedup(run_pairs(runner.baseline, runner.tuned, FIXED_20))
        hits += estimate.low <= 1.2 <= estimate.high
    # Expected 0.9586 of 400; five standard deviations of that binomial below.
    assert hits / runs > 0.9586 - 5 * math.sqrt(0.9586 * 0.0414 / runs)
    assert hits < runs


def test_estimate_of_known_ratios() -> None:
    estimate = estimate_speedup(make_pairs(1.9, 1.1, 1.5, 1.3, 1.8, 1.4, 1.6, 1.2, 5.0, 1.7))
    assert estimate.median == pytest.approx(math.sqrt(1.5 * 1.6))  # the two in the middle
    assert (estimate.low, estimate.high) == (pytest.approx(1.2), pytest.approx(1.9))
    assert (estimate.pairs, estimate.coverage) == (10, 0.978515625)
    assert estimate.half_width == pytest.approx(0.7 / 2 / math.sqrt(1.5 * 1.6))


def test_few_pairs_give_their_range_and_admit_what_it_covers() -> None:
    estimate = estimate_speedup(make_pairs(1.2, 1.0, 1.1))
    assert (estimate.low, estimate.high) == (pytest.approx(1.0), pytest.approx(1.2))
    assert (estimate.pairs, estimate.coverage) == (3, 0.75)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=60))
def test_interval_encloses_the_median_and_lies_in_the_range(ratios: list[float]) -> None:
    estimate = estimate_speedup(make_pairs(*ratios))
    ordered = sorted(make_pairs(*ratios).ratios)
    assert ordered[0] <= estimate.low <= estimate.median <= estimate.high <= ordered[-1]


def test_swapping_the_sides_inverts_the_estimate() -> None:
    pairs = make_pairs(1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7)
    there = estimate_speedup(pairs)
    back = estimate_speedup(PairedSamples(pairs.tuned_us, pairs.baseline_us))
    assert back.median == pytest.approx(1 / there.median)
    assert (back.low, back.high) == (pytest.approx(1 / there.high), pytest.approx(1 / there.low))


def test_pairing_beats_the_ratio_of_medians_on_a_drifting_machine() -> None:
    paired, medians = [], []
    for seed in range(60):
        runner = make_runner(seed, drift=0.1)
        measured = run_pairs(runner.baseline, runner.tuned, FIXED_20)
        paired.append(abs(estimate_speedup(measured).median - 1))
        # The same samples without their partners: all of one side, then all of the other.
        runner = make_runner(seed, drift=0.1)
        first = median(runner.baseline() for _ in range(20))
        medians.append(abs(first / median(runner.tuned() for _ in range(20)) - 1))
    assert sum(paired) * 2 < sum(medians)


# The loop.


def test_pairs_run_in_abba_order_after_the_warm_up() -> None:
    runner = make_runner(**QUIET)
    policy = MeasurePolicy(pairs_min=4, pairs_max=4, warmup=2)
    run_pairs(runner.baseline, runner.tuned, policy)
    assert "".join(runner.calls) == "BABA" + "ABBAABBA"


def test_sides_nobody_can_call_are_asked_for_and_may_end_at_any_sample() -> None:
    asking = wanted_samples(MeasurePolicy(pairs_min=4, pairs_max=4, warmup=1))
    wanted, asked = next(asking), ""
    for _ in range(7):
        asked += "AB"[wanted.is_tuned]
        wanted = asking.send(10.0 if wanted.is_tuned else 20.0)
    assert asked == "BA" + "ABBAA"
    assert wanted.samples.ratios == (2.0, 2.0)


def test_samples_stay_with_their_side_whatever_the_order() -> None:
    runner = make_runner(speedup=2.0, **QUIET)
    samples = run_pairs(runner.baseline, runner.tuned, FIXED_20)
    assert set(samples.baseline_us) == {100.0}
    assert set(samples.tuned_us) == {50.0}
    assert set(samples.ratios) == {2.0}


def test_order_cancels_a_linear_drift() -> None:
    clock = iter(range(100, 1000))
    samples = run_pairs(lambda: next(clock), lambda: next(clock), FIXED_20)
    assert estimate_speedup(samples).median == pytest.approx(1.0, abs=0.001)


def test_a_quiet_machine_is_measured_with_the_fewest_pairs() -> None:
    runner = make_runner(**QUIET)
    for fewest, taken in ((10, 10), (9, 10)):  # as many pairs begin with one side as with the other
        policy = MeasurePolicy(pairs_min=fewest, pairs_max=40)
        assert len(run_pairs(runner.baseline, runner.tuned, policy).tuned_us) == taken


def test_order_within_pairs_cancels_though_it_decides_each_of_them() -> None:
    last = ["A"]

    def side(name: str) -> float:
        cold, last[0] = 10.0 * (last[0] != name), name
        return 100.0 + cold

    samples = run_pairs(
        lambda: side("A"), lambda: side("B"), MeasurePolicy(pairs_min=20, pairs_max=20)
    )
    assert estimate_speedup(samples).median == pytest.approx(1.0)


def test_a_noisy_machine_is_measured_with_the_most_pairs() -> None:
    runner = make_runner(jitter=0.5)
    policy = MeasurePolicy(pairs_min=7, pairs_max=25)
    assert len(run_pairs(runner.baseline, runner.tuned, policy).tuned_us) == 25


def test_too_few_pairs_for_the_confidence_never_settle() -> None:
    runner = make_runner(**QUIET)
    policy = MeasurePolicy(pairs_min=1, pairs_max=40, confidence=0.95)
    # the range of six would spend 3 % of the 5 % at the first look, that of eight 0.8 %
    assert len(run_pairs(runner.baseline, runner.tuned, policy).tuned_us) == 8


def test_an_obvious_winner_does_not_end_the_measurement_early() -> None:
    # Stopping because the interval excludes 1 would bias it.
    runner = make_runner(speedup=5.0, jitter=0.2)
    policy = MeasurePolicy(pairs_min=6, pairs_max=30)
    assert len(run_pairs(runner.baseline, runner.tuned, policy).tuned_us) == 30


def test_a_clear_loser_is_dropped_after_the_race_pairs() -> None:
    runner = make_runner(speedup=1.0, **QUIET)
    policy = MeasurePolicy(race_pairs=3, race_ratio=1.5)
    assert len(run_pairs(runner.baseline, runner.tuned, policy, best_ratio=1.6).tuned_us) == 3


def test_a_candidate_within_the_race_ratio_is_measured_in_full() -> None:
    runner = make_runner(speedup=1.0, **QUIET)
    policy = MeasurePolicy(race_pairs=3, race_ratio=1.5, pairs_min=10)
    assert len(run_pairs(runner.baseline, runner.tuned, policy, best_ratio=1.4).tuned_us) == 10


def test_a_candidate_that_never_reaches_the_best_is_dropped_early() -> None:
    policy = MeasurePolicy(race_ratio=9.0, lost_pairs=4, pairs_min=10)
    for speedup, pairs in ((1.0, 4), (1.19, 4), (1.21, 10)):
        runner = make_runner(speedup=speedup, **QUIET)
        taken = run_pairs(runner.baseline, runner.tuned, policy, best_ratio=1.2)
        assert len(taken.tuned_us) == pairs


def test_one_pair_as_fast_as_the_best_keeps_a_candidate_in_the_race() -> None:
    tuned = iter([100.0, 100.0, 80.0] + [100.0] * 40)
    policy = MeasurePolicy(warmup=0, lost_pairs=4, pairs_min=12)
    samples = run_pairs(lambda: 100.0, lambda: next(tuned), policy, best_ratio=1.2)
    assert len(samples.tuned_us) == 12


def test_nothing_is_raced_before_there_is_a_best() -> None:
    runner = make_runner(speedup=0.1, **QUIET)
    policy = MeasurePolicy(lost_pairs=2, pairs_min=10)
    assert len(run_pairs(runner.baseline, runner.tuned, policy).tuned_us) == 10


@pytest.mark.parametrize(("each_s", "pairs"), [(0.01, 30), (0.1, 10), (1.0, 6), (9.0, 6)])
def test_long_calls_are_measured_with_as_many_pairs_as_the_time_allows(
    each_s: float, pairs: int
) -> None:
    runner = make_runner(jitter=0.2)
    seconds = iter(number * each_s for number in range(100))
    policy = MeasurePolicy(pairs_min=20, pairs_max=30, enough_s=1.0)
    taken = run_pairs(runner.baseline, runner.tuned, policy, clock=lambda: next(seconds))
    assert len(taken.tuned_us) == pairs


def test_time_of_others_is_no_time_of_the_measurement() -> None:
    runner = make_runner(jitter=0.2)
    seconds = iter([0.0] + [0.5] * 6 + [100.5, 101.5] + [102.0] * 40)
    rests = iter([0.0, 0.0, 100.0] + [0.0] * 40)  # after two, four and six pairs
    policy = MeasurePolicy(pairs_min=20, pairs_max=30, enough_s=1.0)
    taken = run_pairs(
        runner.baseline,
        runner.tuned,
        policy,
        clock=lambda: next(seconds),
        rest=lambda: next(rests),
    )
    assert len(taken.tuned_us) == 8


def test_one_spike_does_not_lose_the_race() -> None:
    tuned = iter([900.0, 100.0, 100.0] + [100.0] * 40)
    policy = MeasurePolicy(warmup=0, pairs_min=12)
    samples = run_pairs(lambda: 100.0, lambda: next(tuned), policy, best_ratio=1.2)
    assert len(samples.tuned_us) == 12


def test_a_clock_that_stands_still_is_refused() -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        run_pairs(lambda: 1.0, lambda: 0.0, FIXED_20)


# Acceptance.


def test_acceptance_needs_the_lower_bound_above_the_threshold() -> None:
    assert accepts(make_estimate(1.031), 1.03)
    assert not accepts(make_estimate(1.03), 1.03)
    assert not accepts(make_estimate(0.99), 1.03)


def test_acceptance_needs_more_than_a_lucky_pair() -> None:
    assert not accepts(estimate_speedup(make_pairs(2.0)), 1.03)
    assert not accepts(estimate_speedup(make_pairs(2.0, 2.0, 2.0, 2.0)), 1.03)
    assert accepts(estimate_speedup(make_pairs(2.0, 2.0, 2.0, 2.0, 2.0)), 1.03)


def test_equal_kernels_are_rarely_accepted() -> None:
    accepted = 0
    for seed in range(200):
        runner = make_runner(seed, jitter=0.05)
        samples = run_pairs(runner.baseline, runner.tuned, MeasurePolicy())
        accepted += accepts(estimate_speedup(samples), 1.0)
    assert accepted / 200 < 0.025 + 3 * math.sqrt(0.025 * 0.975 / 200)


# Values.


@pytest.mark.parametrize(
    "wrong",
    [
        {"pairs_min": 0},
        {"pairs_min": 9, "pairs_max": 8},
        {"warmup": -1},
        {"race_pairs": 0},
        {"race_ratio": 1.0},
        {"lost_pairs": 0},
        {"enough_s": -1.0},
        {"confidence": 1.0},
        {"confidence": 0.0},
        {"target_half_width": -0.1},
        {"sample_min_us": -1.0},
        {"threads": 0},
        {"tries": 0},
        {"least_quiet": -0.1},
        {"least_quiet": 1.1},
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        MeasurePolicy(**wrong)  # type: ignore[arg-type]


def test_measurement_knows_its_medians() -> None:
    measurement = Measurement(
        outcome=Outcome.CORRECT, baseline_us=(10.0, 40.0, 12.0), tuned_us=(5.0, 10.0, 4.0)
    )
    assert measurement.is_correct
    assert (measurement.latency_us, measurement.baseline_latency_us) == (5.0, 12.0)
    assert measurement.ratios == (2.0, 4.0, 3.0)
    assert measurement.speedup == 3.0
    assert estimate_speedup(measurement).median == 3.0


def test_a_failure_has_a_reason_and_no_latency() -> None:
    measurement = Measurement.failure(Outcome.TIMEOUT, "took longer than 3 s")
    assert (measurement.outcome, measurement.detail) == ("timeout", "took longer than 3 s")
    assert not measurement.is_correct
    for name in ("latency_us", "baseline_latency_us", "speedup"):
        with pytest.raises(ValueError, match=name):
            getattr(measurement, name)


@pytest.mark.parametrize(
    ("baseline_us", "tuned_us"),
    [((1.0,), ()), ((), ()), ((0.0,), (1.0,)), ((1.0,), (-1.0,)), ((math.nan,), (1.0,))],
)
def test_a_correct_measurement_needs_whole_pairs_of_real_times(
    baseline_us: tuple[float, ...], tuned_us: tuple[float, ...]
) -> None:
    with pytest.raises(ValueError, match=r"samples|positive"):
        Measurement(outcome=Outcome.CORRECT, baseline_us=baseline_us, tuned_us=tuned_us)


def test_fake_runner_repeats_itself_from_its_seed() -> None:
    def draws(seed: int) -> list[float]:
        runner = make_runner(seed)
        return list(islice(iter(runner.tuned, None), 20))

    assert draws(3) == draws(3) != draws(4)
