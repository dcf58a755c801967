"""Matrix products in bfloat16: pairs of products summed up in float32.

rounded      the left matrix rounded once, zeros behind an odd depth
sums         products summed up pair by pair, one instruction for 16 pairs
finished, y  as in `panels.py`
"""

from __future__ import annotations

from collections.abc import Callable

import halide as hl

from aoe.kernels.family import PackedInput, Pipeline
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.matmul.panels import element_or_zero, packed_right, right_matrix
from aoe.kernels.matmul.result import (
    BLOCK,
    LANE,
    PACKED,
    PANEL,
    SUMS,
    ProductArguments,
    batch_variables,
    finished_pipeline,
    last_panel_at_most,
    left_place,
    packed_element,
    panels_of,
    read_arguments,
)
from aoe.kernels.matmul.shape import MatrixProduct

ROUNDED, ROUNDED_DEPTH = "rounded", "k"


PAIRED_DEPTH = "r$y"
"""Loop over the pairs of the depth, of the update of the sums; that of a pair is `PAIR`."""
PAIR = "r$x"


def pairs_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are those of the workload, weights replaced by their panels: bfloat16, from the
    innermost (2 of a pair, PANEL columns, pairs, panels), zeros behind the last row and column.
    """
    arguments = pair_arguments(product)
    rounded = round_left(product, arguments)
    sums = pair_sums(product, arguments, lambda k: rounded[(k, *arguments.rows)])
    depths = ((PAIR, 2), (PAIRED_DEPTH, pairs_of(product)))
    return finished_pipeline(product, arguments, sums, depths, {ROUNDED: rounded})


def pairs_of(product: MatrixProduct) -> int:
    """Return the number of pairs that are summed up."""
    return -(-product.depth // 2)


def pair_arguments(product: MatrixProduct) -> ProductArguments:
    """Return the buffers of a kernel whose right matrix lies in panels of pairs."""
    extents = (2, PANEL, pairs_of(product), panels_of(product))
    return read_arguments(product, _packing(product), extents)


def pair_sums(
    product: MatrixProduct, arguments: ProductArguments, left: Callable[[hl.Expr], hl.Expr]
) -> hl.Func:
    """Return the sums of products over (PANEL columns, panels, rows...), not scheduled.

    Args:
        product: What is computed.
        arguments: From `pair_arguments`.
        left: Element of the left matrix in bfloat16, by its place in the depth; 0 behind an odd
            one.
    """
    lane, block = hl.Var(LANE), hl.Var(BLOCK)
    r = hl.RDom([(0, 2), (0, pairs_of(product))], "r")
    sums, place = hl.Func(SUMS), (lane, block, *arguments.rows)
    sums[place] = constant(0.0)
    panel = last_panel_at_most(product, block)
    weight = packed_element(product, arguments, (r.x, lane, r.y, panel))
    factor = hl.cast(hl.Float(32), left(2 * r.y + r.x))
    sums[place] += factor * hl.cast(hl.Float(32), weight)
    return sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer


def round_left(product: MatrixProduct, arguments: ProductArguments) -> hl.Func:
    """Return the left matrix in bfloat16 over (depth, rows...), 0 behind its last column."""
    k = hl.Var(ROUNDED_DEPTH)
    inside = hl.clamp(k, 0, product.depth - 1)
    value = arguments.left[left_place(product, arguments.rows, inside)]
    rounded = hl.Func(ROUNDED)
    padded = hl.select(k < product.depth, value, constant(0.0))
    rounded[(k, *arguments.rows)] = to_bfloat16(padded)
    rounded.compute_root()
    return rounded


def _packing(product: MatrixProduct) -> PackedInput:
    half, lane, pair, panel = (hl.Var(name) for name in ("half", "lane", "pair", "panel"))
    batch, right = batch_variables(product), right_matrix(product)
    packed = hl.Func(PACKED)
    value = element_or_zero(product, right, 2 * pair + half, panel * PANEL + lane, batch)
    packed[(half, lane, pair, panel, *batch)] = to_bfloat16(value)
    packed.bound(half, 0, 2).compute_root()
    if product.has_weights:
        packed.unroll(half).vectorize(lane, PANEL)
    return packed_right(product, packed, right, "bfloat16")
