"""Winograd convolution: transformed tiles, their products, and back.

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

from collections.abc import Mapping, Sequence
from math import prod

import halide as hl

from aoe.kernels.conv_nchwc.pooling import largest_of_squares
from aoe.kernels.conv_nchwc.result import (
    KernelArguments,
    finished_pipeline,
    finished_result,
    kernel_arguments,
    padded_image,
)
from aoe.kernels.conv_nchwc.shape import WEIGHTS, ConvolutionPlan, ConvolutionShape
from aoe.kernels.conv_nchwc.winograd.transforms import TileTransforms, Transforms, select_row
from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant

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

    The arguments are those of the workload, weights replaced by their transform: float32, from
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
    """Return tiles across and down an image, those of all phases."""
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
    shape, down, across = plan.shape, transforms.down, transforms.across
    size = across.products
    padded, rows, data = hl.Func(PADDED), hl.Func(ROWS), hl.Func(DATA)
    rows_apart, columns_apart = shape.dilations
    place = (v.c, v.w, v.h, v.b, v.n)
    padded[place] = padded_image(plan, arguments, place)
    read = _pixel_of(v.tx, v.j, columns_apart, across)
    lines = [_pixel_of(v.ty, k, rows_apart, down) for k in range(down.products)]
    column = [padded[v.c, read, line, v.b, v.n] for line in lines]
    rows[v.c, v.j, v.i, v.tx, v.ty, v.b, v.n] = select_row(v.i, down.data, column)
    row = [rows[v.c, k, v.e // size, v.tx, v.ty, v.b, v.n] for k in range(size)]
    data[v.c, v.tx, v.ty, v.b, v.e, v.n] = select_row(v.e % size, across.data, row)
    spread_values(data, shape, shape.blocks_summed, transforms)
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
    """Return the tiles and blocks there is room for: those there are, or one more of either.

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
