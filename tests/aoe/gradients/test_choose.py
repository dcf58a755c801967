"""Candidates: the optimum first, each once, no more than asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import make_gradient_trace

from aoe.gradients.choose import Origin, choose_candidates, cost_behind
from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import finish_us, from_bucket_caps, optimal

COST = AllReduceCost(latency_us=120, us_per_byte=2e-3)
TRACE = make_gradient_trace([(number * 7919) % 300_000 for number in range(60)])


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=40),
    st.floats(0, 5000),
    st.floats(0, 0.05),
    st.integers(1, 12),
)
def test_candidates_are_bounded_distinct_and_start_with_the_optimum(
    sizes: list[int], latency_us: float, us_per_byte: float, limit: int
) -> None:
    trace = make_gradient_trace(sizes)
    cost = AllReduceCost(latency_us=latency_us, us_per_byte=us_per_byte)
    found = choose_candidates(trace, cost, limit=limit)
    assert 1 <= len(found) <= limit
    assert len({candidate.segmentation for candidate in found}) == len(found)
    assert found[0].segmentation == optimal(trace, cost)
    assert found[0].origin is Origin.OPTIMUM
    least = found[0].predicted_us
    for candidate in found:
        assert candidate.segmentation.ends[-1] == len(trace)
        assert candidate.predicted_us == finish_us(trace, candidate.segmentation, cost)
        assert candidate.predicted_us >= least * (1 - 1e-9)


def test_what_is_measured_anyway_is_no_candidate() -> None:
    default = from_bucket_caps(TRACE.sizes_bytes)
    best = optimal(TRACE, COST)
    found = choose_candidates(TRACE, COST, exclude=[default, best])
    assert not {default, best} & {candidate.segmentation for candidate in found}


def test_inflated_costs_bring_fewer_all_reduces() -> None:
    found = choose_candidates(TRACE, COST, limit=20)
    latency = [
        len(candidate.segmentation) for candidate in found if candidate.origin is Origin.LATENCY
    ]
    assert latency
    assert max(latency) < len(found[0].segmentation)


def test_neighbours_come_last_joined_split_and_moved_in_turn() -> None:
    found = choose_candidates(TRACE, COST, limit=20)
    origins = [candidate.origin for candidate in found]
    start = origins.index(Origin.NEIGHBOUR)
    assert set(origins[start:]) == {Origin.NEIGHBOUR}
    steps = [
        len(candidate.segmentation) - len(found[0].segmentation) for candidate in found[start:]
    ]
    assert steps[:3] == [-1, 1, 0]


@pytest.mark.parametrize("step", [-1, 1, 0])
def test_neighbours_of_a_kind_come_best_prediction_first(step: int) -> None:
    found = choose_candidates(TRACE, COST, limit=40)
    predicted = [
        candidate.predicted_us
        for candidate in found
        if candidate.origin is Origin.NEIGHBOUR
        and len(candidate.segmentation) - len(found[0].segmentation) == step
    ]
    assert len(predicted) > 3
    assert predicted == sorted(predicted)
    assert predicted[0] < predicted[-1]


def test_limit_on_segments_holds_for_all() -> None:
    found = choose_candidates(TRACE, COST, limit=20, max_segments=3)
    assert len(found) > 3
    assert all(len(candidate.segmentation) <= 3 for candidate in found)


def test_each_candidate_is_optimal_for_the_cost_behind_it() -> None:
    for candidate in choose_candidates(TRACE, COST, limit=20):
        if candidate.origin is not Origin.NEIGHBOUR:
            behind = cost_behind(COST, candidate.origin, candidate.inflation)
            assert candidate.segmentation == optimal(TRACE, behind)


def test_cost_behind_latency_adds_and_others_multiply() -> None:
    assert cost_behind(COST, Origin.LATENCY, 3).cost_us(1000) == pytest.approx(3 * 120 + 2)
    assert cost_behind(COST, Origin.INFLATED, 3).cost_us(1000) == pytest.approx(3 * 122)


def test_single_gradient_has_one_candidate() -> None:
    assert len(choose_candidates(make_gradient_trace([4]), COST)) == 1
