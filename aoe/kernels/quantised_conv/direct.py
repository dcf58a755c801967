"""Direct convolution of levels: sums of a register tile in 32 bits, exact on every CPU.

A vector holds channels. With VNNI one instruction multiplies four unsigned levels of a pixel by
four signed weights of each of 16 channels and adds them to 32-bit sums (`vpdpbusd`); without it,
pairs of 16 bits do the same (`vpmaddwd`). `vpmaddubsw`, which saturates in 16 bits, is never used.
A depthwise convolution multiplies level by weight in 32-bit lanes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import UPDATE, KernelTarget, PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.halide.tables import looked_up, table_of
from aoe.kernels.halide.tiling import row_memory
from aoe.kernels.quantised_conv.shape import (
    LANES,
    WEIGHTS,
    Buffers,
    QuantisedPlan,
    QuantisedShape,
    finished,
    raw_weights,
    read_buffers,
    requantised,
    weight_at,
    weight_sums,
)
from aoe.kernels.tiled_products import (
    GROUP,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    copy_steps,
    group_steps,
    groups_fit,
    register_steps,
    tile_of,
)
from aoe.schedule import Step, Values

PADDED, SUMS, LEVELS, LOOKED_UP = "padded", "sums", "levels", "looked_up"
SUMMED = f"{SUMS}{UPDATE}"
_BLOCKS, _ACROSS, _DOWN, _ROWS = (1, 2, 3, 4, 6), range(1, 29), (1, 2, 4), (1, 2, 4, 7, 14, 28)
_BEST_TILES = 8
_LEAST_SUMS = 10
"""Sums that hide how long one takes: two a cycle, five cycles until each is ready again."""
_WAIT, _LOAD = 4.0, 0.3
"""Cost of the start of a tile, and of a load, in products.

