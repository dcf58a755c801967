"""Winograd convolution: transformed tiles, their products, and back; how each is scheduled.

The stages, for tiles of m x m results (T = m + 2); a filter of a single row or column leaves the
other axis as it is (m = T = 1):

    padded       the image with its zeros around it
    rows         B^T d, the tile transformed along its columns
    data         (B^T d) B, T x T values per tile and channel
    products     sums over channels of data times weights, one matrix product per value
    gathered     the finished products of a group of tiles
    columns      A^T products
    tile         (A^T products) A, m x m results per tile and channel
    y            bias, the tensor added, activation, the chain; where a pooling ends it, the largest
                 of each square of results

A dilated filter meets every d-th row and column: d * d images (phases) of 1 / d of the rows and
columns each, of which tile after tile is taken, and in it phase after phase.

Groups of channels sum up blocks of their own: all stages of one group are computed before the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.conv_nchwc.normal_form import largest_of_squares
from aoe.kernels.conv_nchwc.shape import (
    WEIGHTS,
    ConvolutionPlan,
    ConvolutionShape,
    KernelArguments,
    finished_pipeline,
    finished_result,
    kernel_arguments,
    padded_image,
)
from aoe.kernels.conv_nchwc.winograd.transforms import TileTransforms, Transforms, select_row
from aoe.kernels.family import SUPPORTED, UPDATE, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant
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

PADDED, ROWS, DATA, PRODUCTS = "padded", "rows", "data", "products"
GATHERED, COLUMNS, TILE = "gathered", "columns", "tile"
SUMMED = f"{PRODUCTS}{UPDATE}"
_CONFLICTING = 16
"""Cache lines, between the values of a tile, whose multiples leave them too few sets: a first-level
cache has 64 sets of 8 to 12 lines, a tile 36 values, and two rows of tiles lie between them. 32
channels of 256x256 in tiles of 4x4 took 4.05 ms, spread 2.5 (one thread of a Zen 5, 2026-11-23)."""

_PIECE = 5
"""Tiles there is room for a multiple of, where nobody knows how many there will be: 64 channels of
80x80 take 0.75 of the time they take without (one thread of a Zen 5 with other work, CPU time,
2026-11-27)."""
_LEAST_TILES = 36
"""Tiles that read the weights of a convolution with stride 2: 16 and 25 of them took 1.1 to 1.5
times as long as ONNX Runtime, 49 and more 0.8 of it (one thread of a Zen 5 with other work,
2026-11-23)."""

_MOST_STRIDED = 2
"""Most rows of results of a tile with stride 2 in groups, whose few channels share what larger
tiles cost: groups of 24 of 112x112 and of 56x56 take 1.1 to 1.2 times as long in tiles of 4x4 as in
2x2, and as in ONNX Runtime (one thread of a Zen 4 running AVX2 code, with other work, CPU time,
2026-11-28)."""

_MOST_ROWS = 16
"""Most rows of results of a group of tiles, of all phases, where filters are one column wide. 128
channels of 64x128 dilated by 4 take 0.72 of the time of ONNX Runtime, dilated by 16 2.4 times as
long; 32x64 dilated by 6 take as long (one thread of a Zen 4 with other work, CPU time,
2026-11-27)."""
PHASE_COLUMN, PHASE_ROW, CHANNELS = "phase_x", "phase_y", "channels"
_BLOCKS, _ACROSS, _DOWN = (1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14), (1, 2, 4, 5)
_GROUPS = (1, 2, 4, 7, 14)
_LEAST_SUMS, _READY_SUMS = 7, 8
"""Sums a register tile keeps at least, where there are as many tiles; sums that no product waits
for: two per cycle, four cycles until each is ready again. In the 16 registers of AVX2, 8 that
divide the tiles of an image take 0.75 of the time of 12 that do not (256 channels of 14x14, one
thread of a Zen 4 with other work, CPU time, 2026-11-28)."""
_WEIGHT, _BROADCAST = 0.35, 0.2
"""Cost of loads, in products: weights come from the second-level cache, values of tiles from the
first. From half of the registers on there is no waiting. Fitted to six shapes on a Zen 5: 16 sums
that divide the tiles of a row are up to 13 % faster than 24 that do not (80x80, 2026-11-23)."""
_HIGHER = 0.01
"""Cost of each further row of tiles, beyond loads: tiles of one row lie one after the other.
Twenty first guesses of seven images, 64 to 384 channels, that tied before take 0.75 to 1.03 of the
time (one thread of a Zen 4 with other work, CPU time, 2026-11-28)."""
_FROM_L2, _FROM_FAR = 3.0, 8.0
"""Cost of loads where one value of all tiles and the weights that meet it, which are walked again
and again, are more than the first-level cache holds, and more than the second. In the first, 256
channels of 14x14 take 0.68 of the time of 16 other sums beyond it, of 128 channels of 28x28 14 sums
take 0.88 of the time of 28 (one thread of a Zen 5 with other work, CPU time, 2026-11-23)."""
_LINE_LANES, _HALF_LINES = 16, 0.4
"""Lanes of a cache line; what each further block costs that reads half a line of weights at a time
from beyond the second-level cache: two blocks of 8 channels take 1.1 to 1.7 times as long as one
with as many sums (96 to 256 channels of 14x14 to 40x40; measured there, too)."""


def check_winograd(shape: ConvolutionShape, transforms: TileTransforms) -> Support:
    """Check that a convolution has the filters and the strides of the transforms."""
    if shape.kernel != transforms.kernel or shape.strides != transforms.strides:
        rows, columns = shape.kernel
        return Support(f"Conv with {rows}x{columns} filters and strides {shape.strides}")
    if shape.is_stem:
        return Support("Conv of a plain image")
    if shape.is_depthwise:
        return Support("Conv with a filter for each channel")
    if shape.groups > 1 and shape.is_open:
        return Support("Conv in groups, of images of any size")
    has_strides = shape.strides != (1, 1)
    if has_strides and prod(tiles_of(shape, transforms)) * shape.batch < _LEAST_TILES:
        return Support("Conv with strides of a small image")
    if has_strides and shape.groups > 1 and max(transforms.results) > _MOST_STRIDED:
        return Support("Conv with strides in groups")
    if has_strides and shape.dilations != (1, 1):
        return Support("Conv with dilated filters and strides")
    axes = zip((shape.rows, shape.columns), shape.dilations, transforms.results, strict=True)
    rows, columns = transforms.results
    if columns == 1 and rows * shape.dilations[0] > _MOST_ROWS:
        return Support("Conv with filters of one column, dilated too far")
    if any(results > 1 and extent < 2 * apart for extent, apart, results in axes):
        return Support("Conv of a single row or column")
    return SUPPORTED


def winograd_pipeline(plan: ConvolutionPlan, transforms: TileTransforms) -> Pipeline:
    """Return the algorithm; weights are transformed once, when the kernel is created.

    The arguments are the workload's inputs, weights replaced by their transform: float32, from
    the innermost (block of o, block of c, blocks summed, blocks together, T * T, groups); T of the
    weights.
    """
    shape = plan.shape
    filters = (shape.block, shape.block, shape.blocks_summed, shape.blocks_together)
    arguments = kernel_arguments(plan, (*filters, transforms.weights, shape.groups))
    stages = transformed_data(plan, arguments, transforms)
    stages |= _summed_products(arguments.at(WEIGHTS), stages[DATA], shape, transforms)
    spread_values(stages[GATHERED], shape, shape.blocks_together, transforms)
    stages |= back_transformed(stages[GATHERED], transforms)
    depth = ("r$x", shape.block), ("r$y", shape.blocks_summed)
    packing = _packing(shape, transforms)
    return tiles_pipeline(plan, arguments, stages, transforms, {SUMMED: depth}, packing)


def tiles_pipeline(
    plan: ConvolutionPlan,
    arguments: KernelArguments,
    stages: Mapping[str, hl.Func],
    transforms: TileTransforms,
    reduced: Mapping[str, Sequence[tuple[str, int]]],
    packing: PackedInput | None = None,
) -> Pipeline:
    """Return the kernel that makes results of transformed tiles (the stage `tile`).

    Args:
        plan: What is computed.
        arguments: What it is computed from.
        stages: By name.
        transforms: Of the tiles.
        reduced: Loops that sum up, innermost first, by the name of the update.
        packing: Of the weights, if they are packed.
    """
    whole, result = hl.Func("whole"), hl.Func(RESULT)
    rows_apart, columns_apart = plan.shape.dilations
    j, tx = _tile_of(v.w, columns_apart, transforms.across)
    i, ty = _tile_of(v.h, rows_apart, transforms.down)
    summed = stages[TILE][v.o, j, i, tx, ty, v.b, v.n]
    place = (v.o, v.w, v.h, v.b, v.n)
    whole[place] = finished_result(plan, arguments, summed, place)
    result[place] = largest_of_squares(whole, place, plan.shape.pooled)
    down, across, block = transforms.down, transforms.across, plan.shape.block
    if plan.shape.is_open and plan.shape.dilations == (1, 1):  # Halide does not see it
        for name in (COLUMNS, TILE):
            stages[name].bound_storage(v.tx, 1).bound_storage(v.ty, 1)
    return finished_pipeline(
        arguments,
        stages,
        result,
        extents=plan.shape.result_extents,
        known={"o": block, "c": block, "e": transforms.products},
        own={
            ROWS: {"j": across.products, "i": down.products},
            COLUMNS: {"j": across.products, "i": down.results},
            TILE: {"j": across.results, "i": down.results},
        },
        reduced=reduced,
        packing=packing,
    )


def tiles_of(shape: ConvolutionShape, transforms: TileTransforms) -> tuple[int, int]:
    """Return tiles across and down an image, over all phases."""
    axes = zip((shape.rows, shape.columns), transforms.results, shape.dilations, strict=True)
    down, across = (-(-extent // (results * d)) * d for extent, results, d in axes)
    return across, down


def _tile_of(result: hl.Var, apart: int, transforms: Transforms) -> tuple[hl.Expr, hl.Expr]:
    """Return the offset of a row or column of the result in its tile, and the tile's number."""
    step = transforms.results
    if apart == 1:
        return result % step, result // step
    return result // apart % step, result // (step * apart) * apart + result % apart


