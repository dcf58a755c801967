"""Matrix products in integers: rows in 8 bits by weights of 8 or 4 bits, summed in 32.

    extremes     lowest, highest and largest number of parts of a row
    levels       distance and zero of the levels of a row
    quantised    the left matrix in 8 bits
    sums         in 8 bits, products summed up in 32 bits, four by one instruction
    parts, sums  in 4 bits, the same for one block of 32 of the depth, then parts times their scale
    finished, y  numbers again, and the chain behind them

The integers:

    of a row              0 ... 255, the zero of the row among them: range of the row / 255 apart
    of a column, 8 bits   -127 ... 127: largest magnitude of the column / 127 apart
    of a block, 4 bits    -8 ... 7: its largest value, with its sign, is -8 scales (a bfloat16)

Ranges hold 0, so that 0 stays 0, and what holds no negative numbers uses all levels. A row or a
column with a NaN or an infinity in it is NaN as a whole; one whose levels would be closer than
normal numbers are counts as zeros.

Weights of 4 bits are for a few rows: reading the weights is what takes the time, and 4.5 bits each
are a seventh of float32. Source: G. Gerganov et al., ggml (Q4_0); ONNX Runtime's MatMulNBits has
the same blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import halide as hl

from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Pipeline, Support
from aoe.kernels.halide.tile_sums import LevelReads
from aoe.kernels.math.functions import constant, strict, to_bfloat16
from aoe.kernels.matmul.panels import element_or_zero, packed_right, right_matrix
from aoe.kernels.matmul.shape import (
    BLOCK,
    FEW_ROWS,
    LANE,
    PACKED,
    PANEL,
    SUMS,
    Finish,
    MatrixProduct,
    ProductArguments,
    finished_pipeline,
    last_panel_at_most,
    left_place,
    packed_element,
    panels_of,
    read_arguments,
    tiles_pipeline,
)

EXTREMES, LEVELS, QUANTISED, QUANTISED_DEPTH = "extremes", "levels", "quantised", "k"
EXTREMES_UPDATE = f"{EXTREMES}{UPDATE}"
DISTANCE, ZERO = 0, 1
"""Numbers kept of the levels of a row: distance, and level of zero. Also in `column_levels`, where
levels are symmetric: distance, and sum of the column."""
SUMMED_BY_ONE = 4
"""Products one instruction sums up."""
DEPTH_MAX = 1 << 16
"""Most products summed up in 32 bits: 255 times 127 each."""
_ROW_LEVELS, _COLUMN_LEVELS = 255, 127
_LANES = 16
_FIRST_SPECIAL = 0x7F800000
_QUIET_NAN = 0x7FC00000
_LEAST_DISTANCE = 1.1754943508222875e-38
"""The smallest normal number: its reciprocal is finite."""
PARTS = "parts"
PARTS_UPDATE = f"{PARTS}{UPDATE}"
DEPTH_OF_BLOCK = 32
HALVES, FOURS = 2, DEPTH_OF_BLOCK // SUMMED_BY_ONE // 2
"""A byte holds two levels: of the first half of its block, and of the second one."""
_LOWEST, _HIGHEST = -8, 7
_LEAST_MAGNITUDE = 1e-36
"""Blocks below count as zeros: their scale would be no normal number."""


def quantised_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs, weights replaced by their panels: int8, from the innermost
    (4 of the depth, PANEL columns, groups of 4, panels); then distance and sum of the levels of
    their columns: float32, (PANEL, 2, panels).
    """
    groups = -(-product.depth // SUMMED_BY_ONE)
    arguments, levels, quantised, finish, completed = _levels_by_weights(product, groups)
    lane, block, rows = hl.Var(LANE), hl.Var(BLOCK), arguments.rows
    r = hl.RDom([(0, SUMMED_BY_ONE), (0, groups)], "r")
    sums, place = hl.Func(SUMS), (lane, block, *rows)
    sums[place] = hl.i32(0)
    panel = last_panel_at_most(product, block)
    weight = packed_element(product, arguments, (r.x, lane, r.y, panel))
    left = quantised[(SUMMED_BY_ONE * r.y + r.x, *rows)]
    sums[place] += hl.i32(left) * hl.i32(weight)
    sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    depths = ((r.x.name(), SUMMED_BY_ONE), (r.y.name(), groups))
    stages = {LEVELS: levels, QUANTISED: quantised}
    return completed(finished_pipeline(product, arguments, sums, depths, stages, finish=finish))


def quantised_in_tiles_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the same integers in matrix tiles (AMX); panels are filled up to what tiles read."""
    reads = LevelReads(depth=product.depth)
    arguments, levels, quantised, finish, completed = _levels_by_weights(product, reads.fours)
    stages = {LEVELS: levels, QUANTISED: quantised}
    return completed(tiles_pipeline(product, arguments, quantised, reads, stages, finish=finish))


def _levels_by_weights(
    product: MatrixProduct, groups: int
) -> tuple[ProductArguments, hl.Func, hl.Func, Finish, Callable[[Pipeline], Pipeline]]:
    """Return (arguments, levels of rows, the rows in them, what makes numbers of sums, the rest).

    Args:
        product: What is computed.
        groups: Fours of the depth, of panels and rows.
    """
    extents = (SUMMED_BY_ONE, PANEL, groups, panels_of(product))
    arguments = read_arguments(product, packed_weights(product), extents)
    columns = _column_buffer(product)
    extremes = row_extremes(product, arguments)
    levels = row_levels(product, arguments, extremes)
    multiple = SUMMED_BY_ONE * groups  # one: the depth is filled up to it
    quantised = quantised_rows(product, arguments, levels, multiple=multiple)

    def finish(total: hl.Expr, place: Sequence[hl.Expr]) -> hl.Expr:
        lane, panel = place[0], last_panel_at_most(product, place[1])
        distance, zero = (levels[(which, *arguments.rows)] for which in (DISTANCE, ZERO))
        centred = total - hl.i32(zero) * hl.i32(columns[lane, ZERO, panel])
        return strict(hl.f32(centred) * (distance * columns[lane, DISTANCE, panel]))

    def completed(pipeline: Pipeline) -> Pipeline:
        made = with_extremes(pipeline, product, arguments, extremes)
        return _with_columns(made, product, columns)

    return arguments, levels, quantised, finish, completed


def _column_buffer(product: MatrixProduct) -> hl.ImageParam:
    return hl.ImageParam(hl.Float(32), len(column_levels_extents(product)), "columns")


def _with_columns(pipeline: Pipeline, product: MatrixProduct, columns: hl.ImageParam) -> Pipeline:
    """Return the pipeline with the levels of the columns as its last argument."""
    return replace(
        pipeline,
        arguments=(*pipeline.arguments, columns),
        argument_extents=(*pipeline.argument_extents, column_levels_extents(product)),
        packings={**pipeline.packings, len(pipeline.arguments): column_levels(product)},
    )


def with_extremes(
    pipeline: Pipeline, product: MatrixProduct, arguments: ProductArguments, extremes: hl.Func
) -> Pipeline:
    """Return the pipeline with what looks through the rows as stages of its own."""
    lanes = extreme_lanes(product)
    pure = (("part", lanes), *((row.name(), 0) for row in arguments.rows))
    depth = ("e$x", -(-product.depth // lanes))
    return replace(
        pipeline,
        stages={**pipeline.stages, EXTREMES: extremes, EXTREMES_UPDATE: extremes.update()},
        loops={**pipeline.loops, EXTREMES: pure, EXTREMES_UPDATE: (*pure, depth)},
    )


def check_quantising(product: MatrixProduct) -> Support:
    """Check that a product can be computed in 8 bits."""
    if not product.has_weights:
        return Support("product of two computed tensors in int8")
    if product.depth > DEPTH_MAX:
        return Support(f"sums of {product.depth} products in int8")
    return SUPPORTED


# ---- rows ----


def extreme_lanes(product: MatrixProduct) -> int:
    """Return the number of parts of a row that are searched at once."""
    return 1 << int(math.log2(min(product.depth, _LANES)))


def row_extremes(product: MatrixProduct, arguments: ProductArguments) -> hl.Func:
    """Return (lowest or 0, highest or 0, bits of the largest magnitude) of each part of a row.

    Over (parts, rows...). Parts may overlap, so that all have the same length.
    """
    lanes = extreme_lanes(product)
    part, rows = hl.Var("part"), arguments.rows
    r = hl.RDom([(0, -(-product.depth // lanes))], "e")
    extremes, place = hl.Func(EXTREMES), (part, *rows)
    first = hl.min(r.x * lanes, product.depth - lanes)
    value = arguments.left[left_place(product, rows, first + part)]
    extremes[place] = (constant(0.0), constant(0.0), hl.i32(0))
    low, high, largest = (extremes[place][at] for at in range(3))
    extremes[place] = (
        hl.min(low, value),
        hl.max(high, value),
        hl.max(largest, magnitude_bits(value)),
    )
    extremes.bound(part, 0, lanes).compute_root()
    return extremes


def row_levels(product: MatrixProduct, arguments: ProductArguments, extremes: hl.Func) -> hl.Func:
    """Return distance and zero of the levels of a row, over (2, rows...): float32."""
    which, rows = hl.Var("which"), arguments.rows
    every = hl.RDom([(0, extreme_lanes(product))], "l")
    low, high, largest = (
        reduce(every, extremes[(every.x, *rows)][at])
        for at, reduce in enumerate((hl.minimum, hl.maximum, hl.maximum))
    )
    distance = _row_distance(low, high)
    zero = hl.select(
        distance >= constant(_LEAST_DISTANCE), hl.round(strict(-low / distance)), constant(0.0)
    )
    levels = hl.Func(LEVELS)
    kept = _nan_unless_finite(_zero_if_tiny(distance), largest)
    levels[(which, *rows)] = hl.select(
        which == DISTANCE, kept, hl.select(is_finite(largest), zero, constant(0.0))
    )
    levels.bound(which, 0, 2).unroll(which).compute_root()
    return levels


def _row_distance(low: hl.Expr, high: hl.Expr) -> hl.Expr:
    """Return the distance of the levels of a range, rounded once, as ONNX Runtime does.

    A range that is beyond all numbers is taken apart.
    """
    whole, share = strict(high - low), constant(1 / _ROW_LEVELS)
    return hl.select(
        is_finite(magnitude_bits(whole)),
        strict(whole / constant(float(_ROW_LEVELS))),
        strict(high * share - low * share),
    )


def quantised_rows(
    product: MatrixProduct,
    arguments: ProductArguments,
    levels: hl.Func,
    *,
    multiple: int = SUMMED_BY_ONE,
) -> hl.Func:
    """Return the left matrix over (depth, rows...): levels, any of them behind its end.

    Args:
        product: What is computed.
        arguments: What is read.
        levels: Of the rows.
        multiple: What the depth is filled up to a multiple of.
    """
    k, rows = hl.Var(QUANTISED_DEPTH), arguments.rows
    distance, zero = (levels[(which, *rows)] for which in (DISTANCE, ZERO))
    inside = hl.clamp(k, 0, product.depth - 1) if product.depth % multiple else k
    value = arguments.left[left_place(product, rows, inside)]
    many = bool(product.rows) and product.rows[-1].extent > FEW_ROWS
    level = _level_by_factor(value, distance) if many else level_of(value, distance)
    quantised = hl.Func(QUANTISED)
    quantised[(k, *rows)] = hl.u8_sat(level + hl.i32(zero))
    quantised.bound(k, 0, -(-product.depth // multiple) * multiple).compute_root()
    return quantised


# ---- weights ----


def packed_weights(product: MatrixProduct) -> PackedInput:
    """Return packed weights: int8 over (4 of the depth, PANEL columns, fours, panels).

    Zeros behind the last row and column.
    """
    part, lane, four, panel = (hl.Var(name) for name in ("part", "lane", "four", "panel"))
    right = right_matrix(product)
    distance = _column_distance(product, right)[lane, panel]
    value = element_or_zero(product, right, four * SUMMED_BY_ONE + part, panel * PANEL + lane, ())
    packed = hl.Func(PACKED)
    packed[part, lane, four, panel] = hl.i8_sat(level_of(value, distance))
    packed.bound(part, 0, SUMMED_BY_ONE).bound(lane, 0, PANEL).unroll(part).vectorize(lane, PANEL)
    return packed_right(product, packed, right, "int8")


def column_levels(product: MatrixProduct) -> PackedInput:
    """Return scale and sum of the levels of columns: float32, (PANEL, 2, panels)."""
    lane, which, panel = hl.Var("lane"), hl.Var("which"), hl.Var("panel")
    right = right_matrix(product)
    distances = _column_distance(product, right)
    distance = distances[lane, panel]
    r = hl.RDom([(0, product.depth)], "s")
    value = element_or_zero(product, right, r.x, panel * PANEL + lane, ())
    sums = hl.Func("column_sums")
    sums[lane, panel] = hl.i32(0)
    sums[lane, panel] += level_of(value, distance)
    sums.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    sums.update().reorder(lane, r.x, panel).vectorize(lane, PANEL)
    found = hl.Func("column_levels")
    found[lane, which, panel] = hl.select(which == DISTANCE, distance, hl.f32(sums[lane, panel]))
    found.bound(lane, 0, PANEL).bound(which, 0, 2).unroll(which).vectorize(lane, PANEL)
    return packed_right(product, found, right, "float32", product.right)


def column_levels_extents(product: MatrixProduct) -> tuple[int, ...]:
    """Return the extents of what `column_levels` makes."""
    return PANEL, 2, panels_of(product)


def _column_distance(product: MatrixProduct, right: hl.ImageParam) -> hl.Func:
    """Return the distance of the levels of columns, over (PANEL columns, panels)."""
    lane, panel = hl.Var("lane"), hl.Var("panel")
    r = hl.RDom([(0, product.depth)], "m")
    largest = hl.Func("largest")
    value = element_or_zero(product, right, r.x, panel * PANEL + lane, ())
    largest[lane, panel] = hl.i32(0)
    largest[lane, panel] = hl.max(largest[lane, panel], magnitude_bits(value))
    largest.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    largest.update().reorder(lane, r.x, panel).vectorize(lane, PANEL)
    bits = largest[lane, panel]
    magnitude = hl.reinterpret(hl.Float(32), bits)
    distance = strict(magnitude / constant(float(_COLUMN_LEVELS)))
    found = hl.Func("column_distance")
    found[lane, panel] = _nan_unless_finite(_zero_if_tiny(distance), bits)
    found.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    return found


# ---- numbers ----


def magnitude_bits(value: hl.Expr) -> hl.Expr:
    """Return |value| as an integer, which is ordered as |value| is, NaN above all."""
    return hl.reinterpret(hl.Int(32), value) & hl.i32(0x7FFFFFFF)


def is_finite(bits: hl.Expr) -> hl.Expr:
    """True if the bits of a magnitude stand for a finite number."""
    return bits < hl.i32(_FIRST_SPECIAL)


def _zero_if_tiny(distance: hl.Expr) -> hl.Expr:
    return hl.select(distance >= constant(_LEAST_DISTANCE), distance, constant(0.0))


def _nan_unless_finite(distance: hl.Expr, largest: hl.Expr) -> hl.Expr:
    """Return the distance, NaN where the largest magnitude is no finite number."""
    bits = hl.select(is_finite(largest), hl.reinterpret(hl.Int(32), distance), hl.i32(_QUIET_NAN))
    return hl.reinterpret(hl.Float(32), bits)


def level_of(value: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """Return the level of a value, from zero: an integer; 0 where distance is 0 or NaN.

    That of ONNX's QuantizeLinear, the nearest to a quotient, half to even. By a product with the
    reciprocal, two of a million normally distributed weights came out one level off.
    """
    return _rounded(strict(value / distance), distance)


def _level_by_factor(value: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """Return `level_of` without a division for each value: next to a half it may be the other."""
    return _rounded(value * (constant(1.0) / distance), distance)


def _rounded(quotient: hl.Expr, distance: hl.Expr) -> hl.Expr:
    level = hl.round(quotient)
    return hl.i32(hl.select(strict(distance > constant(0.0)), level, constant(0.0)))


def check_few_bits(product: MatrixProduct) -> Support:
    """Check that a product can be computed by weights of 4 bits."""
    if not product.has_weights:
        return Support("product of two computed tensors in int4")
    if product.rows and product.rows[-1].extent > FEW_ROWS:
        return Support(f"more than {FEW_ROWS} rows in int4")
    return SUPPORTED


def few_bits_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs, weights replaced by pairs of levels, each with 8 added:
    bytes, from the innermost (4 of the depth, PANEL columns, fours of half a block, blocks,
    panels); then the scales of their blocks: bfloat16, (PANEL, blocks, panels); then the sums of
    what columns stand for: float32, (PANEL, panels).
    """
    blocks, panels = _blocks_of(product), panels_of(product)
    extents = (SUMMED_BY_ONE, PANEL, FOURS, blocks, panels)
    arguments = read_arguments(product, _packed_levels(product), extents)
    scales = hl.ImageParam(hl.BFloat(16), 3, "scales")
    column_sums = hl.ImageParam(hl.Float(32), 2, "column_sums")
    extremes = row_extremes(product, arguments)
    levels = row_levels(product, arguments, extremes)
    quantised = quantised_rows(product, arguments, levels, multiple=DEPTH_OF_BLOCK)
    lane, block, group, rows = hl.Var(LANE), hl.Var(BLOCK), hl.Var("g"), arguments.rows
    panel = last_panel_at_most(product, block)
    p = hl.RDom([(0, SUMMED_BY_ONE), (0, FOURS), (0, HALVES)], "p")
    parts, place = hl.Func(PARTS), (lane, block, group, *rows)
    byte = packed_element(product, arguments, (p.x, lane, p.y, group, panel))
    level = hl.i8(_half_of(byte, p.z)) + hl.i8(_LOWEST)
    k = DEPTH_OF_BLOCK * group + DEPTH_OF_BLOCK // HALVES * p.z + SUMMED_BY_ONE * p.y + p.x
    parts[place] = hl.i32(0)
    parts[place] += hl.i32(quantised[(k, *rows)]) * hl.i32(level)
    parts.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    r = hl.RDom([(0, blocks)], "r")
    sums = hl.Func(SUMS)
    sums[(lane, block, *rows)] = constant(0.0)
    part = parts[(lane, block, r.x, *rows)]
    sums[(lane, block, *rows)] += hl.f32(part) * hl.f32(scales[lane, r.x, panel])
    sums.bound_extent(lane, PANEL).compute_root()

    def finish(total: hl.Expr, place: Sequence[hl.Expr]) -> hl.Expr:
        distance, zero = (levels[(which, *rows)] for which in (DISTANCE, ZERO))
        column_sum = column_sums[place[0], last_panel_at_most(product, place[1])]
        return strict((total - zero * column_sum) * distance)

    stages = {LEVELS: levels, QUANTISED: quantised, PARTS: parts}
    depths = ((r.x.name(), blocks),)
    found = finished_pipeline(product, arguments, sums, depths, stages, finish=finish)
    found = with_extremes(found, product, arguments, extremes)
    number, summed = len(found.arguments), ((p.x, SUMMED_BY_ONE), (p.y, FOURS), (p.z, HALVES))
    pure = ((LANE, PANEL), *found.loops[PARTS][1:])
    of_update = (*pure, *((loop.name(), extent) for loop, extent in summed))
    return replace(
        found,
        stages={**found.stages, PARTS_UPDATE: parts.update()},
        loops={**found.loops, PARTS: pure, PARTS_UPDATE: of_update},
        padded=found.padded | {PARTS},
        arguments=(*found.arguments, scales, column_sums),
        argument_extents=(*found.argument_extents, (PANEL, blocks, panels), (PANEL, panels)),
        packings={
            **found.packings,
            number: _packed_scales(product),
            number + 1: _packed_sums(product),
        },
    )


def _blocks_of(product: MatrixProduct) -> int:
    return -(-product.depth // DEPTH_OF_BLOCK)


def _half_of(byte: hl.Expr, half: hl.Expr) -> hl.Expr:
    """Return the lower (0) or the higher (1) four bits of a byte."""
    bits = hl.reinterpret(hl.UInt(8), byte)
    return hl.select(half == 0, bits & hl.u8(15), bits >> hl.u8(4))


# ---- weights ----


def _packed_levels(product: MatrixProduct) -> PackedInput:
    part, lane, four, group, panel = (
        hl.Var(name) for name in ("part", "lane", "four", "group", "panel")
    )
    right = right_matrix(product)
    scales = _scales(product, right)

    def level(half: int) -> hl.Expr:
        k = DEPTH_OF_BLOCK * group + DEPTH_OF_BLOCK // HALVES * half + SUMMED_BY_ONE * four + part
        value = element_or_zero(product, right, k, panel * PANEL + lane, ())
        return _level(value, scales[lane, group, panel]) - hl.i32(_LOWEST)

    packed = hl.Func(PACKED)
    byte = hl.u8(level(0)) | (hl.u8(level(1)) << hl.u8(4))
    packed[part, lane, four, group, panel] = hl.reinterpret(hl.Int(8), byte)
    packed.bound(part, 0, SUMMED_BY_ONE).bound(lane, 0, PANEL).unroll(part).vectorize(lane, PANEL)
    return packed_right(product, packed, right, "int8")


def _packed_scales(product: MatrixProduct) -> PackedInput:
    lane, group, panel = hl.Var("lane"), hl.Var("group"), hl.Var("panel")
    right = right_matrix(product)
    found = hl.Func("block_scales")
    found[lane, group, panel] = to_bfloat16(_scales(product, right)[lane, group, panel])
    found.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    return packed_right(product, found, right, "bfloat16", product.right)


def _packed_sums(product: MatrixProduct) -> PackedInput:
    lane, panel = hl.Var("lane"), hl.Var("panel")
    right = right_matrix(product)
    scales = _scales(product, right)
    r = hl.RDom([(0, DEPTH_OF_BLOCK), (0, _blocks_of(product))], "s")
    scale = scales[lane, r.y, panel]
    value = element_or_zero(product, right, DEPTH_OF_BLOCK * r.y + r.x, panel * PANEL + lane, ())
    found = hl.Func("column_sums")
    found[lane, panel] = constant(0.0)
    found[lane, panel] += hl.f32(_level(value, scale)) * scale
    found.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    found.update().reorder(lane, r.x, r.y, panel).vectorize(lane, PANEL)
    return packed_right(product, found, right, "float32", product.right)


def _scales(product: MatrixProduct, right: hl.ImageParam) -> hl.Func:
    """Return the scales of blocks over (PANEL columns, blocks, panels), rounded to bfloat16.

    0 for a block of zeros, NaN for one that holds a NaN or an infinity.
    """
    lane, group, panel = hl.Var("lane"), hl.Var("group"), hl.Var("panel")
    r = hl.RDom([(0, DEPTH_OF_BLOCK)], "m")
    value = element_or_zero(product, right, DEPTH_OF_BLOCK * group + r.x, panel * PANEL + lane, ())
    extreme, place = hl.Func("extreme"), (lane, group, panel)
    extreme[place] = (hl.i32(0), constant(0.0))  # bits of the magnitude, and the value
    bits, known = magnitude_bits(value), extreme[place]
    is_larger = bits > known[0]
    extreme[place] = (hl.select(is_larger, bits, known[0]), hl.select(is_larger, value, known[1]))
    extreme.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    extreme.update().reorder(lane, r.x, group, panel).vectorize(lane, PANEL)
    largest, signed = known[0], known[1]
    magnitude = hl.reinterpret(hl.Float(32), largest)
    scale = hl.select(
        strict(magnitude < constant(_LEAST_MAGNITUDE)),
        constant(0.0),
        signed * constant(1 / _LOWEST),
    )
    nan = hl.reinterpret(hl.Float(32), hl.i32(0x7FC00000))
    rounded = hl.f32(to_bfloat16(hl.select(is_finite(largest), scale, nan)))
    found = hl.Func("scale")
    found[place] = rounded
    found.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    return found


def _level(value: hl.Expr, scale: hl.Expr) -> hl.Expr:
    """Return the level of a weight, an integer; 0 where the scale is 0 or NaN."""
    size = hl.select(strict(scale < constant(0.0)), -scale, scale)
    signed = hl.select(strict(scale < constant(0.0)), -value, value)
    return hl.clamp(level_of(signed, size), _LOWEST, _HIGHEST)
