"""How Winograd's minimal filtering across rows is scheduled: register tile, groups of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from aoe import schedule as sch
from aoe.kernels.conv_nchw.shape import ConvNchwPlan, ConvNchwShape
from aoe.kernels.conv_nchw.tiles import FAR_BYTES_PER_CYCLE, VECTOR, vectors_of
from aoe.kernels.conv_nchw.winograd import (
    COLUMNS,
    DATA,
    GATHERED,
    HEIGHTS,
    PANEL,
    TILE,
    RowTransforms,
    row_winograd_pipeline,
    transforms_of,
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

_BLOCKS, _DOWN = (1, 2, 3, 4, 5, 6, 7), (1, 2, 3, 4)
_BEST_TILES = 3
_COPY_CYCLES, _TRANSFORM_CYCLES = 12, 10
"""Cycles for a vector of the image, and of transformed data or products. Measured with 32 channels
of 64x64x64 on AVX-512, where copying waits for memory."""


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
    """Fewer products on tiles that are transformed across rows.

    Attributes:
        results: Of a tile, down an image.
    """

    results: int

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
        held = 4 * VECTOR * per_tile * (shape.channels_in + shape.channels_out) * rows
        weights = 4 * transforms.products * depth * shape.channels_out
        if held > 0.7 * target.l2_bytes:
            cycles += 2 * held / rows / FAR_BYTES_PER_CYCLE
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
    yield sch.Reorder(SUMMED, ("w", "th", "u", "b", "r$x", "r$y", "r$z", "td", "e", "n"))
    summed = {"w": across, "th": down, "u": PANEL, "b": blocks}
    yield from register_steps((PRODUCTS, SUMMED), ("w", VECTOR), several(summed))
