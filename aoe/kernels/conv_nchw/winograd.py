"""Winograd's minimal filtering of plain tensors: across rows of images, and along signals.

Across rows. Vectors lie along the width, tiles of m results along the height and the depth
(T = m + 2 products):

    padded       the image with its zeros around it
    heights      B^T d along the height of a tile
    data         the same along its depth; T x T values per tile, column and channel
    products     sums over channels and columns of a filter of data times weights
    gathered     the finished products of a group of tiles
    columns      A^T products along the depth
    tile         the same along the height: m x m rows of results
    y            bias, the tensor added, activation, the chain

Columns of a filter are summed up as they are, so rows need no transform, and no shuffles.

Along signals. A vector holds the same value of 16 neighbouring tiles, filters are cut into parts of
three values:

    padded       the signal with its zeros around it, every m-th value together
    data         B^T d of each tile and each part of a filter
    products     sums over channels and parts of data times weights
    gathered     the finished products of a group of tiles
    tile         A^T products: m results
    y            as above

The parts of a filter meet in the sums of products: they are transformed back together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

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
from aoe.kernels.conv_nchwc.direct import PADDED, PRODUCTS, SUMMED
from aoe.kernels.conv_nchwc.shape import finished_pipeline
from aoe.kernels.conv_nchwc.winograd.transforms import F2, F4, SAME, Transforms, select_row
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

HEIGHTS, DATA, GATHERED, COLUMNS, TILE = "heights", "data", "gathered", "columns", "tile"
PANEL = 4
"""Channels of a panel of weights."""
FILTER_SIDE = 3
_BLOCKS, _DOWN = (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4)
_COPY_CYCLES, _TRANSFORM_CYCLES = 12, 10
"""Cycles for a vector of the image, and of transformed data or products. Measured with 32 channels
of 64x64x64 on AVX-512, where copying waits for memory."""
RESULTS, TILE_PRODUCTS = F4.results, F4.products
"""Results of one tile, and products it takes."""
_LINE_GROUPS = (1, 2, 3, 4, 6, 8)
"""Vectors of tiles of a group."""
_LINE_BLOCKS, _LINE_ACROSS = (1, 2, 3, 4, 6), (1, 2, 3, 4)
_BEST_TILES = 3
_LINE_CYCLES = 8
"""Cycles for a vector of transformed data or products. Assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTransforms:
    """Transforms along the height and along the depth."""

    high: Transforms
    deep: Transforms

    @property
    def products(self) -> int:
        """Products of one tile."""
        return self.high.products * self.deep.products

    @property
    def results(self) -> int:
        """Results of one tile, per column."""
        return self.high.results * self.deep.results


def check_row_winograd(shape: ConvNchwShape) -> Support:
    """Check that filters are three values high, of stride 1, and that rows fill vectors."""
    if shape.is_transposed or shape.groups > 1 or set(shape.strides) != {1}:
        return Support("strides or groups")
    if shape.kernel[1] != FILTER_SIDE or shape.kernel[2] not in (1, FILTER_SIDE):
        return Support(f"filters {shape.kernel}")
    if shape.dilations[1:] != (1, 1) or shape.result[1] < 2:
        return Support("dilated filters, or a single row")
    return SUPPORTED


def transforms_of(shape: ConvNchwShape, size: int) -> RowTransforms:
    """Return the transforms for tiles of 4 or 2 results along an axis."""
    chosen = F4 if size == 4 else F2
    deep = chosen if shape.kernel[2] == FILTER_SIDE and shape.result[2] > 1 else SAME
    return RowTransforms(high=chosen, deep=deep)


