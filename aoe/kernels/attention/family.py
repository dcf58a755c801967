"""Attention as one kernel, and its algorithm for a few queries, as in decoding with a cache.

For a few queries keys and values are read as they lie:

    dots       products of a query and the keys, summed up over the depth
    scores     with the chain behind them: scale, mask
    peak, grown, total   as in `tiles.py`
    attended   values summed up by the weights
    y          attended / total

To pack keys and values, as many queries do, would take longer than all the rest: each is read once,
for all queries. Keys stored one behind the other are walked one by one, each in vectors of its
depth; keys stored column by column are walked along the depth, in vectors of 16 keys, as values are
along the keys. One thread takes 0.55 to 0.9 of ONNX Runtime's time for 1 to 4 queries by 128 and
512 keys with heads of 64, but 1.2 to 1.5 for 4 with heads of 16, whose keys are short beside what
joins their sums (8 to 12 heads, Granite Rapids with other work, CPU time, 2026-11-27).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import prod
from operator import add

import halide as hl

from aoe import schedule as sch
from aoe.kernels.attention.open_extents import OPEN, opened, with_open_dimensions
from aoe.kernels.attention.shape import Attention, read_attention, with_views
from aoe.kernels.attention.tiles import (
    GROWN,
    PEAK,
    SCORES,
    TOTAL,
    attention_pipeline,
    attention_space,
    attention_steps,
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
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.reductions import (
    ACCUMULATOR,
    AxisReduction,
    OuterLoops,
    fold_steps,
    gathered,
    halves_of,
)
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
from aoe.kernels.matmul.shape import (
    MATRIX_PRODUCTS,
    PANEL,
    MatrixProduct,
    ProductArguments,
    left_place,
    nearest,
    right_element,
    right_sizes,
)
from aoe.kernels.matmul.tiles import PAIRS
from aoe.schedule import Knob, Schedule, Space, Step, Values
from aoe.workload import Workload

DOTS, ATTENDED = "dots", "attended"
TASKS = "tasks"
_PANEL, _ROW = "panel", "row"
PanelTerm = Callable[[hl.Expr, hl.Expr], hl.Expr]
"""The element at a place of the reduced axis, of a column."""
_HALVED_AT_ONCE = 4
_SUMS_SHARE = 0.75
"""Of the registers; the others are for what is loaded."""
_CYCLES = 4
"""Of 16 elements of keys or values, from the second-level cache."""


def few_queries_pipeline(attention: Attention) -> Pipeline:
    """Return the algorithm. Arguments are the workload's inputs."""
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
        padded=frozenset({DOTS} if attention.scores.right_turned else ()),
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
    if keys is not None:
        key = nearest(key, keys)
    elif attention.keys.extent % PANEL:
        key = hl.clamp(key, 0, attention.keys.extent - 1)
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
    return OuterLoops(
        columns=(),
        rows=(hl.Var(attention.keys.name), *rows),
        vector=1,
        length=depth,
        widths=(PANEL,),
    )


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
    """Yield the steps of a configuration: a task has all queries, which share what they read."""
    query, queries = attention.queries.name, attention.queries.extent
    yield sch.Split(RESULT, attention.values.columns.name, _PANEL, LANE, PANEL, sch.Tail.GUARD)
    yield sch.Vectorize(RESULT, LANE, PANEL)
    if queries > 1:
        batch = (axis.name for axis in reversed(attention.batch))
        yield sch.Split(RESULT, query, query, _ROW, queries, sch.Tail.SHIFT_INWARDS)
        yield sch.Reorder(RESULT, (LANE, _ROW, _PANEL, query, *batch))
        yield sch.Unroll(RESULT, _ROW, queries)
    yield from parallel_steps(RESULT, attention.batch, int(values[TASKS]))
    yield from _score_steps(attention, target)
    yield from _weight_steps(attention, target)


def _score_steps(attention: Attention, target: KernelTarget) -> Iterator[Step]:
    query, key, queries = attention.queries.name, attention.keys.name, attention.queries.extent
    yield sch.ComputeAt(SCORES, RESULT, query)
    yield sch.StoreIn(SCORES, row_memory(4 * queries * attention.keys.extent))
    if attention.scores.right_turned:
        yield from _key_steps(attention)
        return
    around = _around_panels(rows_around(attention).rows, attention.scores.depth)
    yield from fold_steps(DOTS, around, RESULT, query)
    yield from _shared_steps(DOTS, around, attention, target)
    yield from vector_steps(SCORES, key, PANEL)


