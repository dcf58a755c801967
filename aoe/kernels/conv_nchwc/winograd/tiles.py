"""How a Winograd convolution is scheduled: register tile, groups of tiles, tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from aoe import schedule as sch
from aoe.kernels.conv_nchwc.shape import ConvolutionPlan, ConvolutionShape
from aoe.kernels.conv_nchwc.winograd.stages import (
    COLUMNS,
    DATA,
    GATHERED,
    PADDED,
    PRODUCTS,
    ROWS,
    SUMMED,
    TILE,
    check_winograd,
    tiles_of,
    winograd_pipeline,
)
from aoe.kernels.conv_nchwc.winograd.transforms import TileTransforms
from aoe.kernels.family import KernelTarget, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.tiled_products import (
    BLOCKS,
    GROUP,
    IMAGE,
    SCOPE,
    TILE_ROWS,
    Tile,
    TiledAlgorithm,
    group_steps,
    register_steps,
    task_steps,
    tile_of,
)
from aoe.schedule import Step, Values

PHASE_COLUMN, PHASE_ROW, CHANNELS = "phase_x", "phase_y", "channels"
_BLOCKS, _ACROSS, _DOWN = (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), (1, 2, 4, 5)
_GROUPS = (1, 2, 4, 7, 14)
_LEAST_SUMS, _READY_SUMS = 7, 8
"""Sums a register tile keeps at least, where there are as many tiles; sums that no product waits
for: two per cycle, four cycles until each is ready again. In the 16 registers of AVX2, 8 that
divide the tiles of an image take 0.75 of the time of 12 that do not (256 channels of 14x14, one
thread of a Zen 4 with other work, CPU time, 2026-11-28)."""
_WEIGHT, _BROADCAST = 0.35, 0.2
"""What loads cost, in products: weights come from the second-level cache, values of tiles from the
first. From half of the registers on there is no waiting. Fitted to six shapes on a Zen 5: 16 sums
that divide the tiles of a row are up to 13 % faster than 24 that do not (80x80, 2026-11-23)."""
_HIGHER = 0.01
"""What each further row of tiles costs, beyond loads: tiles of one row lie one after the other.
Twenty first guesses of seven images, 64 to 384 channels, that tied before take 0.75 to 1.03 of the
time (one thread of a Zen 4 with other work, CPU time, 2026-11-28)."""
_FROM_L2, _FROM_FAR = 3.0, 8.0
"""What loads cost where one value of all tiles and the weights that meet it, which are walked again
and again, are more than the first-level cache holds, and more than the second. In the first, 256
channels of 14x14 take 0.68 of the time of 16 other sums beyond it, of 128 channels of 28x28 14 sums
take 0.88 of the time of 28 (one thread of a Zen 5 with other work, CPU time, 2026-11-23)."""
_LINE_LANES, _HALF_LINES = 16, 0.4
"""Lanes of a cache line; what each further block costs that reads half a line of weights at a time
from beyond the second-level cache: two blocks of 8 channels take 1.1 to 1.7 times as long as one
with as many sums (96 to 256 channels of 14x14 to 40x40; there likewise)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Winograd(TiledAlgorithm[ConvolutionPlan]):
    """Fewer products on transformed tiles.

    Attributes:
        transforms: Of the tiles; filters and strides are theirs.
        is_for_phases: True if it is offered for dilated filters alone: the images of their phases
            are small, and larger tiles would be filled in part.
    """

    transforms: TileTransforms
    pools: bool = True
    is_for_phases: bool = False

    def supports(self, plan: ConvolutionPlan) -> Support:
        if self.is_for_phases and plan.shape.dilations == (1, 1):
            return Support("Conv whose filters are not dilated")
        if plan.shape.pooled > 1 and plan.shape.dilations != (1, 1):
            return Support("Conv with dilated filters in front of a pooling")
        return check_winograd(plan.shape, self.transforms)

    def pipeline(self, plan: ConvolutionPlan) -> Pipeline:
        return winograd_pipeline(plan, self.transforms)

    def tiles(self, plan: ConvolutionPlan, target: KernelTarget) -> Sequence[Tile]:
        across, down = tiles_of(plan.shape, self.transforms)
        blocks = (n for n in _BLOCKS if plan.shape.blocks_together % n == 0)
        wide, high = (n for n in _ACROSS if n <= across), (n for n in _DOWN if n <= down)
        return list(product(blocks, wide, high))

    def rows(self, plan: ConvolutionPlan, target: KernelTarget) -> tuple[int, ...]:
        down = tiles_of(plan.shape, self.transforms)[1]
        return tuple(n for n in _GROUPS if n * plan.shape.dilations[0] <= down)

    def fits(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> bool:
        """True if a register tile fits, in groups of rows, or in the image where all is summed."""
        is_image = values[TILE_ROWS] == 1 and plan.shape.groups == 1
        is_task = values[SCOPE] == GROUP or is_image
        return is_task and self.tile_fits(values, plan.shape, target)

    def tile_fits(self, values: Values, shape: ConvolutionShape, target: KernelTarget) -> bool:
        """True if a register tile stays in registers and inside the image.

        Weights of `blocks` vectors stay in registers while one broadcast value after the other
        meets them: blocks * across * down sums, the weights and one broadcast.
        """
        blocks, wide, high = tile_of(values)
        across, down = tiles_of(shape, self.transforms)
        rows = int(values[TILE_ROWS]) * shape.dilations[0]
        group = down if values[SCOPE] == IMAGE else min(rows, down)
        sums = blocks * wide * high
        return (
            sums + blocks + 1 <= target.registers
            and sums >= min(_LEAST_SUMS, across * group)
            and shape.blocks_together % blocks == 0
            and wide <= across
            and high <= group
            and rows <= down
        )

    def cost(self, values: Values, plan: ConvolutionPlan, target: KernelTarget) -> float:
        """Return the relative time: registers in use, cache, idle threads."""
        shape, transforms = plan.shape, self.transforms
        read, written = shape.channels_in // shape.groups, shape.channels_out // shape.groups
        across, down = tiles = tiles_of(shape, transforms)
        group = down if values[SCOPE] == IMAGE else int(values[TILE_ROWS]) * shape.dilations[0]
        groups = -(-down // group)
        values_bytes = 4 * transforms.products * across * group * shape.batch
        held = values_bytes * (read + written)
        spilled = 0.3 * max(0.0, held / (target.l2_bytes * 0.8) - 1)
        weights_bytes = 4 * transforms.weights * read * written
        reloaded = 0.05 * (groups - 1) * weights_bytes / (target.l2_bytes * 4)
        tasks = groups * shape.groups * shape.batch
        if values[SCOPE] == IMAGE:
            tasks = 8 * target.threads
        idle = target.idle_ratio(tasks)
        panel = int(values[BLOCKS]) * shape.block + across * group
        load = _load(4 * read * panel, target)
        products = products_time(values, tiles, group, target.registers, load)
        if weights_bytes > target.l2_bytes and target.vector_lanes < _LINE_LANES:
            products += _HALF_LINES * (int(values[BLOCKS]) - 1)
        return (products + min(spilled, 0.6) + min(reloaded, 0.6)) * idle

    def steps(self, values: Values, plan: ConvolutionPlan) -> Iterator[Step]:
        shape, is_grouped = plan.shape, values[SCOPE] == GROUP
        yield from tile_loops(shape, self.transforms)
        if shape.groups > 1:  # all stages of one group of channels before the next: it stays near
            yield sch.Split(RESULT, "b", CHANNELS, "b", shape.blocks_together, sch.Tail.GUARD)
        yield from group_steps(values, (*tile_order(shape), "b"), rows="tile_y")
        yield from tile_steps(shape, self.transforms, is_heavy=plan.epilogue.is_heavy)
        yield from task_steps(values)
        if shape.groups > 1:
            yield sch.Parallel(RESULT, CHANNELS)
        yield from data_steps(shape, self.transforms, at="group" if is_grouped else "")
        yield from _product_steps(values, shape, is_grouped=is_grouped)


def _load(walked_bytes: int, target: KernelTarget) -> float:
    """Return the cycles of loading so many bytes that are walked again and again."""
    if walked_bytes <= 0.9 * target.l1_bytes:
        return 1.0
    return _FROM_L2 if walked_bytes <= 0.7 * target.l2_bytes else _FROM_FAR


def products_time(
    values: Values, tiles: tuple[int, int], group: int, registers: int, load: float = 1.0
) -> float:
    """Return the time of the products relative to the least: loads, and what is done twice.

    Args:
        values: A configuration.
        tiles: Tiles across and down an image.
        group: Rows of tiles that are walked together.
        registers: Vectors the CPU has names for.
        load: What a load costs, relative to one from the first-level cache.
    """
    (blocks, wide, high), (across, down) = tile_of(values), tiles
    sums, free = blocks * wide * high, registers // 2
    loads = load * (_WEIGHT * blocks + _BROADCAST * wide * high) / sums
    loads += 0.5 * max(0.0, 1 - sums / free) + 0.5 * max(0.0, 1 - sums / _READY_SUMS)
    rows = down // group * _filled(group, high) + _filled(down % group, high)
    repeated = _filled(across, wide) / across * rows / down
    return (1 + loads) * repeated + _HIGHER * (high - 1)


def _filled(count: int, size: int) -> int:
    """Return the least multiple of a size that is not less than a count."""
    return -(-count // size) * size


def tile_loops(shape: ConvolutionShape, transforms: TileTransforms) -> Iterator[Step]:
    """Yield the steps that split the result's loops: tiles, phases, and inside a tile."""
    down, along = shape.dilations
    high, wide = (results // shape.pooled for results in transforms.results)
    yield sch.Split(RESULT, "w", "tile_x", "in_x", wide * along, sch.Tail.GUARD)
    yield sch.Split(RESULT, "h", "tile_y", "in_y", high * down, sch.Tail.GUARD)
    if along > 1:
        yield sch.Split(RESULT, "in_x", "in_x", PHASE_COLUMN, along, sch.Tail.GUARD)
    if down > 1:
        yield sch.Split(RESULT, "in_y", "in_y", PHASE_ROW, down, sch.Tail.GUARD)


def tile_order(shape: ConvolutionShape) -> tuple[str, ...]:
    """Return the loops of results, tiles and phases, innermost first."""
    down, along = shape.dilations
    phases = (PHASE_COLUMN,) * (along > 1) + (PHASE_ROW,) * (down > 1)
    return "o", "in_x", "in_y", *phases, "tile_x", "tile_y"


def tile_steps(
    shape: ConvolutionShape, transforms: TileTransforms, *, is_heavy: bool
) -> Iterator[Step]:
    """Yield the steps that make the results of a tile from its products.

    Args:
        shape: What is computed.
        transforms: Of which size the tiles are.
        is_heavy: True where the chain behind is too long to be written out for every result.
    """
    high, wide = transforms.results
    made = {"in_x": wide // shape.pooled, "in_y": high // shape.pooled}
    tile = {} if is_heavy else made
    yield from register_steps((RESULT,), ("o", shape.block), tile)
    is_dilated = shape.dilations != (1, 1)  # then tiles of all phases are there before the results
    for stage, along in ((TILE, wide), (COLUMNS, transforms.across.products)):
        is_inner = is_dilated and stage == COLUMNS
        yield sch.ComputeAt(stage, *((TILE, "tx") if is_inner else (RESULT, "tile_x")))
        yield from register_steps((stage,), ("o", shape.block), {"j": along, "i": high})


def data_steps(shape: ConvolutionShape, transforms: TileTransforms, *, at: str) -> Iterator[Step]:
    """Yield the steps that pad and transform the image.

    Args:
        shape: What is computed.
        transforms: Of which size the tiles are.
        at: Loop of the result in which a part of the image is; "" for all of it at once.
    """
    for stage in (PADDED, DATA):
        yield sch.ComputeAt(stage, RESULT, at) if at else sch.ComputeRoot(stage)
        yield sch.Vectorize(stage, "c", shape.block)
        if not at:
            yield sch.Parallel(stage, "b")
    yield sch.Reorder(DATA, ("c", "e", "tx", "ty", "b", "n"))
    # written out, each value of a tile has the constants of its row of the transform
    yield sch.Unroll(DATA, "e", transforms.products)
    # of one tile, in registers until its columns are transformed
    yield sch.ComputeAt(ROWS, DATA, "tx")
    square = {"i": transforms.down.products, "j": transforms.across.products}
    yield from register_steps((ROWS,), ("c", shape.block), square)


def _product_steps(values: Values, shape: ConvolutionShape, *, is_grouped: bool) -> Iterator[Step]:
    blocks, wide, high = tile_of(values)
    yield sch.ComputeAt(GATHERED, RESULT, "group") if is_grouped else sch.ComputeRoot(GATHERED)
    yield sch.Split(GATHERED, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    yield sch.Split(GATHERED, "tx", "tx", "in_x", wide, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(GATHERED, "ty", "ty", "in_y", high, sch.Tail.SHIFT_INWARDS)
    # one value of all tiles before the next: its weights are walked while they are near
    yield sch.Reorder(GATHERED, ("o", "in_x", "in_y", "in_b", "tx", "ty", "b", "e", "n"))
    tile = {"in_x": wide, "in_y": high, "in_b": blocks}
    yield from register_steps((GATHERED,), ("o", shape.block), tile)
    if not is_grouped:
        yield sch.Parallel(GATHERED, "e")
    yield sch.ComputeAt(PRODUCTS, GATHERED, "tx")
    yield sch.Reorder(SUMMED, ("o", "b", "tx", "ty", "r$x", "r$y", "e", "n"))
    summed = {"b": blocks, "tx": wide, "ty": high}
    yield from register_steps((PRODUCTS, SUMMED), ("o", shape.block), summed)
