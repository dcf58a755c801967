"""Convolution of levels in the CPU's matrix tiles (AMX), exact as every other algorithm.

    padded   rows of the image with its zeros around them, as bytes; nothing where there are none
    sums     sums of products in 32 bits, by `aoe_sum_levels` of the glue
    y        bias and correction, requantised by channel, the chain behind

A row of a filter is one run of bytes in a row of the image: pixels lie side by side. So the depth
of a 3x3 filter of 3 channels is cut into three runs of 9 levels, of 64 channels into three of 192.
Signed levels are summed up as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import SUPPORTED, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.halide.tile_sums import LevelReads, level_sums
from aoe.kernels.quantised_conv.shape import (
    LANES,
    WEIGHTS,
    X_ZERO,
    Buffers,
    Loops,
    QuantisedPlan,
    QuantisedShape,
    X,
    pipeline_of,
    raw_weights,
    read_buffers,
    requantised,
    results,
    weight_at,
)
from aoe.kernels.tiled_products import (
    BLOCKS,
    GROUP,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    parts_in_matrix_tiles,
    rows_in_matrix_tiles,
    tile_of,
)
from aoe.schedule import Step, Values

PADDED, SUMS = "padded", "sums"
_FOUR = 4
_COPIED = 64
"""Bytes copied at once."""
_WRITTEN_OUT = 4
"""Blocks of results that are written out: a cache line."""
_FLAT_RATIO = 0.85
"""Share of the tiles' rows from which down on sums of whole rows of the image are cheaper."""
_LEAST_CYCLES = 13
"""Cycles from one product of tiles to the next, of four that sum up in turns: each takes 52."""


def level_reads(shape: QuantisedShape) -> LevelReads:
    """Return the access pattern of a convolution as tile products read it: a row is a pixel's sum.

    Columns of the filter that lie side by side in memory are one part of the depth.
    """
    columns, rows = shape.kernel
    is_joined = shape.dilations[0] == 1
    return LevelReads(
        depth=shape.channels_in * (columns if is_joined else 1),
        pixel=shape.channels_in,
        kernel=(1 if is_joined else columns, rows),
        strides=shape.strides,
        dilations=shape.dilations,
        flat=shape.result[0] if _is_flat(shape) else 0,
    )


def _pitch(shape: QuantisedShape) -> int:
    """Return the pixels of a row that is read."""
    return (shape.result[0] - 1) * shape.strides[0] + 1 + _margin(shape)


def _margin(shape: QuantisedShape) -> int:
    return (shape.kernel[0] - 1) * shape.dilations[0]


def _is_flat(shape: QuantisedShape) -> bool:
    """Return True if all rows are summed up as one, with what lies between them.

    Seven results fill half of a tile's rows; 61 pixels of 7 rows of 9 fill four tiles.
    """
    if prod(shape.strides) > 1 or not _margin(shape):
        return False
    wide, high = shape.result
    return _tiles(_pitch(shape) * (high - 1) + wide) <= _FLAT_RATIO * high * _tiles(wide)


