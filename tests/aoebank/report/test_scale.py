"""Axes of charts: every value has a place inside, marks are round and few."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aoebank import Scale


@given(st.floats(1e-6, 1e15), st.floats(-1e15, 1e15))
def test_values_beyond_an_end_stand_there(high: float, value: float) -> None:
    scale = Scale(low=0, high=high, start=112, end=1048)
    assert 112 <= scale.at(value) <= 1048
    assert scale.at(0) == 112
    assert scale.at(high) == 1048


@given(st.floats(1e-6, 1e15))
def test_marks_of_a_linear_axis_are_round_and_few(high: float) -> None:
    ticks = [*Scale(low=0, high=high, start=0, end=100).ticks()]
    assert 4 <= len(ticks) <= 9
    assert ticks[0] == 0
    assert ticks[-1] <= high
    assert f"{ticks[1]:e}"[0] in "125"


def test_logarithmic_axis_may_run_upwards() -> None:
    scale = Scale(low=0.1, high=100, start=376, end=16, is_log=True)
    assert [scale.at(value) for value in (0.01, 0.1, 1, 100, 1e9)] == [376, 376, 256, 16, 16]
    assert [*scale.ticks()] == [0.1, 1, 10, 100]
