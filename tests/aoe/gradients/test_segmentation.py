"""Segmentations: the optimum beats everything, the rules of others are theirs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import COSTS, LINES, is_no_worse, make_gradient_trace, traces

from aoe.gradients.cost import AllReduceCost, CostModel, InflatedCost
from aoe.gradients.segmentation import (
    Segmentation,
    finish_us,
    from_bucket_caps,
    neighbours,
    optimal,
)
from aoe.gradients.timeline import simulate
from aoe.gradients.trace import GradientTrace

MIB = 1 << 20
LINE = AllReduceCost(latency_us=50, us_per_byte=1e-3)


def every(count: int) -> Iterator[Segmentation]:
    for cuts in range(count):
        for chosen in combinations(range(1, count), cuts):
            yield Segmentation(ends=(*chosen, count))


@given(traces(most=8), COSTS)
def test_optimum_equals_brute_force(trace: GradientTrace, cost: CostModel) -> None:
    found = finish_us(trace, optimal(trace, cost), cost)
    least = min(finish_us(trace, segmentation, cost) for segmentation in every(len(trace)))
    assert found == pytest.approx(least, rel=1e-9, abs=1e-9)


@given(traces(most=7), COSTS, st.integers(1, 8))
def test_limited_optimum_equals_brute_force(
    trace: GradientTrace, cost: CostModel, limit: int
) -> None:
    found = optimal(trace, cost, max_segments=limit)
    assert len(found) <= limit
    allowed = [segmentation for segmentation in every(len(trace)) if len(segmentation) <= limit]
    least = min(finish_us(trace, segmentation, cost) for segmentation in allowed)
    assert finish_us(trace, found, cost) == pytest.approx(least, rel=1e-9, abs=1e-9)


@given(traces(most=40), COSTS, st.integers(1, 10**6), st.integers(1, 10**6))
def test_optimum_is_no_worse_than_any_rule(
    trace: GradientTrace, cost: CostModel, first: int, cap: int
) -> None:
    best = optimal(trace, cost)
    rules = [
        from_bucket_caps(trace.sizes_bytes),
        from_bucket_caps(trace.sizes_bytes, first, cap),
        *neighbours(best, len(trace)),
    ]
    assert all(is_no_worse(trace, best, other, cost) for other in rules)


@given(traces(most=30), COSTS, st.floats(0, 1e6))
def test_shifting_all_times_changes_nothing(
    trace: GradientTrace, cost: CostModel, shift: float
) -> None:
    later = make_gradient_trace(trace.sizes_bytes, [time_us + shift for time_us in trace.ready_us])
    best, shifted = optimal(trace, cost), optimal(later, cost)
    assert finish_us(later, best, cost) == pytest.approx(finish_us(later, shifted, cost))


def test_without_latency_each_gradient_goes_alone_where_that_helps() -> None:
    trace = make_gradient_trace([1000] * 5)
    best = optimal(trace, AllReduceCost(latency_us=0, us_per_byte=0.05))
    assert finish_us(trace, best, AllReduceCost(latency_us=0, us_per_byte=0.05)) == 550


def test_without_time_per_byte_one_all_reduce_is_enough() -> None:
    trace = make_gradient_trace([1000] * 5)
    assert optimal(trace, AllReduceCost(latency_us=1e4, us_per_byte=0)).ends == (5,)


def test_of_equal_ones_the_shortest_is_taken() -> None:
    # all ready at once and no latency: any grouping ends at the same time
    trace = make_gradient_trace([1024] * 6, [10.0] * 6)
    assert optimal(trace, AllReduceCost(latency_us=0, us_per_byte=0.5)).ends == (6,)


def test_one_gradient_and_empty_gradients_work() -> None:
    assert optimal(make_gradient_trace([4]), LINE).ends == (1,)
    assert optimal(make_gradient_trace([0, 0, 0]), LINE).ends == (3,)


def test_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="max_segments"):
        optimal(make_gradient_trace([4]), LINE, max_segments=0)


@pytest.mark.parametrize("ends", [(), (0,), (2, 2), (3, 1), (-1, 4)])
def test_odd_segmentations_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ends must increase"):
        Segmentation(ends=ends)


def test_ranges_cover_everything_once() -> None:
    assert Segmentation(ends=(2, 3, 7)).ranges == ((0, 2), (2, 3), (3, 7))


@pytest.mark.parametrize(
    ("sizes", "ends"),
    [
        ([MIB, 25 * MIB, 1], (1, 2, 3)),
        ([MIB - 4, 4, 24 * MIB, MIB], (2, 4)),
        ([100 * MIB], (1,)),
        ([1, 2, 3], (3,)),
        ([MIB // 2] * 60, (2, 52, 60)),
        ([0, 2 * MIB, 0], (2, 3)),
    ],
)
def test_buckets_close_as_in_ddp(sizes: list[int], ends: tuple[int, ...]) -> None:
    assert from_bucket_caps(sizes).ends == ends


def test_buckets_equal_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    import torch.distributed as dist

    sizes = [(index * 7919) % 90_000 + 1 for index in range(120)]
    tensors = [torch.empty(size, dtype=torch.uint8) for size in sizes]
    groups, _ = attrgetter("_compute_bucket_assignment_by_size")(dist)(tensors, [50_000, 400_000])
    ends = tuple(group[-1] + 1 for group in groups)
    assert from_bucket_caps(sizes, 50_000, 400_000).ends == ends


@given(st.integers(1, 7), st.data())
def test_neighbours_are_one_step_away_and_all_different(count: int, data: st.DataObject) -> None:
    start = data.draw(st.sampled_from(list(every(count))))
    found = list(neighbours(start, count))
    cuts = set(start.ends[:-1])
    assert len(set(found)) == len(found)
    assert start not in found
    for segmentation in found:
        others = set(segmentation.ends[:-1])
        gone, come = cuts - others, others - cuts
        assert segmentation.ends[-1] == count
        assert (len(gone), len(come)) in {(1, 0), (0, 1), (1, 1)}
        if gone and come:
            assert abs(gone.pop() - come.pop()) == 1
    expected = {
        segmentation
        for segmentation in every(count)
        if len(cuts ^ set(segmentation.ends[:-1])) == 1
    }
    assert expected <= set(found)


@given(traces(most=20), LINES)
def test_optimum_of_an_inflated_cost_is_its_own(trace: GradientTrace, cost: AllReduceCost) -> None:
    inflated = InflatedCost(base=cost, factor=2, extra_us=10)
    direct = AllReduceCost(latency_us=2 * cost.latency_us + 10, us_per_byte=2 * cost.us_per_byte)
    assert finish_us(trace, optimal(trace, inflated), direct) == pytest.approx(
        finish_us(trace, optimal(trace, direct), direct)
    )


def test_two_thousand_gradients_are_no_problem() -> None:
    trace = make_gradient_trace([(number * 7919) % 10**6 for number in range(2000)])
    best = optimal(trace, LINE)
    assert is_no_worse(trace, best, from_bucket_caps(trace.sizes_bytes), LINE)
    assert simulate(trace, best, LINE).segments[-1].end_us == pytest.approx(
        finish_us(trace, best, LINE)
    )
