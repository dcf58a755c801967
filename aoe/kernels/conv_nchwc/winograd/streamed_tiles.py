"""How a Winograd convolution with streamed weights is scheduled: a task is some blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, ConvolutionShape
from aoe.kernels.conv_nchwc.winograd import tiles
from aoe.kernels.conv_nchwc.winograd.stages import PRODUCTS, SUMMED, tiles_of
from aoe.kernels.conv_nchwc.winograd.streamed import FILTER_ROWS, FILTERS, PART_SUMS, PARTS
from aoe.kernels.conv_nchwc.winograd.tiles import ACROSS, BLOCKS, DOWN, IMAGE, SCOPE, TILE_ROWS
from aoe.kernels.conv_nchwc.winograd.transforms import FILTER_SIDE, Transforms
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.chain import RESULT, WRITTEN_OUT_CYCLES
from aoe.kernels.halide.tiling import on_threads
from aoe.schedule import (
    Choice,
    ComputeAt,
    Parallel,
    Reorder,
    Split,
    Step,
    Tail,
    Unroll,
    Vectorize,
)


def choices(shape: ConvolutionShape, transforms: Transforms) -> dict[str, tuple[int, ...]]:
    """Return what may be chosen for the numbers of a configuration, rising."""
    return {**tiles.choices(shape, transforms), TILE_ROWS: (1,)}


def fits(
    values: Mapping[str, Choice],
    shape: ConvolutionShape,
    transforms: Transforms,
    target: KernelTarget,
) -> bool:
    """Return True if a register tile stays in registers, and a task works on a whole image."""
    return values[SCOPE] == IMAGE and tiles.fits(values, shape, transforms, target)


def ranked(
    shape: ConvolutionShape, transforms: Transforms, target: KernelTarget
) -> Iterator[dict[str, Choice]]:
    """Yield legal configurations, the most promising first."""
    offered = choices(shape, transforms)
    found: list[dict[str, Choice]] = [
        {**dict(zip(offered, numbers, strict=True)), SCOPE: IMAGE}
        for numbers in product(*offered.values())
    ]
    legal = [values for values in found if fits(values, shape, transforms, target)]
    yield from sorted(legal, key=lambda values: _cost(values, shape, transforms, target))


def _cost(
    values: Mapping[str, Choice],
    shape: ConvolutionShape,
    transforms: Transforms,
    target: KernelTarget,
) -> float:
    """Return the relative time of a configuration: registers in use, idle threads."""
    tasks = shape.blocks_out // int(values[BLOCKS]) * shape.batch
    idle = -(-tasks // target.threads) * target.threads / tasks
    across, down = tiles_of(shape, transforms)
    return tiles.products_time(values, across, down) * idle


def streamed_steps(
    values: Mapping[str, Choice],
    plan: ConvolutionPlan,
    transforms: Transforms,
    target: KernelTarget,
) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    shape = plan.shape
    is_heavy = plan.epilogue.cycles > WRITTEN_OUT_CYCLES
    steps = (
        *_result_steps(values, shape, transforms, is_heavy=is_heavy),
        *tiles.data_steps(shape, transforms, is_grouped=False),
        *_filter_steps(shape, transforms),
        *_product_steps(values, shape),
    )
    yield from on_threads(steps, target)


def _result_steps(
    values: Mapping[str, Choice],
    shape: ConvolutionShape,
    transforms: Transforms,
    *,
    is_heavy: bool,
) -> Iterator[Step]:
    yield from tiles.tile_loops(shape, transforms)
    yield Split(RESULT, "b", "b", "in_b", int(values[BLOCKS]), Tail.GUARD)
    yield Reorder(RESULT, (*tiles.tile_order(shape), "in_b", "b", "n"))
    yield from tiles.tile_steps(shape, transforms, is_heavy=is_heavy)
    yield Parallel(RESULT, "n")
    yield Parallel(RESULT, "b")


def _filter_steps(shape: ConvolutionShape, transforms: Transforms) -> Iterator[Step]:
    """Yield how weights are transformed: a row of values of 16 channels before the next row.

    All values of one channel at once would be stores so far apart that they drive each other out
    of the first-level cache (4 times as slow on Zen 5).
    """
    size = transforms.products
    yield ComputeAt(FILTERS, SUMMED, "chunk$x")
    yield Split(FILTERS, "e", "row", "in_row", size, Tail.GUARD)
    yield Reorder(FILTERS, ("o", "in_row", "c", "row", "p", "b"))
    yield Vectorize(FILTERS, "o", shape.block)
    yield Unroll(FILTERS, "in_row", size)
    yield Unroll(FILTERS, "row", size)
    yield ComputeAt(FILTER_ROWS, FILTERS, "p")
    yield Reorder(FILTER_ROWS, ("o", "i", "j", "c", "p", "b"))
    yield Vectorize(FILTER_ROWS, "o", shape.block)
    yield Unroll(FILTER_ROWS, "i", size)
    yield Unroll(FILTER_ROWS, "j", FILTER_SIDE)


def _product_steps(values: Mapping[str, Choice], shape: ConvolutionShape) -> Iterator[Step]:
    blocks, wide, high = (int(values[name]) for name in (BLOCKS, ACROSS, DOWN))
    yield ComputeAt(PRODUCTS, RESULT, "b")
    yield Vectorize(PRODUCTS, "o", shape.block)
    for loop, outer, inner, factor in (
        ("b", "group", "in_b", blocks),
        ("tx", "across", "in_x", wide),
        ("ty", "down", "in_y", high),
    ):
        yield Split(SUMMED, loop, outer, inner, factor, Tail.GUARD)
    yield Reorder(
        SUMMED, ("o", "in_x", "in_y", "in_b", "across", "down", "group", "e", "chunk$x", "n")
    )
    yield Vectorize(SUMMED, "o", shape.block)
    for name, factor in (("in_x", wide), ("in_y", high), ("in_b", blocks)):
        yield Unroll(SUMMED, name, factor)
    yield ComputeAt(PARTS, SUMMED, "across")
    yield Reorder(PART_SUMS, ("o", "b", "tx", "ty", "part$x", "part$y", "e", "n"))
    for stage in (PARTS, PART_SUMS):
        yield Vectorize(stage, "o", shape.block)
        for name, factor in (("b", blocks), ("tx", wide), ("ty", high)):
            yield Unroll(stage, name, factor)
