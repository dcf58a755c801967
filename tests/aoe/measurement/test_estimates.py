"""Estimates: what an interval lets expect beyond what it proves, means, and scatter."""

from __future__ import annotations

import math
import random

import pytest

from aoe.measurement import Scatter, SpeedupEstimate, expected_gain, mean_estimate


@pytest.mark.parametrize(
    ("low", "high", "threshold"), [(0.95, 1.15, 1.03), (0.99, 1.05, 1.01), (0.8, 1.05, 1.03)]
)
def test_expected_gain_is_that_of_many_true_values(
    low: float, high: float, threshold: float
) -> None:
    rng, deviation = random.Random(5), (high - low) / (2 * 1.96)
    true = [rng.gauss((low + high) / 2, deviation) for _ in range(40_000)]
    average = sum(max(0.0, one - 1) for one in true if one > threshold) / len(true)
    assert expected_gain(low, high, threshold) == pytest.approx(average, rel=0.05)


def test_more_is_to_be_expected_of_what_is_wider_or_faster() -> None:
    narrow, wide = expected_gain(1.0, 1.02, 1.03), expected_gain(0.9, 1.12, 1.03)
    assert 0 <= narrow < wide < expected_gain(1.0, 1.22, 1.03)


@pytest.mark.parametrize(("exact", "expected"), [(1.02, 0.0), (1.1, 0.1)])
def test_interval_without_width_leaves_nothing_to_expect(exact: float, expected: float) -> None:
    assert expected_gain(exact, exact, 1.03) == pytest.approx(expected)


def test_two_comparisons_are_pooled_by_their_degrees_of_freedom() -> None:
    known = Scatter.of([0.10, 0.12, 0.14])
    assert (known.deviation, known.processes) == (pytest.approx(0.02), 3)
    both = known.pooled([0.5, 0.5])  # another mean is no scatter
    assert both.deviation == pytest.approx(math.sqrt(2 * 0.02**2 / 3))
    assert both.processes == 4  # three degrees of freedom


@pytest.mark.parametrize(
    ("deviation", "processes"), [(0.01, 1), (-0.01, 5), (math.nan, 5), (math.inf, 5)]
)
def test_what_says_nothing_is_refused(deviation: float, processes: int) -> None:
    with pytest.raises(ValueError, match="no scatter"):
        Scatter(deviation=deviation, processes=processes)


def _estimate(median: float, width: float) -> SpeedupEstimate:
    low, high = median / width, median * width
    return SpeedupEstimate(median=median, low=low, high=high, pairs=10, coverage=0.95)


def test_mean_is_geometric_and_weighted_by_calls() -> None:
    found = mean_estimate([_estimate(1.0, 1.1), _estimate(2.0, 1.1)], [1, 1])
    assert found.median == pytest.approx(2**0.5)
    assert mean_estimate(
        [_estimate(1.0, 1.1), _estimate(2.0, 1.1)], [3, 1]
    ).median == pytest.approx(2**0.25)


def test_mean_of_more_points_is_known_better() -> None:
    one, four = (mean_estimate([_estimate(1.2, 1.1)] * count, [1] * count) for count in (1, 4))
    assert one.high / one.median == pytest.approx(1.1)
    assert four.high / four.median == pytest.approx(1.1**0.5)
    assert (four.pairs, four.coverage) == (40, 0.95)


def test_point_with_all_calls_decides_alone() -> None:
    found = mean_estimate([_estimate(0.5, 1.5), _estimate(1.3, 1.05)], [0.0001, 1e6])
    assert found.median == pytest.approx(1.3)
    assert found.low == pytest.approx(1.3 / 1.05)
