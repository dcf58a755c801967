"""Attention of a few queries, as in decoding with a cache: keys and values are read as they lie.

    dots       products of a query and the keys, summed up over the depth
    scores     with the chain behind them: scale, mask
    peak, grown, total   as in `stages.py`
    attended   values summed up by the weights
    y          attended / total

To pack keys and values, as many queries do, would take longer than all the rest: each is read once.
Keys stored one behind the other are walked one by one, each in vectors of its depth; keys stored
column by column are walked along the depth, in vectors of 16 keys, as values are along the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import add

import halide as hl

from aoe import schedule as sch
from aoe.kernels.attention.shape import Attention
from aoe.kernels.attention.stages import (
    GROWN,
    PEAK,
    SCORES,
    TOTAL,
    behind,
    buffers_of,
    in_panels,
    inverse_of,
    open_keys,
    result_loops,
    rows_around,
    score_of,
    softmax_of,
)
from aoe.kernels.family import KernelTarget, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.reductions import AxisReduction, OuterLoops, fold_steps, gathered
from aoe.kernels.halide.tiling import (
    LANE,
    best_tasks,
    estimate_us,
    guided_space,
    parallel_steps,
    row_memory,
    task_choices,
    vector_steps,
)
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.matmul.panels import panel_arguments
from aoe.kernels.matmul.result import (
    PANEL,
    ProductArguments,
    left_place,
    nearest,
    right_element,
    right_sizes,
)
from aoe.kernels.matmul.shape import MatrixProduct
from aoe.schedule import Knob, Space, Step, Values

DOTS, ATTENDED = "dots", "attended"
TASKS = "tasks"
_PANEL = "panel"
PanelTerm = Callable[[hl.Expr, hl.Expr], hl.Expr]
"""The element at a place of the reduced axis, of a column."""
_CYCLES = 4
"""Of 16 elements of keys or values, from the second-level cache."""


def few_queries_pipeline(attention: Attention) -> Pipeline:
    """Return the algorithm. Arguments are those of the workload."""
    of_scores, of_values = panel_arguments(attention.scores), panel_arguments(attention.values)
    dots = _dots(attention, of_scores)
    place = of_scores.operands.variables
    dot = dots.stages[DOTS]
    scores = hl.Func(SCORES)
    made = dot[place] if attention.scores.right_turned else in_panels(dot, of_scores)
    scores[place] = score_of(attention, of_scores, made)
    scores.compute_root()  # steps place it closer
    grown, total, folds = softmax_of(attention, scores, of_scores)
    attended = _attended(attention, of_values, grown)
    inverse = hl.Func("inverse")
    inverse[of_values.rows] = inverse_of(attention, total)
    weighted = strict(in_panels(attended.stages[ATTENDED], of_values) * inverse[of_values.rows])
    output = hl.Func(RESULT)
    output[of_values.operands.variables] = behind(attention.values, of_values, weighted)
    stages, loops = gathered([dots, *folds, attended])
    key = (attention.keys.name, attention.keys.extent)
    rows = tuple((row.name(), 0) for row in of_scores.rows)
    arguments, extents = buffers_of(attention, of_scores, of_values)
    return Pipeline(
        output=output,
        stages={**stages, RESULT: output, SCORES: scores, GROWN: grown},
        arguments=arguments,
        argument_extents=extents,
        output_extents=attention.values.iteration.extents,
        loops={
            **loops,
            SCORES: (key, *rows),
            GROWN: (key, *rows),
            RESULT: result_loops(attention),
        },
    )


def _dots(attention: Attention, arguments: ProductArguments) -> AxisReduction:
    """Return the products of queries and keys: of each key, or of panels of them."""
    product = attention.scores

    def factor(at: hl.Expr, key: hl.Expr) -> hl.Expr:
        query = arguments.left[left_place(product, arguments.rows, at)]
        return query * right_element(product, arguments, at, key)

    if not product.right_turned:
        return _over_panels(DOTS, product, arguments, product.depth, factor)
    around, key = _around_keys(attention), arguments.operands.variables[0]
    keys = open_keys(attention, arguments)
    key = key if keys is None else nearest(key, keys)
    return AxisReduction(DOTS, around, lambda at: factor(at, key), constant(0.0), add)


def _attended(attention: Attention, arguments: ProductArguments, grown: hl.Func) -> AxisReduction:
    """Return the values summed up by the weights of their keys."""
    product = attention.values

    def weighted(at: hl.Expr, column: hl.Expr) -> hl.Expr:
        return grown[(at, *arguments.rows)] * right_element(product, arguments, at, column)

    return _over_panels(ATTENDED, product, arguments, attention.keys.extent, weighted)


def _over_panels(
    name: str, product: MatrixProduct, arguments: ProductArguments, length: int, term: PanelTerm
) -> AxisReduction:
    """Return sums over the rows of a right matrix, of each of its columns: in panels of 16."""
    around = _around_panels(arguments.rows, length)
    column, extent = hl.Var(_PANEL) * PANEL + hl.Var(LANE), product.columns.extent
    depth, columns = right_sizes(product, arguments.packing.argument)
    if product.open_depth:
        around = replace(around, open_length=depth)
    if product.open_columns:
        inside = nearest(column, columns)
    else:
        inside = hl.clamp(column, 0, extent - 1) if extent % PANEL else column
    fold = AxisReduction(name, around, lambda at: term(at, inside), constant(0.0), add)
    for stage in (f"{name}_parts", name):
        fold.stages[stage].bound_extent(hl.Var(LANE), PANEL)
    return fold


def _around_panels(rows: Sequence[hl.Var], length: int) -> OuterLoops:
    return OuterLoops(
        columns=(hl.Var(LANE),), rows=(hl.Var(_PANEL), *rows), vector=PANEL, length=length
    )


def _around_keys(attention: Attention) -> OuterLoops:
    """Return the loops of a product of a query and a key, as a reduction over its depth sees it."""
    rows = rows_around(attention).rows
    depth = attention.scores.depth
    return OuterLoops(columns=(), rows=(hl.Var(attention.keys.name), *rows), vector=1, length=depth)


def few_queries_space(attention: Attention, target: KernelTarget) -> Space:
    """Return into how many tasks the batches are shared; the best first."""
    batches = prod(axis.extent for axis in attention.batch)
    both = attention.scores.depth + attention.values.columns.extent
    elements = batches * attention.queries.extent * attention.keys.extent * both
    work_us = estimate_us(elements, _CYCLES, 0, target)
    tasks = task_choices(work_us, batches, target)
    guesses = ((count,) for count in (best_tasks(work_us, tasks), *reversed(tasks)))
    return guided_space((Knob(TASKS, tasks),), guesses)


def few_queries_steps(values: Values, attention: Attention, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    yield sch.Split(RESULT, attention.values.columns.name, _PANEL, LANE, PANEL, sch.Tail.GUARD)
    yield sch.Vectorize(RESULT, LANE, PANEL)
    yield from parallel_steps(RESULT, attention.batch, int(values[TASKS]))
    yield from _score_steps(attention)
    yield from _weight_steps(attention)


def _score_steps(attention: Attention) -> Iterator[Step]:
    query, key = attention.queries.name, attention.keys.name
    yield sch.ComputeAt(SCORES, RESULT, query)
    yield sch.StoreIn(SCORES, row_memory(4 * attention.keys.extent))
    if attention.scores.right_turned:
        yield from fold_steps(DOTS, _around_keys(attention), SCORES, key)
        return
    around = _around_panels(rows_around(attention).rows, attention.scores.depth)
    yield from fold_steps(DOTS, around, RESULT, query)
    yield from vector_steps(SCORES, key, PANEL)


def _weight_steps(attention: Attention) -> Iterator[Step]:
    query, key, keys = attention.queries.name, attention.keys.name, attention.keys.extent
    for name in (PEAK, TOTAL):
        yield from fold_steps(name, rows_around(attention), RESULT, query)
    yield sch.ComputeAt(GROWN, RESULT, query)
    yield sch.StoreIn(GROWN, row_memory(4 * keys))
    yield from vector_steps(GROWN, key, PANEL)
    rows = [hl.Var(axis.name) for axis in reversed(attention.values.rows)]
    yield from fold_steps(ATTENDED, _around_panels(rows, keys), RESULT, query)
