"""How an attention is scheduled: queries of a task, register tiles of both products."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from aoe import schedule as sch
from aoe.kernels.attention.shape import Attention
from aoe.kernels.attention.stages import (
    GROWN,
    KEYS_PACKED,
    PEAK,
    SCORE_SUMS,
    SCORES,
    TOTAL,
    VALUE_SUMS,
    VALUES_PACKED,
    rows_around,
)
from aoe.kernels.family import UPDATE, KernelTarget
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.reductions import fold_steps
from aoe.kernels.halide.tiling import TASK, vector_steps
from aoe.kernels.matmul.bfloat16_pairs import PAIR, PAIRED_DEPTH, ROUNDED, ROUNDED_DEPTH
from aoe.kernels.matmul.panels import DEPTH
from aoe.kernels.matmul.result import BLOCK, LANE, PANEL, panels_of
from aoe.kernels.matmul.tiles import BROADCAST, stays_in_registers
from aoe.kernels.tiled_products import cheapest_first, combinations, register_steps
from aoe.schedule import Knob, Space, Step, Values

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
    value_blocks = _value_blocks(attention, rows, target)
    score_sums = -(-panels_of(scores) // blocks) * _tile_cycles(blocks, rows, target)
    value_sums = -(-panels_of(weighted) // value_blocks) * _tile_cycles(value_blocks, rows, target)
    products = tiles * (score_sums * scores.depth + value_sums * keys)
    both = scores.depth + weighted.columns.extent
    in_use = 4 * keys * (both + rows * tiles)
    read = 4 * keys * (both + tiles * weighted.columns.extent)
    per_byte = _L2_CYCLES if in_use <= target.l2_bytes else _L3_CYCLES
    idle = target.idle_ratio(tasks)
    return (products + read * per_byte) * tasks * idle


def _tile_cycles(blocks: int, rows: int, target: KernelTarget) -> float:
    """Return the cycles in which a register tile adds one product to each of its sums."""
    wide = blocks * max(1, PANEL // target.vector_lanes)
    loads = 0.5 * (wide + BROADCAST * rows)
    return max(4.0, 0.5 * wide * rows) + 0.5 * loads


def _value_blocks(attention: Attention, rows: int, target: KernelTarget) -> int:
    """Return the number of panels of values a register tile takes."""
    panels = panels_of(attention.values)
    fitting = (n for n in range(panels, 1, -1) if stays_in_registers(n, rows, target))
    return next(fitting, 1)


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
    """Return the loop over queries, and those around it, innermost first."""
    return attention.queries.name, [axis.name for axis in reversed(attention.batch)]


def _result_steps(
    attention: Attention, rows: int, tiles: int, target: KernelTarget
) -> Iterator[Step]:
    blocks = _value_blocks(attention, rows, target)
    (row, batch), column = _loops(attention), attention.values.columns.name
    yield from _columns_in_panels(RESULT, column, blocks)
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
    yield sch.ComputeAt(GROWN, RESULT, row)
    yield sch.StoreIn(GROWN, _memory(rows * attention.keys.extent))
    yield from vector_steps(GROWN, attention.keys.name, PANEL, LANE)


def _packing_steps(attention: Attention, *, is_near: bool) -> Iterator[Step]:
    """Yield the steps of packed keys and values: for one batch where a thread has all of it.

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
        for at in product.right_axes:
            yield sch.Parallel(stage, axes[at].name)
