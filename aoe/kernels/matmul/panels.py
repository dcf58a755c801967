"""Matrix products in float32 and in pairs of bfloat16: panels of 16 columns of the right matrix.

    packed       the panels, where the right matrix is no constant
    rounded      in bfloat16, the left matrix rounded once, zeros behind an odd depth
    sums         products summed up, in registers: blocks of 16 columns times a few rows
    finished     the same put down, for chains too long to be written out for each of them
    y            the chain behind the product: bias, activation, residual

A panel holds its columns one row of 16 after the other, so a kernel that keeps several blocks in
registers reads as many streams from memory, each without a gap. In bfloat16 one instruction sums
up 16 pairs of products in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import halide as hl

from aoe.kernels.family import PackedInput, Pipeline
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.matmul.shape import (
    BLOCK,
    LANE,
    PACKED,
    PANEL,
    SUMS,
    MatrixProduct,
    ProductArguments,
    batch_variables,
    finished_pipeline,
    last_panel_at_most,
    left_place,
    nearest,
    packed_element,
    panels_of,
    read_arguments,
    right_sizes,
)

DEPTH = "r$x"
"""Loop over the depth, of the update of the sums."""
_FLOAT32 = hl.Float(32)
FILLED = "f"
"""Loop over the columns of a panel that is filled, of the update of the packed right matrix."""
ROUNDED, ROUNDED_DEPTH = "rounded", "k"
PAIRED_DEPTH = "r$y"
"""Loop over the pairs of the depth, of the update of the sums; that of a pair is `PAIR`."""
PAIR = "r$x"


def panels_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs, constant weights replaced by their panels: float32, from
    the innermost (PANEL columns, depth, panels), zeros behind the last column.
    """
    return _pipeline(product, _FLOAT32)


