"""Rows times constant weights in float32: the weights lie in panels of 16 columns.

    sums         products summed up, in registers: blocks of 16 columns times a few rows
    finished     the same put down, for chains too long to be written out for each of them
    y            the chain behind the product: bias, activation, residual

A panel holds its columns one row of 16 after the other, so a kernel that keeps several blocks in
registers reads as many streams from memory, each without a gap.
"""

from __future__ import annotations

import halide as hl

from aoe.kernels.family import PackedInput, Pipeline
from aoe.kernels.math.functions import constant
from aoe.kernels.matmul.result import (
    BLOCK,
    LANE,
    PANEL,
    SUMS,
    finished_pipeline,
    last_panel_at_most,
    left_place,
    panels_of,
    read_arguments,
)
from aoe.kernels.matmul.shape import MatrixProduct


def panels_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are those of the workload, weights replaced by their panels: float32, from the
    innermost (PANEL columns, depth, panels), zeros behind the last column.
    """
    return _pipeline(product, hl.Float(32))


def rounded_weights_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the same on weights rounded to bfloat16: the input stays exact, half is read."""
    return _pipeline(product, hl.BFloat(16))


def _pipeline(product: MatrixProduct, kept: hl.Type) -> Pipeline:
    extents = (PANEL, product.depth, panels_of(product))
    arguments = read_arguments(product, _packing(product, kept), extents)
    lane, block = hl.Var(LANE), hl.Var(BLOCK)
    r = hl.RDom([(0, product.depth)], "r")
    sums, place = hl.Func(SUMS), (lane, block, *arguments.rows)
    sums[place] = constant(0.0)
    weight = arguments.weights[lane, r.x, last_panel_at_most(product, block)]
    left = arguments.left[left_place(product, arguments.rows, r.x)]
    sums[place] += left * hl.cast(hl.Float(32), weight)
    sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    return finished_pipeline(product, arguments, sums, ((r.x.name(), product.depth),))


def _packing(product: MatrixProduct, kept: hl.Type) -> PackedInput:
    lane, k, panel = hl.Var("lane"), hl.Var("k"), hl.Var("panel")
    weights = hl.ImageParam(hl.Float(32), 2, "weights")
    packed = hl.Func("packed")
    packed[lane, k, panel] = hl.cast(kept, weight_or_zero(product, weights, k, panel, lane))
    packed.vectorize(lane, PANEL)
    return PackedInput(
        output=packed,
        argument=weights,
        argument_extents=weight_extents(product),
        dtype="bfloat16" if kept == hl.BFloat(16) else "float32",
    )


def weight_extents(product: MatrixProduct) -> tuple[int, int]:
    """Return the extents of the weights as the model has them, innermost first."""
    columns, depth = product.columns.extent, product.depth
    return (depth, columns) if product.right_turned else (columns, depth)


def weight_or_zero(
    product: MatrixProduct, weights: hl.ImageParam, k: hl.Expr, panel: hl.Expr, lane: hl.Expr
) -> hl.Expr:
    """Return a weight as the model has it, 0 behind the last row or column."""
    column, columns, depth = panel * PANEL + lane, product.columns.extent, product.depth
    inside = (hl.clamp(k, 0, depth - 1), hl.clamp(column, 0, columns - 1))
    place = inside if product.right_turned else inside[::-1]
    return hl.select((column < columns) & (k < depth), weights[place], constant(0.0))
