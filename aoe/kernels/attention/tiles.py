"""Attention of many queries: its stages, and its schedules by queries of a task and register tiles.

    packed keys, packed values   in panels of 16 columns, made for all queries of a batch
    score sums       products of queries and keys, in registers
    scores           with the chain behind them: scale, mask
    peak             largest score of a query
    grown            e^(score - peak)
    total            their sum
    value sums       products of `grown` and the values, in registers
    y                value sums / total

In bfloat16 queries, keys, values and `grown` are rounded, and products are summed up in pairs;
`total` is that of the rounded weights, so that they add up to one.

The softmax of a query is divided by its total at the end, once for all keys. Special values are
ONNX Runtime's: a query whose scores are all minus infinity makes NaN, and so does one with a NaN.
Where weights that are no numbers become zeros, both make zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import prod
from operator import add
from types import MappingProxyType
from typing import Any

import halide as hl

from aoe import schedule as sch
from aoe.kernels.attention.shape import Attention
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline
from aoe.kernels.halide.chain import RESULT, build_chain
from aoe.kernels.halide.reductions import AxisReduction, OuterLoops, fold_steps, gathered
from aoe.kernels.halide.tiling import TASK, vector_steps
from aoe.kernels.math.elements import loaded
from aoe.kernels.math.functions import LOWEST, constant, strict, to_bfloat16, weight_of_negative
from aoe.kernels.matmul.panels import (
    DEPTH,
    FILLED,
    PAIR,
    PAIRED_DEPTH,
    ROUNDED,
    ROUNDED_DEPTH,
    fills_panels,
    pair_arguments,
    pair_sums,
    pairs_of,
    panel_arguments,
    panel_sums,
    round_left,
)
from aoe.kernels.matmul.shape import (
    BLOCK,
    LANE,
    PANEL,
    MatrixProduct,
    ProductArguments,
    left_extents,
    left_place,
    nearest,
    panels_of,
    right_sizes,
    stays_in_registers,
)
from aoe.kernels.matmul.tiles import BROADCAST
from aoe.kernels.tiled_products import cheapest_first, combinations, register_steps
from aoe.schedule import Knob, Space, Step, Values

SCORES, PEAK, GROWN, TOTAL = "scores", "peak", "grown", "total"
SCORE_SUMS, VALUE_SUMS = "score_sums", "value_sums"
KEYS_PACKED, VALUES_PACKED = "keys", "values"

Loops = tuple[tuple[str, int], ...]
BLOCKS, ROWS, TILES = "blocks", "rows", "tiles"
"""Panels of keys and rows of a register tile of scores; register tiles of rows in a task."""
_BLOCKS = (1, 2, 3, 4, 6)
_ROWS = (2, 3, 4, 5, 6, 8, 10, 12)
_TILES = (1, 2, 3, 4, 6, 8)
_GUESSES = 4
_STACK_BYTES_MAX = 96 << 10
"""Of each stage."""
_TASKS_PER_THREAD = 4
_LEAST_WORK = 1 << 20
"""Products a task is worth sharing for: 10 us of one thread."""
_L2_CYCLES, _L3_CYCLES = 1 / 48, 1 / 16
"""Of a byte of keys or values that is read again, by the cache they fit into."""
INNER = "in_panel"
_PANEL_LOOP, _BLOCK_LOOP, _ROW = "panel", "block", "row"


def attention_pipeline(attention: Attention) -> Pipeline:
    """Return the algorithm. Arguments are the workload's inputs."""
    arguments_of = pair_arguments if attention.in_pairs else panel_arguments
    of_scores, of_values = arguments_of(attention.scores), arguments_of(attention.values)
    made: dict[str, hl.Func] = {}
    score_sums = _score_sums(attention, of_scores, made)
    filled = _filled_operands(attention, of_scores)
    scores = hl.Func(SCORES)
    scores[of_scores.operands.variables] = score_of(
        attention, of_scores, in_panels(score_sums, of_scores), filled
    )
    scores.compute_root()  # steps place it closer
    grown, total, folds = softmax_of(attention, scores, of_scores)
    sums_of = pair_sums if attention.in_pairs else panel_sums
    value_sums = sums_of(attention.values, of_values, lambda k: grown[(k, *of_values.rows)])
    inverse = hl.Func("inverse")
    inverse[of_values.rows] = inverse_of(attention, total)
    place = of_values.operands.variables
    attended = hl.Func("attended")
    attended[place] = strict(in_panels(value_sums, of_values) * inverse[of_values.rows])
    output = hl.Func(RESULT)
    output[place] = behind(attention.values, of_values, attended[place])
    stages, loops = gathered(folds)
    made |= {
        SCORES: scores,
        GROWN: grown,
        KEYS_PACKED: of_scores.packing.output,
        VALUES_PACKED: of_values.packing.output,
    }
    stages |= {RESULT: output, **made}
    loops |= {name: _stage_loops(stage) for name, stage in made.items()}
    in_keys = {KEYS_PACKED: made[KEYS_PACKED]} if fills_panels(attention.scores) else {}
    for name, stage in (in_keys | {filled_stage(at): one for at, one in filled.items()}).items():
        lane, *around = _stage_loops(stage)
        filling = stage.update(stage.num_update_definitions() - 1)
        stages |= {name: stage, f"{name}{UPDATE}": filling}
        loops |= {
            name: ((lane[0], PANEL), *around),
            f"{name}{UPDATE}": ((f"{FILLED}$x", PANEL), *around),
        }
    loops[SCORES] = loops[GROWN] = ((attention.keys.name, attention.keys.extent), *loops[GROWN][1:])
    loops[RESULT] = result_loops(attention)
    _add_sums(stages, loops, SCORE_SUMS, score_sums, _depths(attention, attention.scores))
    _add_sums(stages, loops, VALUE_SUMS, value_sums, _depths(attention, attention.values))
    arguments, extents = buffers_of(attention, of_scores, of_values)
    return Pipeline(
        output=output,
        stages=stages,
        arguments=arguments,
        argument_extents=extents,
        output_extents=attention.values.iteration.extents,
        loops=loops,
        padded=frozenset({SCORE_SUMS, VALUE_SUMS}),
    )


