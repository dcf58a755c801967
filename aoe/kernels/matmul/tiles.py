"""Schedules of matrix products: register tile, order of the tiles, tasks."""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.chain import RESULT, WRITTEN_OUT_CYCLES, estimate_cycles
from aoe.kernels.halide.tiling import TASK
from aoe.kernels.matmul.panels import ROUNDED, ROUNDED_DEPTH
from aoe.kernels.matmul.quantised import (
    EXTREMES,
    EXTREMES_UPDATE,
    FOURS,
    HALVES,
    LEVELS,
    PARTS,
    PARTS_UPDATE,
    QUANTISED,
    QUANTISED_DEPTH,
    SUMMED_BY_ONE,
    extreme_lanes,
)
from aoe.kernels.matmul.shape import (
    BLOCK,
    FEW_ROWS,
    FINISHED,
    LANE,
    PACKED,
    PANEL,
    SUMMED,
    SUMS,
    MatrixProduct,
    panels_of,
    stays_in_registers,
    vectors_of_panel,
)
from aoe.kernels.tiled_products import cheapest_first, combinations, register_steps
from aoe.schedule import Choice, Knob, Space, Step, Values
from aoe.target import AMX
from aoe.workload import Precision

BLOCKS, ROWS, WALK = "blocks", "rows", "walk"
COLUMNS_FIRST, ROWS_FIRST = "columns", "rows"
"""Kinds of tasks: a panel of columns with all rows, or some rows with all columns.

Either way a register tile of columns is walked down the rows of the task: the weights of a tile
are what stays in the caches, and the rows of a task come from the second level.
"""
_BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16)
_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14)
_LEAST_SUMS = 8
"""Sums a tile keeps at least: two per cycle, four cycles until each is ready again."""
_STREAMS = 4
"""Panels that are best read at once where a few rows wait for weights from memory: 4 read 39 GB/s
where 8 read 35 and 16 read 34, in pairs of bfloat16 37 where those read 33 and 32 (one thread of a
Zen 5 with other work, minima, 2026-11-23)."""
_STREAM_SHARE = 0.1
"""Cost of twice or half as many, as a share."""
_FEW_BITS_BLOCKS = 8
"""Blocks of a tile at most, of weights of 4 bits, and half of them is enough: each sums up in a
register of its own first. 4 to 8 read 4096 x 4096 in 320 to 355 us, 2 in 405, 12 in 425 (one thread
of a Zen 5, 2026-11-23)."""
_GUESSES = 4
_TASKS_PER_THREAD = 4
BROADCAST = 1.5
"""Cost of a value broadcast to a register, in loads: 6 blocks times 4 rows reach 118 GF/s where
2 times 12 reach 107. Measured on a Xeon with AVX-512 (model 167), 2026-11-22."""
_PAGE_BYTES = 4096
_MEMORY_BYTES = 10
"""Bytes one core reads from memory in a cycle."""
ROUNDED_ROWS = 8
"""Rows one task rounds."""
PANELS, PAIRS, ROUNDED_WEIGHTS = "panels", "panels_bf16", "weights_bf16"
QUANTISED_PANELS, FEW_BITS = "panels_int8", "panels_int4"
QUANTISED_TILES = f"{QUANTISED_PANELS}_{AMX}"
_GROUPS = {PAIRS: 2, QUANTISED_PANELS: SUMMED_BY_ONE}
"""Products one instruction sums up, where it is more than one."""
_INTEGERS = {Precision.INT8: QUANTISED_PANELS, Precision.INT4: FEW_BITS}
_GROUP, _DEPTH, _GROUPED_DEPTH, _IN_DEPTH = "r$x", "r$x", "r$y", "r$i"
_DEPTH_PART = 16
"""Iterations of the inner of two loops over the depth, in front of a long chain.

A single loop counts for less than the two of the chain when the compiler gives out registers:
constants of the chain get them, and the sums go to memory and back. 128 x 768 x 3072 with GELU
takes 5.9 ms so, and 2.8 ms with two loops (one thread of a Zen 5, CPU time, 2026-11-23).
"""


def algorithms_of(product: MatrixProduct) -> tuple[str, ...]:
    """Return the algorithms for a product in the precision of its workload, best first."""
    precision = product.workload.precision
    if not precision.is_lower:
        return (PANELS,)
    if precision in _INTEGERS:
        return (_INTEGERS[precision],)
    few_rows = product.has_weights and _row_extent(product) <= FEW_ROWS
    return (ROUNDED_WEIGHTS, PAIRS) if few_rows else (PAIRS,)


