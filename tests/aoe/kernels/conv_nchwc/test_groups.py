"""Convolutions in groups of channels, down to one filter for each channel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version

import numpy as np
import pytest
from support.contracts.kernels import (
    SEED,
    CompiledKernel,
    KernelFamilyTests,
    block_size,
    blocked,
    guessed_schedules,
    kernel_target,
    operation,
    plain,
    run_baseline,
)
from support.engine.convolutions import BLOCK, SILU, chained, convolution, depthwise, in_groups

from aoe.graph.workload_model import random_inputs
from aoe.kernels.conv_nchwc.direct import FINISHED
from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.chain import RESULT
from aoe.schedule import ComputeAt
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Precision, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
_SCALE: Mapping[str, AttributeValue] = {"kernel_shape": (1, 1), "group": 2 * BLOCK}
RESIDUAL = operation("Add", "t0 x3", "t1")


def _hard_swish() -> Mapping[str, Workload]:
    """Return the activation ONNX Runtime fuses from 1.31 on, where it is that new."""
    known = tuple(int(part) for part in version("onnxruntime").split(".")[:2])
    if known < (1, 31):
        return {}
    return {"HardSwish": depthwise(convolution((5, 7), activation="HardSwish"))}


class TestGrouped(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "a block in a group": in_groups(convolution((7, 9), blocks=(3, 3), activation="Relu"), 3),
        "two blocks read, one written": in_groups(
            convolution((6, 5), blocks=(4, 2), strides=(2, 1), batch=2, bias=False), 2
        ),
        "one read, two written, chain": chained(
            in_groups(convolution((5, 8), blocks=(2, 4), kernel=(2, 1), pads=(1, 0, 0, 0)), 2),
            *SILU,
        ),
    }
    refused = (
        (in_groups(convolution((4, 4), blocks=(2, 2)), 4), "no whole blocks"),
        (in_groups(convolution((4, 4), blocks=(1, 2)), BLOCK), "several filters for each channel"),
        (
            replace(convolution((4, 4)), operations=in_groups(convolution((4, 4)), 2).operations),
            f"Conv in 2 groups of {BLOCK} channels",
        ),
    )


@pytest.mark.skipif(BLOCK % 2 != 0, reason="bfloat16 comes in pairs of channels")
class TestGroupedInBfloat16(KernelFamilyTests):
    family_name = "convolution"
    cases: Mapping[str, Workload] = {
        "two blocks in a group": replace(
            in_groups(convolution((7, 9), blocks=(4, 4), dilations=(2, 1), pads=(2, 1, 2, 1)), 2),
            precision=Precision.BFLOAT16,
        ),
    }

    @property
    def target(self) -> KernelTarget:
        """A CPU without matrix tiles, which do not compute groups."""
        return replace(kernel_target(), bf16_tiles=False)


class TestDepthwise(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        "prime image": depthwise(convolution((7, 13), blocks=(3, 3), activation="Relu")),
        "stride 2, 5x5, batch of 2": depthwise(
            convolution((11, 14), kernel=(5, 5), pads=(2, 2, 2, 2), strides=(2, 2), batch=2)
        ),
        "uneven padding, dilated, no bias": depthwise(
            convolution((9, 6), kernel=(3, 2), dilations=(2, 3), pads=(2, 0, 3, 4), bias=False)
        ),
        "no padding, stride beyond the filter": depthwise(
            convolution((8, 11), kernel=(2, 1), strides=(3, 2), pads=(0, 0, 0, 0))
        ),
        "7x7 of a small image": depthwise(
            convolution((3, 2), kernel=(7, 7), pads=(3, 3, 3, 3), blocks=(2, 2))
        ),
        "heavy chain": chained(
            depthwise(convolution((6, 15))),
            operation("Gelu", "t0", "t1"),
        ),
        "stride 2, 3x3, chain": chained(
            depthwise(convolution((9, 13), blocks=(2, 2), strides=(2, 2))), *SILU
        ),
        "GELU, BatchNormalization, residual": chained(
            depthwise(convolution((7, 12), blocks=(2, 2), kernel=(5, 5), pads=(2, 2, 2, 2))),
            operation("Gelu", "t0", "t1"),
            operation("Conv", "t1 x3 x4 x0", "t2", domain=NCHWC_DOMAIN, **_SCALE),
            reads=(plain(2 * BLOCK, 1, 1, 1, constant=True), plain(2 * BLOCK, constant=True)),
        ),
        "residual": chained(
            depthwise(convolution((5, 9))), RESIDUAL, reads=(blocked(1, BLOCK, 5, 9),)
        ),
        **_hard_swish(),
        "strict": replace(
            depthwise(convolution((4, 4), added=True)), precision=Precision.STRICT_FLOAT32
        ),
    }
    refused = (
        (
            replace(depthwise(convolution((6, 6))), precision=Precision.BFLOAT16),
            "one product for each value",
        ),
    )


def _exactly(x: np.ndarray, weights: np.ndarray, *, padding: int) -> np.ndarray:
    """Return the depthwise convolution of one image in float64, blocked in and out."""
    _, channels, height, width = x.shape
    image = x.astype(np.float64).reshape(channels // BLOCK, height, width, BLOCK)
    image = np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows, columns = weights.shape[2:]
    filters = weights.astype(np.float64).reshape(channels // BLOCK, rows, columns, BLOCK)
    windows = np.lib.stride_tricks.sliding_window_view(image, (rows, columns), axis=(1, 2))
    return np.einsum("bhwcij,bijc->bhwc", windows, filters).reshape(x.shape)


@pytest.mark.slow
def test_depthwise_sums_are_as_exact_as_those_of_onnx_runtime() -> None:
    workload = depthwise(convolution((14, 14), kernel=(5, 5), pads=(2, 2, 2, 2), bias=False))
    run = run_baseline(workload, random_inputs(workload, SEED))
    exact = _exactly(run.inputs["x0"], run.inputs["x1"], padding=2)
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        assert np.abs(found - exact).max() < 1e-6 * np.abs(exact).max()


def test_special_values_of_a_channel_stay_in_it() -> None:
    workload = depthwise(convolution((5, 6), blocks=(2, 2), bias=False))
    feed = dict(random_inputs(workload, SEED))
    feed["x0"] = feed["x0"].copy()
    flat = feed["x0"].reshape(-1)
    flat[[0, 7, 101, 333]] = [np.nan, np.inf, -np.inf, 1e-42]
    run = run_baseline(workload, feed)
    found = CompiledKernel(workload, guessed_schedules(workload)[0]).run(run.inputs)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(run.result))
    np.testing.assert_array_equal(np.isposinf(found), np.isposinf(run.result))
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(run.result))


@pytest.mark.parametrize("stride, side, is_copied", [(1, 3, False), (2, 3, False), (2, 5, True)])
def test_image_is_copied_only_for_large_filters(stride: int, side: int, is_copied: bool) -> None:
    workload = depthwise(
        convolution((14, 14), strides=(stride, stride), kernel=(side, side), pads=(side // 2,) * 4)
    )
    for schedule in guessed_schedules(workload):
        assert any(step.stage == "padded" for step in schedule.steps) == is_copied


@pytest.mark.parametrize(
    ("side", "kernel", "tile"), [(32, 7, (8, 1)), (28, 5, (14, 1)), (14, 3, (14, 1))]
)
def test_large_filters_have_sums_enough_in_the_16_registers_of_avx2(
    side: int, kernel: int, tile: tuple[int, int]
) -> None:
    """A vector unit takes two products a cycle and four cycles for each: eight sums at least."""
    pads = (kernel // 2,) * 4
    known = depthwise(convolution((side, side), blocks=(2, 2), kernel=(kernel, kernel), pads=pads))
    target = KernelTarget(vector_lanes=8, threads=1)
    best = Convolution().space(known, target).first_guesses[0]
    assert (best["across"], best["down"]) == tile


def test_depthwise_tiles_of_stride_2_keep_their_pixels_in_the_32_registers_of_avx512() -> None:
    """Tiles of 14 and of 28 columns would read each pixel again for each value of the filter."""
    known = depthwise(convolution((56, 56), blocks=(2, 2), strides=(2, 2)))
    space = Convolution().space(known, KernelTarget(vector_lanes=16, threads=1))
    assert max(int(one["across"]) for one in space.configurations()) == 7


def test_long_chain_walks_whole_rows_of_a_depthwise_convolution() -> None:
    """Inside the loop of the tiles its constants would take the registers of the sums."""
    known = chained(depthwise(convolution((9, 13), blocks=(2, 2))), *SILU)
    assert ComputeAt(FINISHED, RESULT, "h") in guessed_schedules(known)[0].steps