def _score_sums(
    attention: Attention, arguments: ProductArguments, made: dict[str, hl.Func]
) -> hl.Func:
    """Return the products of queries and keys; rounded queries are added to what is made."""
    product = attention.scores
    if attention.in_pairs:
        made[ROUNDED] = rounded = round_left(product, arguments)
        return pair_sums(product, arguments, lambda k: rounded[(k, *arguments.rows)])

    def query(k: hl.Expr) -> hl.Expr:
        return arguments.left[left_place(product, arguments.rows, k)]

    return panel_sums(product, arguments, query)


def _depths(attention: Attention, product: MatrixProduct) -> Loops:
    """Return the loops of the sums of a product, innermost first."""
    if attention.in_pairs:
        return ((PAIR, 2), (PAIRED_DEPTH, pairs_of(product)))
    return ((DEPTH, product.depth),)


def _add_sums(
    stages: dict[str, Any], loops: dict[str, Loops], name: str, sums: hl.Func, depths: Loops
) -> None:
    """Add sums in registers, and their update, to stages and loops."""
    pure: Loops = ((LANE, PANEL), *_stage_loops(sums)[1:])
    stages |= {name: sums, f"{name}{UPDATE}": sums.update()}
    loops |= {name: pure, f"{name}{UPDATE}": (*pure, *depths)}


def result_loops(attention: Attention) -> Loops:
    """Return the loops of the result, innermost first."""
    axes = reversed(attention.values.iteration.axes)
    return tuple((axis.name, axis.extent) for axis in axes)


def rows_around(attention: Attention, keys: hl.Expr | None = None) -> OuterLoops:
    """Return the loops of a query, as a reduction over its keys sees them.

    Args:
        attention: What is computed.
        keys: Their number where it is open.
    """
    rows = tuple(hl.Var(axis.name) for axis in reversed(attention.scores.rows))
    if not attention.is_open:
        return OuterLoops(columns=(), rows=rows, vector=1, length=attention.keys.extent)
    whole = None if keys is None else (keys + PANEL - 1) // PANEL * PANEL
    return OuterLoops(columns=(), rows=rows, vector=1, length=PANEL, open_length=whole)


def open_keys(attention: Attention, arguments: ProductArguments) -> hl.Expr | None:
    """Return the number of keys where it is open."""
    if not attention.is_open:
        return None
    return right_sizes(attention.scores, arguments.packing.argument)[1]


