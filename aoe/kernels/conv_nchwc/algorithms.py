"""The ways a convolution is computed, of which the search chooses one."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from aoe.kernels.algorithms import STREAMED
from aoe.kernels.conv_nchwc import depthwise, matrix_tiles, register_tiles
from aoe.kernels.conv_nchwc.direct import direct_pipeline
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan
from aoe.kernels.conv_nchwc.winograd import streamed_tiles, tiles
from aoe.kernels.conv_nchwc.winograd.stages import check_winograd, winograd_pipeline
from aoe.kernels.conv_nchwc.winograd.streamed import streamed_pipeline
from aoe.kernels.conv_nchwc.winograd.transforms import (
    F2,
    F2_STRIDE_2,
    F3,
    F4,
    F4_STRIDE_2,
    Transforms,
)
from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.tiled_products import GROUP, IMAGE, TiledAlgorithm
from aoe.workload import Precision

TILES = "direct_tiles"
"""The algorithm that, on CPUs which have it, leaves other sums of bfloat16 nothing to win."""

_SMALL = 200
"""Results of a channel up to which the host is below the roof with filters larger than 1x1: 512
channels of 7x7 take 0.83 of its time, 128 to 256 channels of 14x14 with stride 2 0.93, 64 to 128 of
28x28 1.02 (one thread of a Zen 5 with other work, CPU time, 2026-11-23)."""


def _winograd(
    transforms: Transforms, *, guesses: int, is_for_phases: bool = False
) -> TiledAlgorithm[ConvolutionPlan]:
    """Return fewer products on transformed tiles, 3 x 3 filters.

    Args:
        transforms: Of the tiles; their stride is that of the filters.
        guesses: First guesses it may make.
        is_for_phases: True if it is offered for dilated filters alone: the images of their phases
            are small, and larger tiles would be filled in part.
    """
    return TiledAlgorithm(
        guesses=guesses,
        supports=lambda plan: _check_tiles(plan, transforms, is_for_phases=is_for_phases),
        pipeline=lambda plan: winograd_pipeline(plan, transforms),
        tiles=lambda plan, target: tiles.offered_tiles(plan.shape, transforms),
        rows=lambda plan, target: tiles.groups_of(plan.shape, transforms),
        fits=lambda values, plan, target: tiles.fits(values, plan.shape, transforms, target),
        cost=lambda values, plan, target: tiles.cost(values, plan.shape, transforms, target),
        steps=lambda values, plan: tiles.winograd_steps(values, plan, transforms),
        pools=not is_for_phases,
    )


def _streamed(transforms: Transforms) -> TiledAlgorithm[ConvolutionPlan]:
    """Return the same with weights transformed where they are used: for small images."""
    ways = streamed_tiles
    return TiledAlgorithm(
        guesses=1,
        supports=lambda plan: _check_streamed(plan, transforms),
        pipeline=lambda plan: streamed_pipeline(plan, transforms),
        tiles=lambda plan, target: tiles.offered_tiles(plan.shape, transforms),
        rows=lambda plan, target: (1,),
        fits=lambda values, plan, target: ways.fits(values, plan.shape, transforms, target),
        cost=lambda values, plan, target: ways.cost(values, plan.shape, transforms, target),
        steps=lambda values, plan: ways.streamed_steps(values, plan, transforms),
        pools=True,
    )


def _check_tiles(plan: ConvolutionPlan, transforms: Transforms, *, is_for_phases: bool) -> Support:
    if is_for_phases and plan.shape.dilations == (1, 1):
        return Support("Conv whose filters are not dilated")
    if plan.shape.pooled > 1 and plan.shape.dilations != (1, 1):
        return Support("Conv with dilated filters in front of a pooling")
    return check_winograd(plan.shape, transforms)


def _check_streamed(plan: ConvolutionPlan, transforms: Transforms) -> Support:
    if plan.shape.dilations != (1, 1):
        return Support("Conv with dilated filters, of which larger images are")
    return check_winograd(plan.shape, transforms)


def _direct(precision: Precision, *, guesses: int) -> TiledAlgorithm[ConvolutionPlan]:
    """Return every product once; in float32 for chains, groups and small images."""
    is_lower = precision is Precision.BFLOAT16
    return TiledAlgorithm(
        guesses=guesses,
        supports=lambda plan: _check_direct(plan, is_lower=is_lower),
        is_available=lambda target: not is_lower or target.bf16_dot,
        pipeline=lambda plan: direct_pipeline(plan, precision),
        tiles=lambda plan, target: sorted(register_tiles.best_tiles(plan.shape, target.registers)),
        rows=lambda plan, target: register_tiles.groups_of(plan.shape),
        fits=lambda values, plan, target: register_tiles.fits(values, plan.shape, target),
        cost=lambda values, plan, target: register_tiles.cost(
            values, plan.shape, precision, target
        ),
        steps=lambda values, plan: register_tiles.direct_steps(values, plan, precision),
    )


def _check_direct(plan: ConvolutionPlan, *, is_lower: bool) -> Support:
    if plan.shape.is_depthwise:
        return Support("a depthwise Conv has one product for each value of a filter")
    if is_lower and plan.shape.is_stem and plan.shape.dilations[1] > 1:
        return Support("Conv of a plain image with dilated filters has no pairs")
    shape = plan.shape
    is_small = shape.rows * shape.columns <= _SMALL and prod(shape.kernel) > 1
    spares_reorders = plan.prologue is not None and plan.prologue.has_reorders
    if is_lower or plan.epilogue.cycles or spares_reorders or shape.groups > 1 or is_small:
        return SUPPORTED
    return Support("a direct convolution without a chain behind it gains nothing")


def _check_depthwise(plan: ConvolutionPlan) -> Support:
    return SUPPORTED if plan.shape.is_depthwise else Support("Conv that sums up channels")


_DEPTHWISE = TiledAlgorithm(
    guesses=4,
    supports=_check_depthwise,
    pipeline=lambda plan: direct_pipeline(plan, Precision.FLOAT32),
    tiles=lambda plan, target: [
        (1, *tile) for tile in sorted(depthwise.best_tiles(plan.shape, target.registers))
    ],
    rows=lambda plan, target: depthwise.groups_of(plan.shape),
    fits=lambda values, plan, target: depthwise.fits(values, plan.shape, target),
    cost=lambda values, plan, target: depthwise.cost(values, plan.shape, target),
    scopes=(IMAGE, GROUP),
    steps=depthwise.depthwise_steps,
)
"""A filter for each channel: channels are what a vector holds."""

_MATRIX_TILES = TiledAlgorithm(
    guesses=4,
    supports=lambda plan: matrix_tiles.check_matrix_tiles(plan.shape),
    is_available=lambda target: target.bf16_tiles,
    pipeline=matrix_tiles.matrix_tiles_pipeline,
    tiles=lambda plan, target: [(n, 1, 1) for n in matrix_tiles.offered_blocks(plan.shape)],
    rows=lambda plan, target: matrix_tiles.groups_of(plan.shape),
    fits=lambda values, plan, target: matrix_tiles.fits(values, plan.shape),
    cost=lambda values, plan, target: matrix_tiles.cost_us(values, plan.shape, target),
    steps=lambda values, plan: matrix_tiles.matrix_tiles_steps(values),
)
"""Every product once, in bfloat16, summed in the CPU's matrix tiles."""

ALGORITHMS: Mapping[str, TiledAlgorithm[ConvolutionPlan]] = {
    "winograd_4x4": _winograd(F4, guesses=2),
    "winograd_2x2": _winograd(F2, guesses=1),
    "winograd_3x3": _winograd(F3, guesses=1, is_for_phases=True),
    "winograd_4x4_stride_2": _winograd(F4_STRIDE_2, guesses=2),
    "winograd_2x2_stride_2": _winograd(F2_STRIDE_2, guesses=1),
    f"winograd_4x4_{STREAMED}": _streamed(F4),
    f"winograd_2x2_{STREAMED}": _streamed(F2),
    "direct": _direct(Precision.FLOAT32, guesses=2),
    "depthwise": _DEPTHWISE,
    "direct_bf16": _direct(Precision.BFLOAT16, guesses=3),
    TILES: _MATRIX_TILES,
}
"""By the name a schedule has; the first that computes a workload is its default."""
