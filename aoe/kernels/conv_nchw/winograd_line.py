"""Winograd's minimal filtering of signals: filters in parts of three values, tiles along the line.

The stages, for tiles of m results (T = m + 2 products):

    padded       the signal with its zeros around it, every m-th value together
    data         B^T d of each tile and each part of a filter
    products     sums over channels and parts of data times weights
    gathered     the finished products of a group of tiles
    tile         A^T products: m results
    y            bias, the tensor added, activation, the chain

A vector holds the same value of 16 neighbouring tiles. The parts of a filter meet in the sums of
products: they are transformed back together.
"""

from __future__ import annotations

import halide as hl

from aoe.kernels.conv_nchw.result import finished_value, image_with_zeros, pixel, plain_arguments
from aoe.kernels.conv_nchw.shape import WEIGHTS, ConvNchwPlan, ConvNchwShape, X
from aoe.kernels.conv_nchw.winograd import DATA, FILTER_SIDE, GATHERED, PANEL, TILE
from aoe.kernels.conv_nchwc.direct import PADDED, PRODUCTS, SUMMED
from aoe.kernels.conv_nchwc.result import finished_pipeline
from aoe.kernels.conv_nchwc.winograd.transforms import F4, select_row
from aoe.kernels.family import SUPPORTED, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant

RESULTS, TILE_PRODUCTS = F4.results, F4.products
"""Results of one tile, and products it takes."""


def parts_of(shape: ConvNchwShape) -> int:
    """Return parts of three values a filter has."""
    return -(-shape.kernel[0] // FILTER_SIDE)


def check_line_winograd(shape: ConvNchwShape) -> Support:
    """Check that a signal has whole tiles of results, no strides or groups, and long filters."""
    if shape.rank != 1 or shape.is_transposed or shape.groups > 1 or shape.strides[0] != 1:
        return Support("more axes, strides or groups")
    if shape.dilations[0] != 1 or shape.kernel[0] < FILTER_SIDE:
        return Support("dilated filters, or short ones")
    return SUPPORTED if shape.result[0] % RESULTS == 0 else Support("no whole tiles")


def line_winograd_pipeline(plan: ConvNchwPlan) -> Pipeline:
    """Return the algorithm; weights are transformed once, when the kernel is created.

    The packed weights are, from the innermost: channels of a panel, parts, channels read, products
    of a tile, panels.
    """
    shape = plan.shape
    panels = -(-shape.channels_out // PANEL)
    extents = PANEL, parts_of(shape), shape.channels_in, TILE_PRODUCTS, panels
    arguments = plain_arguments(plan, extents, hl.Float(32))
    stages = _transformed(arguments.at(X), shape)
    stages |= _summed(arguments.at(WEIGHTS), stages[DATA], shape)
    made = stages[TILE][v.w // RESULTS, v.o % PANEL, v.w % RESULTS, v.o // PANEL, v.n]
    result = hl.Func(RESULT)
    result[v.w, v.o, v.n] = finished_value(plan, arguments, made, (v.w, v.o, v.n))
    return finished_pipeline(
        arguments,
        stages,
        result,
        extents=shape.result_extents,
        known={"u": PANEL, "e": TILE_PRODUCTS, "s": RESULTS, "i": RESULTS, "g": parts_of(shape)},
        reduced={SUMMED: (("r$x", parts_of(shape)), ("r$y", shape.channels_in))},
        packing=_packing(shape),
        padded=frozenset({PADDED, DATA}),
    )


def _transformed(x: hl.ImageParam, shape: ConvNchwShape) -> dict[str, hl.Func]:
    padded, data = hl.Func(PADDED), hl.Func(DATA)
    place = (v.w * RESULTS + v.s, hl.Expr(0), hl.Expr(0))
    padded[v.w, v.s, v.c, v.n] = image_with_zeros(x, shape, place, v.c, v.n)
    padded.bound_extent(v.s, RESULTS)
    values = []
    for at in range(TILE_PRODUCTS):
        moved = v.g * FILTER_SIDE + at
        values.append(padded[v.w + moved // RESULTS, moved % RESULTS, v.c, v.n])
    data[v.w, v.g, v.c, v.e, v.n] = select_row(v.e, F4.data, values)
    return {PADDED: padded, DATA: data}


def _summed(weights: hl.ImageParam, data: hl.Func, shape: ConvNchwShape) -> dict[str, hl.Func]:
    r = hl.RDom([(0, parts_of(shape)), (0, shape.channels_in)], "r")
    products, gathered, tile = hl.Func(PRODUCTS), hl.Func(GATHERED), hl.Func(TILE)
    place = (v.w, v.u, v.b, v.e, v.n)
    products[place] = constant(0.0)
    products[place] += data[v.w, r[0], r[1], v.e, v.n] * weights[v.u, r[0], r[1], v.e, v.b]
    gathered[place] = products[place]
    for stage in (products, gathered):
        stage.bound_extent(v.u, PANEL)
    sums = [gathered[v.w, v.u, v.b, at, v.n] for at in range(TILE_PRODUCTS)]
    tile[v.w, v.u, v.i, v.b, v.n] = select_row(v.i, F4.result, sums)
    return {PRODUCTS: products, SUMMED: products.update(), GATHERED: gathered, TILE: tile}


def _packing(shape: ConvNchwShape) -> PackedInput:
    """Return the transformed weights, computed in float64 and rounded once."""
    u, g, c, e, b = (hl.Var(name) for name in ("u", "g", "c", "e", "b"))
    weights = hl.ImageParam(hl.Float(32), shape.rank + 2, "weights")
    channel, last = b * PANEL + u, shape.kernel[0] - 1
    written = hl.min(channel, shape.channels_out - 1)
    values = []
    for side in range(FILTER_SIDE):
        at = g * FILTER_SIDE + side
        value = weights[pixel(shape, (hl.min(at, last),), c, written)]
        values.append(hl.cast(hl.Float(64), hl.select(at <= last, value, constant(0.0))))
    made = hl.cast(hl.Float(32), select_row(e, F4.weights, values))
    packed = hl.Func("packed")
    packed[u, g, c, e, b] = hl.select(channel < shape.channels_out, made, constant(0.0))
    packed.bound(e, 0, TILE_PRODUCTS).reorder(u, e, g, c, b).unroll(e)
    return PackedInput(output=packed, argument=weights, argument_extents=shape.weight_extents)
