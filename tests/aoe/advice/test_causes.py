"""Each cause on an operator that has it, and none on one that is as good as the machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.contracts.small_models import SmallModel
from support.engine.fakes import make_target
from support.engine.profiles import make_operator_profile, make_profile

from aoe.advice.causes import (
    Cause,
    ConvChannels,
    LowPerformer,
    find_channels,
    find_low_performers,
    find_without_kernel,
)
from aoe.device.registry import default_device
from aoe.graph.fusing import StopReason
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrite import inline_kernels
from aoe.ort.static_shapes import infer_tensors
from aoe.profiling.figures import FusionLimit, OperatorProfile
from aoe.profiling.peak import NodeWork, OperatorBound


def _low(
    *operators: OperatorProfile,
    without_kernel: dict[str, str] | None = None,
    channels: dict[str, ConvChannels] | None = None,
    **members: Any,
) -> tuple[LowPerformer, ...]:
    return find_low_performers(
        replace(make_profile(*operators), **members),
        make_target(),
        block=16,
        without_kernel=without_kernel or {},
        channels=channels or {},
    )


def _causes(low: LowPerformer) -> list[Cause]:
    return [found.cause for found in low.causes]


def test_what_is_near_the_machine_s_best_is_no_low_performer() -> None:
    assert _low(make_operator_profile(median_us=100.0, roofline_us=70.0)) == ()


def test_what_loses_most_comes_first_and_little_is_left_out() -> None:
    low = _low(
        make_operator_profile("a", median_us=500.0, roofline_us=100.0),
        make_operator_profile("b", median_us=900.0, roofline_us=100.0),
        make_operator_profile("c", median_us=2.0, roofline_us=0.1),
    )
    assert [one.operator.name for one in low] == ["b", "a"]
    assert low[0].room_us == 800.0


def test_reorder_and_what_reads_it_are_told() -> None:
    conv = make_operator_profile("conv", reads=("r",))
    reorder = make_operator_profile("r", op_type="ReorderInput", op_names=())
    low = {one.operator.name: one for one in _low(reorder, conv)}
    assert low["conv"].causes[0].detail == "1 around it take 100.0 us"
    assert _causes(low["r"])[0] is Cause.REORDERS
    assert not low["r"].has_kernel
    assert low["conv"].has_kernel


@pytest.mark.parametrize(
    ("channels", "cause"), [(3, Cause.SMALL_CHANNELS), (20, Cause.UNALIGNED), (32, None)]
)
def test_channels_are_held_against_the_block(channels: int, cause: Cause | None) -> None:
    asked = ConvChannels(read=32, made=channels)
    (low,) = _low(make_operator_profile("conv"), channels={"conv": asked})
    assert _causes(low) == ([] if cause is None else [cause])


def test_channels_are_those_of_the_user_s_model() -> None:
    small = SmallModel()
    x = small.conv(small.input(1, 3, 8, 8), 3, 20)
    model = small.model(small.conv(x, 20, 20, 3, group=20))
    assert find_channels(model) == {
        "Conv_0": ConvChannels(read=3, made=20),
        "Conv_1": ConvChannels(read=20, made=20, groups=20),
    }


@pytest.mark.parametrize(
    ("asked", "room_us"),
    [
        (ConvChannels(read=8, made=12), 100.0 - 76.0 * 8 / 16 * 12 / 16),
        (ConvChannels(read=12, made=12, groups=12), 100.0 - 76.0 * 12 / 16),
        (ConvChannels(read=16, made=16), None),
        (ConvChannels(read=32, made=8), None),  # of another tensor
    ],
)
def test_what_fills_the_last_block_is_lost_however_fast(
    asked: ConvChannels, room_us: float | None
) -> None:
    operator = make_operator_profile("conv", roofline_us=76.0)
    low = _low(operator, channels={"conv": asked})
    assert [one.room_us for one in low] == ([] if room_us is None else [pytest.approx(room_us)])


def test_products_are_held_against_the_vector() -> None:
    (low,) = _low(make_operator_profile("m", op_type="MatMul", output_shape=(4, 63)))
    assert low.causes[0].detail == "an extent of 63 is no multiple of 8"


def test_operator_without_a_kernel_says_why() -> None:
    (low,) = _low(make_operator_profile("n"), without_kernel={"n": "no family"})
    assert _causes(low) == [Cause.NO_KERNEL]
    assert not low.has_kernel
    (kernel,) = _low(make_operator_profile("n", op_type="aoe:k"), without_kernel={"n": "no"})
    assert _causes(kernel) == []


def test_threads_that_do_not_pay_are_told() -> None:
    (low,) = _low(make_operator_profile(us_by_threads={1: 50.0, 2: 100.0}))
    assert _causes(low) == [Cause.THREADS]
    (equal,) = _low(make_operator_profile(us_by_threads={1: 98.0, 2: 100.0}))
    assert _causes(equal) == []


@pytest.mark.parametrize(
    ("size", "causes"), [(4096, [Cause.MEMORY]), (3 << 20, [Cause.MEMORY, Cause.CACHE])]
)
def test_moving_operands_and_caches_are_told(size: int, causes: list[Cause]) -> None:
    work = NodeWork(flops=1, weight_bytes=0, activation_bytes=size)
    (low,) = _low(make_operator_profile(work=work, bound=OperatorBound.MEMORY))
    assert _causes(low) == causes


@pytest.mark.parametrize(("runs_as", "causes"), [(2, [Cause.NOT_FUSED]), (1, [])])
def test_operator_outside_a_fusion_is_told(runs_as: int, causes: list[Cause]) -> None:
    limit = FusionLimit(
        fusion_class="conv_elementwise",
        op_names=("conv", "relu"),
        op_types=("Conv", "Relu"),
        through_cache="",
        stop=StopReason.OPERATOR,
        stopped_at="",
        stopped_type="",
        without_limits=2,
        runs_as=runs_as,
        goes_on_here=False,
        median_us=1.0,
    )
    (low,) = _low(make_operator_profile("conv"), fusion=(limit,))
    assert _causes(low) == causes


def test_operators_no_family_computes_are_found_in_a_graph() -> None:
    small = SmallModel()
    kept = small.op("Relu", small.input(64, 64))
    model = small.model(small.op("NonZero", kept))
    inlined = inline_kernels(model)
    tensors = infer_tensors(inlined.proto, default_device().open_session)
    found = find_without_kernel(ModelGraph(inlined.proto, tensors, block=16), inlined)
    assert list(found) == ["NonZero_1"]
    assert found["NonZero_1"]


def test_what_reads_constants_alone_is_told_first() -> None:
    first, second = find_low_performers(
        make_profile(make_operator_profile("loop"), make_operator_profile("relu")),
        make_target(),
        block=16,
        without_kernel={"loop": "no family"},
        channels={},
        recomputed=frozenset({"loop"}),
    )
    assert _causes(first) == [Cause.CONSTANT, Cause.NO_KERNEL]
    assert _causes(second) == []
