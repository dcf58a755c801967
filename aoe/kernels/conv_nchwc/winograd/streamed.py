"""Winograd convolution of small images: weights are transformed where they are used.

Transformed weights are 4 (4x4 tiles) or 1.8 (2x2) times the bytes of the weights. With few tiles
per image each is used a few times only, and what it costs to bring them from memory is more than
what they save. So here the weights stay as they are and a task transforms a chunk of them into its
cache, for some blocks of results and all tiles of the image:

    rows, columns and tile, padded, data   as in `tiles`
    filter_rows  G g, of a chunk of channels
    filters      (G g) G^T, of the same chunk
    parts        sums over the channels of a chunk, one matrix product per value
    products     sums of the parts
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import halide as hl

from aoe.kernels.conv_nchwc.shape import (
    WEIGHTS,
    ConvolutionPlan,
    ConvolutionShape,
    kernel_arguments,
)
from aoe.kernels.conv_nchwc.winograd import tiles
from aoe.kernels.conv_nchwc.winograd.tiles import (
    DATA,
    PRODUCTS,
    SUMMED,
    back_transformed,
    check_winograd,
    group_of,
    spread_values,
    tiles_of,
    tiles_pipeline,
    transformed_data,
)
from aoe.kernels.conv_nchwc.winograd.transforms import TileTransforms, select_row
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant
from aoe.kernels.tiled_products import BLOCKS, IMAGE, SCOPE, register_steps, task_steps, tile_of
from aoe.schedule import ComputeAt, Reorder, Split, Step, Tail, Values, Vectorize

FILTER_ROWS, FILTERS, PARTS = "filter_rows", "filters", "parts"
PART_SUMS = f"{PARTS}{UPDATE}"
_CHUNK_BYTES = 300 << 10
"""Most transformed weights of two blocks of results at once; 1 to 4 blocks of channels were equally
fast on Zen 5 (1 MiB of second-level cache)."""


def blocks_at_once(shape: ConvolutionShape, transforms: TileTransforms) -> int:
    """Return the blocks of channels whose weights are transformed at once."""
    block_bytes = 4 * transforms.products * shape.block**2 * 2
    fitting = [
        count
        for count in range(1, shape.blocks_summed + 1)
        if shape.blocks_summed % count == 0 and count * block_bytes <= _CHUNK_BYTES
    ]
    return max(fitting, default=1)


def streamed_pipeline(plan: ConvolutionPlan, transforms: TileTransforms) -> Pipeline:
    """Return the algorithm; arguments are the workload's, weights as the host keeps them."""
    shape = plan.shape
    chunk = blocks_at_once(shape, transforms)
    arguments = kernel_arguments(plan, shape.weight_extents)
    stages = transformed_data(plan, arguments, transforms)
    stages |= _filters(arguments.at(WEIGHTS), transforms)
    stages |= _products(stages[DATA], stages[FILTERS], shape, chunk)
    spread_values(stages[PRODUCTS], shape, shape.blocks_together, transforms)
    stages |= back_transformed(stages[PRODUCTS], transforms)
    chunks = ("chunk$x", shape.blocks_summed // chunk)
    reduced = {PART_SUMS: (("part$x", shape.block), ("part$y", chunk)), SUMMED: (chunks,)}
    return tiles_pipeline(plan, arguments, stages, transforms, reduced)


def _filters(weights: hl.ImageParam, transforms: TileTransforms) -> dict[str, hl.Func]:
    down, across = transforms.down, transforms.across
    size = across.products
    rows, filters = hl.Func(FILTER_ROWS), hl.Func(FILTERS)
    column = [weights[v.o, v.c, v.j, k, v.p, v.b] for k in range(down.taps)]
    rows[v.o, v.j, v.i, v.c, v.p, v.b] = select_row(v.i, down.weights, column)
    row = [rows[v.o, k, v.e // size, v.c, v.p, v.b] for k in range(across.taps)]
    filters[v.o, v.c, v.p, v.b, v.e] = select_row(v.e % size, across.weights, row)
    return {FILTER_ROWS: rows, FILTERS: filters}


def _products(
    data: hl.Func, filters: hl.Func, shape: ConvolutionShape, chunk: int
) -> dict[str, hl.Func]:
    parts, products = hl.Func(PARTS), hl.Func(PRODUCTS)
    r = hl.RDom([(0, shape.block), (0, chunk)], "part")
    place = (v.o, v.tx, v.ty, v.b, v.e, v.n)
    channel = v.p * chunk + r[1]
    read = group_of(v.b, shape)[0] * shape.blocks_summed + channel
    parts[(*place, v.p)] = constant(0.0)
    parts[(*place, v.p)] += (
        data[r[0], v.tx, v.ty, read, v.e, v.n] * filters[v.o, r[0], channel, v.b, v.e]
    )
    chunks = hl.RDom([(0, shape.blocks_summed // chunk)], "chunk")
    products[place] = constant(0.0)
    products[place] += parts[(*place, chunks[0])]
    return {
        PARTS: parts,
        PART_SUMS: parts.update(),
        PRODUCTS: products,
        SUMMED: products.update(),
    }


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
    # sums of one chunk of channels stay in registers, those of all chunks in the cache
    yield ComputeAt(PARTS, SUMMED, "across")
    yield Reorder(PART_SUMS, ("o", "b", "tx", "ty", "part$x", "part$y", "e", "n"))
    parts = {"b": blocks, "tx": wide, "ty": high}
    yield from register_steps((PARTS, PART_SUMS), ("o", shape.block), parts)
