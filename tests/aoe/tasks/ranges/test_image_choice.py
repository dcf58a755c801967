"""Which schedules a kernel for images has, given their speed at the points."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.measurement import SpeedupEstimate
from aoe.tasks.ranges.image_choice import PointWeight, choose_schedules, loses_at, switches

Table = dict[str, list[SpeedupEstimate]]


def _estimate(median: float, width: float = 1.01) -> SpeedupEstimate:
    return SpeedupEstimate(
        median=median, low=median / width, high=median * width, pairs=10, coverage=0.95
    )


def _points(count: int, *, weights: tuple[float, ...] = ()) -> list[PointWeight]:
    return [
        PointWeight(elements=100 * 4**at, count=weights[at] if weights else 1)
        for at in range(count)
    ]


@st.composite
def _tables(draw: st.DrawFn) -> tuple[Table, list[PointWeight]]:
    count = draw(st.integers(1, 5))
    speeds = st.floats(0.7, 2.0), st.floats(1.0, 1.2)
    one = st.builds(_estimate, *speeds)
    rows = st.lists(one, min_size=count, max_size=count)
    table = draw(st.dictionaries(st.sampled_from("abcd"), rows, min_size=1))
    sizes = sorted(draw(st.lists(st.integers(1, 9), min_size=count, max_size=count)))
    counts = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    pairs = zip(sizes, counts, strict=True)
    return table, [PointWeight(elements=size, count=calls) for size, calls in pairs]


def _score(table: Table, points: list[PointWeight], chosen: tuple[str, ...]) -> float:
    pairs = zip(chosen, points, strict=True)
    return sum(
        point.count * math.log(table[name][at].median) for at, (name, point) in enumerate(pairs)
    )


@given(_tables())
def test_no_point_loses_and_no_single_schedule_is_better(
    given_: tuple[Table, list[PointWeight]],
) -> None:
    table, points = given_
    chosen = choose_schedules(table, points)
    lossless = [name for name, row in table.items() if not any(map(loses_at, row))]
    if chosen is None:
        assert not lossless
        return
    assert not any(loses_at(table[name][at]) for at, name in enumerate(chosen))
    assert 1 + sum(one != other for one, other in pairwise(chosen)) <= 3
    for name in lossless:
        single = (name,) * len(points)
        assert _score(table, points, chosen) >= _score(table, points, single) - 1e-9


@given(_tables())
def test_kernel_has_the_schedule_chosen_for_each_point(
    given_: tuple[Table, list[PointWeight]],
) -> None:
    table, points = given_
    chosen = choose_schedules(table, points)
    if chosen is None:
        return
    found = switches(chosen, points)
    for name, point in zip(chosen, points, strict=True):
        assert found[max(least for least in found if least <= point.elements)] == name


def test_one_schedule_is_chosen_where_noise_hides_the_difference() -> None:
    table = {"a": [_estimate(1.3), _estimate(1.1)], "b": [_estimate(1.1), _estimate(1.2)]}
    assert choose_schedules(table, _points(2)) == ("a", "b")
    noisy = {name: [_estimate(one.median, 1.15) for one in row] for name, row in table.items()}
    assert choose_schedules(noisy, _points(2)) == ("a", "a")


def test_calls_weigh_points() -> None:
    table = {
        "a": [_estimate(1.3, 1.5), _estimate(1.1, 1.5)],
        "b": [_estimate(1.1, 1.5), _estimate(1.2, 1.5)],
    }
    assert choose_schedules(table, _points(2, weights=(1, 9))) == ("b", "b")
    assert choose_schedules(table, _points(2, weights=(9, 1))) == ("a", "a")


def test_schedule_that_loses_at_a_point_is_not_used_there() -> None:
    table = {"a": [_estimate(0.8), _estimate(2.0)], "b": [_estimate(1.0), _estimate(1.1)]}
    assert choose_schedules(table, _points(2)) == ("b", "a")
    assert choose_schedules({"a": table["a"]}, _points(2)) is None
    unsure = {"a": [_estimate(0.95, 1.1), _estimate(2.0)]}
    assert choose_schedules(unsure, _points(2)) == ("a", "a")


def test_points_of_as_many_elements_have_one_schedule() -> None:
    table = {"a": [_estimate(2.0), _estimate(1.1)], "b": [_estimate(1.1), _estimate(1.9)]}
    same = [PointWeight(elements=100, count=1)] * 2
    assert choose_schedules(table, same) == ("a", "a")
    assert switches("ab", same) == {0: "a"}


@pytest.mark.parametrize(
    ("schedules", "sizes", "expected"),
    [
        ("aab", (100, 200, 1800), {0: "a", 600: "b"}),
        ("aba", (10, 11, 12), {0: "a", 11: "b", 12: "a"}),
        ("abab", (1, 2, 3, 4), {}),
    ],
)
def test_switch_lies_between_points(
    schedules: str, sizes: tuple[int, ...], expected: dict[int, str]
) -> None:
    points = [PointWeight(elements=size, count=1) for size in sizes]
    assert switches(schedules, points) == expected
