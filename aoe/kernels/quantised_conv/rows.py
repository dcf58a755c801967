"""Convolutions of planes in integers whose vectors hold pixels of a row.

Results are rows of planes as they are, sixteen pixels of one channel a vector, so nothing is turned
at the end, and what the chain reads lies side by side. Where rows are short, vectors of channels
(`planes.py`) waste less.

A dense convolution reads four channels of a pixel as one unit, as `planes.py` has them. One of
depth sums up pixels of one channel: its units are neighbours along a row, woven of four copies of
the row that are each one tap further on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.quantised_conv.direct import (
    PADDED,
    SUMMED,
    SUMS,
    packed_weights,
    units_of,
    weight_extents,
)
from aoe.kernels.quantised_conv.planes import (
    PlaneBuffers,
    PlanesPlan,
    finished_chain,
    image_around,
    measuring_steps,
    planes_arguments,
    read_planes_buffers,
    result_extents,
    start_of_sums,
)
from aoe.kernels.quantised_conv.shape import (
    LANES,
    WEIGHTS,
    QuantisedPlan,
    QuantisedShape,
    Unit,
    raw_weights,
    weight_at,
    weight_sums,
)
from aoe.kernels.tiled_products import (
    GROUP,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    groups_fit,
    tile_of,
)
from aoe.schedule import Step, Values

LEAST_ROW = 12
"""Results of a row from which on vectors hold pixels."""
WOVEN = "woven"
_CHANNELS, _VECTORS, _ROWS = (4, 8, 16), (1, 2, 3, 4, 6), (1, 2, 3, 4)
_GROUPS = (1, 2, 4, 7, 14, 28)
_BEST_TILES = 8
_LEAST_SUMS = 10
"""Sums that hide how long one takes, as in `direct.py`."""
_WAIT, _LOAD = 4.0, 0.3
_PLACE = ("w", "h", "o", "g", "n")


def rows_pipeline(plan: PlanesPlan, unit: Unit) -> Pipeline:
    """Return the algorithm of a dense convolution."""
    shape = plan.shape
    buffers = read_planes_buffers(plan, weight_extents(shape, unit), unit.weight_type)
    around = image_around(buffers)
    # channels behind the last one meet weights of zero
    i = hl.min(v.unit * unit.size + v.part, shape.channels_in - 1)
    padded, stride = hl.Func(PADDED), shape.strides[0]
    w = v.w * stride + v.phase - shape.before[0]
    level = around[w, v.h - shape.before[1], i, v.g, v.n]
    padded[v.part, v.w, v.phase, v.unit, v.h, v.g, v.n] = hl.cast(unit.level_type, level)
    padded.bound(v.part, 0, unit.size).bound(v.phase, 0, stride).compute_root()
    weights = buffers.arguments[plan.inputs[WEIGHTS]]
    extents = (unit.size, units_of(shape, unit), *shape.kernel)
    r = hl.RDom([(0, extent) for extent in extents], "r")
    o = hl.min(v.o, shape.channels_out - 1)  # tiles may go past the last channel
    across, h = r.z * shape.dilations[0], v.h * shape.strides[1] + r.w * shape.dilations[1]
    read = padded[r.x, v.w + across // stride, across % stride, r.y, h, v.g, v.n]
    weight = weights[r.x, o % LANES, r.y, r.z, r.w, o // LANES, v.g]
    copied = (("part", unit.size), ("w", 0), ("phase", stride), ("unit", 0), ("h", 0))
    return _pipeline(
        buffers,
        packed_weights(plan, unit),
        hl.i32(read) * hl.i32(weight),
        dict(zip(("r$x", "r$y", "r$z", "r$w"), extents, strict=True)),
        {PADDED: (padded, (*copied, ("g", 0), ("n", 0)))},
    )


def depthwise_rows_pipeline(plan: PlanesPlan, unit: Unit) -> Pipeline:
    """Return the algorithm of a convolution of each channel by a filter of its own."""
    shape = plan.shape
    taps = -(-shape.kernel[0] // unit.size)
    weights = (unit.size, taps, shape.kernel[1], shape.groups)
    buffers = read_planes_buffers(plan, weights, unit.weight_type)
    around, padded, woven = image_around(buffers), hl.Func(PADDED), hl.Func(WOVEN)
    padded[v.w, v.h, v.o, v.g, v.n] = around[
        v.w - shape.before[0], v.h - shape.before[1], v.o, v.g, v.n
    ]
    padded.compute_root()
    tap = (v.tap * unit.size + v.part) * shape.dilations[0]
    level = padded[v.w * shape.strides[0] + tap, v.h, v.o, v.g, v.n]
    woven[v.part, v.w, v.tap, v.h, v.o, v.g, v.n] = hl.cast(unit.level_type, level)
    woven.bound(v.part, 0, unit.size).bound(v.tap, 0, taps).compute_root()
    r = hl.RDom([(0, unit.size), (0, taps), (0, shape.kernel[1])], "r")
    h = v.h * shape.strides[1] + r.z * shape.dilations[1]
    o = hl.min(v.o, shape.groups - 1)
    weight = buffers.arguments[plan.inputs[WEIGHTS]][r.x, r.y, r.z, o]
    outer = (("h", 0), ("o", 0), ("g", 0), ("n", 0))
    return _pipeline(
        buffers,
        _packed_rows(plan, unit, taps),
        hl.i32(woven[r.x, v.w, r.y, h, v.o, v.g, v.n]) * hl.i32(weight),
        {"r$x": unit.size, "r$y": taps, "r$z": shape.kernel[1]},
        {
            PADDED: (padded, (("w", 0), *outer)),
            WOVEN: (woven, (("part", unit.size), ("w", 0), ("tap", taps), *outer)),
        },
    )


def _pipeline(
    buffers: PlaneBuffers,
    packing: PackedInput,
    summand: hl.Expr,
    reduced: Mapping[str, int],
    copies: Mapping[str, tuple[hl.Func, tuple[tuple[str, int], ...]]],
) -> Pipeline:
    """Return the pipeline of sums over (w, h, o, g, n).

    Args:
        buffers: What is read.
        packing: Makes the packed weights.
        summand: What is summed up.
        reduced: Loops that sum up, with their extents.
        copies: Stages of the levels of the image, and their loops.
    """
    plan, shape = buffers.plan, buffers.plan.shape
    weight_sum = hl.ImageParam(hl.Int(32), 3, "weight_sum")
    offset = start_of_sums(buffers, weight_sum)
    sums, result = hl.Func(SUMS), hl.Func(RESULT)
    place = tuple(hl.Var(name) for name in _PLACE)
    o = hl.min(v.o, shape.lanes_out - 1)
    channel = (o, 0) if shape.is_depthwise else (o % LANES, o // LANES)
    sums[place] = offset[(*channel, v.g)]
    sums[place] += summand
    sums.compute_root()
    where: dict[str, hl.Expr] = {name: hl.Expr(hl.Var(name)) for name in _PLACE}
    result[place] = finished_chain(buffers, sums[place], where, place)
    extents = result_extents(plan)
    of_sums = tuple((name, 0) for name in _PLACE)
    pipeline = Pipeline(
        output=result,
        stages={
            RESULT: result,
            SUMS: sums,
            SUMMED: sums.update(),
            **{name: stage for name, (stage, _) in copies.items()},
        },
        arguments=(*buffers.arguments, weight_sum),
        argument_extents=(*buffers.extents, (shape.lanes, shape.blocks, _groups(shape))),
        output_extents=extents,
        loops={
            RESULT: tuple(zip(_PLACE, extents, strict=True)),
            SUMS: of_sums,
            SUMMED: (*of_sums, *reduced.items()),
            **{name: loops for name, (_, loops) in copies.items()},
        },
        packings={
            plan.inputs[WEIGHTS]: packing,
            len(buffers.arguments): weight_sums(plan),
        },
        padded=frozenset({SUMS, *copies}),
    )
    return planes_arguments(pipeline, buffers)


def _groups(shape: QuantisedShape) -> int:
    return 1 if shape.is_depthwise else shape.groups


def _packed_rows(plan: PlanesPlan, unit: Unit, taps: int) -> PackedInput:
    """Return packed weights over (part, unit of taps, row of the filter, channel)."""
    raw, extents = raw_weights(plan, "weights")
    x, wide = v.x * unit.size + v.part, plan.shape.kernel[0]
    place = v.i, hl.Expr(0), hl.Expr(0)
    weight = weight_at(plan, raw, (hl.min(x, wide - 1), v.y), hl.Expr(0), place)
    packed = hl.Func("packed")
    packed[v.part, v.x, v.y, v.i] = hl.cast(unit.weight_type, hl.select(x < wide, weight, 0))
    return PackedInput(output=packed, argument=raw, argument_extents=extents, dtype=unit.weights)


# ---- schedules ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(TiledAlgorithm[QuantisedPlan]):
    """Sums of some channels, vectors of pixels and rows stay in registers.

    `blocks` of a tile are channels, `across` its vectors.
    """

    unit: Unit
    needs_vnni: bool = False

    def is_available(self, target: KernelTarget) -> bool:
        return target.int8_dot or not self.needs_vnni

    def pipeline(self, plan: QuantisedPlan) -> Pipeline:
        assert isinstance(plan, PlanesPlan)
        return rows_pipeline(plan, self.unit)

    def tiles(self, plan: QuantisedPlan, target: KernelTarget) -> Sequence[Tile]:
        vectors = max(1, LANES // target.vector_lanes)
        return _best_tiles(plan.shape, _CHANNELS, target.registers, vectors)

    def rows(self, plan: QuantisedPlan, target: KernelTarget) -> tuple[int, ...]:
        return tuple(n for n in _GROUPS if n <= plan.shape.result[1])

    def fits(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> bool:
        tile = tile_of(values)
        rows = -(-plan.shape.result[1] // tile[2])
        return tile in self.tiles(plan, target) and groups_fit(values, rows)

    def cost(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> float:
        """Return the relative time: tiles, rows quantised twice, caches, idle threads."""
        shape, tile = plan.shape, tile_of(values)
        vectors = max(1, LANES // target.vector_lanes)
        in_tiles = _tile_cost(tile, shape, vectors)
        panels = -(-shape.channels_out // tile[0]) * shape.groups
        image = prod(shape.image) * shape.channels_in * shape.groups
        # products that a level is quantised in the time of
        quantised = 1.5 * image / LANES
        results = prod(shape.result) * shape.groups * shape.channels_out
        products = results * shape.depth / (LANES * self.unit.size)
        if values[SCOPE] == GROUP:
            high = int(values[TILE_ROWS]) * tile[2]
            groups = -(-shape.result[1] // high)
            tasks = groups * shape.batch
            again = (high * shape.strides[1] + shape.kernel[1] - 1) * groups
            quantised *= max(1.0, again / shape.image[1])
            weights = shape.depth * shape.groups * shape.channels_out
            far = 0.0 if weights < 0.7 * target.l1_bytes else weights * groups / 256
        else:
            tasks = panels * shape.batch
            far = 0.0 if image < 0.7 * target.l1_bytes else image * panels / 256
            far += image / 64 if image > 0.5 * target.l2_bytes else 0.0
        return (in_tiles + (quantised + far) / max(products, 1)) * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        assert isinstance(plan, PlanesPlan)
        yield from _result_steps(values, plan, ("w", "h", "panel", "g"))
        yield from _sum_steps(values, self.unit, ("r$y", "r$z", "r$w"))
        if values[SCOPE] == GROUP:
            yield sch.ComputeAt(PADDED, RESULT, "group")
        else:
            yield sch.Parallel(PADDED, "n")
            yield sch.Parallel(PADDED, "h")
        yield from _vector_of_row(PADDED, ("part",), ("phase", "unit", "h", "g", "n"))
        yield sch.Unroll(PADDED, "part", self.unit.size)
        yield from measuring_steps(plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseRows(Rows):
    """One channel after the other: its rows are quantised and woven where they are summed up."""

    def pipeline(self, plan: QuantisedPlan) -> Pipeline:
        assert isinstance(plan, PlanesPlan)
        return depthwise_rows_pipeline(plan, self.unit)

    def tiles(self, plan: QuantisedPlan, target: KernelTarget) -> Sequence[Tile]:
        vectors = max(1, LANES // target.vector_lanes)
        return _best_tiles(plan.shape, (1,), target.registers, vectors)

    def fits(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> bool:
        return values[SCOPE] == GROUP and Rows.fits(self, values, plan, target)

    def cost(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> float:
        """Return the relative time: tiles, and rows that are quantised twice."""
        shape, tile = plan.shape, tile_of(values)
        high = int(values[TILE_ROWS]) * tile[2]
        groups = -(-shape.result[1] // high)
        again = (high * shape.strides[1] + shape.kernel[1] - 1) * groups / shape.result[1]
        held = 6 * high * shape.strides[1] * shape.image[0]
        far = 1.0 if held < 0.7 * target.l1_bytes else 1.5
        vectors = max(1, LANES // target.vector_lanes)
        return _tile_cost(tile, shape, vectors) + far * again

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        assert isinstance(plan, PlanesPlan)
        taps = -(-plan.shape.kernel[0] // self.unit.size)
        yield from _result_steps(values, plan, ("w", "h"), tasks=("group", "panel", "g"))
        yield from _sum_steps(values, self.unit, ("r$y", "r$z"))
        yield sch.Unroll(SUMMED, "r$y", taps)
        yield sch.Unroll(SUMMED, "r$z", plan.shape.kernel[1])
        outer = ("h", "o", "g", "n")
        yield sch.ComputeAt(PADDED, RESULT, "group")
        yield from _vector_of_row(PADDED, (), outer)
        yield sch.ComputeAt(WOVEN, RESULT, "group")
        yield from _vector_of_row(WOVEN, ("part",), ("tap", *outer))
        yield sch.Unroll(WOVEN, "part", self.unit.size)
        yield from measuring_steps(plan)


def _vector_of_row(stage: str, inner: tuple[str, ...], outer: tuple[str, ...]) -> Iterator[Step]:
    """Yield steps that copy vectors of a row; those behind its end are made, and never read."""
    yield sch.Split(stage, "w", "w", "lane", LANES, sch.Tail.ROUND_UP)
    yield sch.Reorder(stage, (*inner, "lane", "w", *outer))
    yield sch.Vectorize(stage, "lane", LANES)


def _result_steps(
    values: Values, plan: PlanesPlan, inner: tuple[str, ...], tasks: tuple[str, ...] = ()
) -> Iterator[Step]:
    """Yield the steps that cut a result into register tiles and tasks.

    Args:
        values: The configuration.
        plan: What is computed.
        inner: Loops over the tiles of a task, innermost first.
        tasks: Loops outside of them; by default by the scope.
    """
    channels, across, high = tile_of(values)
    is_whole = plan.shape.result[0] >= across * LANES
    yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
    tail = sch.Tail.SHIFT_INWARDS if is_whole else sch.Tail.GUARD
    yield sch.Split(RESULT, "w", "w", "in_w", across * LANES, tail)
    yield sch.Split(RESULT, "in_w", "vector", "lane", LANES, sch.Tail.AUTO)
    yield sch.Split(RESULT, "o", "panel", "in_o", channels, sch.Tail.GUARD)
    in_tile = ("lane", "vector", "in_h", "in_o")
    if values[SCOPE] == GROUP:
        yield sch.Split(RESULT, "h", "group", "h", int(values[TILE_ROWS]), sch.Tail.GUARD)
        tasks = tasks or ("group",)
    yield sch.Reorder(RESULT, (*in_tile, *inner, *tasks, "n"))
    yield sch.Vectorize(RESULT, "lane", LANES)
    for name, factor in (("vector", across), ("in_h", high), ("in_o", channels)):
        yield sch.Unroll(RESULT, name, factor)
    yield sch.Parallel(RESULT, "n")
    yield sch.Parallel(RESULT, "group" if tasks == ("group",) else "panel")


def _sum_steps(values: Values, unit: Unit, reduced: tuple[str, ...]) -> Iterator[Step]:
    channels, across, high = tile_of(values)
    yield sch.ComputeAt(SUMS, RESULT, "w")
    for stage in (SUMS, SUMMED):
        # all vectors of a tile, and all its channels: those behind the last one are never read
        yield sch.Split(stage, "w", "w", "lane", LANES, sch.Tail.ROUND_UP)
        yield sch.Split(stage, "o", "o", "in_o", channels, sch.Tail.ROUND_UP)
        if stage == SUMMED:
            inner = ("r$x", "lane", "w", "h", "in_o")
            yield sch.Reorder(stage, (*inner, *reduced, "o", "g", "n"))
            # without it Halide sees a race in the sum of a unit
            yield sch.Atomic(stage)
            yield sch.Vectorize(stage, "r$x", unit.size)
        yield sch.Vectorize(stage, "lane", LANES)
        for name, factor in (("w", across), ("h", high), ("in_o", channels)):
            yield sch.Unroll(stage, name, factor)


@cache
def _best_tiles(
    shape: QuantisedShape, channels: Sequence[int], registers: int, vectors: int
) -> tuple[Tile, ...]:
    """Return channels, vectors and rows of the best register tiles, best first."""
    least = min(channels)
    found = [
        tile
        for tile in product(channels, _VECTORS, _ROWS)
        if vectors * (tile[0] + 1) * tile[1] * tile[2] < registers
        and (tile[0] == least or tile[0] <= shape.lanes_out)
        and (tile[1] == 1 or tile[1] * LANES <= shape.result[0])
        and tile[2] <= shape.result[1]
    ]
    ranked = sorted(found, key=lambda tile: (_tile_cost(tile, shape, vectors), tile))
    return tuple(ranked[:_BEST_TILES])


def _tile_cost(tile: Tile, shape: QuantisedShape, vectors: int) -> float:
    """Return the relative time of a register tile: results computed twice, waits, loads."""
    channels, across, high = tile
    sums, pixels = prod(tile) * vectors, across * high * vectors
    wanted = (shape.lanes_out, *shape.result)
    made = [
        -(-n // part) * part
        for n, part in zip(wanted, (channels, across * LANES, high), strict=True)
    ]
    repeated = prod(made) / prod(wanted)
    # loads of pixels cross the lines of the cache
    loads = (channels + 2 * pixels) / sums
    return repeated * (max(1.0, _LEAST_SUMS / sums) + _WAIT / sums + _LOAD * loads)
