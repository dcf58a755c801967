"""Timelines: nothing is lost, nothing overlaps, nothing starts before it is ready."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.gradients import make_gradient_trace

from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.timeline import SegmentTime, Timeline, simulate

COST = AllReduceCost(latency_us=10, us_per_byte=1)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 500)), min_size=1, max_size=30),
    st.floats(0, 1e4),
    st.floats(0, 1e-2),
    st.data(),
)
def test_bytes_and_order_are_kept(
    gradients: list[tuple[int, float]], latency_us: float, us_per_byte: float, data: st.DataObject
) -> None:
    ready, now = [], 0.0
    for _, gap in gradients:
        now += gap
        ready.append(now)
    trace = make_gradient_trace([size for size, _ in gradients], ready)
    cuts = data.draw(st.sets(st.integers(1, len(gradients) - 1))) if len(gradients) > 1 else set()
    segmentation = Segmentation(ends=(*sorted(cuts), len(gradients)))
    cost = AllReduceCost(latency_us=latency_us, us_per_byte=us_per_byte)
    timeline = simulate(trace, segmentation, cost)
    assert sum(segment.bytes for segment in timeline.segments) == trace.total_bytes
    assert sum(segment.gradients for segment in timeline.segments) == len(trace)
    previous = 0.0
    for segment in timeline.segments:
        assert segment.start_us >= segment.ready_us
        assert segment.start_us >= previous
        assert segment.end_us - segment.start_us == pytest.approx(cost.cost_us(segment.bytes))
        previous = segment.end_us
    assert 0 <= timeline.overlap_ratio <= 1
    exposed = timeline.communication_us * (1 - timeline.overlap_ratio)
    assert timeline.tail_us >= exposed - 1e-6 * (1 + exposed)


def test_tail_and_overlap_by_hand() -> None:
    trace = make_gradient_trace([10, 20, 5], [10.0, 20.0, 40.0])
    timeline = simulate(trace, Segmentation(ends=(1, 3)), COST)
    first, second = timeline.segments
    assert (first.start_us, first.end_us) == (10, 30)
    assert (second.ready_us, second.start_us, second.end_us) == (40, 40, 75)
    assert (timeline.tail_us, timeline.end_us) == (35, 75)
    assert timeline.overlap_ratio == pytest.approx(20 / 55)


def test_communication_that_ends_before_backward_has_no_tail() -> None:
    segment = SegmentTime(gradients=1, bytes=1, ready_us=0, start_us=0, end_us=5)
    timeline = Timeline(segments=(segment,), backward_end_us=9)
    assert (timeline.tail_us, timeline.overlap_ratio) == (0, 1)


def test_no_communication_is_all_hidden() -> None:
    assert Timeline(segments=(), backward_end_us=9).overlap_ratio == 1
    assert Timeline(segments=(), backward_end_us=9).tail_us == 0


def test_segmentation_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="of 2 gradients, not 3"):
        simulate(make_gradient_trace([1, 2, 3]), Segmentation(ends=(2,)), COST)
