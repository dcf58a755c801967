"""The mean gain over a range."""

from __future__ import annotations

import pytest

from aoe.measurement import SpeedupEstimate, mean_estimate


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
