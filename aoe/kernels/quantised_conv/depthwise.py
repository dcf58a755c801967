"""Depthwise convolution of levels: patches of a few pixels, interleaved by channel.

Products are summed up in fours or in pairs within a lane, and a depthwise convolution sums up
pixels of one channel. So the copy that puts the zeros around an image interleaves pixels, too: a
patch holds 1x4, 2x2 or 4x1 pixels of a channel side by side (1x2 or 2x1 without VNNI), and filters
are packed alike, with zeros where a patch reaches past the filter. One patch serves all results
around it: two rows of results of 3x3 filters read the same 1x4 pixels, at other places of the
filter, and with a stride of 2 every pixel is in one patch of 2x2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import gcd, prod
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
    Pair,
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
    register_steps,
    tile_of,
)
from aoe.schedule import Step, Values

PATCHES, SUMS = "patches", "sums"
SUMMED = f"{SUMS}{UPDATE}"
_PANELS, _ACROSS, _ROWS = (2, 4, 8, 16), (1, 2, 3, 4, 5, 6, 7, 8, 10, 14), (1, 2, 4, 7, 14, 28)
_SHARED_ROWS = (1, 2, 4)
_BEST_TILES = 8
_COPY, _FINISH = 6.0, 7.0
"""Cost of one vector of patches, and of one vector of results, in products.

