"""What an interval lets expect beyond what it proves."""

from __future__ import annotations

import random

import pytest

from aoe.measurement import expected_gain


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