def product_space(product: MatrixProduct, target: KernelTarget) -> Space:
    """Return register tile and order of the tiles; the best tiles first."""
    panels, rows = panels_of(product), _row_extent(product)
    walks = (COLUMNS_FIRST, ROWS_FIRST) if product.rows else (COLUMNS_FIRST,)
    knobs = (
        Knob(KNOB, algorithms_of(product)),
        Knob(BLOCKS, tuple(n for n in _BLOCKS if n <= min(panels, _most_blocks(product)))),
        Knob(ROWS, tuple(n for n in _ROWS if n <= rows)),
        Knob(WALK, walks),
    )

    def legal(values: Values) -> bool:
        return _is_useful(int(values[BLOCKS]), int(values[ROWS]), product, target)

    ranked = cheapest_first(
        combinations(knobs), legal, lambda values: _cost(values, product, target)
    )
    chosen = algorithms_of(product)
    guesses: list[dict[str, Choice]] = []
    for algorithm in chosen:
        best = [values for _, values in ranked if values[KNOB] == algorithm]
        guesses += best[: _GUESSES // len(chosen)]
    return Space(knobs=knobs, constraint=legal, first_guesses=tuple(guesses))


def _is_of_few_bits(product: MatrixProduct) -> bool:
    return product.workload.precision is Precision.INT4


def _most_blocks(product: MatrixProduct) -> int:
    return _FEW_BITS_BLOCKS if _is_of_few_bits(product) else max(_BLOCKS)


def _row_extent(product: MatrixProduct) -> int:
    return product.rows[-1].extent if product.rows else 1


def _is_useful(blocks: int, rows: int, product: MatrixProduct, target: KernelTarget) -> bool:
    """Return True if a tile stays in registers and has sums enough, or could not have more."""
    if not stays_in_registers(blocks, rows, target):
        return False
    wider = 2 * blocks <= panels_of(product) and stays_in_registers(2 * blocks, rows, target)
    higher = 2 * rows <= _row_extent(product) and stays_in_registers(blocks, 2 * rows, target)
    least = _FEW_BITS_BLOCKS // 2 if _is_of_few_bits(product) else _LEAST_SUMS
    if _waits_for_weights(product, target):
        least = _STREAMS
    return blocks * vectors_of_panel(target) * rows >= least or not (wider or higher)


def _waits_for_weights(product: MatrixProduct, target: KernelTarget) -> bool:
    """Return True for a few rows by weights, no integers, that no second-level cache holds."""
    precision = product.workload.precision
    few = product.has_weights and _row_extent(product) <= FEW_ROWS
    size = 2 if precision.is_lower else 4
    is_large = size * product.depth * product.columns.extent > target.l2_bytes
    return few and is_large and precision not in _INTEGERS


def _cost(values: Values, product: MatrixProduct, target: KernelTarget) -> float:
    """Return the estimated cycles of a configuration: products, traffic, idle threads.

    One side of a tile is held while the other one streams past: it is read again for each tile
    of the other side.
    """
    blocks, rows = int(values[BLOCKS]), int(values[ROWS])
    panels, row_extent = panels_of(product), _row_extent(product)
    wide = blocks * vectors_of_panel(target)
    across, down = -(-panels // blocks), -(-row_extent // rows)
    # two loads a cycle: weights of all blocks, and one broadcast value for each row
    loads = 0.5 * (wide + BROADCAST * rows) / (wide * rows)
    # two sums a cycle, each ready after four: fewer than eight wait for themselves
    latency = 0.5 * max(0.0, 1 - wide * rows / 8)
    sums = across * wide * down * rows
    products_cycles = sums * product.depth / 2 * (1 + loads + latency)
    if _waits_for_weights(product, target):
        weights = 4 * PANEL * across * blocks * product.depth
        return weights / _MEMORY_BYTES * (1 + _STREAM_SHARE * abs(log2(blocks / _STREAMS)))
    # bytes of the two sides of a tile over the whole depth
    tile_across, tile_down = 4 * PANEL * blocks * product.depth, 4 * rows * product.depth
    in_columns = values[WALK] == COLUMNS_FIRST
    tiles = down if in_columns else _rows_of_task(rows, product, target) // rows
    tasks = across if in_columns else -(-down // tiles)
    panels_of_task = 1 if in_columns else across
    # the held side is read once for each tile, the streamed one once for each held tile
    held = tile_across * tiles * _cycles_per_byte(tile_across, target)
    streamed = tile_down * tiles * _cycles_per_byte(tile_across + tile_down * tiles, target)
    first = tile_across * _cycles_per_byte(4 * PANEL * panels * product.depth, target)
    traffic = panels_of_task * (held + streamed + first)
    idle = target.idle_ratio(tasks)
    written = _written_cycles(product, target, in_columns=in_columns)
    return (products_cycles + 0.5 * tasks * traffic + written) * idle


def _rows_of_task(rows: int, product: MatrixProduct, target: KernelTarget) -> int:
    """Return the rows of a task, in whole register tiles: half a cache, or a thread's share."""
    shared = _row_extent(product) // rows // (_TASKS_PER_THREAD * target.threads)
    fitting = target.l2_bytes // 2 // (4 * product.depth * rows)
    return rows * max(1, min(shared, fitting))


def _written_cycles(product: MatrixProduct, target: KernelTarget, *, in_columns: bool) -> float:
    """Return the cycles of writing the results: most where every row starts another page."""
    row_bytes = 4 * product.columns.extent
    total = row_bytes * _row_extent(product)
    # a panel writes 64 bytes to each row: with rows a page apart, each to another page
    scattered = in_columns and row_bytes >= _PAGE_BYTES and total > target.l2_bytes
    return total / (3 if scattered else 24)


def _cycles_per_byte(held: int, target: KernelTarget) -> float:
    """Return the cycles to read a byte of `held` bytes: by the cache they fit into."""
    if held <= 0.7 * target.l1_bytes:
        return 0.0
    return 1 / 64 if held <= 0.8 * target.l2_bytes else 1 / 12


def product_steps(values: Values, product: MatrixProduct, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    yield from result_steps(values, product, target)
    yield from sum_steps(values, product, _GROUPS.get(str(values[KNOB]), 1))
    yield from _rounding_steps(values, product)
    if values[KNOB] in _INTEGERS.values():
        yield from quantising_steps(values, product)
    yield from _part_steps(values, product)
    yield from _packing_steps(values, product)


def result_steps(values: Values, product: MatrixProduct, target: KernelTarget) -> Iterator[Step]:
    """Yield the steps of the loops over the result: register tiles, and what a task is."""
    blocks, rows = int(values[BLOCKS]), int(values[ROWS])
    column = product.columns.name
    outer = [axis.name for axis in reversed(product.rows)]
    # guarded: a panel is 16 columns, whatever the matrix has
    yield sch.Split(RESULT, column, "panel", "in_panel", PANEL * blocks, sch.Tail.GUARD)
    yield sch.Split(RESULT, "in_panel", "block", "lane", PANEL, sch.Tail.GUARD)
    inner = ["lane", "block"]
    if outer:
        yield sch.Split(RESULT, outer[0], outer[0], "row", rows, sch.Tail.SHIFT_INWARDS)
        inner.append("row")
    # some rows with all panels: the rows of a task fill at most half of the second-level cache
    if values[WALK] == ROWS_FIRST:
        size = _rows_of_task(rows, product, target) // rows
        yield sch.Split(RESULT, outer[0], TASK, outer[0], size, sch.Tail.GUARD)
        order = [*inner, outer[0], "panel", TASK, *outer[1:]]
    elif product.right_axes:
        order = [*inner, outer[0], "panel", *outer[1:]]
    else:
        order = [*inner, *outer, "panel"]
    yield sch.Reorder(RESULT, tuple(order))
    yield sch.Vectorize(RESULT, "lane", PANEL)
    # an index into registers must be known at compile time: the chain is written out for each sum
    if not _is_long(product):
        yield sch.Unroll(RESULT, "block", blocks)
        if outer:
            yield sch.Unroll(RESULT, "row", rows)
    yield sch.Parallel(RESULT, TASK if values[WALK] == ROWS_FIRST else "panel")
    if values[WALK] == ROWS_FIRST or product.right_axes:
        for name in outer[1:]:
            yield sch.Parallel(RESULT, name)


def _is_long(product: MatrixProduct) -> bool:
    """Return True if the chain is too long to be written out for every vector of a tile."""
    return estimate_cycles(product.chain.operations) > WRITTEN_OUT_CYCLES


def sum_steps(values: Values, product: MatrixProduct, group: int) -> Iterator[Step]:
    """Yield the steps of the sums in registers, `group` products of which one instruction adds."""
    blocks, rows = int(values[BLOCKS]), int(values[ROWS])
    names = [axis.name for axis in reversed(product.rows)]
    kept = (SUMS, SUMMED, FINISHED) if _is_long(product) else (SUMS, SUMMED)
    for stage in kept:
        if stage != SUMMED:
            yield sch.ComputeAt(stage, RESULT, names[0] if names else "panel")
        # sums behind the last panel are made, and never read: no guard in the hot loop
        yield sch.Split(stage, BLOCK, BLOCK, "in_block", blocks, sch.Tail.ROUND_UP)
        if stage == SUMMED:
            inner = (*((_GROUP,) if group > 1 else ()), LANE, "in_block", *names[:1])
            depth = _GROUPED_DEPTH if group > 1 else _DEPTH
            walked: tuple[str, ...] = (depth,)
            if _walks_in_parts(product, group):
                yield sch.Split(stage, depth, depth, _IN_DEPTH, _DEPTH_PART, sch.Tail.GUARD)
                walked = (_IN_DEPTH, depth)
            yield sch.Reorder(stage, (*inner, *walked, BLOCK, *names[1:]))
            if group > 1:
                # one instruction multiplies and sums up the group; without it Halide sees a race
                yield sch.Atomic(stage)
                yield sch.Vectorize(stage, _GROUP, group)
        tile = {"in_block": blocks, **dict.fromkeys(names[:1], rows)}
        yield from register_steps((stage,), (LANE, PANEL), tile)


def _walks_in_parts(product: MatrixProduct, group: int) -> bool:
    return _is_long(product) and product.depth // group > _DEPTH_PART


def depth_loop(product: MatrixProduct) -> str:
    """Return the innermost loop over the depth of single sums (see `sum_steps`)."""
    return _IN_DEPTH if _walks_in_parts(product, 1) else _DEPTH


def _part_steps(values: Values, product: MatrixProduct) -> Iterator[Step]:
    """Yield the steps of the sums of one block of the depth, which stay in registers."""
    if values[KNOB] != FEW_BITS:
        return
    blocks, rows = int(values[BLOCKS]), int(values[ROWS])
    names = [axis.name for axis in reversed(product.rows)]
    # integers of one block of 32, before its scale makes float32 of them
    yield sch.ComputeAt(PARTS, SUMMED, _DEPTH)
    for stage in (PARTS, PARTS_UPDATE):
        yield sch.Split(stage, BLOCK, BLOCK, "in_block", blocks, sch.Tail.ROUND_UP)
        if stage == PARTS_UPDATE:
            yield sch.Reorder(stage, ("p$x", LANE, "p$z", "p$y", *names[:1], "in_block", BLOCK))
            yield sch.Atomic(stage)
            yield sch.Vectorize(stage, "p$x", SUMMED_BY_ONE)
        tile = {"in_block": blocks, **dict.fromkeys(names[:1], rows)}
        yield from register_steps((stage,), (LANE, PANEL), tile)
    yield sch.Unroll(PARTS_UPDATE, "p$z", HALVES)
    yield sch.Unroll(PARTS_UPDATE, "p$y", FOURS)


def _rounding_steps(values: Values, product: MatrixProduct) -> Iterator[Step]:
    if values[KNOB] != PAIRS:
        return
    yield sch.Vectorize(ROUNDED, ROUNDED_DEPTH, PANEL)
    if _row_extent(product) > FEW_ROWS:
        row = product.rows[-1].name
        yield sch.Split(ROUNDED, row, TASK, row, ROUNDED_ROWS, sch.Tail.GUARD)
        yield sch.Parallel(ROUNDED, TASK)


def quantising_steps(values: Values, product: MatrixProduct) -> Iterator[Step]:
    """Yield the steps of rows that become levels."""
    lanes = extreme_lanes(product)
    for stage in (EXTREMES, EXTREMES_UPDATE) if lanes > 1 else ():
        yield sch.Vectorize(stage, "part", lanes)
    yield sch.Vectorize(QUANTISED, QUANTISED_DEPTH, PANEL)
    if _row_extent(product) <= FEW_ROWS:
        return
    # levels of a row follow from its extremes: both while the row is in the first-level cache
    row = product.rows[-1].name
    yield sch.ComputeAt(EXTREMES, LEVELS, row)
    for stage in (LEVELS, QUANTISED):
        if values.get(WALK) == ROWS_FIRST:
            yield sch.ComputeAt(stage, RESULT, TASK)
            continue
        yield sch.Split(stage, row, TASK, row, ROUNDED_ROWS, sch.Tail.GUARD)
        yield sch.Parallel(stage, TASK)


def _packing_steps(values: Values, product: MatrixProduct) -> Iterator[Step]:
    """Yield the steps of a right matrix that is packed in every run."""
    if product.has_weights:
        return
    # the two values of a pair lie side by side
    if values[KNOB] == PAIRS:
        yield sch.Unroll(PACKED, "half", 2)
    yield sch.Vectorize(PACKED, "lane", PANEL)
    batch = [product.iteration.axes[at].name for at in product.right_axes]
    yield sch.Parallel(PACKED, batch[0] if batch else "panel")
