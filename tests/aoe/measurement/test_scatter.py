"""What is known of how far processes lie apart."""

from __future__ import annotations

import math

import pytest

from aoe.measurement import Scatter


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
