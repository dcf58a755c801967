"""Direct convolution of levels: sums of a register tile in 32 bits, exact on every CPU.

A vector holds channels. With VNNI one instruction multiplies four unsigned levels of a pixel by
four signed weights of each of 16 channels and adds them to 32-bit sums (`vpdpbusd`); without it,
pairs of 16 bits do the same (`vpmaddwd`). `vpmaddubsw`, which saturates in 16 bits, is never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from typing import Any

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import UPDATE, KernelTarget, PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.quantised_conv.shape import (
    LANES,
    WEIGHTS,
    Buffers,
    Loops,
    QuantisedPlan,
    QuantisedShape,
    Unit,
    pipeline_of,
    raw_weights,
    read_buffers,
    requantised,
    results,
    weight_at,
    with_zeros,
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
    task_steps,
    tile_of,
)
from aoe.schedule import Step, Values

PADDED, SUMS = "padded", "sums"
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


def direct_pipeline(plan: QuantisedPlan, unit: Unit) -> Pipeline:
    """Return the algorithm; weights and their sums are packed once, when the kernel is created."""
    shape = plan.shape
    weights = weight_extents(shape, unit)
    buffers = read_buffers(plan, weights, unit.weight_type)
    weight_sum = hl.ImageParam(hl.Int(32), 3, "weight_sum")
    padded = _padded(buffers, shape, unit) if needs_copy(plan, unit) else None
    offset, factor = requantised(plan, buffers, weight_sum)

    def level(
        part: hl.Expr, number: hl.Expr, g: hl.Expr, w: hl.Expr, h: hl.Expr, n: hl.Expr
    ) -> hl.Expr:
        place = (unit.size * number + part, g, w, h, n)
        return buffers.level(*place) if padded is None else padded[place]

    sums, reduced = direct_sums(shape, buffers.at(WEIGHTS), level, offset, unit)
    place = (v.o, v.g, v.w, v.h, v.n)
    block = v.o // LANES
    channel = v.o % LANES, block, v.g
    total = sums[(*channel, v.w, v.h, v.n)]
    made = results(plan, buffers, total, factor[channel], place)
    outer = (("g", 0), ("w", 0), ("h", 0), ("n", 0))
    of_sums = (("lane", LANES), ("block", 0), *outer)
    parts: dict[str, tuple[Any, Loops]] = {
        SUMS: (sums, of_sums),
        SUMMED: (sums.update(), (*of_sums, *reduced)),
    }
    if padded is not None:
        parts[PADDED] = padded, (("i", 0), *outer)
    return pipeline_of(
        buffers,
        weight_sum,
        made,
        place,
        parts,
        weights=packed_weights(plan, unit),
        sum_extents=(LANES, shape.blocks, shape.groups),
        padded=(SUMS, PADDED),
    )


def units_of(shape: QuantisedShape, unit: Unit) -> int:
    return -(-shape.channels_in // unit.size)


def weight_extents(shape: QuantisedShape, unit: Unit) -> tuple[int, ...]:
    """Return the extents of the packed weights, innermost first (see `packed_weights`)."""
    outer = (*shape.kernel, shape.blocks, shape.groups)
    return unit.size, LANES, units_of(shape, unit), *outer


def packed_weights(plan: QuantisedPlan, unit: Unit) -> PackedInput:
    """Return packed weights over (unit, lanes, units, column, row, blocks, groups)."""
    raw, extents = raw_weights(plan, "weights")
    packed, i = hl.Func("packed"), v.unit * unit.size + v.part
    weight = weight_at(plan, raw, (v.x, v.y), i, (v.lane, v.block, v.g))
    packed[v.part, v.lane, v.unit, v.x, v.y, v.block, v.g] = hl.cast(unit.weight_type, weight)
    return PackedInput(output=packed, argument=raw, argument_extents=extents, dtype=unit.weights)


def needs_copy(plan: QuantisedPlan, unit: Unit) -> bool:
    """Return True if levels are not read from the image itself."""
    shape = plan.shape
    is_whole = shape.channels_in % unit.size == 0
    is_as_given = not plan.is_signed and unit.levels == "uint8"
    return shape.has_padding or not is_whole or not is_as_given


def _padded(buffers: Buffers, shape: QuantisedShape, unit: Unit) -> hl.Func:
    """Return the image with its zeros, channels innermost, over (channel, group, w, h, n)."""
    levels, padded = with_zeros(buffers, is_padded=shape.has_padding), hl.Func(PADDED)
    w, h = v.w - shape.before[0], v.h - shape.before[1]
    padded[v.i, v.g, v.w, v.h, v.n] = hl.cast(unit.level_type, levels[w, h, v.i, v.g, v.n])
    padded.compute_root()
    return padded


Level = Callable[[hl.Expr, hl.Expr, hl.Expr, hl.Expr, hl.Expr, hl.Expr], hl.Expr]
"""Level of an image by part and number of a unit of channels, group, column, row and image."""


def direct_sums(
    shape: QuantisedShape,
    weights: hl.ImageParam,
    level: Level,
    offset: hl.Func,
    unit: Unit,
) -> tuple[hl.Func, tuple[tuple[str, int], ...]]:
    """Return sums over (lane, block, group, w, h, n), and the loops that sum up.

    Args:
        shape: What is computed.
        weights: Packed ones.
        level: Of the image.
        offset: What sums start from.
        unit: Products summed up at once.
    """
    sums, place = hl.Func(SUMS), (v.lane, v.block, v.g, v.w, v.h, v.n)
    extents = (unit.size, units_of(shape, unit), *shape.kernel)
    r = hl.RDom([(0, extent) for extent in extents], "r")
    w, h = (
        axis * stride + tap * dilation
        for axis, stride, tap, dilation in zip(
            (v.w, v.h), shape.strides, (r.z, r.w), shape.dilations, strict=True
        )
    )
    block = hl.min(v.block, shape.blocks - 1)  # tiles may go past the last one
    weight = weights[r.x, v.lane, r.y, r.z, r.w, block, v.g]
    sums[place] = offset[v.lane, block, v.g]
    sums[place] += hl.i32(level(r.x, r.y, v.g, w, h, v.n)) * hl.i32(weight)
    sums.bound_extent(v.lane, LANES).compute_root()
    loops = zip((r.x, r.y, r.z, r.w), extents, strict=True)
    return sums, tuple((loop.name(), extent) for loop, extent in loops)


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
        panels = -(-shape.blocks // tile[0]) * shape.groups
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

    def sum_steps(self, values: Values) -> Iterator[Step]:
        """Yield the steps of the sums of a register tile."""
        return _sum_steps(values, self.unit)

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        blocks, wide, high = tile_of(values)
        yield from _result_order(values)
        tile = {"in_block": blocks, "in_w": wide, "in_h": high}
        yield from register_steps((RESULT,), ("lane", LANES), tile)
        if needs_copy(plan, self.unit):
            yield from copy_steps(values, PADDED, "h")
            yield sch.Vectorize(PADDED, "i", _copy_lanes(plan.shape, self.unit))
        yield from self.sum_steps(values)


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
    loads = (blocks * vectors + pixels) / (blocks * vectors * pixels)
    sums = blocks * vectors * pixels
    waiting = max(1.0, _LEAST_SUMS / sums) + _WAIT / sums
    return repeated * (waiting + _LOAD * loads)


def _whole(extent: int, part: int) -> int:
    return -(-extent // part) * part


def _result_order(values: Values) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
    # guarded: a block is 16 channels, whatever the result has
    yield sch.Split(RESULT, "o", "panel", "in_panel", LANES * blocks, sch.Tail.GUARD)
    yield sch.Split(RESULT, "in_panel", "in_block", "lane", LANES, sch.Tail.GUARD)
    inner = ("lane", "in_block", "in_w", "in_h", "w", "h", "panel", "g")
    yield from group_steps(values, inner)
    yield from task_steps(values, "panel")


def _copy_lanes(shape: QuantisedShape, unit: Unit) -> int:
    """Return levels copied at once: the largest power of two that whole units are made of."""
    channels = units_of(shape, unit) * unit.size
    return min(_COPY_LANES, channels & -channels)


def _sum_steps(values: Values, unit: Unit) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    yield sch.ComputeAt(SUMS, RESULT, "w")
    for stage in (SUMS, SUMMED):
        # sums behind the last block are made, and never read: no guard in the hot loop
        yield sch.Split(stage, "block", "block", "in_block", blocks, sch.Tail.ROUND_UP)
        if stage == SUMMED:
            inner = ("r$x", "lane", "in_block", "w", "h")
            yield sch.Reorder(stage, (*inner, "r$y", "r$z", "r$w", "block", "g", "n"))
            # without it Halide sees a race in the sum of a unit
            yield sch.Atomic(stage)
            yield sch.Vectorize(stage, "r$x", unit.size)
        tile = {"in_block": blocks, "w": wide, "h": high}
        yield from register_steps((stage,), ("lane", LANES), tile)
