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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import halide as hl

from aoe import schedule as sch
from aoe.kernels.conv_nchw.direct import FAR_BYTES_PER_CYCLE, VECTOR, vectors_of
from aoe.kernels.conv_nchw.shape import (
    WEIGHTS,
    ConvNchwPlan,
    ConvNchwShape,
    X,
    finished_value,
    image_with_zeros,
    pixel,
    plain_arguments,
)
from aoe.kernels.conv_nchw.winograd import DATA, FILTER_SIDE, GATHERED, PANEL, TILE
from aoe.kernels.conv_nchwc.direct import PADDED, PRODUCTS, SUMMED
from aoe.kernels.conv_nchwc.shape import finished_pipeline
from aoe.kernels.conv_nchwc.winograd.transforms import F4, select_row
from aoe.kernels.family import SUPPORTED, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant
from aoe.kernels.tiled_products import (
    GROUP,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    register_steps,
    several,
    tile_of,
)
from aoe.schedule import Step, Values

RESULTS, TILE_PRODUCTS = F4.results, F4.products
"""Results of one tile, and products it takes."""
_GROUPS = (1, 2, 3, 4, 6, 8)
"""Vectors of tiles of a group."""
_BLOCKS, _ACROSS = (1, 2, 3, 4, 6), (1, 2, 3, 4)
_BEST_TILES = 3
_TRANSFORM_CYCLES = 8
"""Cycles for a vector of transformed data or products. Assumed."""


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


