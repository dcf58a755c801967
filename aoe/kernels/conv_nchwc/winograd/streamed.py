"""Winograd convolution of small images: weights are transformed where they are used.

Transformed weights are 4 (4x4 tiles) or 1.8 (2x2) times the bytes of the weights. With few tiles
per image each is used a few times only, and what it costs to bring them from memory is more than
what they save. So here the weights stay as they are and a task transforms a chunk of them into its
cache, for some blocks of results and all tiles of the image:

    rows, columns and tile, padded, data   as in `stages`
    filter_rows  G g, of a chunk of channels
    filters      (G g) G^T, of the same chunk
    parts        sums over the channels of a chunk, one matrix product per value
    products     sums of the parts
"""

from __future__ import annotations

import halide as hl

from aoe.kernels.conv_nchwc.result import kernel_arguments
from aoe.kernels.conv_nchwc.shape import WEIGHTS, ConvolutionPlan, ConvolutionShape
from aoe.kernels.conv_nchwc.winograd.stages import (
    DATA,
    PRODUCTS,
    SUMMED,
    back_transformed,
    group_of,
    spread_values,
    tiles_pipeline,
    transformed_data,
)
from aoe.kernels.conv_nchwc.winograd.transforms import TileTransforms, select_row
from aoe.kernels.family import UPDATE, Pipeline
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant

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
    """Return the algorithm; arguments are those of the workload, weights as the host keeps them."""
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