def _key_steps(attention: Attention) -> Iterator[Step]:
    """Yield the steps of keys one behind the other.

    The sums of 16 keys lie side by side, are halved one key after another, and end as one vector.
    Four keys are halved at once; more, or the whole sum of a key at once, and LLVM takes vectors
    apart: 4 queries by 128 keys took 1.6 times as long (12 heads of 64, Granite Rapids).
    """
    query, key = attention.queries.name, attention.keys.name
    batch = (axis.name for axis in reversed(attention.batch))
    yield sch.Split(SCORES, key, key, LANE, PANEL, sch.Tail.GUARD)
    yield sch.Reorder(SCORES, (LANE, query, key, *batch))
    yield sch.Vectorize(SCORES, LANE, PANEL)
    around = _around_keys(attention)
    yield from fold_steps(DOTS, around, SCORES, query)
    update = f"{DOTS}_parts{UPDATE}"
    yield sch.Unroll(update, f"{DOTS}_k$x", attention.scores.depth // around.accumulators)
    for width in halves_of(around):
        yield sch.Unroll(f"{DOTS}_{width}", key, _HALVED_AT_ONCE)
    yield sch.Split(DOTS, key, key, LANE, PANEL, sch.Tail.ROUND_UP)
    yield sch.Vectorize(DOTS, LANE, PANEL)


def _shared_steps(
    name: str, around: OuterLoops, attention: Attention, target: KernelTarget
) -> Iterator[Step]:
    """Yield the steps by which all queries use a vector that is loaded, if registers hold the sums.

    Where registers do not, as with AVX2, queries follow each other: the vectors come from a cache.
    """
    query, queries = attention.queries.name, attention.queries.extent
    sums = queries * around.accumulators * max(1, PANEL // target.vector_lanes)
    if queries < 2 or sums > _SUMS_SHARE * target.registers:
        return
    update = f"{name}_parts{UPDATE}"
    columns = (column.name() for column in around.columns)
    yield sch.Reorder(update, (*columns, ACCUMULATOR, query, f"{name}_k$x"))
    for stage in (f"{name}_parts", update):
        yield sch.Unroll(stage, query, queries)


def _weight_steps(attention: Attention, target: KernelTarget) -> Iterator[Step]:
    query, key, keys = attention.queries.name, attention.keys.name, attention.keys.extent
    queries = attention.queries.extent
    for name in (PEAK, TOTAL):
        yield from fold_steps(name, rows_around(attention), RESULT, query)
    yield sch.ComputeAt(GROWN, RESULT, query)
    yield sch.StoreIn(GROWN, row_memory(4 * queries * keys))
    yield from vector_steps(GROWN, key, PANEL)
    rows = [hl.Var(axis.name) for axis in reversed(attention.values.rows)]
    around = _around_panels(rows, keys)
    yield from fold_steps(ATTENDED, around, RESULT, _PANEL if queries > 1 else query)
    yield from _shared_steps(ATTENDED, around, attention, target)


class AttentionFamily(PlannedFamily[Attention]):
    """y = softmax(chain(queries * keys)) * values.

    ONNX Runtime writes all scores to memory, reads and writes them for the softmax, and reads them
    again. Here the scores of a few queries stay in the caches until their values are summed up.
    Keys and values are packed, unless there are only a few queries at all.
    """

    name = "attention"
    anchors = MATRIX_PRODUCTS

    def plan(self, workload: Workload) -> Attention | Support:
        """Plan two matrix products with a softmax between them, or tell why not."""
        return read_attention(workload)

    def pipeline_of(self, plan: Attention, algorithm: str) -> Pipeline:
        """Return the only algorithm there is in a precision, or the same for open extents."""
        pipeline = few_queries_pipeline if plan.is_few else attention_pipeline
        if plan.views:
            return _where_it_lies(plan, pipeline(plan))
        if algorithm != OPEN:
            return pipeline(plan)
        plan = opened(plan)
        return with_open_dimensions(plan, pipeline(plan))

    def space_of(self, plan: Attention, target: KernelTarget) -> Space:
        """Return register tiles and what a task is."""
        space = few_queries_space if plan.is_few else attention_space
        return space(plan, target)

    def schedule_of(self, plan: Attention, values: Values, target: KernelTarget) -> Schedule:
        steps_of = few_queries_steps if plan.is_few else attention_steps
        steps = tuple(steps_of(values, plan, target))
        return Schedule(steps, algorithm=PAIRS if plan.in_pairs else "")


def _where_it_lies(plan: Attention, pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that reads and writes heads where moves around it would."""
    inputs = range(len(plan.views) - 1)
    result = tuple(reversed(range(len(plan.values.iteration.axes))))
    return with_views(pipeline, plan.views, [*map(plan.dimensions, inputs), result])
