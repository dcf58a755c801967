"""Rows times constant weights: the weights lie in panels of 16 columns.

    sums         products summed up, in registers: blocks of 16 columns times a few rows
    finished     the same put down, for chains too long to be written out for each of them
    y            the chain behind the product: bias, activation, residual

A panel holds its columns one row of 16 after the other, so a kernel that keeps several blocks in
registers reads as many streams from memory, each without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import halide as hl

from aoe.kernels.family import PackedInput, Pipeline
from aoe.kernels.halide.chain import chain_pipeline, read_operands
from aoe.kernels.math.functions import constant
from aoe.kernels.matmul.shape import MatrixProduct

SUMS, FINISHED = "sums", "finished"
SUMMED = f"{SUMS}.update"
LANE, BLOCK, DEPTH = "l", "b", "r$x"
PANEL = 16
"""Columns of a panel: a vector with AVX-512, two with AVX2, four with NEON."""


def panels_of(product: MatrixProduct) -> int:
    """Return how many panels the weights have."""
    return -(-product.columns.extent // PANEL)


def panels_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm in float32.

    Arguments are those of the workload, weights replaced by their panels: float32, from the
    innermost (PANEL columns, depth, panels), zeros behind the last column.
    """
    operands = read_operands(product.chain, product.iteration)
    rows = operands.variables[1:]
    left = left_argument(product, operands.arguments[product.left])
    weights = hl.ImageParam(hl.Float(32), 3, f"x{product.right}")
    sums = _sums(product, left, weights, rows)
    finished = hl.Func(FINISHED)
    finished[sums.args()] = sums[sums.args()]
    column = operands.variables[0]
    made = finished[(column % PANEL, column // PANEL, *rows)]
    behind = replace(operands, values={**operands.values, product.product: made})
    chain = chain_pipeline(
        product.chain,
        behind,
        [item for item in product.chain.operations if item.output != product.product],
        {SUMS: sums, SUMMED: sums.update(), FINISHED: finished},
        _loops(product),
    )
    arguments, extents = list(operands.arguments[:-2]), list(chain.argument_extents[:-2])
    arguments[product.left], arguments[product.right] = left, weights
    extents[product.left] = left_extents(product)
    extents[product.right] = (PANEL, product.depth, panels_of(product))
    return replace(
        chain,
        arguments=tuple(arguments),
        argument_extents=tuple(extents),
        packings={product.right: _packing(product)},
        padded=frozenset({SUMS, FINISHED}),
    )


def left_extents(product: MatrixProduct) -> tuple[int, ...]:
    """Return the extents of the left matrix, innermost first."""
    axes = [product.iteration.axes[at].extent for at in reversed(product.left_axes)]
    axes.insert(1 if product.left_turned else 0, product.depth)
    return tuple(axes)


def left_argument(product: MatrixProduct, read_by_chain: hl.ImageParam) -> hl.ImageParam:
    """Return the buffer of the left matrix: the chain's, if it reads it too, else a new one."""
    rank = len(product.left_axes) + 1
    if read_by_chain.dimensions() == rank and product.iteration.operands[product.left]:
        return read_by_chain
    return hl.ImageParam(hl.Float(32), rank, f"x{product.left}")


def left_place(
    product: MatrixProduct, rows: Sequence[hl.Var], depth: hl.Expr
) -> tuple[hl.Expr, ...]:
    """Return where an element of the left matrix lies.

    Args:
        product: Says how it is stored.
        rows: Row loops, innermost first.
        depth: Place within a row.
    """
    outermost_first = rows[::-1]
    place = [hl.Expr(outermost_first[at]) for at in reversed(product.left_axes)]
    place.insert(1 if product.left_turned else 0, depth)
    return tuple(place)


def _sums(
    product: MatrixProduct, left: hl.ImageParam, weights: hl.ImageParam, rows: tuple[hl.Var, ...]
) -> hl.Func:
    lane, block = hl.Var(LANE), hl.Var(BLOCK)
    r = hl.RDom([(0, product.depth)], "r")
    sums = hl.Func(SUMS)
    sums[(lane, block, *rows)] = constant(0.0)
    panel = hl.clamp(block, 0, panels_of(product) - 1)  # a padded block reads the last one
    sums[(lane, block, *rows)] += left[left_place(product, rows, r.x)] * weights[lane, r.x, panel]
    sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    return sums


def _loops(product: MatrixProduct) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the loops of the sums; 0 where the schedule decides how far they go."""
    rows = tuple((axis.name, 0) for axis in reversed(product.rows))
    pure = ((LANE, PANEL), (BLOCK, 0), *rows)
    return {SUMS: pure, FINISHED: pure, SUMMED: (*pure, (DEPTH, product.depth))}


def _packing(product: MatrixProduct) -> PackedInput:
    """Return the panels of the weights, zeros where there is no column."""
    lane, k, panel = hl.Var("lane"), hl.Var("k"), hl.Var("panel")
    columns, depth = product.columns.extent, product.depth
    extents = (depth, columns) if product.right_turned else (columns, depth)
    weights = hl.ImageParam(hl.Float(32), 2, "weights")
    column = panel * PANEL + lane
    inside = hl.clamp(column, 0, columns - 1)
    value = weights[k, inside] if product.right_turned else weights[inside, k]
    packed = hl.Func("packed")
    packed[lane, k, panel] = hl.select(column < columns, value, constant(0.0))
    packed.vectorize(lane, PANEL)
    return PackedInput(output=packed, argument=weights, argument_extents=extents)
