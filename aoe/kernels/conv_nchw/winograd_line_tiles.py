"""How Winograd's minimal filtering of signals is scheduled: register tile, groups of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from aoe import schedule as sch
from aoe.kernels.conv_nchw.shape import ConvNchwPlan, ConvNchwShape
from aoe.kernels.conv_nchw.tiles import FAR_BYTES_PER_CYCLE, VECTOR, vectors_of
from aoe.kernels.conv_nchw.winograd import DATA, GATHERED, PANEL, TILE
from aoe.kernels.conv_nchw.winograd_line import (
    RESULTS,
    TILE_PRODUCTS,
    line_winograd_pipeline,
    parts_of,
)
from aoe.kernels.conv_nchwc.direct import PADDED, PRODUCTS, SUMMED
from aoe.kernels.family import KernelTarget, Pipeline
from aoe.kernels.halide.chain import RESULT
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

_GROUPS = (1, 2, 3, 4, 6, 8)
"""Vectors of tiles of a group."""
_BLOCKS, _ACROSS = (1, 2, 3, 4, 6), (1, 2, 3, 4)
_BEST_TILES = 3
_TRANSFORM_CYCLES = 8
"""Cycles for a vector of transformed data or products. Assumed."""


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
    yield sch.Reorder(SUMMED, ("w", "u", "b", "r$x", "r$y", "e", "n"))
    summed = {"w": across, "u": PANEL, "b": blocks}
    yield from register_steps((PRODUCTS, SUMMED), ("w", VECTOR), several(summed))
