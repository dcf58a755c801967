"""Winograd's minimal filtering in groups of channels that fill no vector: groups woven together.

A vector of 16 channels holds channels of several groups in turn: of groups of 24, channel 0 of the
first, 0 of the second, 1 of the first. A value of each group, side by side in memory, is one
broadcast then, and meets only weights of its own group: no product is made with a zero. Groups
that fill whole vectors together are a bundle: two groups of 24 are three vectors.

The stages, for tiles of m x m results (T = m + 2):

    square       some pixels of the image with the channels of a vector, in planes
    woven        the image with channels innermost, a bundle's groups in turn
    padded       the same with its zeros around it
    rows         B^T d, the tile transformed along its columns
    data         (B^T d) B, T x T values per tile and channel
    filters      G g G^T, the weights of a bundle, transformed where they are used: few tiles meet
                 them, and four times as many values would be read from memory else
    products     sums over the channels of a group of data times weights
    gathered     the finished products of a group of tiles
    columns      A^T products
    tile         (A^T products) A, m x m results per tile and channel
    unwoven      some pixels of that with the channels of a vector
    planes       rows of tiles in planes
    y            bias, the tensor added, activation, the chain
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd

import halide as hl

from aoe import schedule as sch
from aoe.kernels.conv_nchw.direct import FAR_BYTES_PER_CYCLE, VECTOR, vectors_of
from aoe.kernels.conv_nchw.shape import (
    WEIGHTS,
    ConvNchwPlan,
    ConvNchwShape,
    X,
    finished_value,
    pixel,
    plain_arguments,
)
from aoe.kernels.conv_nchw.winograd import FILTER_SIDE
from aoe.kernels.conv_nchwc.direct import PADDED, PRODUCTS, SUMMED
from aoe.kernels.conv_nchwc.shape import finished_pipeline
from aoe.kernels.conv_nchwc.winograd.tiles import (
    COLUMNS,
    DATA,
    GATHERED,
    ROWS,
    TILE,
    back_transformed,
    product_steps,
    stored_extents,
    transformed_tiles,
)
from aoe.kernels.conv_nchwc.winograd.transforms import Transforms, select_row, square
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

SQUARE, WOVEN, UNWOVEN, PLANES = "square", "woven", "unwoven", "planes"
FILTERS = "filters"
_SIDES = (FILTER_SIDE, FILTER_SIDE)
_MOST_CHANNELS = 64
"""Channels of a group up to which it is offered: more fill vectors well enough as they are."""
_PIXELS = 8
"""Neighbours in a row that are turned at once with the channels of a vector."""
_TURNED = 8
"""Channels that are turned at once."""
_GROUPS = (1, 2, 4, 7, 14)
"""Rows of tiles of a group."""
_ACROSS, _DOWN = range(1, 15), (1, 2, 4)
_BEST_TILES = 3
_TRANSFORM_CYCLES, _FILTER_CYCLES = 26, 4
"""Cycles for a value of a tile in a vector of channels, all that is not its products: copied,
turned, transformed, and back; for a vector of transformed weights. Groups of 24 channels of 14x14
take 226 us, of which products are 85; groups of 4 of 56x56, which have few products, 1.1 times as
long as `direct_rows` (one thread of a Zen 4 with other work, CPU time, 2026-11-28)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundles:
    """Groups of channels in vectors they share."""

    groups: int  # All of them
    channels: int  # Of one group, read and written alike

    @property
    def together(self) -> int:
        """Groups of a bundle."""
        return VECTOR // gcd(self.channels, VECTOR)

    @property
    def each(self) -> int:
        """Channels a vector has of one group."""
        return VECTOR // self.together

    @property
    def vectors(self) -> int:
        """Vectors of a bundle."""
        return self.channels // self.each

    @property
    def count(self) -> int:
        """Bundles; the last one may have groups that are not there."""
        return -(-self.groups // self.together)

    def channel_of(self, lane: hl.Expr, vector: hl.Expr) -> hl.Expr:
        """Return the channel a lane of a vector holds; any where its group is not there."""
        group = vector // self.vectors * self.together + lane % self.together
        inside = vector % self.vectors * self.each + lane // self.together
        return hl.min(group * self.channels + inside, self.groups * self.channels - 1)

    def place_of(self, channel: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
        """Return the lane and the vector of a channel."""
        group, inside = channel // self.channels, channel % self.channels
        lane = inside % self.each * self.together + group % self.together
        return lane, group // self.together * self.vectors + inside // self.each


def bundles_of(shape: ConvNchwShape) -> Bundles:
    """Return the bundles of the groups of a convolution."""
    return Bundles(groups=shape.groups, channels=shape.channels_in)


def check_group_winograd(shape: ConvNchwShape) -> Support:
    """Check that filters of 3 x 3 and stride 1 are in groups of few channels."""
    if shape.is_open or shape.is_transposed or shape.rank != len(_SIDES):
        return Support("no image of one size")
    if shape.kernel[:2] != _SIDES or set(shape.strides + shape.dilations) != {1}:
        return Support(f"filters {shape.kernel}, strides or dilations")
    channels = shape.channels_in
    is_alone = channels == 1  # nothing is summed up that would pay for the transforms
    if shape.groups == 1 or shape.channels_out != channels or is_alone or channels > _MOST_CHANNELS:
        return Support(f"{shape.groups} groups of {channels} and {shape.channels_out} channels")
    is_small = min(shape.image[:2] + shape.result[:2]) < _PIXELS // 2
    return Support("a small image") if is_small else SUPPORTED


def group_winograd_pipeline(plan: ConvNchwPlan, transforms: Transforms) -> Pipeline:
    """Return the algorithm.

    The weights are packed once, when the kernel is created, and walked from end to end. From the
    innermost: lanes of a vector, values of a filter, vectors of a bundle, channels of a group,
    bundles.
    """
    shape, bundles, size = plan.shape, bundles_of(plan.shape), transforms.products
    taps = FILTER_SIDE**2
    extents = VECTOR, taps, bundles.vectors, shape.channels_in, bundles.count
    arguments = plain_arguments(plan, extents, hl.Float(32))
    stages = _transformed(arguments.at(X), shape, transforms)
    stages[FILTERS] = _filters(arguments.at(WEIGHTS), transforms)
    stages |= _summed(stages[FILTERS], stages[DATA], bundles)
    spread = stored_extents(tiles_of(shape, transforms)[0], bundles.vectors)
    for name in (DATA, GATHERED):
        stages[name].align_storage(v.tx, spread[0]).align_storage(v.b, spread[1])
    stages |= back_transformed(stages[GATHERED], square(transforms))
    step = transforms.results
    unwoven, planes, result = hl.Func(UNWOVEN), hl.Func(PLANES), hl.Func(RESULT)
    inside = v.w % step, v.h % step, v.w // step, v.h // step
    unwoven[v.o, v.w, v.h, v.b, v.n] = stages[TILE][(v.o, *inside, v.b, v.n)]
    planes[v.w, v.o, v.h, v.b, v.n] = unwoven[v.o, v.w, v.h, v.b, v.n]
    place = pixel(shape, (v.w, v.h, v.d), v.o, v.n)
    lane, vector = bundles.place_of(v.o)
    summed = planes[v.w, lane, v.h, vector, v.n]
    result[place] = finished_value(plan, arguments, summed, place)
    return finished_pipeline(
        arguments,
        {**stages, UNWOVEN: unwoven, PLANES: planes},
        result,
        extents=shape.result_extents,
        known={"e": size**2},
        own={
            WOVEN: {"c": VECTOR, "w": shape.image[0]},
            PADDED: {"c": VECTOR},
            ROWS: {"c": VECTOR, "j": size, "i": size},
            DATA: {"c": VECTOR},
            FILTERS: {"o": VECTOR},
            PRODUCTS: {"o": VECTOR},
            GATHERED: {"o": VECTOR},
            COLUMNS: {"o": VECTOR, "j": size, "i": step},
            TILE: {"o": VECTOR, "j": step, "i": step},
            UNWOVEN: {"o": VECTOR},
            PLANES: {"o": VECTOR, "w": shape.result[0]},
        },
        reduced={SUMMED: (("r$x", bundles.each), ("r$y", bundles.vectors))},
        packing=_packing(shape),
    )


def tiles_of(shape: ConvNchwShape, transforms: Transforms) -> tuple[int, int]:
    """Return tiles across and down an image."""
    across, down = (-(-extent // transforms.results) for extent in shape.result[:2])
    return across, down


def _transformed(
    x: hl.ImageParam, shape: ConvNchwShape, transforms: Transforms
) -> dict[str, hl.Func]:
    padded, pixels, woven = hl.Func(PADDED), hl.Func(SQUARE), hl.Func(WOVEN)
    channel = bundles_of(shape).channel_of(v.c, v.b)
    pixels[v.w, v.c, v.h, v.b, v.n] = x[v.w, v.h, channel, v.n]
    woven[v.c, v.w, v.h, v.b, v.n] = pixels[v.w, v.c, v.h, v.b, v.n]
    padded[v.c, v.w, v.h, v.b, v.n] = _with_zeros(woven, shape)
    return {SQUARE: pixels, WOVEN: woven, **transformed_tiles(padded, square(transforms))}


def _with_zeros(woven: hl.Func, shape: ConvNchwShape) -> hl.Expr:
    """Return a value of the image, zero outside of it, counted from the first zero before it."""
    column, row = v.w - shape.before[0], v.h - shape.before[1]
    wide, high = shape.image[:2]
    inside = (column >= 0) & (column < wide) & (row >= 0) & (row < high)
    near = hl.clamp(column, 0, wide - 1), hl.clamp(row, 0, high - 1)
    return hl.select(inside, woven[(v.c, *near, v.b, v.n)], constant(0.0))


def _filters(weights: hl.ImageParam, transforms: Transforms) -> hl.Func:
    """Return the transformed weights; one value of a tile has its weights side by side."""
    size, sides, filters = transforms.products, range(FILTER_SIDE), hl.Func(FILTERS)
    columns = [
        [weights[v.o, FILTER_SIDE * row + column, v.b, v.c, v.p] for row in sides]
        for column in sides
    ]
    down = [select_row(v.e // size, transforms.weights, rows) for rows in columns]
    filters[v.o, v.b, v.c, v.e, v.p] = select_row(v.e % size, transforms.weights, down)
    return filters


def _summed(filters: hl.Func, data: hl.Func, bundles: Bundles) -> dict[str, hl.Func]:
    together, vectors = bundles.together, bundles.vectors
    r = hl.RDom([(0, bundles.each), (0, vectors)], "r")
    products, gathered = hl.Func(PRODUCTS), hl.Func(GATHERED)
    place = (v.o, v.tx, v.ty, v.b, v.e, v.n)
    products[place] = constant(0.0)
    # one value of each group of the bundle: neighbours, which a vector repeats
    lane, vector = r[0] * together + v.o % together, v.b // vectors * vectors + r[1]
    channel = r[0] + bundles.each * r[1]
    weight = filters[v.o, v.b % vectors, channel, v.e, v.b // vectors]
    products[place] += data[lane, v.tx, v.ty, vector, v.e, v.n] * weight
    gathered[place] = products[place]
    return {PRODUCTS: products, SUMMED: products.update(), GATHERED: gathered}


def _packing(shape: ConvNchwShape) -> PackedInput:
    """Return the weights by lanes; lanes without a group hold any weights."""
    bundles = bundles_of(shape)
    o, t, b, c, p = (hl.Var(name) for name in ("o", "t", "b", "c", "p"))
    weights = hl.ImageParam(hl.Float(32), shape.rank + 2, "weights")
    written = bundles.channel_of(o, p * bundles.vectors + b)
    packed = hl.Func("packed")
    packed[o, t, b, c, p] = weights[t % FILTER_SIDE, t // FILTER_SIDE, c, written]
    return PackedInput(output=packed, argument=weights, argument_extents=shape.weight_extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWinograd(TiledAlgorithm[ConvNchwPlan]):
    """Fewer products in groups of channels that fill no vector."""

    transforms: Transforms  # Of the tiles

    def pipeline(self, plan: ConvNchwPlan) -> Pipeline:
        return group_winograd_pipeline(plan, self.transforms)

    def tiles(self, plan: ConvNchwPlan, target: KernelTarget) -> Sequence[Tile]:
        vectors = bundles_of(plan.shape).vectors
        across, down = tiles_of(plan.shape, self.transforms)
        found = [
            (blocks, wide, high)
            for blocks, wide, high in product(range(1, vectors + 1), _ACROSS, _DOWN)
            if vectors % blocks == 0
            and wide <= across
            and high <= down
            and blocks * (wide * high + 1) + 1 <= vectors_of(target)
        ] or [(1, 1, 1)]
        ranked = sorted(found, key=lambda tile: (_tile_cost(tile, across, down), tile))
        return tuple(ranked[:_BEST_TILES])

    def rows(self, plan: ConvNchwPlan, target: KernelTarget) -> tuple[int, ...]:
        down = tiles_of(plan.shape, self.transforms)[1]
        return tuple(number for number in _GROUPS if number <= down)

    def fits(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> bool:
        """True for the register tiles a shape is offered, in groups of as many rows."""
        tile, rows = tile_of(values), int(values[TILE_ROWS])
        is_offered = tile in self.tiles(plan, target) and rows in self.rows(plan, target)
        return values[SCOPE] == GROUP and is_offered and tile[2] <= rows

    def cost(self, values: Values, plan: ConvNchwPlan, target: KernelTarget) -> float:
        """Return the estimated cycles: products, transforms, traffic, idle threads."""
        shape, bundles, rows = plan.shape, bundles_of(plan.shape), int(values[TILE_ROWS])
        across, down = tiles_of(shape, self.transforms)
        groups, square = -(-down // rows), self.transforms.products**2
        vectors = bundles.count * bundles.vectors
        made = square * across * down * vectors
        cycles = made * shape.channels_in * _tile_cost(tile_of(values), across, rows)
        cycles += _TRANSFORM_CYCLES * made * (1 + 0.1 / rows)
        cycles += _FILTER_CYCLES * square * vectors * shape.channels_in
        held = 8 * VECTOR * square * across * rows * bundles.vectors
        held += 4 * VECTOR * square * bundles.vectors * shape.channels_in
        if held > 0.7 * target.l2_bytes:
            cycles += groups * bundles.count * held / FAR_BYTES_PER_CYCLE
        tasks = groups * bundles.count * shape.batch
        return cycles * shape.batch * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: ConvNchwPlan) -> Iterator[Step]:
        yield from _result_steps(values, plan, self.transforms)
        yield from _data_steps(plan.shape, self.transforms)
        yield from _filter_steps(self.transforms)
        yield from product_steps(values, VECTOR, is_grouped=True)


def _tile_cost(tile: Tile, across: int, down: int) -> float:
    """Return cycles per product and vector: loads, waits, results computed twice."""
    blocks, wide, high = tile
    sums = blocks * wide * high
    busy = max(0.5, 4 / sums, 0.5 * (blocks + wide * high) / sums) + 0.5 / sums
    repeated = -(-across // wide) * wide / across * (-(-down // high) * high / down)
    return busy * repeated


def _result_steps(values: Values, plan: ConvNchwPlan, transforms: Transforms) -> Iterator[Step]:
    shape, bundles, step = plan.shape, bundles_of(plan.shape), transforms.results
    pixels = _pixels(shape.result[0])
    yield sch.Split(RESULT, "o", "bundle", "o", bundles.together * bundles.channels, sch.Tail.GUARD)
    yield sch.Split(RESULT, "o", "p", "o", bundles.channels, sch.Tail.GUARD)
    yield sch.Split(RESULT, "o", "b", "o", bundles.each, sch.Tail.GUARD)
    yield sch.Split(RESULT, "h", "tile_y", "in_y", step, sch.Tail.GUARD)
    yield sch.Split(RESULT, "tile_y", "group", "tile_y", int(values[TILE_ROWS]), sch.Tail.GUARD)
    yield sch.Split(RESULT, "w", "w", "lane", pixels, sch.Tail.SHIFT_INWARDS)
    inner = ("lane", "o", "p", "w", "in_y", "b", "tile_y")
    yield sch.Reorder(RESULT, (*inner, "group", "bundle", "n"))
    turned = several({"o": bundles.each, "p": bundles.together})
    yield from register_steps((RESULT,), ("lane", pixels), turned)
    for name in ("n", "bundle", "group"):
        yield sch.Parallel(RESULT, name)
    yield sch.ComputeAt(PLANES, RESULT, "b")
    yield sch.Split(PLANES, "w", "w", "in_w", pixels, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(PLANES, "o", "o", "in_o", _TURNED, sch.Tail.GUARD)
    yield sch.Reorder(PLANES, ("in_w", "in_o", "o", "w", "h", "b", "n"))
    yield from register_steps((PLANES,), ("in_w", pixels), {"in_o": _TURNED})
    yield sch.ComputeAt(UNWOVEN, PLANES, "o")
    yield from register_steps((UNWOVEN,), ("o", _TURNED), {"w": pixels})
    yield sch.ComputeAt(TILE, RESULT, "b")
    yield sch.ComputeAt(COLUMNS, TILE, "tx")
    for stage, along in ((TILE, step), (COLUMNS, transforms.products)):
        yield from register_steps((stage,), ("o", VECTOR), {"j": along, "i": step})


def _pixels(row: int) -> int:
    """Return neighbours that are turned at once, of a row of so many pixels."""
    return _PIXELS if row >= _PIXELS else _PIXELS // 2


def _data_steps(shape: ConvNchwShape, transforms: Transforms) -> Iterator[Step]:
    size, pixels = transforms.products, _pixels(shape.image[0])
    for stage in (WOVEN, PADDED, DATA):
        yield sch.ComputeAt(stage, RESULT, "group")
    yield sch.Vectorize(PADDED, "c", VECTOR)
    yield sch.Split(WOVEN, "w", "w", "in_w", pixels, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(WOVEN, "c", "c", "in_c", _TURNED, sch.Tail.GUARD)
    yield sch.Reorder(WOVEN, ("in_c", "in_w", "c", "w", "h", "b", "n"))
    yield from register_steps((WOVEN,), ("in_c", _TURNED), {"in_w": pixels})
    yield sch.ComputeAt(SQUARE, WOVEN, "c")
    yield from register_steps((SQUARE,), ("w", pixels), {"c": _TURNED})
    yield sch.Reorder(DATA, ("c", "e", "tx", "ty", "b", "n"))
    yield sch.Vectorize(DATA, "c", VECTOR)
    # written out, each value of a tile has the constants of its row of the transform
    yield sch.Unroll(DATA, "e", size**2)
    yield sch.ComputeAt(ROWS, DATA, "tx")
    yield from register_steps((ROWS,), ("c", VECTOR), {"i": size, "j": size})


def _filter_steps(transforms: Transforms) -> Iterator[Step]:
    yield sch.ComputeAt(FILTERS, RESULT, "bundle")  # for all groups of its tiles
    yield sch.Reorder(FILTERS, ("o", "e", "b", "c", "p"))
    yield from register_steps((FILTERS,), ("o", VECTOR), {"e": transforms.products**2})