def _pixel_of(tile: hl.Var, at: hl.Expr, apart: int, transforms: Transforms) -> hl.Expr:
    """Return the row or column of the padded image a value of a tile is made of."""
    step = transforms.results * transforms.stride
    if apart == 1:
        return tile * step + at
    return tile // apart * (step * apart) + tile % apart + at * apart


def transformed_data(
    plan: ConvolutionPlan, arguments: KernelArguments, transforms: TileTransforms
) -> dict[str, hl.Func]:
    """Return the stages that make transformed tiles of an image."""
    shape, padded = plan.shape, hl.Func(PADDED)
    place = (v.c, v.w, v.h, v.b, v.n)
    padded[place] = padded_image(plan, arguments, place)
    stages = transformed_tiles(padded, transforms, shape.dilations)
    spread_values(stages[DATA], shape, shape.blocks_summed, transforms)
    return stages


def transformed_tiles(
    padded: hl.Func, transforms: TileTransforms, dilations: tuple[int, int] = (1, 1)
) -> dict[str, hl.Func]:
    """Return the image with zeros around it, and the tiles it is transformed to.

    Args:
        padded: The image over channels of a block, columns, rows, blocks, images.
        transforms: Of the tiles.
        dilations: Rows and columns from one value of a filter to the next.
    """
    (rows_apart, columns_apart), down, across = dilations, transforms.down, transforms.across
    size, rows, data = across.products, hl.Func(ROWS), hl.Func(DATA)
    read = _pixel_of(v.tx, v.j, columns_apart, across)
    lines = [_pixel_of(v.ty, k, rows_apart, down) for k in range(down.products)]
    column = [padded[v.c, read, line, v.b, v.n] for line in lines]
    rows[v.c, v.j, v.i, v.tx, v.ty, v.b, v.n] = select_row(v.i, down.data, column)
    row = [rows[v.c, k, v.e // size, v.tx, v.ty, v.b, v.n] for k in range(size)]
    data[v.c, v.tx, v.ty, v.b, v.e, v.n] = select_row(v.e % size, across.data, row)
    return {PADDED: padded, ROWS: rows, DATA: data}


def _summed_products(
    weights: hl.ImageParam, data: hl.Func, shape: ConvolutionShape, transforms: TileTransforms
) -> dict[str, hl.Func]:
    r = hl.RDom([(0, shape.block), (0, shape.blocks_summed)], "r")
    products, gathered = hl.Func(PRODUCTS), hl.Func(GATHERED)
    place = (v.o, v.tx, v.ty, v.b, v.e, v.n)
    products[place] = constant(0.0)
    group, block = group_of(v.b, shape)
    read = data[r[0], v.tx, v.ty, group * shape.blocks_summed + r[1], v.e, v.n]
    products[place] += read * weights[v.o, r[0], r[1], block, transforms.weights_of(v.e), group]
    gathered[place] = products[place]
    return {PRODUCTS: products, SUMMED: products.update(), GATHERED: gathered}


def group_of(block: hl.Var, shape: ConvolutionShape) -> tuple[hl.Expr, hl.Expr]:
    """Return the group of channels a block of results is in, and its number inside."""
    if shape.groups == 1:
        return hl.i32(0), block
    return block // shape.blocks_together, block % shape.blocks_together


def spread_values(
    stage: hl.Func, shape: ConvolutionShape, blocks: int, transforms: TileTransforms
) -> None:
    """Keep the values of one tile in different sets of the caches.

    They are written, or read, one after the other, each as far from the next as all tiles and
    blocks take: with powers of two of them all would be in one set, and drive each other out. The
    room that is left between them is never touched.
    """
    if shape.is_open:  # an odd number of odd pieces is no power of two, but for 16 times as many
        stage.align_storage(v.tx, _PIECE).align_storage(v.b, blocks | 1)
        return
    wide, deep = stored_extents(tiles_of(shape, transforms)[0], blocks)
    stage.align_storage(v.tx, wide).align_storage(v.b, deep)


def stored_extents(tiles: int, blocks: int) -> tuple[int, int]:
    """Return the tiles and blocks there is room for: as many as there are, or one more of either.

    >>> stored_extents(14, 4), stored_extents(32, 4), stored_extents(4, 16)
    ((14, 4), (33, 4), (4, 17))
    """
    rooms = [(wide, deep) for wide in (tiles, tiles | 1) for deep in (blocks, blocks | 1)]
    return min((room for room in rooms if prod(room) % _CONFLICTING), key=prod)


def back_transformed(gathered: hl.Func, transforms: TileTransforms) -> dict[str, hl.Func]:
    down, across = transforms.down, transforms.across
    size = across.products
    columns, tile = hl.Func(COLUMNS), hl.Func(TILE)
    place = (v.o, v.j, v.i, v.tx, v.ty, v.b, v.n)
    column = [gathered[v.o, v.tx, v.ty, v.b, k * size + v.j, v.n] for k in range(down.products)]
    columns[place] = select_row(v.i, down.result, column)
    row = [columns[v.o, k, v.i, v.tx, v.ty, v.b, v.n] for k in range(size)]
    tile[place] = select_row(v.j, across.result, row)
    return {COLUMNS: columns, TILE: tile}


def _packing(shape: ConvolutionShape, transforms: TileTransforms) -> PackedInput:
    """Return G g G^T, computed in float64 and rounded once.

    The weights come as the host keeps them, from the innermost: block of o, block of c, columns,
    rows, blocks in, blocks out ("OIhw16i16o"; 8 with AVX2).
    """
    (rows, columns), size = transforms.kernel, len(transforms.across.weights)
    o, c, b, p, e, g = (hl.Var(name) for name in ("o", "c", "b", "p", "e", "g"))
    extents, block = shape.weight_extents, g * shape.blocks_together + p
    weights = hl.ImageParam(hl.Float(32), len(extents), "weights")
    filters = [
        [hl.cast(hl.Float(64), weights[o, c, column, row, b, block]) for row in range(rows)]
        for column in range(columns)
    ]
    down = [select_row(e // size, transforms.down.weights, column) for column in filters]
    made = select_row(e % size, transforms.across.weights, down)
    packed = hl.Func("packed")
    packed[o, c, b, p, e, g] = hl.cast(hl.Float(32), made)
    packed.bound(e, 0, transforms.weights).reorder(o, e, c, b, p, g).unroll(e).vectorize(
        o, shape.block
    )
    return PackedInput(output=packed, argument=weights, argument_extents=extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Winograd(TiledAlgorithm[ConvolutionPlan]):
    """Fewer products on transformed tiles."""

    transforms: TileTransforms  # Of the tiles; filters and strides are theirs
    pools: bool = True
    # True if it is offered for dilated filters alone: the images of their phases are small, and
    # larger tiles would be filled in part.
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
        # transformed tiles of a group that the second-level cache does not hold
        spilled = 0.3 * max(0.0, held / (target.l2_bytes * 0.8) - 1)
        weights_bytes = 4 * transforms.weights * read * written
        # weights are read again for each group of rows of tiles
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
        yield from product_steps(values, shape.block, is_grouped=is_grouped)


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
        at: Loop of the result in which a part of the image is; "" for the whole image at once.
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


def product_steps(values: Values, lanes: int, *, is_grouped: bool) -> Iterator[Step]:
    """Yield the steps that sum up products in registers: blocks of channels times some tiles.

    Args:
        values: The configuration.
        lanes: Channels of a vector.
        is_grouped: True for the products of a group of rows of tiles, False for all at once.
    """
    blocks, wide, high = tile_of(values)
    yield sch.ComputeAt(GATHERED, RESULT, "group") if is_grouped else sch.ComputeRoot(GATHERED)
    yield sch.Split(GATHERED, "b", "b", "in_b", blocks, sch.Tail.GUARD)
    yield sch.Split(GATHERED, "tx", "tx", "in_x", wide, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(GATHERED, "ty", "ty", "in_y", high, sch.Tail.SHIFT_INWARDS)
    # one value of all tiles before the next: its weights are walked while they are near
    yield sch.Reorder(GATHERED, ("o", "in_x", "in_y", "in_b", "tx", "ty", "b", "e", "n"))
    tile = {"in_x": wide, "in_y": high, "in_b": blocks}
    yield from register_steps((GATHERED,), ("o", lanes), tile)
    # all tiles of an image at once: each value of a tile is a matrix product of its own
    if not is_grouped:
        yield sch.Parallel(GATHERED, "e")
    yield sch.ComputeAt(PRODUCTS, GATHERED, "tx")
    yield sch.Reorder(SUMMED, ("o", "b", "tx", "ty", "r$x", "r$y", "e", "n"))
    summed = {"b": blocks, "tx": wide, "ty": high}
    yield from register_steps((PRODUCTS, SUMMED), ("o", lanes), summed)