Instructions of the two ports that compute vectors: three rounds of byte shuffles, which take more
than one each; conversion, factor, limit, rounding, zero point and the narrowing to bytes.
"""
_WAIT = 4.0
"""Cost of the start of a tile in products."""
_COPY_LANES = 32
"""Channels of a copy; with 64 the shuffles take longer, with 16 there are more of them."""
_WRITTEN_OUT_MAX = 400
"""Products of a register tile up to which the whole filter is written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchAxis:
    """Patches along one axis of an image."""

    pixels: int  # Of one patch
    shared: int  # Results along the axis that are computed from the same patches
    kernel: int
    stride: int
    dilation: int

    @property
    def step(self) -> int:
        """Pixels between two patches."""
        return gcd(self.shared * self.stride, self.pixels * self.dilation)

    @property
    def read(self) -> int:
        """Patches a result is computed from."""
        reach = self.kernel + (self.shared - 1) * self.stride // self.dilation
        return -(-reach // self.pixels)

    @property
    def copied(self) -> float:
        """Patches for each result."""
        return self.stride / self.step

    def patch(self, result: hl.Expr, at: hl.Expr) -> hl.Expr:
        """Return the number of the patch at position `at` of those a result is computed from."""
        first = result // self.shared * (self.shared * self.stride // self.step)
        return first + at * (self.pixels * self.dilation // self.step)

    def pixel(self, patch: hl.Expr, part: hl.Expr) -> hl.Expr:
        """Return the pixel of a part of a patch, counted from the first zero."""
        return patch * self.step + part * self.dilation

    def tap(self, result: hl.Expr, at: hl.Expr, part: hl.Expr) -> hl.Expr:
        """Return the tap of the filter, if there is one, that meets a part of such a patch."""
        return at * self.pixels + part - result % self.shared * self.stride // self.dilation


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """What a patch is, and which results share it."""

    across: PatchAxis
    down: PatchAxis

    @property
    def axes(self) -> tuple[PatchAxis, PatchAxis]:
        return self.across, self.down

    @property
    def read(self) -> int:
        """Patches a result is computed from, each in one instruction."""
        return self.across.read * self.down.read

    @property
    def copied(self) -> float:
        """Patches for each result."""
        return self.across.copied * self.down.copied

    def pixels(self, part: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
        """Return column and row inside a patch of one of its parts."""
        return part % self.across.pixels, part // self.across.pixels

    def pad_is_needed(self, shape: QuantisedShape) -> bool:
        """True if a pixel of a patch lies outside the image, whether it is multiplied or not."""
        return any(shape.before) or any(
            _last_pixel(axis, result) >= image
            for axis, result, image in zip(self.axes, shape.result, shape.image, strict=True)
        )


def _last_pixel(axis: PatchAxis, results: int) -> int:
    whole = -(-results // axis.shared) * axis.shared * axis.stride
    last = whole - axis.shared * axis.stride + (axis.read - 1) * axis.pixels * axis.dilation
    return last + (axis.pixels - 1) * axis.dilation


@cache
def patches_of(shape: QuantisedShape, unit: Unit) -> Patches:
    """Return the patches that take the fewest instructions."""
    offered = [
        _patches(shape, (wide, unit.size // wide), shared)
        for wide in (1, 2, 4)
        if unit.size % wide == 0
        for shared in _SHARED_ROWS
        # rows that start between two taps of a dilated filter meet other pixels
        if shared == 1 or shape.strides[1] % shape.dilations[1] == 0
    ]
    return min(offered, key=lambda one: _work(one, shape))


def _patches(shape: QuantisedShape, pixels: Pair, shared_rows: int) -> Patches:
    across, down = (
        PatchAxis(pixels=size, shared=shared, kernel=kernel, stride=stride, dilation=dilation)
        for size, shared, kernel, stride, dilation in zip(
            pixels, (1, shared_rows), shape.kernel, shape.strides, shape.dilations, strict=True
        )
    )
    return Patches(across=across, down=down)


def _work(patches: Patches, shape: QuantisedShape) -> float:
    """Return instructions for a vector of results; rows are computed in groups that share."""
    rows = shape.result[1]
    repeated = -(-rows // patches.down.shared) * patches.down.shared / rows
    return repeated * (patches.read + _COPY * patches.copied) + _FINISH


# ---- the algorithm ----


def depthwise_pipeline(plan: QuantisedPlan, unit: Unit) -> Pipeline:
    """Return the algorithm; weights and their sums are packed once, when the kernel is created."""
    shape, patches = plan.shape, patches_of(plan.shape, unit)
    reads = (patches.across.read, patches.down.read)
    weights = (unit.size, shape.lanes, *reads, patches.down.shared)
    buffers = read_buffers(plan, weights, unit.weight_type)
    weight_sum = hl.ImageParam(hl.Int(32), 3, "weight_sum")
    offset, factor = requantised(plan, buffers, weight_sum)
    interleaved = _interleaved(buffers, patches, unit)
    sums, place = hl.Func(SUMS), (v.i, v.g, v.w, v.h, v.n)
    r = hl.RDom([(0, extent) for extent in (unit.size, *reads)], "r")
    x, y = patches.across.patch(v.w, r.y), patches.down.patch(v.h, r.z)
    weight = buffers.at(WEIGHTS)[r.x, v.i, r.y, r.z, v.h % patches.down.shared]
    sums[place] = offset[v.i, 0, 0]
    sums[place] += hl.i32(interleaved[r.x, v.i, v.g, x, y, v.n]) * hl.i32(weight)
    sums.compute_root()
    if shape.lanes_out < LANES:
        sums.bound(v.i, 0, LANES)  # a whole vector, of which some lanes are never read
    made = (v.o, v.g, v.w, v.h, v.n)
    found = results(plan, buffers, sums[made], factor[v.o, 0, 0], made)
    of_sums = (("i", 0), ("g", 0), ("w", 0), ("h", 0), ("n", 0))
    reduced = zip((r.x, r.y, r.z), (unit.size, *reads), strict=True)
    parts: dict[str, tuple[Any, Loops]] = {
        PATCHES: (
            interleaved,
            (("part", unit.size), ("i", 0), ("g", 0), ("x", 0), ("y", 0), ("n", 0)),
        ),
        SUMS: (sums, of_sums),
        SUMMED: (
            sums.update(),
            (*of_sums, *((loop.name(), extent) for loop, extent in reduced)),
        ),
    }
    return pipeline_of(
        buffers,
        weight_sum,
        found,
        made,
        parts,
        weights=_packed_weights(plan, patches, unit),
        sum_extents=(shape.lanes, 1, 1),
        padded=(SUMS, PATCHES),
    )


def _interleaved(buffers: Buffers, patches: Patches, unit: Unit) -> hl.Func:
    """Return the pixels of patches over (part, channel, group, patch across and down, n)."""
    shape = buffers.plan.shape
    levels = with_zeros(buffers, is_padded=patches.pad_is_needed(shape))
    across, down = patches.pixels(v.part)
    w = patches.across.pixel(v.x, across) - shape.before[0]
    h = patches.down.pixel(v.y, down) - shape.before[1]
    interleaved = hl.Func(PATCHES)
    interleaved[v.part, v.i, v.g, v.x, v.y, v.n] = hl.cast(
        unit.level_type, levels[w, h, v.i, v.g, v.n]
    )
    interleaved.bound(v.part, 0, unit.size).compute_root()
    return interleaved


def _packed_weights(plan: QuantisedPlan, patches: Patches, unit: Unit) -> PackedInput:
    """Return packed weights over (part, channel, patch across, patch down, shared row)."""
    raw, extents = raw_weights(plan, "weights")
    across, down = patches.pixels(v.part)
    x, y = patches.across.tap(hl.Expr(0), v.x, across), patches.down.tap(v.h, v.y, down)
    wide, high = plan.shape.kernel
    inside = (x >= 0) & (x < wide) & (y >= 0) & (y < high)
    tap = hl.clamp(x, 0, wide - 1), hl.clamp(y, 0, high - 1)
    place = v.i, hl.Expr(0), hl.Expr(0)
    packed = hl.Func("packed")
    weight = hl.select(inside, weight_at(plan, raw, tap, hl.Expr(0), place), 0)
    packed[v.part, v.i, v.x, v.y, v.h] = hl.cast(unit.weight_type, weight)
    return PackedInput(output=packed, argument=raw, argument_extents=extents, dtype=unit.weights)


# ---- schedules ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Depthwise(TiledAlgorithm[QuantisedPlan]):
    """Sums of some columns and of rows that share patches stay in registers.

    `blocks` of a tile are the channels whose patches are copied together.
    """

    unit: Unit
    needs_vnni: bool = False

    def is_available(self, target: KernelTarget) -> bool:
        return target.int8_dot or not self.needs_vnni

    def pipeline(self, plan: QuantisedPlan) -> Pipeline:
        return depthwise_pipeline(plan, self.unit)

    def tiles(self, plan: QuantisedPlan, target: KernelTarget) -> Sequence[Tile]:
        vectors = max(1, LANES // target.vector_lanes)
        return _best_tiles(plan.shape, self.unit, target.registers, vectors)

    def rows(self, plan: QuantisedPlan, target: KernelTarget) -> tuple[int, ...]:
        groups = -(-plan.shape.result[1] // patches_of(plan.shape, self.unit).down.shared)
        return tuple(n for n in _ROWS if n <= groups)

    def fits(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> bool:
        return tile_of(values) in self.tiles(plan, target)

    def cost(self, values: Values, plan: QuantisedPlan, target: KernelTarget) -> float:
        """Return the relative time: tiles, patches copied twice or to far, idle threads."""
        shape, patches = plan.shape, patches_of(plan.shape, self.unit)
        panel, wide, shared = tile_of(values)
        vectors = max(1, LANES // target.vector_lanes)
        blocks = shape.lanes / LANES
        in_tiles = _tile_cost((panel, wide, shared), shape, patches, vectors)
        rows, columns = int(values[TILE_ROWS]) * shared, shape.result[0]
        groups = -(-shape.result[1] // rows)
        # patches of a group along both axes; those at the ends of groups are copied twice
        high = (rows // shared - 1) * shared * patches.down.stride // patches.down.step
        high += (patches.down.read - 1) * patches.down.pixels // patches.down.step + 1
        across = columns * patches.across.copied + patches.across.read - 1
        copied = high * across * groups / prod(shape.result)
        held = panel * LANES * self.unit.size * (2 if self.unit.size == 2 else 1) * high * across
        far = 1.0 if held < 0.7 * target.l1_bytes else 1.5 if held < 0.5 * target.l2_bytes else 3.0
        image = prod(shape.image) * shape.lanes
        if panel < blocks and image > 0.5 * target.l2_bytes:
            far *= 1.5  # parts of pixels are far from each other in memory
        panels = -(-blocks // panel)
        tasks = (groups if values[SCOPE] == GROUP else panels) * shape.batch
        wasted = panels * panel / blocks if panel < blocks else 1.0
        return (in_tiles + _COPY * copied * far) * wasted * target.idle_ratio(tasks)

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        shape, patches = plan.shape, patches_of(plan.shape, self.unit)
        panel, wide, shared = tile_of(values)
        channels = min(panel * LANES, shape.lanes)
        yield from _result_steps(values, plan)
        yield sch.ComputeAt(PATCHES, RESULT, "panel" if values[SCOPE] == GROUP else "group")
        copied = min(_COPY_LANES, 1 << (channels.bit_length() - 1))
        yield sch.Split(PATCHES, "i", "i", "lane", copied, sch.Tail.SHIFT_INWARDS)
        yield sch.Reorder(PATCHES, ("part", "lane", "i", "x", "y", "g", "n"))
        yield sch.Vectorize(PATCHES, "lane", copied)
        yield sch.Unroll(PATCHES, "part", self.unit.size)
        yield sch.ComputeAt(SUMS, RESULT, "w")
        for stage in (SUMS, SUMMED):
            # all rows that share: those behind the last one are made, and never read
            yield sch.Split(stage, "h", "h", "in_h", shared, sch.Tail.ROUND_UP)
            if stage == SUMMED:
                inner = ("r$x", "i", "w", "in_h", "r$y", "r$z")
                yield sch.Reorder(stage, (*inner, "h", "g", "n"))
                # without it Halide sees a race in the sum of a unit
                yield sch.Atomic(stage)
                yield sch.Vectorize(stage, "r$x", self.unit.size)
            yield from register_steps((stage,), ("i", LANES), {"w": wide, "in_h": shared})
        if wide * shared * patches.read <= _WRITTEN_OUT_MAX:
            yield sch.Unroll(SUMMED, "r$y", patches.across.read)
            yield sch.Unroll(SUMMED, "r$z", patches.down.read)


@cache
def _best_tiles(
    shape: QuantisedShape, unit: Unit, registers: int, vectors: int
) -> tuple[Tile, ...]:
    """Return blocks that are copied together, columns and rows of the best tiles, best first."""
    patches = patches_of(shape, unit)
    shared = patches.down.shared
    whole = -(-shape.lanes // LANES)
    panels = [*(n for n in _PANELS if n * LANES <= shape.lanes and n < whole), whole]
    tiles = [(panel, wide, shared) for panel, wide in product(panels, _ACROSS)]
    found = [
        tile
        for tile in tiles
        if tile[1] <= shape.result[0] and vectors * tile[1] * shared <= registers * 3 // 4
    ]
    found = found or [(whole, 1, shared)]

    def cost(tile: Tile) -> float:
        return _tile_cost(tile, shape, patches, vectors)

    best = sorted({tile[1] for tile in found}, key=lambda wide: cost((whole, wide, shared)))
    return tuple(tile for tile in found if tile[1] in best[: max(1, _BEST_TILES // 2)])


def _tile_cost(tile: Tile, shape: QuantisedShape, patches: Patches, vectors: int) -> float:
    """Return the relative time of a register tile without the copy."""
    _, wide, shared = tile
    (columns, rows), across = shape.result, -(-shape.result[0] // wide) * wide
    repeated = across * -(-rows // shared) * shared / (columns * rows)
    return repeated * (patches.read + _FINISH + _WAIT / (vectors * wide * shared))


def _result_steps(values: Values, plan: QuantisedPlan) -> Iterator[Step]:
    shape, (panel, wide, shared) = plan.shape, tile_of(values)
    channels = min(panel * LANES, shape.lanes)
    # results of the last channels are computed twice; fewer than a vector holds are guarded
    tail = sch.Tail.SHIFT_INWARDS if shape.lanes == shape.lanes_out else sch.Tail.GUARD
    yield sch.Split(RESULT, "h", "h", "in_h", shared, sch.Tail.GUARD)
    yield sch.Split(RESULT, "h", "group", "h", int(values[TILE_ROWS]), sch.Tail.GUARD)
    yield sch.Split(RESULT, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, "o", "panel", "o", channels, tail)
    yield sch.Split(RESULT, "o", "o", "lane", LANES, tail)
    inner, tasks = ("lane", "in_w", "in_h", "w", "h", "o"), ("panel", "group")
    is_grouped = values[SCOPE] == GROUP
    outer = tasks if is_grouped else tuple(reversed(tasks))
    yield sch.Reorder(RESULT, (*inner, *outer, "g", "n"))
    yield from register_steps((RESULT,), ("lane", LANES), {"in_w": wide, "in_h": shared})
    yield sch.Parallel(RESULT, "n")
    yield sch.Parallel(RESULT, outer[-1])
