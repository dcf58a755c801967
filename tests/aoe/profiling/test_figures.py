"""What follows from times and work: shares, losses, summaries, numbers of threads."""

from __future__ import annotations

import pytest
from support.engine.profiles import PEAK, make_operator_profile, make_profile

from aoe.profiling.figures import best_threads
from aoe.profiling.peak import BandwidthLevel, MachinePeak, NodeWork, OperatorBound


def test_lost_time_is_the_time_over_the_roofline() -> None:
    operator = make_operator_profile(median_us=100.0, roofline_us=40.0)
    assert operator.lost_us == 60.0
    assert operator.peak_share == 0.4
    assert operator.gflops_per_s == pytest.approx(0.4)
    assert operator.gbytes_per_s == pytest.approx(0.04)


def test_what_is_faster_than_its_definition_loses_nothing() -> None:
    operator = make_operator_profile(median_us=50.0, roofline_us=100.0)
    assert operator.lost_us == 0.0
    assert operator.peak_share == 2.0


def test_without_proven_shapes_only_the_time_is_known() -> None:
    operator = make_operator_profile(roofline_us=None)
    known = (operator.lost_us, operator.peak_share, operator.flops, operator.gbytes_per_s)
    assert known == (None, None, None, None)


def test_operators_come_by_lost_time_those_without_a_roofline_by_their_time() -> None:
    profile = make_profile(
        make_operator_profile("good", median_us=100.0, roofline_us=99.0),
        make_operator_profile("unknown", median_us=50.0, roofline_us=None),
        make_operator_profile("bad", median_us=90.0, roofline_us=10.0),
    )
    assert [operator.name for operator in profile.by_lost_time()] == ["bad", "unknown", "good"]
    assert profile.lost_us == 81.0


def test_kinds_are_what_the_user_s_nodes_are() -> None:
    fused = {"op_type": "com.microsoft.nchwc:Conv", "op_types": ("Conv", "Relu")}
    profile = make_profile(
        make_operator_profile("a", op_names=("c", "r"), median_us=10.0, roofline_us=4.0, **fused),
        make_operator_profile("b", op_names=("d", "s"), median_us=20.0, roofline_us=4.0, **fused),
        make_operator_profile("r", op_type="ReorderOutput", op_names=(), median_us=40.0),
    )
    reorder, convolution = profile.kinds()
    assert (reorder.kind, reorder.operators) == ("ReorderOutput", 1)
    assert (convolution.kind, convolution.operators) == ("Conv + Relu", 2)
    assert (convolution.median_us, convolution.lost_us) == (30.0, 22.0)
    assert convolution.flops == 8000


@pytest.mark.parametrize(
    ("times", "best"),
    [({}, None), ({2: 5.0}, None), ({1: 5.0, 2: 3.0}, 2), ({1: 3.0, 2: 3.0, 4: 3.0}, 1)],
)
def test_best_threads_are_the_fewest_of_the_fastest(
    times: dict[int, float], best: int | None
) -> None:
    assert best_threads(times) == best


# ---- the roofline ----


def test_weights_come_from_where_the_model_lies_activations_from_where_the_operator_s_do() -> None:
    work = NodeWork(flops=0, weight_bytes=10_000, activation_bytes=4_000)
    small = PEAK.least_time(work, model_bytes=14_000)
    large = PEAK.least_time(work, model_bytes=300 << 20)
    assert small.us == 14_000 / 400
    assert large.us == 10_000 / 50 + 4_000 / 400
    assert large.bound is OperatorBound.MEMORY


def test_least_time_is_the_longer_of_computing_and_moving() -> None:
    work = NodeWork(flops=1_000_000, weight_bytes=0, activation_bytes=4_000)
    least = PEAK.least_time(work, model_bytes=0)
    assert (least.us, least.bound) == (1000.0, OperatorBound.COMPUTE)


@pytest.mark.parametrize(
    ("working_bytes", "level"),
    [(0, "l2"), (2 << 20, "l2"), (8 << 20, "l3"), (100 << 20, "l3"), (1 << 30, "memory")],
)
def test_bandwidth_is_that_of_the_largest_probe_that_was_not_larger(
    working_bytes: int, level: str
) -> None:
    assert PEAK.level(working_bytes).name == level


@pytest.mark.parametrize(("sizes", "rate"), [((), 1.0), ((2, 1), 1.0), ((1, 1), 1.0), ((1,), 0.0)])
def test_peak_that_cannot_be_is_refused(sizes: tuple[int, ...], rate: float) -> None:
    levels = tuple(
        BandwidthLevel(name="l", working_bytes=size, bytes_per_us=rate) for size in sizes
    )
    with pytest.raises(ValueError, match=r"levels|rate"):
        MachinePeak(threads=1, flops_per_us=1.0, levels=levels)
