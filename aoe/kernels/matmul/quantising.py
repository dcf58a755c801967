"""Rows and weights as integers of 8 bits, with what makes numbers of them again.

    levels of a row      0 ... 255, the zero of the row among them: range of the row / 255 apart
    levels of a column   -127 ... 127: largest magnitude of the column / 127 apart

Ranges hold 0, so that 0 stays 0, and what holds no negative numbers uses all levels. A row or a
column with a NaN or an infinity in it is NaN as a whole; one whose levels would be closer than
normal numbers are counts as zeros.
"""

from __future__ import annotations

import math

import halide as hl

from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Support
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.matmul.panels import element_or_zero, packed_right, right_matrix
from aoe.kernels.matmul.result import PACKED, PANEL, ProductArguments, left_place, panels_of
from aoe.kernels.matmul.shape import FEW_ROWS, MatrixProduct

EXTREMES, LEVELS, QUANTISED, QUANTISED_DEPTH = "extremes", "levels", "quantised", "k"
EXTREMES_UPDATE = f"{EXTREMES}{UPDATE}"
DISTANCE, ZERO = 0, 1
"""What there is of the levels of a row: distance, and level of zero. Also in `column_levels`, where
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


def check_quantising(product: MatrixProduct) -> Support:
    """Check that a product can be computed in 8 bits."""
    if not product.has_weights:
        return Support("product of two computed tensors in int8")
    if product.depth > DEPTH_MAX:
        return Support(f"sums of {product.depth} products in int8")
    return SUPPORTED


def quantised_depth(product: MatrixProduct) -> int:
    """Return the depth filled up to whole instructions."""
    return -(-product.depth // SUMMED_BY_ONE) * SUMMED_BY_ONE


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
    """True if the bits of a magnitude are those of a finite number."""
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
