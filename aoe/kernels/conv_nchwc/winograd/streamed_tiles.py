"""How a Winograd convolution with streamed weights is scheduled: a task is some blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, ConvolutionShape
from aoe.kernels.conv_nchwc.winograd import tiles
from aoe.kernels.conv_nchwc.winograd.stages import PRODUCTS, SUMMED, check_winograd, tiles_of
from aoe.kernels.conv_nchwc.winograd.streamed import (
    FILTER_ROWS,
    FILTERS,
    PART_SUMS,
    PARTS,
    streamed_pipeline,
)
from aoe.kernels.conv_nchwc.winograd.transforms import TileTransforms
from aoe.kernels.family import KernelTarget, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.tiled_products import BLOCKS, IMAGE, SCOPE, register_steps, task_steps, tile_of
from aoe.schedule import ComputeAt, Reorder, Split, Step, Tail, Values, Vectorize


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedWinograd(tiles.Winograd):
    """The same with weights transformed where they are used, for small images: tasks are blocks."""

    def supports(self, plan: ConvolutionPlan) -> Support:
        if plan.shape.dilations != (1, 1):
            return Support("Conv with dilated filters, of which larger images are")
        if plan.shape.is_open:
            return Support("images of any size, which are small for some calls alone")
        return check_winograd(plan.shape, self.transforms)

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        return streamed_pipeline(plan, self.transforms)

    def rows(self, plan: ConvolutionPlan, target: KernelTarget) -> tuple[int, ...]:
        return (1,)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        return values[SCOPE] == IMAGE and self.tile_fits(values, plan.shape, target)

    def cost(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> float:
        """Return the relative time: registers in use, idle threads."""
        groups = plan.shape.groups
        panels = groups if groups > 1 else plan.shape.blocks_out // int(values[BLOCKS])
        tasks = panels * plan.shape.batch
        found = tiles_of(plan.shape, self.transforms)
        products = tiles.products_time(values, found, found[1], target.registers)
        return products * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: ConvolutionPlan) -> Iterator[Step]:
        shape, transforms = plan.shape, self.transforms
        together = int(values[BLOCKS]) if shape.groups == 1 else shape.blocks_together
        yield from tiles.tile_loops(shape, transforms)
        yield Split(RESULT, "b", "b", "in_b", together, Tail.GUARD)
        yield Reorder(RESULT, (*tiles.tile_order(shape), "in_b", "b", "n"))
        yield from tiles.tile_steps(shape, transforms, is_heavy=plan.epilogue.is_heavy)
        yield from task_steps(values)
        yield from tiles.data_steps(shape, transforms, at="b" if shape.groups > 1 else "")
        yield from _filter_steps(shape, transforms)
        yield from _product_steps(values, shape)


def _filter_steps(shape: ConvolutionShape, transforms: TileTransforms) -> Iterator[Step]:
    """Yield the steps that transform weights: a row of 16 channels before the next row.

    All values of one channel at once would be stores so far apart that they drive each other out
    of the first-level cache (4 times as slow on Zen 5).
    """
    down, across = transforms.down, transforms.across
    square = {"in_row": across.products, "row": down.products}
    yield ComputeAt(FILTERS, SUMMED, "chunk$x")
    yield Split(FILTERS, "e", "row", "in_row", across.products, Tail.GUARD)
    yield Reorder(FILTERS, ("o", "in_row", "c", "row", "p", "b"))
    yield from register_steps((FILTERS,), ("o", shape.block), square)
    yield ComputeAt(FILTER_ROWS, FILTERS, "p")
    yield Reorder(FILTER_ROWS, ("o", "i", "j", "c", "p", "b"))
    rows = {"i": down.products, "j": across.taps}
    yield from register_steps((FILTER_ROWS,), ("o", shape.block), rows)


def _product_steps(values: Values, shape: ConvolutionShape) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
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
    tile = {"in_x": wide, "in_y": high, "in_b": blocks}
    yield from register_steps((SUMMED,), ("o", shape.block), tile)
    yield ComputeAt(PARTS, SUMMED, "across")
    yield Reorder(PART_SUMS, ("o", "b", "tx", "ty", "part$x", "part$y", "e", "n"))
    parts = {"b": blocks, "tx": wide, "ty": high}
    yield from register_steps((PARTS, PART_SUMS), ("o", shape.block), parts)