def _tiles(results: int) -> int:
    return -(-results // LANES)


def matrix_tiles_pipeline(plan: QuantisedPlan) -> Pipeline:
    """Return the algorithm; weights and their sums are packed once, when the kernel is created."""
    shape, reads = plan.shape, level_reads(plan.shape)
    buffers = _buffers(plan, (_FOUR, LANES, reads.fours, shape.blocks))
    weight_sum = hl.ImageParam(hl.Int(32), 3, "weight_sum")
    offset, factor = requantised(plan, buffers, weight_sum)
    padded = _padded(buffers) if needs_copy(plan) else None
    data = buffers.at(X) if padded is None else padded
    sums = level_sums(SUMS, data, buffers.at(WEIGHTS), reads)
    if reads.flat:
        sums.bound(sums.args()[2], 0, _pitch(shape))
    place = (v.o, v.g, v.w, v.h, v.n)
    block = v.o // LANES
    channel = v.o % LANES, block, v.g
    total = sums[v.o % LANES, block, v.w, v.h, v.n] + offset[channel]
    made = results(plan, buffers, total, factor[channel], place)
    parts: dict[str, tuple[Any, Loops]] = {
        SUMS: (sums, (("o", LANES), ("b", 0), ("w", 0), ("h", 0), ("n", 0)))
    }
    if padded is not None:
        parts[PADDED] = padded, (("x", 0), ("h", 0), ("n", 0))
    return pipeline_of(
        buffers,
        weight_sum,
        made,
        place,
        parts,
        weights=_packed_weights(plan),
        sum_extents=(LANES, shape.blocks, shape.groups),
        padded=(PADDED,),
    )


def _buffers(plan: QuantisedPlan, weights: tuple[int, ...]) -> Buffers:
    """Return the buffers, of which the image is one of rows of bytes."""
    shape, number = plan.shape, plan.inputs[X]
    found = read_buffers(plan, weights, hl.Int(8))
    extents, arguments = list(found.extents), list(found.arguments)
    wide, high = shape.image
    extents[number] = (shape.channels_in * wide, high, shape.batch)
    arguments[number] = hl.ImageParam(arguments[number].type(), 3, f"x{number}")
    return replace(found, extents=tuple(extents), arguments=tuple(arguments), keeps_sign=True)


def needs_copy(plan: QuantisedPlan) -> bool:
    """Return True if levels are not read from the image itself."""
    reads = level_reads(plan.shape)
    return plan.shape.has_padding or reads.run != reads.depth or bool(reads.flat)


def _padded(buffers: Buffers) -> hl.Func:
    """Return rows of the image with its zeros, over (bytes, h, n)."""
    shape = buffers.plan.shape
    image, (wide, high) = buffers.at(X), shape.image
    zero = hl.cast(image.type(), buffers.zero(X_ZERO))
    bounds = [(0, shape.channels_in * wide), (0, high)]
    levels, padded = hl.BoundaryConditions.constant_exterior(image, zero, bounds), hl.Func(PADDED)
    before = shape.before[0] * shape.channels_in, shape.before[1]
    padded[v.x, v.h, v.n] = levels[v.x - before[0], v.h - before[1], v.n]
    padded.compute_root()  # steps place it closer
    return padded


def _packed_weights(plan: QuantisedPlan) -> PackedInput:
    """Return packed weights over (4 of the depth, lanes, fours, blocks), 0 behind a run."""
    shape, reads = plan.shape, level_reads(plan.shape)
    raw, extents = raw_weights(plan, "weights")
    i = v.unit * _FOUR + v.part
    run, k = i // reads.run, i % reads.run
    inside = hl.min(k, reads.depth - 1)
    column = run % reads.kernel[0] + inside // shape.channels_in
    tap, place = (column, run // reads.kernel[0]), (v.lane, v.block, 0)
    weight = weight_at(plan, raw, tap, inside % shape.channels_in, place)
    packed = hl.Func("packed")
    packed[v.part, v.lane, v.unit, v.block] = hl.i8(hl.select(k < reads.depth, weight, 0))
    return PackedInput(output=packed, argument=raw, argument_extents=extents, dtype="int8")


# ---- schedules ----


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixTiles(TiledAlgorithm[QuantisedPlan]):
    """Sums of rows of results, of some blocks of channels, lie in a cache before the epilogue."""

    def supports(self, plan: QuantisedPlan) -> Support:
        if plan.shape.groups > 1:
            return Support("QLinearConv in groups has too few channels to sum in tiles")
        read = {ref for item in plan.chain for ref in item.inputs}
        if f"x{plan.inputs[X]}" in read:
            return Support("the chain reads the image of QLinearConv again")
        return SUPPORTED

    def is_available(self, target: KernelTarget) -> bool:
        return target.int8_tiles

    def pipeline(self, plan: QuantisedPlan) -> Pipeline:
        return matrix_tiles_pipeline(plan)

    def tiles(self, plan: QuantisedPlan, target: KernelTarget) -> Sequence[Tile]:
        return parts_in_matrix_tiles(plan.shape.blocks)

    def rows(self, plan: QuantisedPlan, target: KernelTarget) -> tuple[int, ...]:
        return rows_in_matrix_tiles(plan.shape.result[1])

    def fits(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> bool:
        is_offered = tile_of(values) in self.tiles(plan, target)
        is_copied = values[SCOPE] == GROUP or needs_copy(plan)
        return is_offered and is_copied and values[TILE_ROWS] in self.rows(plan, target)

    def cost(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> float:
        """Return rough cycles: products of tiles, what they and the epilogue read, idle threads."""
        shape, reads = plan.shape, level_reads(plan.shape)
        rows, blocks = min(int(values[TILE_ROWS]), shape.result[1]), int(values[BLOCKS])
        groups, parts = -(-shape.result[1] // rows), -(-shape.blocks // blocks)
        wide = _pitch(shape) * (rows - 1) + shape.result[0] if reads.flat else shape.result[0]
        across = _tiles(wide)
        down = across * (1 if reads.flat else rows)
        high = -(-wide // across)
        steps = reads.fours * _FOUR // reads.step
        # a lone tile, or a lone block, waits for its own sum
        pairs = (-(-down // 2)) * (-(-blocks // 2))
        alone = 4 if down == blocks == 1 else 2 if 1 in (down, blocks) else 1
        summing = pairs * steps * max(4 * high // alone, 4 * _LEAST_CYCLES)
        panel = reads.fours * _FOUR * LANES
        again = (-(-down // 2)) * blocks * panel if 2 * panel > target.l1_bytes // 2 else 0
        far = panel * shape.blocks > target.l2_bytes // 2
        weights = again / 40 + blocks * panel / (12 if far else 40)
        sums = 4 * rows * wide * blocks * LANES // (1 if not reads.flat else rows)
        spilt = 3 if sums > target.l2_bytes // 2 else 1 if sums > target.l1_bytes // 2 else 0
        finishing = rows * shape.result[0] * blocks * (6 + 2 * spilt)
        regions = shape.batch * groups * parts
        read_rows = (rows - 1) * shape.strides[1] + (shape.kernel[1] - 1) * shape.dilations[1] + 1
        copied = read_rows * _pitch(shape) * shape.channels_in / 20 if needs_copy(plan) else 0
        times = groups if values[SCOPE] == GROUP else max(1, shape.image[1] // read_rows)
        tasks = shape.batch * groups * (1 if values[SCOPE] == GROUP else parts)
        cycles = regions * (summing + weights + finishing + 300) + shape.batch * times * copied
        return cycles * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        """Yield the steps: rows are copied for each task, or all at once."""
        is_per_task, blocks = values[SCOPE] == GROUP, int(values[BLOCKS])
        yield sch.Split(RESULT, "h", "group", "h", int(values[TILE_ROWS]), sch.Tail.GUARD)
        yield sch.Split(RESULT, "o", "part", "in_part", LANES * blocks, sch.Tail.GUARD)
        yield sch.Split(RESULT, "in_part", "block", "lane", LANES, sch.Tail.GUARD)
        yield sch.Reorder(RESULT, ("lane", "block", "w", "h", "g", "part", "group", "n"))
        yield sch.Vectorize(RESULT, "lane", LANES)
        if blocks % _WRITTEN_OUT == 0:
            yield sch.Unroll(RESULT, "block", _WRITTEN_OUT)
        if not is_per_task:
            yield sch.Fuse(RESULT, "group", "part", "group")
        # one loop for the threads: a parallel loop inside of another runs on one
        yield sch.Fuse(RESULT, "n", "group", "task")
        yield sch.ComputeAt(SUMS, RESULT, "part" if is_per_task else "task")
        if needs_copy(plan):
            yield sch.ComputeAt(PADDED, RESULT, "task") if is_per_task else sch.ComputeRoot(PADDED)
            yield from _copy_steps(plan.shape)
            if not is_per_task:
                yield sch.Parallel(PADDED, "h")
        yield sch.Parallel(RESULT, "task")


def _copy_steps(shape: QuantisedShape) -> Iterator[Step]:
    """Yield steps that copy rows, and go past their ends where rows need not lie side by side."""
    row = _pitch(shape) * shape.channels_in
    if not _is_flat(shape):
        yield sch.Split(PADDED, "x", "x", "byte", _COPIED, sch.Tail.ROUND_UP)
        yield sch.Vectorize(PADDED, "byte", _COPIED)
    elif (lanes := min(_COPIED, row & -row)) > 1:
        yield sch.Vectorize(PADDED, "x", lanes)