def read_by_keys(attention: Attention) -> tuple[int, ...]:
    """Return the numbers of the inputs that the chain behind the scores reads for each key."""
    operands = attention.scores.iteration.operands[: len(attention.scores.workload.inputs)]
    keys = len(attention.scores.iteration.axes) - 1
    return tuple(number for number, axes in enumerate(operands) if keys in axes)


def filled_stage(number: int) -> str:
    """Return the name of the stage of an input that is read for each key."""
    return f"x{number}_in_panels"


def _filled_operands(attention: Attention, arguments: ProductArguments) -> dict[int, hl.Func]:
    """Return a copy in whole panels of each input that the chain reads per key, such as a mask.

    A copy is zeros, over which vectors with a mask write the keys there are, once for all queries
    of a task. Without it the chain would clamp the index of a key for the last panel, which makes
    Halide load the elements of that panel one by one, for each query again.

    Returns:
        Stages by the number of their input; none where the number of keys is fixed.
    """
    keys = open_keys(attention, arguments)
    found = dict[int, hl.Func]()
    if keys is None:
        return found
    outermost_first = tuple(reversed(arguments.operands.variables))
    for number in read_by_keys(attention):
        lane, panel = hl.Var(LANE), hl.Var(BLOCK)
        axes = attention.scores.iteration.operands[number][:-1]
        around = [outermost_first[at] for at in reversed(axes)]
        in_panel = hl.RDom([(0, PANEL)], FILLED)
        key = panel * PANEL + in_panel.x
        in_panel.where(hl.likely(key < keys))
        argument = arguments.operands.arguments[number]
        filled = hl.Func(filled_stage(number))
        filled[(lane, panel, *around)] = hl.cast(argument.type(), 0)
        filled[(in_panel.x, panel, *around)] = argument[(key, *around)]
        found[number] = filled.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    return found


