"""The direct algorithms: any filter, stride, dilation and padding, in float32 and in bfloat16."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

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
from support.engine.convolutions import BLOCK, SILU, chained, convolution, exactly, stem

from aoe.graph.workload_model import random_inputs
from aoe.kernels.algorithms import precision_of
from aoe.kernels.conv_nchwc.direct import is_thinned, met_taps
from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.conv_nchwc.normal_form import blocked_image
from aoe.kernels.conv_nchwc.shape import ConvolutionShape, read_convolution
from aoe.kernels.family import KernelTarget, supported
from aoe.schedule import Unroll
from aoe.workload import Layout, Precision, TensorSpec, Workload

pytestmark = pytest.mark.skipif(not block_size(), reason="this CPU has no blocked layout")
POINT = {"kernel": (1, 1), "pads": (0, 0, 0, 0)}
SHAPES: Mapping[str, Workload] = {
    "1x1, prime image": convolution((7, 13), blocks=(3, 2), **POINT),
    "1x1, stride beyond the filter": convolution((8, 11), strides=(3, 2), **POINT),
    "1x1, one pixel": convolution((1, 1), blocks=(2, 4), **POINT),
    "3x3, stride 2, batch of 2": convolution((9, 14), batch=2, strides=(2, 2), added=True),
    "5x2, uneven padding": convolution((6, 9), kernel=(5, 2), pads=(2, 0, 1, 3), blocks=(1, 2)),
    "3x3, dilated": convolution((11, 10), dilations=(2, 3), pads=(2, 3, 2, 3), bias=False),
    "7x7 of a small image": convolution((3, 5), kernel=(7, 7), pads=(3, 3, 3, 3)),
    "1x3 of one row": convolution((1, 29), kernel=(1, 3), pads=(0, 1, 0, 1), blocks=(2, 2)),
    "3x3, dilated beyond the image": convolution(
        (9, 5), dilations=(11, 3), pads=(11, 3, 11, 3), blocks=(2, 2)
    ),
    "3x3, dilated, stride 2": convolution(
        (8, 9), dilations=(9, 9), pads=(9, 9, 9, 9), strides=(2, 2), blocks=(1, 2)
    ),
}


STEM = stem(
    convolution((17, 12), kernel=(7, 7), strides=(2, 2), pads=(3, 3, 3, 3), blocks=(1, 2)), 3
)


class TestDirect(KernelFamilyTests):
    family_name = "convolution"
    share = 1.0
    cases: Mapping[str, Workload] = {
        **{label: chained(known, *SILU) for label, known in list(SHAPES.items())[::2]},
        "stem": chained(STEM, *SILU),
        "stem of one channel": chained(
            stem(convolution((9, 20), pads=(0, 0, 0, 0), batch=2), 1), *SILU
        ),
        "light chain": chained(SHAPES["1x1, prime image"], operation("Neg", "t0", "t1")),
        "1x1, rows of another length": chained(
            convolution((24, 32), batch=2, blocks=(2, 2), added=True, **POINT),
            operation("Mul", "t0 x4", "t1"),
            operation("Add", "t1 x5", "t2"),
            reads=(blocked(2, 2 * BLOCK, 24, 32), blocked(1, 2 * BLOCK, 24, 32)),
        ),
        "strict": replace(
            chained(convolution((6, 7)), operation("Neg", "t0", "t1")),
            precision=Precision.STRICT_FLOAT32,
        ),
    }
    refused = (
        (chained(stem(convolution((6, 6)), BLOCK), *SILU), "plain tensor"),
        (convolution((7, 13), blocks=(3, 4), **POINT), "gains nothing"),
        (convolution((7, 9), blocks=(3, 2), **POINT), "gains nothing"),
        (convolution((16, 16), blocks=(3, 2), strides=(2, 2), **POINT), "gains nothing"),
    )


@pytest.mark.skipif(BLOCK % 2 != 0, reason="bfloat16 comes in pairs of channels")
class TestDirectInBfloat16(KernelFamilyTests):
    family_name = "convolution"
    cases: Mapping[str, Workload] = {
        label: replace(known, precision=Precision.BFLOAT16)
        for label, known in {
            **dict(list(SHAPES.items())[1::2]),
            "stem": STEM,
            "stem, even filter": stem(
                convolution((6, 9), kernel=(3, 4), pads=(1, 1, 1, 2)), BLOCK - 4
            ),
            "GELU": chained(convolution((6, 6)), operation("Gelu", "t0", "t1")),
            "residual": chained(
                convolution((5, 9)),
                operation("Add", "t0 x3", "t1"),
                reads=(blocked(1, BLOCK, 5, 9),),
            ),
        }.items()
    }
    refused = (
        (
            replace(stem(convolution((9, 9), dilations=(1, 2)), 3), precision=Precision.BFLOAT16),
            "no pairs",
        ),
    )

    @property
    def target(self) -> KernelTarget:
        """A CPU without matrix tiles: with them the family offers nothing else."""
        return replace(kernel_target(), bf16_tiles=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "bound"),
    [(Precision.STRICT_FLOAT32, 3e-6), (Precision.BFLOAT16, 5e-3)],
)
def test_sums_of_many_channels_stay_within_the_bound(precision: Precision, bound: float) -> None:
    """The error against float64 is a share of the largest result."""
    workload = chained(convolution((14, 14), blocks=(256 // BLOCK, 2), bias=False))
    if not precision.is_lower:
        workload = chained(workload, operation("Neg", "t0", "t1"))
    workload = replace(workload, precision=precision)
    run = run_baseline(workload, random_inputs(workload, SEED))
    exact = exactly(workload, run.inputs) * (1 if precision.is_lower else -1)
    for schedule in guessed_schedules(workload):
        assert precision_of(schedule.algorithm) is precision
        found = CompiledKernel(workload, schedule).run(run.inputs)
        assert np.abs(found - exact).max() / np.abs(exact).max() < bound


def test_special_values_come_out_where_onnx_runtime_has_them() -> None:
    workload = chained(convolution((9, 8), blocks=(2, 1)), operation("Neg", "t0", "t1"))
    workload = replace(workload, precision=Precision.STRICT_FLOAT32)
    feed = dict(random_inputs(workload, SEED))
    image = feed["x0"].copy()
    for at, value in enumerate((np.nan, np.inf, -np.inf)):
        image.reshape(-1)[at * 451] = value
    run = run_baseline(workload, {"x0": image})
    for schedule in guessed_schedules(workload):
        found = CompiledKernel(workload, schedule).run(run.inputs)
        finite = np.isfinite(run.result)
        assert not finite.all()
        np.testing.assert_array_equal(found[~finite], run.result[~finite])
        assert np.isfinite(found[finite]).all()


def test_register_tile_is_the_largest_that_stays_in_registers() -> None:
    workload = chained(convolution((38, 168), blocks=(4, 4), **POINT), *SILU)
    target = KernelTarget(vector_lanes=16, threads=1)
    best = Convolution().space(workload, target).first_guesses[0]
    assert (best["blocks"], best["across"], best["down"]) == (2, 14, 1)


def _pointwise(block: int, channels: int, image: tuple[int, int]) -> Workload:
    """Return a convolution of 64 channels to some others, in blocks of any CPU."""
    read, made = (
        TensorSpec(shape=(1, n, *image), layout=Layout.BLOCKED, block=block) for n in (64, channels)
    )
    filters = plain(channels, 64, 1, 1, constant=True)
    return replace(convolution(image, bias=False, **POINT), inputs=(read, filters), output=made)


@pytest.mark.parametrize(
    ("block", "channels", "image", "is_taken"),
    [
        (8, 16, (112, 112), True),
        (8, 24, (14, 14), True),
        (8, 40, (28, 28), True),
        (8, 64, (28, 28), False),
        (8, 24, (7, 7), False),
        (16, 48, (28, 28), False),
    ],
)
def test_pointwise_convolution_alone_is_taken_where_the_host_has_blocks_left_over(
    block: int, channels: int, image: tuple[int, int], is_taken: bool
) -> None:
    workload = _pointwise(block, channels, image)
    assert bool(Convolution().supports(workload)) is is_taken


@pytest.mark.parametrize(
    ("channels", "tile"), [(64, (2, 6)), (24, (3, 4)), (72, (3, 4)), (40, (5, 2)), (56, (1, 11))]
)
def test_tiles_of_avx2_fill_its_16_registers(channels: int, tile: tuple[int, int]) -> None:
    workload = chained(_pointwise(8, channels, (28, 28)), operation("Neg", "t0", "t1"))
    best = Convolution().space(workload, KernelTarget(vector_lanes=8, threads=1)).first_guesses[0]
    assert (best["blocks"], best["across"]) == tile


@pytest.mark.parametrize(
    ("block", "image", "rows"),
    [
        (8, (7, 7), (1, 49)),
        (8, (14, 14), (1, 196)),
        (8, (32, 32), (8, 128)),
        (8, (56, 56), (16, 196)),
        (8, (37, 41), (37, 41)),
        (8, (3, 640), (3, 640)),
        (16, (7, 7), (1, 49)),
        (16, (14, 14), (14, 14)),
        (16, (16, 16), (8, 32)),
        (16, (1, 1), (1, 1)),
    ],
)
def test_rows_of_a_pointwise_convolution_suit_the_register_tile(
    block: int, image: tuple[int, int], rows: tuple[int, int]
) -> None:
    assert blocked_image(image, block) == rows


def test_columns_that_are_read_one_by_one_stay_columns() -> None:
    # only read here: ONNX Runtime does not broadcast along the inner axes of a blocked tensor
    workload = chained(
        convolution((6, 11), blocks=(1, 2), **POINT),
        operation("Mul", "t0 x3", "t1"),
        reads=(blocked(1, 2 * BLOCK, 1, 11),),
    )
    plan = supported(workload, read_convolution(workload, takes_long_rows=True))
    assert (plan.shape.rows, plan.shape.columns) == (6, 11)


def test_image_beyond_the_cache_is_computed_in_groups_of_rows() -> None:
    workload = chained(convolution((112, 112), blocks=(8, 8)), *SILU)
    target = KernelTarget(vector_lanes=16, threads=1, l2_bytes=1 << 20)
    guesses = Convolution().space(workload, target).first_guesses
    direct = [guess for guess in guesses if guess["algorithm"] == "direct"]
    assert direct[0]["scope"] == "group"


def test_weights_the_chain_reads_too_are_refused() -> None:
    known = convolution((1, 1), bias=False, **POINT)
    again = chained(known, operation("Add", "t0 x1", "t1"), reads=(plain(1),))
    assert not Convolution().supports(again)


def _shape(workload: Workload) -> ConvolutionShape:
    return supported(workload, read_convolution(workload)).shape


def test_pixels_between_the_strides_of_a_pointwise_filter_are_not_copied() -> None:
    shape = _shape(SHAPES["1x1, stride beyond the filter"])
    assert is_thinned(shape, Precision.BFLOAT16)
    assert not is_thinned(shape, Precision.FLOAT32)  # they are read from the image itself
    wide = _shape(SHAPES["3x3, stride 2, batch of 2"])
    assert not is_thinned(wide, Precision.BFLOAT16)


@pytest.mark.skipif(BLOCK != 16, reason="blocks of 16 channels are AVX-512's")
@pytest.mark.parametrize(
    ("blocks", "is_row"),
    [((64, 16), False), ((16, 64), False), ((36, 8), False), ((4, 24), True)],
)
def test_rows_of_many_channels_are_not_computed_one_by_one(
    blocks: tuple[int, int], is_row: bool
) -> None:
    workload = replace(convolution((14, 14), blocks=blocks, **POINT), precision=Precision.BFLOAT16)
    target = KernelTarget(vector_lanes=16, threads=2, bf16_dot=True)
    best = Convolution().space(workload, target).first_guesses[0]
    assert (best["scope"], best["tile_rows"]) == ("group", 1) or not is_row
    assert is_row or best["scope"] == "image" or best["tile_rows"] == 7


@pytest.mark.skipif(BLOCK != 16, reason="blocks of 16 channels are AVX-512's")
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_no_thread_is_left_without_rows(threads: int) -> None:
    workload = replace(convolution((14, 14), blocks=(36, 8), **POINT), precision=Precision.BFLOAT16)
    target = KernelTarget(vector_lanes=16, threads=threads, bf16_dot=True)
    best = Convolution().space(workload, target).first_guesses[0]
    rows = int(best["tile_rows"]) * int(best["down"])
    tasks = 8 // int(best["blocks"]) if best["scope"] == "image" else -(-14 // rows)
    assert tasks >= threads


@pytest.mark.parametrize("precision", [Precision.FLOAT32, Precision.BFLOAT16])
def test_columns_of_the_filter_of_a_plain_image_are_a_loop(precision: Precision) -> None:
    """Written out, pixels they share would be kept in registers, and the sums in memory."""
    workload = chained(STEM, *SILU) if precision is Precision.FLOAT32 else STEM
    workload = replace(workload, precision=precision)
    schedule = guessed_schedules(workload, _pairs_target())[0]
    written = {step.var for step in schedule.steps if isinstance(step, Unroll)}
    assert not any(name.startswith("r$") for name in written)


def _pairs_target() -> KernelTarget:
    return replace(kernel_target(), bf16_dot=True, bf16_tiles=False)


def test_values_of_a_filter_that_meet_zeros_alone_are_left_out() -> None:
    assert met_taps(_shape(SHAPES["3x3, dilated beyond the image"])) == ((1, 1), (0, 3))
    assert met_taps(_shape(SHAPES["3x3, dilated, stride 2"])) == ((1, 1), (1, 1))
    assert met_taps(_shape(SHAPES["7x7 of a small image"])) == ((1, 5), (0, 7))
    assert met_taps(_shape(SHAPES["1x1, prime image"])) == ((0, 1), (0, 1))