def rounded_weights_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the same on weights rounded to bfloat16: the input stays exact, half is read."""
    return _pipeline(product, hl.BFloat(16))


def _pipeline(product: MatrixProduct, kept: hl.Type) -> Pipeline:
    arguments = panel_arguments(product, kept)

    def left(k: hl.Expr) -> hl.Expr:
        return arguments.left[left_place(product, arguments.rows, k)]

    sums = panel_sums(product, arguments, left)
    return finished_pipeline(product, arguments, sums, ((DEPTH, product.depth),))


def panel_arguments(product: MatrixProduct, kept: hl.Type = _FLOAT32) -> ProductArguments:
    """Return the buffers of a kernel whose right matrix lies in panels of elements `kept`."""
    extents = (PANEL, product.depth, panels_of(product))
    return read_arguments(product, _packing(product, kept), extents)


def panel_sums(
    product: MatrixProduct,
    arguments: ProductArguments,
    left: Callable[[hl.Expr], hl.Expr],
    right: Callable[[tuple[hl.Expr, ...]], hl.Expr] | None = None,
) -> hl.Func:
    """Return the sums of products over (PANEL columns, panels, rows...), not scheduled.

    Args:
        product: What is computed.
        arguments: From `panel_arguments`.
        left: Element of the left matrix, by its place in the depth.
        right: Element of the right one over (PANEL columns, depth, panels); None for that of the
            panels which are read.
    """
    lane, block = hl.Var(LANE), hl.Var(BLOCK)
    depth, _ = right_sizes(product, arguments.packing.argument)
    r = hl.RDom([(0, depth)], "r")
    sums, place = hl.Func(SUMS), (lane, block, *arguments.rows)
    sums[place] = constant(0.0)
    panel = last_panel_at_most(product, block, arguments.packing.argument)
    here = (lane, r.x, panel)
    weight = packed_element(product, arguments, here) if right is None else right(here)
    sums[place] += left(hl.Expr(r.x)) * hl.cast(hl.Float(32), weight)
    return sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer


def _packing(product: MatrixProduct, kept: hl.Type) -> PackedInput:
    lane, k, panel = hl.Var("lane"), hl.Var("k"), hl.Var("panel")
    batch, right = batch_variables(product), right_matrix(product)
    packed = hl.Func(PACKED)
    place = (k, panel, *batch)
    if fills_panels(product):
        _, columns = right_sizes(product, right)
        in_panel = hl.RDom([(0, PANEL)], FILLED)
        column = panel * PANEL + in_panel.x
        in_panel.where(hl.likely(column < columns))
        packed[(lane, *place)] = hl.undef(_FLOAT32)
        # what memory holds behind the last column may be denormal, and slow
        last = columns // PANEL + hl.RDom([(0, hl.min(columns % PANEL, 1))], "t").x
        packed[(lane, k, last, *batch)] = constant(0.0)
        packed.update().vectorize(lane, PANEL)
        read = (k, column) if product.right_turned else (column, k)
        packed[(in_panel.x, *place)] = right[(*read, *batch)]
    else:
        value = element_or_zero(product, right, k, panel * PANEL + lane, batch)
        packed[(lane, *place)] = to_bfloat16(value) if kept == hl.BFloat(16) else value
    packed.compute_root()
    if product.has_weights:
        packed.vectorize(lane, PANEL)
    dtype = "bfloat16" if kept == hl.BFloat(16) else "float32"
    return packed_right(product, packed, right, dtype)


def fills_panels(product: MatrixProduct) -> bool:
    """True for a matrix of an open number of columns, whose panels are filled as far as it goes.

    By an index that is held inside, each element of the last panel would be read by itself: of 12
    heads of 33 queries that took a tenth of the time (a Xeon with AVX-512, 2026-11-29).
    """
    return product.open_columns


def packed_right(
    product: MatrixProduct,
    output: hl.Func,
    right: hl.ImageParam,
    dtype: str,
    source: int | None = None,
) -> PackedInput:
    """Return the packing of the right matrix, or of numbers made of it (see `PackedInput`)."""
    return PackedInput(
        output=output,
        argument=right,
        argument_extents=right_extents(product),
        dtype=dtype,
        source=source,
    )


def right_matrix(product: MatrixProduct) -> hl.ImageParam:
    """Return the buffer of the right matrix as the model has it."""
    name = "weights" if product.has_weights else f"x{product.right}"
    return hl.ImageParam(hl.Float(32), len(right_extents(product)), name)


def right_extents(product: MatrixProduct) -> tuple[int, ...]:
    """Return its extents, innermost first."""
    columns, depth = product.columns.extent, product.depth
    matrix = (depth, columns) if product.right_turned else (columns, depth)
    return (*matrix, *(product.iteration.axes[at].extent for at in reversed(product.right_axes)))


def element_or_zero(
    product: MatrixProduct,
    right: hl.ImageParam,
    k: hl.Expr,
    column: hl.Expr,
    batch: Sequence[hl.Var],
) -> hl.Expr:
    """Return an element of the right matrix, 0 behind its last row or column."""
    depth, columns = right_sizes(product, right)
    if product.open_depth or product.open_columns:
        inside = (nearest(k, depth), nearest(column, columns))
    else:
        inside = (hl.clamp(k, 0, depth - 1), hl.clamp(column, 0, columns - 1))
    place = inside if product.right_turned else inside[::-1]
    return hl.select((column < columns) & (k < depth), right[(*place, *batch)], constant(0.0))


def pairs_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs, weights replaced by their panels: bfloat16, from the
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
    return read_arguments(product, _pair_packing(product), extents)


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


def _pair_packing(product: MatrixProduct) -> PackedInput:
    half, lane, pair, panel = (hl.Var(name) for name in ("half", "lane", "pair", "panel"))
    batch, right = batch_variables(product), right_matrix(product)
    packed = hl.Func(PACKED)
    value = element_or_zero(product, right, 2 * pair + half, panel * PANEL + lane, batch)
    packed[(half, lane, pair, panel, *batch)] = to_bfloat16(value)
    packed.bound(half, 0, 2).compute_root()
    if product.has_weights:
        packed.unroll(half).vectorize(lane, PANEL)
    return packed_right(product, packed, right, "bfloat16")
