"""Schedules of depthwise convolutions: register tile of pixels, groups of rows, tasks.

The algorithm is the direct one (`direct`); what a vector holds are channels, so every product
reads a vector of pixels of its own. A block of channels is copied into scratch with its zeros
where there are any and the filter is large: what is copied is small enough for
the first-level cache, and walked row by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from aoe import schedule as sch
from aoe.kernels.conv_nchwc.direct import (
    PADDED,
    PRODUCTS,
    REDUCED,
    SUMMED,
    depth_extents,
    direct_pipeline,
    finished_steps,
)
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, ConvolutionShape
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.tiled_products import (
    ACROSS,
    DOWN,
    GROUP,
    IMAGE,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    group_steps,
    groups_fit,
    register_steps,
    task_steps,
    tile_of,
)
from aoe.schedule import Step, Values
from aoe.workload import Precision

_ACROSS, _DOWN, _GROUPS = range(1, 29), (1, 2, 4), (1, 2, 4, 7, 14)
_BEST_TILES = 4
_SMALL_FILTER = 9
"""Values of a filter up to which the image is not copied."""
_WRITTEN_OUT_MAX = 400
"""Products a register tile is written out for: a 5x5 filter times 14 sums; of larger ones a row."""
_FEW_REGISTERS = 16
_READ_AGAIN, _READ_AGAIN_BY_FEW = 0.5, 0.4
"""Relative time of a product whose pixel is read from memory, by 32 registers and by 16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depthwise(TiledAlgorithm[ConvolutionPlan]):
    """A filter for each channel: channels are what a vector holds."""

    scopes = (IMAGE, GROUP)

    def supports(self, plan: ConvolutionPlan) -> Support:
        return SUPPORTED if plan.shape.is_depthwise else Support("Conv that sums up channels")

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        return direct_pipeline(plan, Precision.FLOAT32)

    def tiles(self, plan: ConvolutionPlan, target: KernelTarget) -> Sequence[Tile]:
        return [(1, *tile) for tile in sorted(best_tiles(plan.shape, target.registers))]

    def rows(self, plan: ConvolutionPlan, target: KernelTarget) -> tuple[int, ...]:
        return tuple(n for n in _GROUPS if n <= plan.shape.rows)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        blocks, *tile = tile_of(values)
        is_offered = blocks == 1 and tuple(tile) in best_tiles(plan.shape, target.registers)
        return is_offered and groups_fit(values, -(-plan.shape.rows // tile[1]))

    def cost(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> float:
        """Return the relative time: products, rows copied twice, idle threads."""
        shape, tile = plan.shape, (int(values[ACROSS]), int(values[DOWN]))
        rows = min(shape.rows, int(values[TILE_ROWS]) * tile[1])
        groups = 1 if values[SCOPE] == IMAGE else -(-shape.rows // rows)
        # rows of the image that a group reads, rows shared with its neighbours included
        read = rows * shape.strides[0] + shape.kernel[0] - shape.strides[0]
        copied = 0.1 * (groups * read / shape.height if groups > 1 else 1.0)
        tasks = shape.batch * (shape.blocks_out if values[SCOPE] == IMAGE else groups)
        idle = target.idle_ratio(tasks)
        return (tile_cost(tile, shape, target.registers) + copied * is_copied(shape)) * idle

    def steps(self, values: Values, plan: ConvolutionPlan) -> Iterator[Step]:
        is_heavy = plan.epilogue.is_heavy
        yield from _result_steps(values, plan.shape, is_heavy=is_heavy)
        yield from _copy_steps(plan.shape)
        yield from product_steps(values, plan.shape, is_heavy=is_heavy)


@cache
def best_tiles(shape: ConvolutionShape, registers: int) -> tuple[tuple[int, int], ...]:
    """Return columns and rows of the best register tiles, best first."""
    found = [
        tile
        for tile in product(_ACROSS, _DOWN)
        if tile[0] * tile[1] + 2 <= registers
        and tile[0] <= shape.columns
        and tile[1] <= shape.rows
        and tile[0] * tile[1] * shape.kernel[1] <= max(_WRITTEN_OUT_MAX, tile[0])
    ]
    ranked = sorted(found, key=lambda tile: (tile_cost(tile, shape, registers), tile))
    return tuple(ranked[:_BEST_TILES])


def _keeps_pixels(tile: tuple[int, int], shape: ConvolutionShape, registers: int) -> bool:
    """Return True if there is room for the pixels of a row, which the columns of a filter share."""
    pixels = (tile[0] - 1) * shape.strides[1] + shape.kernel[1]
    return tile[0] * tile[1] + pixels + 1 <= registers


def tile_cost(tile: tuple[int, int], shape: ConvolutionShape, registers: int) -> float:
    """Return the relative time of a register tile: results computed twice, waits, loads.

    Measured on Zen 5: 144 channels of 56x56 and 384 of 14x14 are fastest in tiles of 7x2, 8x2 and
    14x1; tiles of 4x4 take 1.15 times as long. With AVX2 pixels of filters of 5x5 and more are read
    again for each product: 768 channels of 32x32 by 7x7 take 770 us in tiles of 8x1, 890 in 3x2.
    With AVX-512 such tiles lose to tiles of fewer sums: with stride 2, 144 channels of 56x56 take
    36 us in tiles of 4x2 and 44 in 28x1, 96 of 112x112 87 us in 4x4 and 105 in 28x1 (one thread of
    a loaded Zen 4, least CPU time of interleaved runs, 2026-11-27).
    """
    wide, high = tile
    sums = wide * high
    repeated = -(-shape.columns // wide) * wide * -(-shape.rows // high) * high
    rows, columns = shape.kernel
    down, along = shape.strides
    pixels = ((wide - 1) * along + columns) * ((high - 1) * down + rows)
    loads = 0.5 * (pixels + rows * columns) / (sums * rows * columns)
    if not _keeps_pixels(tile, shape, registers):
        again = _READ_AGAIN_BY_FEW if registers <= _FEW_REGISTERS else _READ_AGAIN
        loads = again * (1 + 1 / sums)
    waiting = max(1.0, 8 / sums) + 1.5 / registers * (high - 1)
    return repeated / (shape.columns * shape.rows) * (waiting + loads)


def _result_steps(values: Values, shape: ConvolutionShape, *, is_heavy: bool) -> Iterator[Step]:
    wide, high = int(values[ACROSS]), int(values[DOWN])
    yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    if is_heavy:  # the chain walks the rows of tiles that `finished` holds
        inner: tuple[str, ...] = ("o", "w", "in_h", "h", "b")
    else:
        yield sch.Split(RESULT, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
        inner = ("o", "in_w", "in_h", "w", "h", "b")
    yield from group_steps(values, inner)
    tile = {} if is_heavy else {"in_w": wide, "in_h": high}
    yield from register_steps((RESULT,), ("o", shape.block), tile)
    yield from task_steps(values)


def is_copied(shape: ConvolutionShape) -> bool:
    """Return True if a block is copied with its zeros before it is filtered.

    Reading it where it is costs less for small filters: by 3x3, 144 channels of 56x56 take 52 us so
    and 70 with a copy, 384 of 14x14 8.8 and 11.3, with stride 2 96 of 112x112 67 and 123; by 5x5 as
    long, and a copy compiles sooner (one thread of a Zen 5 with other work, CPU time, 2026-11-23).
    """
    return shape.is_made or (any(shape.pads) and prod(shape.kernel) > _SMALL_FILTER)


def _copy_steps(shape: ConvolutionShape) -> Iterator[Step]:
    if is_copied(shape):
        # one block of channels at a time: the first-level cache holds it
        yield sch.ComputeAt(PADDED, RESULT, "b")
        yield sch.Vectorize(PADDED, "c", shape.block)


def product_steps(values: Values, shape: ConvolutionShape, *, is_heavy: bool) -> Iterator[Step]:
    columns, rows = depth_extents(shape, in_pairs=False)
    wide, high = int(values[ACROSS]), int(values[DOWN])
    if is_heavy:
        yield from finished_steps(values, shape)
    else:
        yield sch.ComputeAt(PRODUCTS, RESULT, "w")
    # pixels of a tile inside the filter: one value of the filter stays in a register for all
    yield sch.Reorder(SUMMED, ("o", "w", "h", *REDUCED[:2], "b", "n"))
    yield from register_steps((PRODUCTS, SUMMED), ("o", shape.block), {"w": wide, "h": high})
    yield sch.Unroll(SUMMED, REDUCED[0], columns)
    # rows of the filter, too, where the code stays small
    if wide * high * columns * rows <= _WRITTEN_OUT_MAX:
        yield sch.Unroll(SUMMED, REDUCED[1], rows)
