"""The cost of a ring, and the greedy rule the optimum is compared with."""

from __future__ import annotations

import pytest
from gdat_simulation import by_percent, ge_greedy, hccl_default, ring_cost
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import COSTS, is_no_worse, make_gradient_trace, traces

from aoe.gradients.cost import AllReduceCost, CostModel
from aoe.gradients.segmentation import finish_us, optimal
from aoe.gradients.trace import GradientTrace


def test_ring_of_two_sends_the_volume_once_and_one_worker_nothing() -> None:
    two = ring_cost(step_us=5, bytes_per_us=100, workers=2)
    assert (two.latency_us, two.us_per_byte) == (10, 0.01)
    alone = ring_cost(step_us=5, bytes_per_us=100, workers=1)
    assert (alone.latency_us, alone.us_per_byte) == (0, 0)


@pytest.mark.parametrize(
    ("bytes_per_us", "workers", "named"), [(0, 4, "bytes_per_us"), (1, 0, "workers")]
)
def test_ring_without_bandwidth_or_workers_is_refused(
    bytes_per_us: float, workers: int, named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        ring_cost(step_us=1, bytes_per_us=bytes_per_us, workers=workers)


@given(traces(most=40), COSTS)
def test_greedy_is_no_better_than_the_optimum_of_as_many(
    trace: GradientTrace, cost: CostModel
) -> None:
    greedy = ge_greedy(trace, cost)
    assert len(greedy) <= 8
    assert is_no_worse(trace, optimal(trace, cost, max_segments=8), greedy, cost)


def test_greedy_falls_back_to_the_default_split() -> None:
    # one all-reduce is best, which the rule does not take for an answer
    trace = make_gradient_trace([10] * 100, [float(number) for number in range(100)])
    cost = AllReduceCost(latency_us=1e6, us_per_byte=1e-9)
    assert ge_greedy(trace, cost) == hccl_default(trace.sizes_bytes)


def test_greedy_rule_by_hand() -> None:
    # after a first segment of one gradient (15 to send, 5 to start) the next closes where it
    # computed for more than 20, and the one after that takes the rest: done at 95
    trace = make_gradient_trace([10] * 6, [10, 20, 30, 40, 50, 60])
    cost = AllReduceCost(latency_us=5, us_per_byte=1)
    assert ge_greedy(trace, cost).ends == (1, 3, 6)
    assert finish_us(trace, ge_greedy(trace, cost), cost) == 95


def test_greedy_closes_a_segment_that_got_too_large() -> None:
    trace = make_gradient_trace([100] * 6)
    greedy = ge_greedy(trace, AllReduceCost(latency_us=1, us_per_byte=2), most_bytes=200)
    sizes = [end - start for start, end in greedy.ranges]
    assert max(sizes) <= 2


@given(st.lists(st.integers(0, 10**8), min_size=2, max_size=50).filter(any))
def test_percents_cut_at_the_nearest_gradient(sizes: list[int]) -> None:
    cut = by_percent(sizes, (50, 50)).ends
    halves = [abs(sum(sizes[:place]) - sum(sizes) / 2) for place in range(1, len(sizes))]
    assert halves[cut[0] - 1] == min(halves)


def test_hccl_leaves_the_last_few_percent() -> None:
    assert hccl_default([9654, 346]).ends == (1, 2)
    assert hccl_default([10]).ends == (1,)
    assert hccl_default([50, 50]).ends == (1, 2)
    assert hccl_default([1] * 100).ends == (97, 100)