def row_winograd_pipeline(plan: ConvNchwPlan, transforms: RowTransforms) -> Pipeline:
    """Return the algorithm; weights are transformed once, when the kernel is created.

    The packed weights are, from the innermost: channels of a panel, columns of a filter, planes
    of a filter that are not transformed, channels read, products of a tile, panels.
    """
    shape = plan.shape
    extents = _packed_extents(shape, transforms)
    arguments = plain_arguments(plan, extents, hl.Float(32))
    stages = _transformed(arguments.at(X), shape, transforms)
    stages |= _summed(arguments.at(WEIGHTS), stages[DATA], shape, transforms)
    stages |= _back(stages[GATHERED], transforms)
    high, deep = transforms.high.results, transforms.deep.results
    rows = v.h if shape.rank > 1 else hl.Expr(0)
    planes = v.d if shape.rank > 2 else hl.Expr(0)
    inside = v.w, v.o % PANEL, rows % high, planes % deep
    summed = stages[TILE][(*inside, rows // high, planes // deep, v.o // PANEL, v.n)]
    result = hl.Func(RESULT)
    place = pixel(shape, (v.w, v.h, v.d), v.o, v.n)
    result[place] = finished_value(plan, arguments, summed, place)
    taps = shape.kernel[0], depth_taps(shape, transforms), shape.channels_in
    return finished_pipeline(
        arguments,
        stages,
        result,
        extents=shape.result_extents,
        known={"u": PANEL, "e": transforms.products},
        own={
            HEIGHTS: {"i": transforms.high.products, "j": transforms.deep.products},
            COLUMNS: {"i": transforms.high.products, "j": deep},
            TILE: {"i": high, "j": deep},
        },
        reduced={SUMMED: zip(("r$x", "r$y", "r$z"), taps, strict=True)},
        packing=_packing(shape, transforms),
        padded=frozenset({PADDED, HEIGHTS, DATA}),
    )


def depth_taps(shape: ConvNchwShape, transforms: RowTransforms) -> int:
    """Return planes of a filter that are summed up as they are."""
    return 1 if transforms.deep.products > 1 else shape.kernel[2]


def _packed_extents(shape: ConvNchwShape, transforms: RowTransforms) -> tuple[int, ...]:
    panels = -(-shape.channels_out // PANEL)
    planes = depth_taps(shape, transforms)
    return PANEL, shape.kernel[0], planes, shape.channels_in, transforms.products, panels


def _transformed(
    x: hl.ImageParam, shape: ConvNchwShape, transforms: RowTransforms
) -> dict[str, hl.Func]:
    high, deep = transforms.high, transforms.deep
    padded, heights, data = hl.Func(PADDED), hl.Func(HEIGHTS), hl.Func(DATA)
    padded[v.w, v.h, v.d, v.c, v.n] = image_with_zeros(x, shape, (v.w, v.h, v.d), v.c, v.n)
    plane = v.td * deep.results + v.j
    along = [padded[v.w, v.th * high.results + at, plane, v.c, v.n] for at in range(high.products)]
    heights[v.w, v.i, v.j, v.th, v.td, v.c, v.n] = select_row(v.i, high.data, along)
    across = [
        heights[v.w, v.e % high.products, at, v.th, v.td, v.c, v.n] for at in range(deep.products)
    ]
    data[v.w, v.c, v.th, v.td, v.e, v.n] = select_row(v.e // high.products, deep.data, across)
    return {PADDED: padded, HEIGHTS: heights, DATA: data}


def _summed(
    weights: hl.ImageParam, data: hl.Func, shape: ConvNchwShape, transforms: RowTransforms
) -> dict[str, hl.Func]:
    planes = depth_taps(shape, transforms)
    r = hl.RDom([(0, shape.kernel[0]), (0, planes), (0, shape.channels_in)], "r")
    products, gathered = hl.Func(PRODUCTS), hl.Func(GATHERED)
    place = (v.w, v.u, v.th, v.td, v.b, v.e, v.n)
    products[place] = constant(0.0)
    column = v.w + r[0] * shape.dilations[0]
    read = data[column, r[2], v.th, v.td + r[1], v.e, v.n]
    products[place] += read * weights[v.u, r[0], r[1], r[2], v.e, v.b]
    # values of a tile are neighbours: some kilobytes apart they would share a few sets of the cache
    gathered[v.w, v.e, v.u, v.th, v.td, v.b, v.n] = products[place]
    for stage in (products, gathered):
        stage.bound_extent(v.u, PANEL)
    return {PRODUCTS: products, SUMMED: products.update(), GATHERED: gathered}


def _back(gathered: hl.Func, transforms: RowTransforms) -> dict[str, hl.Func]:
    high, deep = transforms.high, transforms.deep
    columns, tile = hl.Func(COLUMNS), hl.Func(TILE)
    place = (v.w, v.u, v.i, v.j, v.th, v.td, v.b, v.n)
    planes = [
        gathered[v.w, at * high.products + v.i, v.u, v.th, v.td, v.b, v.n]
        for at in range(deep.products)
    ]
    columns[place] = select_row(v.j, deep.result, planes)
    rows = [columns[v.w, v.u, at, v.j, v.th, v.td, v.b, v.n] for at in range(high.products)]
    tile[place] = select_row(v.i, high.result, rows)
    return {COLUMNS: columns, TILE: tile}


def _packing(shape: ConvNchwShape, transforms: RowTransforms) -> PackedInput:
    """Return the transformed weights, computed in float64 and rounded once."""
    high, deep = transforms.high, transforms.deep
    u, t, p, c, e, b = (hl.Var(name) for name in ("u", "t", "p", "c", "e", "b"))
    weights = hl.ImageParam(hl.Float(32), shape.rank + 2, "weights")
    channel = b * PANEL + u
    written = hl.min(channel, shape.channels_out - 1)
    sides = range(FILTER_SIDE)
    planes = sides if deep.products > 1 else range(1)
    filters = [
        [
            hl.cast(hl.Float(64), weights[pixel(shape, (t, row, p + plane), c, written)])
            for row in sides
        ]
        for plane in planes
    ]
    rows = [select_row(e % high.products, high.weights, values) for values in filters]
    value = select_row(e // high.products, deep.weights, rows)
    packed = hl.Func("packed")
    single = hl.select(channel < shape.channels_out, hl.cast(hl.Float(32), value), constant(0.0))
    packed[u, t, p, c, e, b] = single
    packed.bound(e, 0, transforms.products).reorder(u, e, t, p, c, b).unroll(e)
    return PackedInput(output=packed, argument=weights, argument_extents=shape.weight_extents)


def _tiles(shape: ConvNchwShape, transforms: RowTransforms) -> tuple[int, int]:
    """Return tiles down an image and into its depth."""
    high, deep = transforms.high.results, transforms.deep.results
    return -(-shape.result[1] // high), -(-shape.result[2] // deep)


def _best_tiles(shape: ConvNchwShape, transforms: RowTransforms, vectors: int) -> tuple[Tile, ...]:
    panels, down = -(-shape.channels_out // PANEL), _tiles(shape, transforms)[0]
    found = [
        (blocks, across, high)
        for blocks, across, high in product(_BLOCKS, range(1, 8), _DOWN)
        if panels % blocks == 0
        and down % high == 0
        and VECTOR * across <= shape.result[0]
        and blocks * PANEL * across * high + across * high + 1 <= vectors
    ]
    return tuple(sorted(found, key=lambda tile: (_tile_cost(tile, shape), tile))[:_BEST_TILES])


def _tile_cost(tile: Tile, shape: ConvNchwShape) -> float:
    """Return cycles per product and vector of results that count."""
    blocks, across, down = tile
    sums, kept = blocks * PANEL * across * down, across * down
    busy = max(0.5, 4 / sums, 0.55 * (1.5 * kept + blocks * PANEL) / sums) + 0.1 / sums
    wide = VECTOR * across
    busy += 0.01 * (down - 1)
    return busy * -(-shape.result[0] // wide) * wide / shape.result[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWinograd(TiledAlgorithm[ConvNchwPlan]):
    """Fewer products on tiles that are transformed across rows."""

    results: int  # Of a tile, down an image

    def _of(self, plan: ConvNchwPlan) -> RowTransforms:
        return transforms_of(plan.shape, self.results)

    def pipeline(self, plan: ConvNchwPlan) -> Pipeline:
        return row_winograd_pipeline(plan, self._of(plan))

    def tiles(self, plan: ConvNchwPlan, target: KernelTarget) -> Sequence[Tile]:
        return _best_tiles(plan.shape, self._of(plan), vectors_of(target))

    def rows(self, plan: ConvNchwPlan, target: KernelTarget) -> tuple[int, ...]:
        down = _tiles(plan.shape, self._of(plan))[0]
        return tuple(n for n in (1, 2, 4, 8, 16) if down % n == 0)

    def fits(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> bool:
        """True for the register tiles a shape is offered, in groups that have as many."""
        tile, rows = tile_of(values), int(values[TILE_ROWS])
        down = _tiles(plan.shape, self._of(plan))[0]
        if values[SCOPE] != GROUP or down % rows or rows % tile[2]:
            return False
        return tile in self.tiles(plan, target)

    def cost(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> float:
        """Return the estimated cycles: products, transforms, traffic, idle threads."""
        shape, transforms, rows = plan.shape, self._of(plan), int(values[TILE_ROWS])
        down, deep = _tiles(shape, transforms)
        wide = -(-(shape.result[0] + shape.kernel[0] - 1) // VECTOR)
        per_tile = transforms.products * wide  # vectors of one channel
        taps = shape.kernel[0] * shape.taps[2] if transforms.deep.products == 1 else shape.kernel[0]
        depth = shape.channels_in * taps
        sums = transforms.products * shape.result[0] / VECTOR * shape.channels_out
        cycles = sums * depth * _tile_cost(tile_of(values), shape)
        read = (rows * transforms.high.results + 2) / rows * transforms.deep.products * wide
        cycles += (_COPY_CYCLES * read + _TRANSFORM_CYCLES * per_tile) * shape.channels_in
        cycles += _TRANSFORM_CYCLES * per_tile * shape.channels_out
        # data and products of a group, which pass through the second-level cache
        held = 4 * VECTOR * per_tile * (shape.channels_in + shape.channels_out) * rows
        weights = 4 * transforms.products * depth * shape.channels_out
        if held > 0.7 * target.l2_bytes:
            cycles += 2 * held / rows / FAR_BYTES_PER_CYCLE
        # else weights stay there, too, from one group to the next
        if held + weights > 0.7 * target.l2_bytes:
            cycles += weights / rows / FAR_BYTES_PER_CYCLE
        tasks = shape.batch * deep * down // rows
        idle = target.idle_ratio(tasks)
        return cycles * prod((down, deep, shape.batch)) * idle

    def steps(self, values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
        transforms = self._of(plan)
        yield from _result_steps(values, plan, transforms)
        yield from _data_steps(transforms)
        yield from _sum_steps(values)


def _result_steps(values: Values, plan: ConvNchwPlan, transforms: RowTransforms) -> Iterator[Step]:
    shape = plan.shape
    sides = {"in_h": transforms.high.results}
    yield sch.Split(RESULT, "h", "h", "in_h", transforms.high.results, sch.Tail.GUARD)
    if shape.rank > 2:
        sides["in_d"] = transforms.deep.results
        yield sch.Split(RESULT, "d", "d", "in_d", transforms.deep.results, sch.Tail.GUARD)
    # the last vector of a row overlaps the one before
    yield sch.Split(RESULT, "w", "w", "lane", VECTOR, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, "o", "b", "o", PANEL, sch.Tail.GUARD)
    yield sch.Split(RESULT, "h", "group", "h", int(values[TILE_ROWS]), sch.Tail.GUARD)
    outer = ("d",) if shape.rank > 2 else ()
    yield sch.Reorder(RESULT, ("lane", *sides, "w", "o", "b", "h", "group", *outer, "n"))
    tile = {} if plan.epilogue.is_heavy else sides
    yield from register_steps((RESULT,), ("lane", VECTOR), tile)
    for name in ("n", *outer, "group"):
        yield sch.Parallel(RESULT, name)
    rows = {COLUMNS: transforms.high.products, TILE: transforms.high.results}
    for stage, count in rows.items():
        yield sch.ComputeAt(stage, RESULT, "w")
        sides = {"i": count, "j": transforms.deep.results}
        yield from register_steps((stage,), ("w", VECTOR), sides)


def _data_steps(transforms: RowTransforms) -> Iterator[Step]:
    for stage in (PADDED, DATA):
        yield sch.ComputeAt(stage, RESULT, "group")
        yield sch.Split(stage, "w", "w", "lane", VECTOR, sch.Tail.ROUND_UP)
        yield sch.Vectorize(stage, "lane", VECTOR)
    # values of a tile innermost: they are made of the same transformed heights
    yield sch.Reorder(DATA, ("lane", "e", "w", "th", "c", "td", "n"))
    yield sch.Unroll(DATA, "e", transforms.products)
    yield sch.ComputeAt(HEIGHTS, DATA, "w")
    sides = {"i": transforms.high.products, "j": transforms.deep.products}
    yield from register_steps((HEIGHTS,), ("w", VECTOR), sides)


def _sum_steps(values: Values) -> Iterator[Step]:
    blocks, across, down = tile_of(values)
    yield sch.ComputeAt(GATHERED, RESULT, "group")
    yield sch.Split(GATHERED, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    yield sch.Split(GATHERED, "w", "w", "in_w", VECTOR * across, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(GATHERED, "th", "th", "in_th", down, sch.Tail.GUARD)
    yield sch.Reorder(GATHERED, ("in_w", "in_th", "u", "in_b", "w", "th", "b", "td", "e", "n"))
    inner = {"in_w": across, "in_th": down, "u": PANEL, "in_b": blocks}
    yield from register_steps((GATHERED,), ("in_w", VECTOR), several(inner))
    yield sch.ComputeAt(PRODUCTS, GATHERED, "w")
    # each step of the depth adds to every sum of a tile once: none waits for itself
    yield sch.Reorder(SUMMED, ("w", "th", "u", "b", "r$x", "r$y", "r$z", "td", "e", "n"))
    summed = {"w": across, "th": down, "u": PANEL, "b": blocks}
    yield from register_steps((PRODUCTS, SUMMED), ("w", VECTOR), several(summed))


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
    stages = _line_data(arguments.at(X), shape)
    stages |= _line_sums(arguments.at(WEIGHTS), stages[DATA], shape)
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
        packing=_line_packing(shape),
        padded=frozenset({PADDED, DATA}),
    )


def _line_data(x: hl.ImageParam, shape: ConvNchwShape) -> dict[str, hl.Func]:
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


def _line_sums(weights: hl.ImageParam, data: hl.Func, shape: ConvNchwShape) -> dict[str, hl.Func]:
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


def _line_packing(shape: ConvNchwShape) -> PackedInput:
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


def is_long_enough(shape: ConvNchwShape) -> bool:
    """Return True if tiles fill a vector."""
    return shape.result[0] >= RESULTS * VECTOR


def _best_line_tiles(shape: ConvNchwShape, vectors: int) -> tuple[Tile, ...]:
    """Return panels of channels and vectors of tiles of the best register tiles, in one row."""
    panels = -(-shape.channels_out // PANEL)
    found = [
        (blocks, across, 1)
        for blocks, across in product(_LINE_BLOCKS, _LINE_ACROSS)
        if panels % blocks == 0
        and RESULTS * VECTOR * across <= shape.result[0]
        and blocks * PANEL * across + across + 1 <= vectors
    ]
    return tuple(sorted(found, key=lambda tile: (_line_tile_cost(*tile[:2]), tile))[:_BEST_TILES])


def _line_tile_cost(blocks: int, across: int) -> float:
    """Return cycles per product and vector of results."""
    sums = blocks * PANEL * across
    busy = max(0.5, 4 / sums, 0.55 * (across + blocks * PANEL) / sums) + 0.1 / sums
    return busy + 0.3 / (blocks * PANEL)  # data come from the second cache for each tile


@dataclass(frozen=True, slots=True, kw_only=True)
class LineWinograd(TiledAlgorithm[ConvNchwPlan]):
    """Fewer products of signals, on tiles that are transformed along them."""

    def pipeline(self, plan: ConvNchwPlan) -> Pipeline:
        return line_winograd_pipeline(plan)

    def tiles(self, plan: ConvNchwPlan, target: KernelTarget) -> Sequence[Tile]:
        return _best_line_tiles(plan.shape, vectors_of(target))

    def rows(self, plan: ConvNchwPlan, target: KernelTarget) -> tuple[int, ...]:
        return _LINE_GROUPS

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
        cycles = TILE_PRODUCTS * depth * shape.channels_out * _line_tile_cost(blocks, across)
        cycles += _LINE_CYCLES * TILE_PRODUCTS * (depth + shape.channels_out)
        held = 4 * VECTOR * TILE_PRODUCTS * (depth + shape.channels_out) * rows
        weights = 4 * TILE_PRODUCTS * depth * shape.channels_out
        if held > 0.7 * target.l2_bytes:
            cycles += 2 * held / rows / FAR_BYTES_PER_CYCLE
        # else weights stay in the second-level cache from one group to the next
        if held + weights > 0.7 * target.l2_bytes:
            cycles += weights / rows / FAR_BYTES_PER_CYCLE
        groups = -(-shape.result[0] // (RESULTS * VECTOR * rows))
        tasks = groups * shape.batch
        return cycles * rows * tasks * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
        yield from _line_result_steps(values, plan)
        yield from _line_data_steps(plan.shape)
        yield from _line_sum_steps(values)


def _line_result_steps(values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
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


def _line_data_steps(shape: ConvNchwShape) -> Iterator[Step]:
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


def _line_sum_steps(values: Values) -> Iterator[Step]:
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