def _vectors_along(shape: ConvNchwShape) -> int:
    """Return vectors of tiles, the last one whole or not."""
    return -(-shape.result[0] // (RESULTS * VECTOR))


def is_long_enough(shape: ConvNchwShape) -> bool:
    """Return True if tiles fill a vector."""
    return shape.result[0] >= RESULTS * VECTOR


def _best_tiles(shape: ConvNchwShape, vectors: int) -> tuple[Tile, ...]:
    """Return panels of channels and vectors of tiles of the best register tiles, in one row."""
    panels = -(-shape.channels_out // PANEL)
    found = [
        (blocks, across, 1)
        for blocks, across in product(_BLOCKS, _ACROSS)
        if panels % blocks == 0
        and RESULTS * VECTOR * across <= shape.result[0]
        and blocks * PANEL * across + across + 1 <= vectors
    ]
    return tuple(sorted(found, key=lambda tile: (_tile_cost(*tile[:2]), tile))[:_BEST_TILES])


def _tile_cost(blocks: int, across: int) -> float:
    """Return cycles per product and vector of results."""
    sums = blocks * PANEL * across
    busy = max(0.5, 4 / sums, 0.55 * (across + blocks * PANEL) / sums) + 0.1 / sums
    return busy + 0.3 / (blocks * PANEL)  # data come from the second cache for each tile


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWinograd(TiledAlgorithm[ConvNchwPlan]):
    """Fewer products of signals."""

    def pipeline(self, plan: ConvNchwPlan) -> Pipeline:
        return line_winograd_pipeline(plan)

    def tiles(self, plan: ConvNchwPlan, target: KernelTarget) -> Sequence[Tile]:
        return _best_tiles(plan.shape, vectors_of(target))

    def rows(self, plan: ConvNchwPlan, target: KernelTarget) -> tuple[int, ...]:
        return _GROUPS

    def fits(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> bool:
        """True for the register tiles a shape is offered, in groups inside the signal."""
        tile, rows = tile_of(values), int(values[TILE_ROWS])
        is_inside = rows % tile[1] == 0 and rows * RESULTS * VECTOR <= plan.shape.result[0]
        return values[SCOPE] == GROUP and is_inside and tile in self.tiles(plan, target)

    def cost(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> float:
        """Return the estimated cycles: products, transforms, traffic, idle threads."""
        shape, (blocks, across, _) = plan.shape, tile_of(values)
        rows, parts = int(values[TILE_ROWS]), parts_of(shape)
        depth = parts * shape.channels_in
        cycles = TILE_PRODUCTS * depth * shape.channels_out * _tile_cost(blocks, across)
        cycles += _TRANSFORM_CYCLES * TILE_PRODUCTS * (depth + shape.channels_out)
        held = 4 * VECTOR * TILE_PRODUCTS * (depth + shape.channels_out) * rows
        weights = 4 * TILE_PRODUCTS * depth * shape.channels_out
        if held > 0.7 * target.l2_bytes:
            cycles += 2 * held / rows / FAR_BYTES_PER_CYCLE
        # else weights stay in the second-level cache from one group to the next
        if held + weights > 0.7 * target.l2_bytes:
            cycles += weights / rows / FAR_BYTES_PER_CYCLE
        groups = -(-_vectors_along(shape) // rows)
        tasks = groups * shape.batch
        return cycles * rows * tasks * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
        yield from _result_steps(values, plan)
        yield from _data_steps(plan.shape)
        yield from _sum_steps(values)


def _result_steps(values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
    yield sch.Split(RESULT, "w", "w", "in_w", RESULTS, sch.Tail.GUARD)
    yield sch.Split(
        RESULT, "w", "group", "w", VECTOR * int(values[TILE_ROWS]), sch.Tail.SHIFT_INWARDS
    )
    yield sch.Split(RESULT, "w", "w", "lane", VECTOR, sch.Tail.GUARD)
    yield sch.Split(RESULT, "o", "b", "o", PANEL, sch.Tail.GUARD)
    yield sch.Reorder(RESULT, ("lane", "in_w", "w", "o", "b", "group", "n"))
    tile = {} if plan.epilogue.is_heavy else {"in_w": RESULTS}
    yield from register_steps((RESULT,), ("lane", VECTOR), tile)
    yield sch.Parallel(RESULT, "n")
    yield sch.Parallel(RESULT, "group")
    yield sch.ComputeAt(TILE, RESULT, "w")
    yield from register_steps((TILE,), ("w", VECTOR), {"i": RESULTS})


def _data_steps(shape: ConvNchwShape) -> Iterator[Step]:
    for stage in (PADDED, DATA):
        yield sch.ComputeAt(stage, RESULT, "group")
        yield sch.Split(stage, "w", "w", "lane", VECTOR, sch.Tail.ROUND_UP)
        yield sch.Vectorize(stage, "lane", VECTOR)
    # phases of the signal innermost: each becomes a vector of its own
    yield sch.Reorder(PADDED, ("lane", "s", "w", "c", "n"))
    yield sch.Unroll(PADDED, "s", RESULTS)
    yield sch.Reorder(DATA, ("lane", "e", "g", "w", "c", "n"))
    yield sch.Unroll(DATA, "e", TILE_PRODUCTS)
    yield sch.Unroll(DATA, "g", parts_of(shape))  # which phases a part reads is known then


def _sum_steps(values: Values) -> Iterator[Step]:
    blocks, across, _ = tile_of(values)
    yield sch.ComputeAt(GATHERED, RESULT, "group")
    yield sch.Split(GATHERED, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    yield sch.Split(GATHERED, "w", "w", "in_w", VECTOR * across, sch.Tail.GUARD)
    yield sch.Reorder(GATHERED, ("in_w", "u", "in_b", "w", "b", "e", "n"))
    inner = {"in_w": across, "u": PANEL, "in_b": blocks}
    yield from register_steps((GATHERED,), ("in_w", VECTOR), several(inner))
    yield sch.ComputeAt(PRODUCTS, GATHERED, "w")
    # each step of the depth adds to every sum of a tile once: none waits for itself
    yield sch.Reorder(SUMMED, ("w", "u", "b", "r$x", "r$y", "e", "n"))
    summed = {"w": across, "u": PANEL, "b": blocks}
    yield from register_steps((PRODUCTS, SUMMED), ("w", VECTOR), several(summed))
