"""Matrix products in 8 bits, summed in 32.

extremes     lowest, highest and largest number of parts of a row
levels       distance and zero of the levels of a row
quantised    the left matrix in 8 bits
sums         products summed up in 32 bits, four by one instruction
finished, y  numbers again, and the chain behind them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import halide as hl

from aoe.kernels.family import Pipeline
from aoe.kernels.math.functions import strict
from aoe.kernels.matmul.quantising import (
    DISTANCE,
    EXTREMES,
    EXTREMES_UPDATE,
    LEVELS,
    QUANTISED,
    SUMMED_BY_ONE,
    ZERO,
    column_levels,
    column_levels_extents,
    extreme_lanes,
    packed_weights,
    quantised_depth,
    quantised_rows,
    row_extremes,
    row_levels,
)
from aoe.kernels.matmul.result import (
    BLOCK,
    LANE,
    PANEL,
    SUMS,
    ProductArguments,
    finished_pipeline,
    last_panel_at_most,
    packed_element,
    panels_of,
    read_arguments,
)
from aoe.kernels.matmul.shape import MatrixProduct


def quantised_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are those of the workload, weights replaced by their panels: int8, from the innermost
    (4 of the depth, PANEL columns, groups of 4, panels); then distance and sum of the levels of
    their columns: float32, (PANEL, 2, panels).
    """
    groups = quantised_depth(product) // SUMMED_BY_ONE
    extents = (SUMMED_BY_ONE, PANEL, groups, panels_of(product))
    arguments = read_arguments(product, packed_weights(product), extents)
    columns = _column_buffer(product)
    extremes = row_extremes(product, arguments)
    levels = row_levels(product, arguments, extremes)
    quantised = quantised_rows(product, arguments, levels)
    lane, block, rows = hl.Var(LANE), hl.Var(BLOCK), arguments.rows
    r = hl.RDom([(0, SUMMED_BY_ONE), (0, groups)], "r")
    sums, place = hl.Func(SUMS), (lane, block, *rows)
    sums[place] = hl.i32(0)
    panel = last_panel_at_most(product, block)
    weight = packed_element(product, arguments, (r.x, lane, r.y, panel))
    left = quantised[(SUMMED_BY_ONE * r.y + r.x, *rows)]
    sums[place] += hl.i32(left) * hl.i32(weight)
    sums.bound_extent(lane, PANEL).compute_root()  # steps place it closer

    def finish(total: hl.Expr, place: Sequence[hl.Expr]) -> hl.Expr:
        lane, panel = place[0], last_panel_at_most(product, place[1])
        distance, zero = (levels[(which, *rows)] for which in (DISTANCE, ZERO))
        centred = total - hl.i32(zero) * hl.i32(columns[lane, ZERO, panel])
        return strict(hl.f32(centred) * (distance * columns[lane, DISTANCE, panel]))

    depths = ((r.x.name(), SUMMED_BY_ONE), (r.y.name(), groups))
    stages = {LEVELS: levels, QUANTISED: quantised}
    found = finished_pipeline(product, arguments, sums, depths, stages, finish=finish)
    return _with_columns(with_extremes(found, product, arguments, extremes), product, columns)


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
