"""Intervals hold though measuring stops as soon as they are narrow, and among correlated pairs."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from aoe.measurement import (
    Look,
    Measurement,
    MeasurePolicy,
    Outcome,
    PairedSamples,
    SpeedupEstimate,
    estimate_speedup,
    joined,
    median_interval,
    planned_look,
    run_pairs,
    variance_ratio,
)

Logs = NDArray[np.float64]
STEPS = np.arange(10, 41, 2)
LOOKS = tuple(planned_look(int(pairs), 40) for pairs in STEPS[:-1])


def correlated(runs: int, correlation: float, deviation: float = 0.02) -> Logs:
    """Return logarithms of the ratios of 40 pairs, of a first-order autoregression."""
    noise = np.random.default_rng(7).normal(size=(40, runs))
    for before, now in pairwise(noise):
        now *= math.sqrt(1 - correlation**2)
        now += correlation * before
    return deviation * noise.T


def measured(ratios: list[float]) -> SpeedupEstimate:
    """Measure pairs of these ratios in ABBA order."""
    pair = 0
    sides = {False: 0, True: 0}

    def side(*, is_tuned: bool) -> float:
        nonlocal pair
        pair = sides[is_tuned]
        sides[is_tuned] += 1
        return 1 / ratios[pair] if is_tuned else 1.0

    policy = MeasurePolicy(warmup=0)
    return estimate_speedup(
        run_pairs(lambda: side(is_tuned=False), lambda: side(is_tuned=True), policy)
    )


def misses(ranks: list[int]) -> float:
    """Return how often the interval of any look misses the median, in 200,000 random walks."""
    signs = np.random.default_rng(1).integers(0, 2, size=(200_000, 40), dtype=np.int8)
    below = signs.cumsum(axis=1, dtype=np.int8)[:, STEPS - 1]
    return float(((below < ranks) | (STEPS - below < ranks)).any(axis=1).mean())


def test_intervals_of_all_looks_hold_together_as_often_as_they_say() -> None:
    found = [
        median_interval(int(pairs), 0.95, LOOKS[: number + 1]) for number, pairs in enumerate(STEPS)
    ]
    missed = misses([rank for rank, _ in found])
    assert missed == pytest.approx(1 - found[-1][1], abs=4 * math.sqrt(0.05 / 200_000))
    assert missed <= 0.05
    # intervals that hold at one look each, as if there were no others, miss at some of them
    assert misses([median_interval(int(pairs))[0] for pairs in STEPS]) > 0.1


def test_no_look_spends_more_than_its_share() -> None:
    for number, look in enumerate(LOOKS):
        _, coverage = median_interval(look.pairs, 0.95, LOOKS[: number + 1])
        assert 1 - coverage <= 0.05 * look.share + 1e-9


def test_looks_cost_an_interval_at_the_end_one_rank_at_most() -> None:
    for first, most in ((10, 40), (12, 24), (20, 60)):
        before = tuple(planned_look(pairs, most) for pairs in range(first, most, 2))
        assert median_interval(most)[0] - median_interval(most, 0.95, before)[0] <= 1


@pytest.mark.parametrize(
    ("correlation", "least"),  # fixed intervals of independent pairs: 94.5, 86.9 and 71.5 %
    [(0.0, 0.95), (0.3, 0.93), (0.6, 0.90)],
)
def test_interval_holds_where_its_width_ends_the_measurement(
    correlation: float, least: float
) -> None:
    found = [measured(np.exp(logs).tolist()) for logs in correlated(400, correlation)]
    assert np.mean([one.low <= 1 <= one.high for one in found]) >= least
    assert np.mean([one.low > 1 for one in found]) <= (1 - least) * 0.75
    assert len({one.pairs for one in found}) > 3  # the width has ended some of them early


def test_end_that_is_fixed_spends_all_there_is() -> None:
    assert median_interval(6) == median_interval(6, 0.95, ()) == (1, 0.96875)
    seconds = iter(range(100))
    policy = MeasurePolicy(pairs_min=20, pairs_max=30, enough_s=5.0)
    samples = run_pairs(lambda: 1.0, lambda: 1.0, policy, clock=lambda: float(next(seconds)))
    assert (len(samples.ratios), samples.looks) == (6, ())


def test_looks_are_kept_with_the_samples_they_were_at() -> None:
    samples = run_pairs(lambda: 2.0, lambda: 1.0, MeasurePolicy(pairs_min=6, pairs_max=16))
    assert [look.pairs for look in samples.looks] == [6, 8]
    for kept in (samples.by_wall_time, samples.swapped()):
        assert kept.looks == samples.looks
    marks = (True, False, True) + (False,) * 5
    fewer = samples._replace(disturbed=marks).undisturbed
    assert (len(fewer.ratios), [look.pairs for look in fewer.looks]) == (6, [4, 6])


def test_joined_measurements_spend_the_chance_of_error_once() -> None:
    half = Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=(1.0,) * 10,
        tuned_us=(1.0,) * 10,
        looks=(Look(8, 0.4), Look(10, 0.5)),
    )
    both = joined([half, half], Outcome.CORRECT, "")
    assert both.looks == (Look(8, 0.2), Look(10, 0.25), Look(18, 0.7), Look(20, 0.75))
    assert 1 - estimate_speedup(both).coverage <= 0.05 * 0.75


def test_correlation_of_neighbours_is_measured_by_ranks() -> None:
    slow = np.exp(correlated(200, 0.6)).tolist()
    quick = np.exp(correlated(200, 0.0)).tolist()
    assert np.mean([*map(variance_ratio, slow)]) > 2 > 1.3 > np.mean([*map(variance_ratio, quick)])
    spiked = [*slow[0][:20], 1e6, *slow[0][21:]]
    assert variance_ratio(spiked) == pytest.approx(variance_ratio(slow[0]), rel=0.35)


def test_alternating_equal_and_few_pairs_are_not_correlated() -> None:
    assert variance_ratio([1.0, 1.2] * 10) == 1
    assert variance_ratio([1.0] * 20) == 1
    assert variance_ratio([1.0, 1.1, 1.2, 1.3, 1.4, 1.5]) == 1


def test_interval_of_pairs_that_drift_is_wider_and_admits_what_it_covers() -> None:
    drifting = tuple(100.0 + pair for pair in range(12))
    mixed = drifting[::2] + drifting[1::2][::-1]
    flat = (100.0,) * 12
    apart, mixed_up = (
        estimate_speedup(PairedSamples(one, flat))
        for one in (drifting, tuple(np.random.default_rng(0).permutation(mixed).tolist()))
    )
    assert apart.half_width > mixed_up.half_width
    assert apart.coverage < 0.95 <= mixed_up.coverage


def test_many_pairs_are_looked_at_less_often_and_joined_with_others() -> None:
    noise = np.exp(np.random.default_rng(3).normal(0, 0.2, 400)).tolist()
    ratios = iter(noise)
    policy = MeasurePolicy(pairs_min=20, pairs_max=400, warmup=0, target_half_width=0.001)
    samples = run_pairs(lambda: 1.0, lambda: next(ratios), policy)
    assert len(samples.looks) < 70
    once = Measurement(
        outcome=Outcome.CORRECT,
        baseline_us=samples.baseline_us,
        tuned_us=samples.tuned_us,
        looks=samples.looks,
    )
    estimate = estimate_speedup(joined([once] * 3, Outcome.CORRECT, ""))
    assert estimate.pairs == 1200 and 0.95 <= estimate.coverage < 1