3x3 filters of 128 channels of 28x28 take 307 us in tiles of 2x7x2, 320 in 4x7x1, 344 in 4x3x2, 350
in 1x28x1, 357 in 4x5x1; pointwise ones of 256 channels of 56x56 583 in 4x6x1, 613 in 4x7x1, 626 in
2x14x1, 787 in 1x28x1 (one thread of a Xeon with VNNI and AMX, medians, 2026-11-29).
"""
_COPY_LANES = 64
_LOOKED_UP_BYTES = 32 << 10
"""Of levels that are looked up at once; as many bytes are found."""
_WRITTEN_OUT_MAX = 300
"""Products of a depthwise register tile up to which all rows of the filter are written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Products that one instruction sums up in each lane of 32 bits."""

    size: int  # Products
    image: hl.Type  # Type of the levels
    weights: str  # Type of the packed weights, NumPy spelling

    @property
    def weight_type(self) -> hl.Type:
        return hl.Int(8) if self.weights == "int8" else hl.Int(16)


FOURS = Unit(size=4, image=hl.UInt(8), weights="int8")
PAIRS = Unit(size=2, image=hl.Int(16), weights="int16")
SINGLE = Unit(size=1, image=hl.UInt(8), weights="int8")


def direct_pipeline(plan: QuantisedPlan, unit: Unit) -> Pipeline:
    """Return the algorithm; weights and their sums are packed once, when the kernel is created."""
    shape = plan.shape
    weights = _weight_extents(shape, unit)
    buffers = read_buffers(plan, weights, unit.weight_type)
    weight_sum = hl.ImageParam(hl.Int(32), 3, "weight_sum")
    padded = _padded(buffers, shape, unit) if needs_copy(plan, unit) else None
    sums, reduced = _sums(buffers, padded, unit)
    offset, factor = requantised(plan, buffers, weight_sum)
    result, place = hl.Func(RESULT), shape.place(v.o, v.g, v.w, v.h, v.n)
    channel, pixel = (v.o % LANES, v.o // LANES, v.g), (v.w, v.h, v.n)

    def made(channel: Sequence[hl.Expr]) -> hl.Expr:
        total = sums[(*channel, *pixel)] + offset[tuple(channel)]
        return finished(plan, buffers, total, factor[tuple(channel)], place)

    behind: dict[str, hl.Func] = {}
    if plan.is_looked_up:
        behind = _behind(plan, buffers, made((v.lane, v.block, v.g)))
        result[place] = behind[LOOKED_UP][(*channel, *pixel)]
    else:
        result[place] = made(channel)
    extents = shape.extents(shape.result, shape.channels_out)
    outer = (("g", 0), ("w", 0), ("h", 0), ("n", 0))
    of_sums = (("lane", LANES), ("block", 0), *outer)
    stages = {RESULT: result, SUMS: sums, SUMMED: sums.update(), **behind}
    loops = {
        RESULT: tuple((one.name(), extent) for one, extent in zip(place, extents, strict=True)),
        **dict.fromkeys(behind, of_sums),
        SUMS: of_sums,
        SUMMED: (*of_sums, *reduced),
    }
    if padded is not None:
        stages[PADDED] = padded
        loops[PADDED] = (("i", 0), *outer)
    number = len(buffers.arguments)
    return Pipeline(
        output=result,
        stages=stages,
        arguments=(*buffers.arguments, weight_sum),
        argument_extents=(*buffers.extents, (LANES, shape.blocks, shape.vector_groups)),
        output_extents=extents,
        loops=loops,
        packings={
            plan.inputs[WEIGHTS]: _packed_weights(plan, unit),
            number: weight_sums(plan),
        },
        padded=frozenset({SUMS, PADDED, LEVELS}),
    )


def _behind(plan: QuantisedPlan, buffers: Buffers, level: hl.Expr) -> dict[str, hl.Func]:
    """Return the levels of the convolution, and what the chain makes of them, by look-up.

    Channels are lanes of blocks, as they are in the sums: where a function of the glue needs the
    levels is known at run time only, and so would be which lane a channel is.
    """
    levels, place = hl.Func(LEVELS), (v.lane, v.block, v.g, v.w, v.h, v.n)
    levels[place] = level
    levels.bound(v.lane, 0, LANES).bound(v.w, 0, plan.shape.result[0]).compute_root()
    table = table_of(plan.workload, plan.chain, plan.operation.output, buffers.arguments)
    dtype = plan.workload.output.dtype
    return {LEVELS: levels, LOOKED_UP: looked_up(LOOKED_UP, levels, table, place, dtype)}


def _units(shape: QuantisedShape, unit: Unit) -> int:
    return -(-shape.channels_in // unit.size)


def _weight_extents(shape: QuantisedShape, unit: Unit) -> tuple[int, ...]:
    """Return the extents of the packed weights, innermost first (see `_packed_weights`)."""
    outer = (*shape.kernel, shape.blocks, shape.vector_groups)
    if shape.is_depthwise:
        return LANES, *outer
    return unit.size, LANES, _units(shape, unit), *outer


def _packed_weights(plan: QuantisedPlan, unit: Unit) -> PackedInput:
    """Return packed weights over (unit, lanes, units, column, row, blocks, groups)."""
    raw, extents = raw_weights(plan, "weights")
    where = (v.lane, v.block, v.g)
    packed, kind = hl.Func("packed"), unit.weight_type
    place: tuple[hl.Var, ...]
    if plan.shape.is_depthwise:
        place = (v.lane, v.x, v.y, v.block, v.g)
        packed[place] = hl.cast(kind, weight_at(plan, raw, (v.x, v.y), hl.Expr(0), where))
    else:
        place = (v.part, v.lane, v.unit, v.x, v.y, v.block, v.g)
        i = v.unit * unit.size + v.part
        packed[place] = hl.cast(kind, weight_at(plan, raw, (v.x, v.y), i, where))
    return PackedInput(output=packed, argument=raw, argument_extents=extents, dtype=unit.weights)


def needs_copy(plan: QuantisedPlan, unit: Unit) -> bool:
    """Return True if levels are not read from the image itself."""
    shape = plan.shape
    is_whole = shape.lanes_out % LANES == 0 if shape.is_depthwise else True
    is_whole &= shape.channels_in % unit.size == 0
    is_as_given = shape.channels_last and not plan.is_signed and unit.image == hl.UInt(8)
    return shape.has_padding or not is_whole or not is_as_given


def _padded(buffers: Buffers, shape: QuantisedShape, unit: Unit) -> hl.Func:
    """Return the image with its zeros, channels innermost, over (channel, group, w, h, n)."""
    levels, padded = hl.Func("levels"), hl.Func(PADDED)
    # channels behind the last one meet weights of zero, or make results nobody reads
    channels = shape.lanes_out if shape.is_depthwise else shape.channels_in
    i = hl.min(v.i, channels - 1)
    levels[v.w, v.h, v.i, v.g, v.n] = buffers.level(i, v.g, v.w, v.h, v.n)
    w, h = v.w - shape.before[0], v.h - shape.before[1]
    if shape.has_padding:
        zero = hl.cast(hl.UInt(8), buffers.image_zero())
        bounds = [(0, extent) for extent in shape.image]
        levels = hl.BoundaryConditions.constant_exterior(levels, zero, bounds)
    padded[v.i, v.g, v.w, v.h, v.n] = hl.cast(unit.image, levels[w, h, v.i, v.g, v.n])
    padded.compute_root()
    return padded


def _sums(
    buffers: Buffers, padded: hl.Func | None, unit: Unit
) -> tuple[hl.Func, tuple[tuple[str, int], ...]]:
    """Return sums over (lane, block, group, w, h, n), and the loops that sum up."""
    shape = buffers.plan.shape
    sums, place = hl.Func(SUMS), (v.lane, v.block, v.g, v.w, v.h, v.n)
    extents: tuple[int, ...] = shape.kernel
    if not shape.is_depthwise:
        extents = (unit.size, _units(shape, unit), *extents)
    r = hl.RDom([(0, extent) for extent in extents], "r")
    x, y = (r.x, r.y) if shape.is_depthwise else (r.z, r.w)
    w, h = (
        axis * stride + tap * dilation
        for axis, stride, tap, dilation in zip(
            (v.w, v.h), shape.strides, (x, y), shape.dilations, strict=True
        )
    )
    if buffers.plan.is_looked_up:
        # how many rows the glue needs is known at run time only: Halide would add those of a tile
        last = shape.image[1] - 1
        if padded is not None:
            last = (shape.result[1] - 1) * shape.strides[1] + _reach(shape, 1)
        h = hl.unsafe_promise_clamped(h, 0, last)
    block = hl.min(v.block, shape.blocks - 1)  # tiles may go past the last one
    i = block * LANES + v.lane if shape.is_depthwise else unit.size * r.y + r.x
    level = buffers.level(i, v.g, w, h, v.n) if padded is None else padded[i, v.g, w, h, v.n]
    of_unit = (v.lane,) if shape.is_depthwise else (r.x, v.lane, r.y)
    weight = buffers.at(WEIGHTS)[(*of_unit, x, y, block, v.g)]
    sums[place] = hl.i32(0)
    sums[place] += hl.i32(level) * hl.i32(weight)
    sums.bound_extent(v.lane, LANES).compute_root()
    return sums, tuple(
        (loop.name(), extent)
        for loop, extent in zip((r.x, r.y, r.z, r.w)[: len(extents)], extents, strict=True)
    )


def _reach(shape: QuantisedShape, axis: int) -> int:
    """Return how far the last tap of a filter is from the first."""
    return (shape.kernel[axis] - 1) * shape.dilations[axis]


# ---- schedules ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Direct(TiledAlgorithm[QuantisedPlan]):
    """Sums of a tile of blocks of channels, columns and rows stay in registers."""

    unit: Unit
    needs_vnni: bool = False

    def is_available(self, target: KernelTarget) -> bool:
        return target.int8_dot or not self.needs_vnni

    def pipeline(self, plan: QuantisedPlan) -> Pipeline:
        return direct_pipeline(plan, self.unit)

    def tiles(self, plan: QuantisedPlan, target: KernelTarget) -> Sequence[Tile]:
        return _best_tiles(plan.shape, target.registers, _vectors(target))

    def rows(self, plan: QuantisedPlan, target: KernelTarget) -> tuple[int, ...]:
        return tuple(n for n in _ROWS if n <= plan.shape.result[1])

    def fits(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> bool:
        tile = tile_of(values)
        rows = -(-plan.shape.result[1] // tile[2])
        return tile in self.tiles(plan, target) and groups_fit(values, rows)

    def cost(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> float:
        """Return the relative time: tiles, weights and pixels read again, idle threads."""
        shape, tile = plan.shape, tile_of(values)
        in_tiles = _tile_cost(tile, shape, _vectors(target))
        high = int(values[TILE_ROWS]) * tile[2]
        groups = -(-shape.result[1] // high)
        panels = -(-shape.blocks // tile[0]) * shape.vector_groups
        weights = shape.depth * shape.groups * shape.channels_out * self.unit.size // 4
        image = prod(shape.image) * shape.channels_in * shape.groups
        # what is walked again inside a task comes from the second-level cache, or from behind it
        if values[SCOPE] == GROUP:
            tasks, held, again = groups * shape.batch, weights, weights * groups
            rows = min(shape.result[1], high) * shape.strides[1] + shape.kernel[1] - 1
            again += panels * groups * rows * shape.image[0] * shape.channels_in
        else:
            tasks, held, again = panels * shape.batch, image, image * panels
        far = 1 / 32 if held < 0.7 * target.l2_bytes else 1 / 8
        products = prod(shape.result) * shape.depth * shape.groups * shape.channels_out / 128
        reading = 0.3 * again * far / max(products, 1)
        return (in_tiles + reading) * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        if plan.is_looked_up:
            yield from _looked_up_steps(values, plan.shape)
        else:
            yield from _result_steps(values)
        if needs_copy(plan, self.unit):
            yield from copy_steps(values, PADDED, "h")
            yield sch.Vectorize(PADDED, "i", _copy_lanes(plan.shape, self.unit))
        yield sch.ComputeAt(SUMS, LEVELS if plan.is_looked_up else RESULT, "w")
        yield from _sum_steps(values, plan.shape, self.unit)


def _vectors(target: KernelTarget) -> int:
    """Return registers one block of channels takes."""
    return max(1, LANES // target.vector_lanes)


@cache
def _best_tiles(shape: QuantisedShape, registers: int, vectors: int) -> tuple[Tile, ...]:
    """Return blocks, columns and rows of the best register tiles, best first."""
    found = [
        tile
        for tile in product(_BLOCKS, _ACROSS, _DOWN)
        if vectors * tile[0] * (tile[1] * tile[2] + 1) <= registers
        and tile[0] <= shape.blocks
        and tile[1] <= shape.result[0]
        and tile[2] <= shape.result[1]
    ]
    ranked = sorted(found, key=lambda tile: (_tile_cost(tile, shape, vectors), tile))
    return tuple(ranked[:_BEST_TILES])


def _tile_cost(tile: Tile, shape: QuantisedShape, vectors: int) -> float:
    """Return the relative time of a register tile: results computed twice, waits, loads."""
    blocks, wide, high = tile
    pixels = wide * high
    computed = _whole(shape.result[0], wide) * _whole(shape.result[1], high)
    repeated = computed * _whole(shape.blocks, blocks) / shape.blocks / prod(shape.result)
    if shape.is_depthwise:
        read = ((wide - 1) * shape.strides[0] + shape.kernel[0]) / shape.kernel[0]
        loads = (blocks + blocks * read * high) / (blocks * pixels)
    else:
        loads = (blocks * vectors + pixels) / (blocks * vectors * pixels)
    sums = blocks * vectors * pixels
    waiting = max(1.0, _LEAST_SUMS / sums) + _WAIT / sums
    return repeated * (waiting + _LOAD * loads)


def _whole(extent: int, part: int) -> int:
    return -(-extent // part) * part


def _result_steps(values: Values) -> Iterator[Step]:
    yield from _tile_splits(RESULT, values)
    # guarded: a block is 16 channels, whatever the result has
    yield from _channel_splits(values)
    inner = ("lane", "in_block", "in_w", "in_h", "w", "h", "panel", "g")
    yield from group_steps(values, inner)
    yield from _written_out(RESULT, values)
    yield from _task_steps(values)


def _tile_splits(stage: str, values: Values) -> Iterator[Step]:
    _, wide, high = tile_of(values)
    yield sch.Split(stage, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(stage, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)


def _channel_splits(values: Values) -> Iterator[Step]:
    blocks = tile_of(values)[0]
    yield sch.Split(RESULT, "o", "panel", "in_panel", LANES * blocks, sch.Tail.GUARD)
    yield sch.Split(RESULT, "in_panel", "in_block", "lane", LANES, sch.Tail.GUARD)


def _written_out(stage: str, values: Values) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    tile = {"in_block": blocks, "in_w": wide, "in_h": high}
    yield from register_steps((stage,), ("lane", LANES), tile)


def _looked_up_steps(values: Values, shape: QuantisedShape) -> Iterator[Step]:
    """Yield the steps that look levels up, and copy what is found.

    All rows of a task at once if they stay in the first-level cache, else a row of tiles: a call
    of the glue takes 0.2 us.
    """
    blocks, _, high = tile_of(values)
    rows = high * int(values[TILE_ROWS]) if values[SCOPE] == GROUP else shape.result[1]
    row_bytes = LANES * blocks * shape.result[0]
    at, kept = ("panel", rows) if rows * row_bytes <= _LOOKED_UP_BYTES else ("h", high)
    yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    yield from _channel_splits(values)
    yield from group_steps(values, ("lane", "in_block", "w", "in_h", "h", "panel", "g"))
    yield from register_steps((RESULT,), ("lane", LANES), {"in_block": blocks})
    yield from _task_steps(values)
    for stage in (LEVELS, LOOKED_UP):
        yield sch.ComputeAt(stage, RESULT, at)
        yield sch.StoreIn(stage, row_memory(row_bytes * kept))
    yield from _tile_splits(LEVELS, values)
    # levels behind the last block are made, and never read
    yield sch.Split(LEVELS, "block", "block", "in_block", blocks, sch.Tail.ROUND_UP)
    yield sch.Reorder(LEVELS, ("lane", "in_block", "in_w", "in_h", "w", "h", "block", "g", "n"))
    yield from _written_out(LEVELS, values)


def _task_steps(values: Values) -> Iterator[Step]:
    yield sch.Parallel(RESULT, "n")
    yield sch.Parallel(RESULT, "group" if values[SCOPE] == GROUP else "panel")


def _copy_lanes(shape: QuantisedShape, unit: Unit) -> int:
    """Return levels copied at once: the largest power of two that whole units are made of."""
    channels = shape.blocks * LANES if shape.is_depthwise else _units(shape, unit) * unit.size
    return min(_COPY_LANES, channels & -channels)


def _sum_steps(values: Values, shape: QuantisedShape, unit: Unit) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    for stage in (SUMS, SUMMED):
        # sums behind the last block are made, and never read: no guard in the hot loop
        yield sch.Split(stage, "block", "block", "in_block", blocks, sch.Tail.ROUND_UP)
        if stage == SUMMED:
            outer = ("block", "g", "n")
            if shape.is_depthwise:
                yield sch.Reorder(stage, ("lane", "w", "h", "in_block", "r$x", "r$y", *outer))
            else:
                inner = ("r$x", "lane", "in_block", "w", "h")
                yield sch.Reorder(stage, (*inner, "r$y", "r$z", "r$w", *outer))
                # without it Halide sees a race in the sum of a unit
                yield sch.Atomic(stage)
                yield sch.Vectorize(stage, "r$x", unit.size)
        tile = {"in_block": blocks, "w": wide, "h": high}
        yield from register_steps((stage,), ("lane", LANES), tile)
    if shape.is_depthwise:
        yield sch.Unroll(SUMMED, "r$x", shape.kernel[0])
        if blocks * wide * high * prod(shape.kernel) <= _WRITTEN_OUT_MAX:
            yield sch.Unroll(SUMMED, "r$y", shape.kernel[1])