def score_of(
    attention: Attention,
    arguments: ProductArguments,
    made: hl.Expr,
    filled: Mapping[int, hl.Func] = MappingProxyType({}),
) -> hl.Expr:
    """Return a product with the chain behind it.

    Scores of an open number of keys end with a whole panel: minus infinity weighs nothing, and no
    softmax has a tail. What the chain reads besides is read within its bounds.

    Args:
        attention: What is computed.
        arguments: Of the product.
        made: The product.
        filled: Inputs that are read from panels, by their numbers.
    """
    keys = open_keys(attention, arguments)
    if keys is None:
        return behind(attention.scores, arguments, made)
    operands = arguments.operands
    place = operands.variables
    values: dict[str, hl.Expr] = {}
    for ref, value in operands.values.items():
        function = hl.Func(f"{ref}_read")
        function[place] = value
        values[ref] = hl.Expr(function[(nearest(place[0], keys), *place[1:])])
    for number, stage in filled.items():
        element = hl.Expr(stage[(place[0] % PANEL, place[0] // PANEL, *stage.args()[2:])])
        values[f"x{number}"] = loaded(element, attention.scores.workload.inputs[number].dtype)
    inside = replace(arguments, operands=replace(operands, values=values))
    score = behind(attention.scores, inside, made)
    return strict(hl.select(hl.likely(place[0] < keys), score, constant(-math.inf)))


def softmax_of(
    attention: Attention, scores: hl.Func, arguments: ProductArguments
) -> tuple[hl.Func, hl.Expr, list[AxisReduction]]:
    """Return exponentials and their sum, and the reductions both are made by."""
    around, rows = rows_around(attention, open_keys(attention, arguments)), arguments.rows
    peak = AxisReduction(PEAK, around, lambda at: scores[(at, *rows)], constant(LOWEST), hl.max)
    grown, place = hl.Func(GROWN), arguments.operands.variables
    if attention.in_pairs:
        key, keys = place[0], attention.keys.extent
        inside = hl.clamp(key, 0, keys - 1)
        value = weight_of_negative(strict(scores[(inside, *rows)] - peak.value()))
        value = _without_nan(attention, value)
        grown[place] = to_bfloat16(hl.select(key < keys, value, constant(0.0)))
    else:
        value = weight_of_negative(strict(scores[place] - peak.value()))
        grown[place] = _without_nan(attention, value)
    grown.compute_root()  # steps place it closer

    def weight(at: hl.Expr) -> hl.Expr:
        found = hl.cast(hl.Float(32), grown[(at, *rows)])
        if not attention.is_guarded:
            return found
        score = scores[(at, *rows)]
        return strict(hl.select(hl.is_nan(score), score, found))

    total = AxisReduction(TOTAL, around, weight, constant(0.0), add)
    return grown, total.value(), [peak, total]


def inverse_of(attention: Attention, total: hl.Expr) -> hl.Expr:
    """Return the factor of the sums of values: zero where weights are no numbers.

    A total of zero is one of minus infinities alone, or of plus infinity.
    """
    inverse = strict(constant(1.0) / total)
    if attention.is_guarded:
        return strict(hl.select(total > constant(0.0), inverse, constant(0.0)))
    return inverse


def _without_nan(attention: Attention, weight: hl.Expr) -> hl.Expr:
    """Return zero for a guarded weight that is no number; the total tells that there was one."""
    if not attention.is_guarded:
        return weight
    return strict(hl.select(hl.is_nan(weight), constant(0.0), weight))


def _stage_loops(stage: hl.Func) -> Loops:
    return tuple((v.name(), 0) for v in stage.args())


def in_panels(sums: hl.Func, arguments: ProductArguments) -> hl.Expr:
    """Return the sum a column of the result is."""
    column = arguments.operands.variables[0]
    return sums[(column % PANEL, column // PANEL, *arguments.rows)]


def behind(product: MatrixProduct, arguments: ProductArguments, made: hl.Expr) -> hl.Expr:
    """Return the result of the chain behind a product."""
    chain, operands = product.chain, arguments.operands
    values = build_chain(
        [item for item in chain.operations if item.output != product.product],
        {**operands.values, product.product: made},
        chain.scalars,
        operands.variables,
    )
    return values[chain.result]


def buffers_of(
    attention: Attention, of_scores: ProductArguments, of_values: ProductArguments
) -> tuple[tuple[hl.ImageParam, ...], tuple[tuple[int, ...], ...]]:
    """Return the arguments of the kernel and their extents, innermost first."""
    scores, values = attention.scores, attention.values
    count = len(scores.workload.inputs)
    buffers: list[Any] = list(of_scores.operands.arguments[:count])
    extents = list(scores.iteration.argument_extents[:count])
    buffers[scores.left], extents[scores.left] = of_scores.left, left_extents(scores)
    for arguments, product in ((of_scores, scores), (of_values, values)):
        buffers[product.right] = arguments.right
        extents[product.right] = arguments.right_extents
    return tuple(buffers), tuple(extents)


def attention_space(attention: Attention, target: KernelTarget) -> Space:
    """Return register tiles and tasks; the best first."""
    queries = attention.queries.extent
    knobs = (
        Knob(BLOCKS, tuple(n for n in _BLOCKS if n <= panels_of(attention.scores))),
        Knob(ROWS, tuple(n for n in _ROWS if n <= queries)),
        Knob(TILES, tuple(n for n in _TILES if n == 1 or n * _ROWS[0] <= queries)),
    )

    def legal(values: Values) -> bool:
        blocks, rows, tiles = (int(values[name]) for name in (BLOCKS, ROWS, TILES))
        return rows * tiles <= queries and stays_in_registers(blocks, rows, target)

    ranked = cheapest_first(
        combinations(knobs), legal, lambda values: _cost(values, attention, target)
    )
    guesses = tuple(values for _, values in ranked[:_GUESSES])
    return Space(knobs=knobs, constraint=legal, first_guesses=guesses)


def _cost(values: Values, attention: Attention, target: KernelTarget) -> float:
    """Return the estimated cycles of a configuration: products, what is read again, idle threads.

    Keys and values are read once for all queries of a task.
    """
    blocks, rows, tiles = (int(values[name]) for name in (BLOCKS, ROWS, TILES))
    queries, keys = attention.queries.extent, attention.keys.extent
    batches = prod(axis.extent for axis in attention.batch)
    tasks = batches * -(-queries // (rows * tiles))
    scores, weighted = attention.scores, attention.values
    taken = value_blocks(attention, rows, target)
    score_sums = -(-panels_of(scores) // blocks) * tile_cycles(blocks, rows, target)
    value_sums = -(-panels_of(weighted) // taken) * tile_cycles(taken, rows, target)
    products = tiles * (score_sums * scores.depth + value_sums * keys)
    both = scores.depth + weighted.columns.extent
    # keys and values of a batch, and the scores of the queries of a task
    in_use = 4 * keys * (both + rows * tiles)
    # values are read once for each tile of queries, keys once for all
    read = 4 * keys * (both + tiles * weighted.columns.extent)
    per_byte = _L2_CYCLES if in_use <= target.l2_bytes else _L3_CYCLES
    idle = target.idle_ratio(tasks)
    return (products + read * per_byte) * tasks * idle


def tile_cycles(blocks: int, rows: int, target: KernelTarget) -> float:
    """Return the cycles in which a register tile adds one product to each of its sums."""
    wide = blocks * max(1, PANEL // target.vector_lanes)
    loads = 0.5 * (wide + BROADCAST * rows)
    # a sum is ready after four cycles: a small tile waits for itself
    return max(4.0, 0.5 * wide * rows) + 0.5 * loads


def value_blocks(attention: Attention, rows: int, target: KernelTarget) -> int:
    """Return the number of panels of values a register tile takes."""
    panels = panels_of(attention.values)
    fitting = (n for n in range(panels, 1, -1) if stays_in_registers(n, rows, target))
    # shared out evenly: of 4 panels two tiles of 3 would compute 6
    return -(-panels // -(-panels // next(fitting, 1)))


def attention_steps(values: Values, attention: Attention, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    blocks, rows, tiles = (int(values[name]) for name in (BLOCKS, ROWS, TILES))
    yield from _result_steps(attention, rows, tiles, target)
    yield from _score_steps(attention, blocks, rows, tiles)
    yield from _softmax_steps(attention, rows)
    is_near = _is_shared_by_batch(attention, rows * tiles, target)
    yield from _packing_steps(attention, is_near=is_near)


def _memory(elements: int) -> sch.Memory:
    return sch.Memory.STACK if 4 * elements <= _STACK_BYTES_MAX else sch.Memory.HEAP


def _loops(attention: Attention) -> tuple[str, list[str]]:
    """Return the loop over queries, and the loops around it, innermost first."""
    return attention.queries.name, [axis.name for axis in reversed(attention.batch)]


def _result_steps(
    attention: Attention, rows: int, tiles: int, target: KernelTarget
) -> Iterator[Step]:
    # as many panels of values as registers hold: the weights of a query are read once for each
    blocks = value_blocks(attention, rows, target)
    (row, batch), column = _loops(attention), attention.values.columns.name
    yield from _columns_in_panels(RESULT, column, blocks)
    # the last task overlaps the one before: whole register tiles everywhere
    yield sch.Split(RESULT, row, TASK, row, rows * tiles, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, row, row, _ROW, rows, sch.Tail.GUARD)
    yield sch.Reorder(RESULT, (LANE, _BLOCK_LOOP, _ROW, _PANEL_LOOP, row, TASK, *batch))
    yield from register_steps((RESULT,), (LANE, PANEL), {_BLOCK_LOOP: blocks, _ROW: rows})
    yield from _shared_steps(attention, rows * tiles, target)
    yield from _sum_steps(attention, VALUE_SUMS, RESULT, _PANEL_LOOP, blocks, rows)


def _shared_steps(attention: Attention, queries: int, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps that make one loop over what the threads share: a loop inside is serial."""
    _, batch = _loops(attention)
    shared = [*batch] if _is_shared_by_batch(attention, queries, target) else [TASK, *batch]
    for outer in shared[1:]:
        yield sch.Fuse(RESULT, outer, shared[0], shared[0])
    yield sch.Parallel(RESULT, shared[0])


def _is_shared_by_batch(attention: Attention, queries: int, target: KernelTarget) -> bool:
    """Return True if a thread has all queries of a batch: alone, or tasks of them are short."""
    batches = prod(axis.extent for axis in attention.batch)
    both = attention.scores.depth + attention.values.columns.extent
    work = queries * attention.keys.extent * both
    if target.threads == 1:
        return bool(attention.batch)
    is_even = batches >= _TASKS_PER_THREAD * target.threads or not batches % target.threads
    return bool(attention.batch) and is_even and work < _LEAST_WORK


def _score_steps(attention: Attention, blocks: int, rows: int, tiles: int) -> Iterator[Step]:
    row, batch = _loops(attention)
    if attention.in_pairs:
        yield sch.ComputeAt(ROUNDED, RESULT, TASK)
        yield sch.StoreIn(ROUNDED, _memory(rows * tiles * attention.scores.depth))
        yield sch.Vectorize(ROUNDED, ROUNDED_DEPTH, PANEL)
    # scores of the queries of a task alone: they stay near until their values are summed
    yield sch.ComputeAt(SCORES, RESULT, TASK)
    yield sch.StoreIn(SCORES, _memory(rows * tiles * attention.keys.extent))
    yield from _columns_in_panels(SCORES, attention.keys.name, blocks)
    yield sch.Split(SCORES, row, row, _ROW, rows, sch.Tail.GUARD)
    yield sch.Reorder(SCORES, (LANE, _BLOCK_LOOP, _ROW, row, _PANEL_LOOP, *batch))
    yield from register_steps((SCORES,), (LANE, PANEL), {_BLOCK_LOOP: blocks, _ROW: rows})
    yield from _sum_steps(attention, SCORE_SUMS, SCORES, row, blocks, rows)


def _columns_in_panels(stage: str, column: str, blocks: int) -> Iterator[Step]:
    yield sch.Split(stage, column, _PANEL_LOOP, INNER, PANEL * blocks, sch.Tail.GUARD)
    yield sch.Split(stage, INNER, _BLOCK_LOOP, LANE, PANEL, sch.Tail.GUARD)


def _sum_steps(
    attention: Attention, sums: str, at_stage: str, at: str, blocks: int, rows: int
) -> Iterator[Step]:
    """Yield the steps of sums in registers."""
    (row, batch), summed = _loops(attention), f"{sums}{UPDATE}"
    yield sch.ComputeAt(sums, at_stage, at)
    for stage in (sums, summed):
        yield sch.Split(stage, BLOCK, BLOCK, "in_block", blocks, sch.Tail.ROUND_UP)
        if stage == summed:
            pair, depth = ((PAIR,), PAIRED_DEPTH) if attention.in_pairs else ((), DEPTH)
            yield sch.Reorder(stage, (*pair, LANE, "in_block", row, depth, BLOCK, *batch))
            if pair:
                yield sch.Atomic(stage)
                yield sch.Vectorize(stage, PAIR, 2)
        yield from register_steps((stage,), (LANE, PANEL), {"in_block": blocks, row: rows})


def _softmax_steps(attention: Attention, rows: int) -> Iterator[Step]:
    row, _ = _loops(attention)
    around = rows_around(attention)
    for name in (PEAK, TOTAL):
        yield from fold_steps(name, around, RESULT, row)
    # exponentials of one register tile of queries, which its sums of values read at once
    yield sch.ComputeAt(GROWN, RESULT, row)
    yield sch.StoreIn(GROWN, _memory(rows * attention.keys.extent))
    yield from vector_steps(GROWN, attention.keys.name, PANEL, LANE)


def _packing_steps(attention: Attention, *, is_near: bool) -> Iterator[Step]:
    """Yield the steps of packed keys and values: for one batch where a thread has the whole batch.

    They come from the nearest caches then: of 192 heads of windows they would fill 3 MB. Keys by
    rows are gathered: with them 192 heads of 49 by 49 take 1.07 times as long as with keys by
    columns, and 1.23 times where squares of them are turned first (a busy Zen 4 with AVX2).
    """
    for stage, product in ((KEYS_PACKED, attention.scores), (VALUES_PACKED, attention.values)):
        if attention.in_pairs:
            yield sch.Unroll(stage, "half", 2)
        yield sch.Vectorize(stage, "lane", PANEL)
        axes = product.iteration.axes
        if is_near and len(attention.batch) <= len(product.right_axes):
            yield sch.ComputeAt(stage, RESULT, attention.batch[-1].name)
            yield sch.StoreIn(stage, _memory(PANEL * panels_of(product) * product.depth))
            continue
        # packed once for all tasks, before the first of them
        for at in product.right_axes:
            yield sch.Parallel(stage, axes[at].name)
