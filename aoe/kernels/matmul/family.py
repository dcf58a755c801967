"""Matrix products with the chain behind them; in bfloat16, also in the CPU's matrix tiles (AMX).

The stages in matrix tiles:

    rounded    the left matrix in bfloat16, in blocks of 32 of the depth
    sums       sums of products, by `aoe_sum_tiles` of the glue, float32
    y          the chain behind the product: bias, activation, residual
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import halide as hl

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import (
    SUPPORTED,
    KernelTarget,
    PackedInput,
    Pipeline,
    PlannedFamily,
    Support,
)
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.tile_sums import BYTES_PER_US, OPERATIONS_PER_US, REDUCED, tile_sums
from aoe.kernels.halide.tiling import TASK
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.matmul.panels import (
    element_or_zero,
    packed_right,
    pairs_pipeline,
    panels_pipeline,
    right_matrix,
    rounded_weights_pipeline,
)
from aoe.kernels.matmul.quantised import (
    check_few_bits,
    check_quantising,
    few_bits_pipeline,
    quantised_in_tiles_pipeline,
    quantised_pipeline,
)
from aoe.kernels.matmul.shape import (
    FEW_ROWS,
    MATRIX_PRODUCTS,
    MOST_ROW_LOOPS,
    PACKED,
    PANEL,
    SUMS,
    MatrixProduct,
    ProductArguments,
    chained_pipeline,
    left_place,
    panels_of,
    read_arguments,
    read_product,
    three_loops,
)
from aoe.kernels.matmul.tiles import (
    FEW_BITS,
    PAIRS,
    PANELS,
    QUANTISED_PANELS,
    QUANTISED_TILES,
    ROUNDED_WEIGHTS,
    algorithms_of,
    product_space,
    product_steps,
    quantising_steps,
)
from aoe.kernels.tiled_products import combinations
from aoe.schedule import Knob, Schedule, Space, Step, Values
from aoe.workload import Precision, Workload

PANELS_TILES = "panels_tiles"
ROUNDED = "rounded"
TASK_ROWS, TASK_PANELS = "task_rows", "task_panels"
_LEAST_ROWS = 4
"""Rows below which tiles stay so empty that reading the weights decides alone."""
_ROWS, _PANELS = (16, 32, 64, 128), (2, 4, 8, 16)
_NEAR_BYTES_PER_US = 6.0e4
"""Rate at which tiles of levels read weights from the second-level cache: 128 x 3072 x 768 takes
1,112 us in tasks of 16 rows, 474 of 32, 409 of 64 (one thread of a Xeon with AMX, CPU time,
2026-11-29)."""
_SHALLOW = 64
"""Products that one instruction of a tile sums up. To write such sums and read them again costs
more than vectors do: scores of 12 heads, 128 x 64, 105 us for 93 (a Xeon with AMX, 2026-11-29)."""
_GUESSES = 5


def check_matrix_tiles(product: MatrixProduct) -> Support:
    """Check that matrix tiles can compute a product in bfloat16, on a CPU that has them."""
    if not product.has_weights:
        return Support("product of two computed tensors in tiles")
    return check_rows_of_tiles(product)


def check_level_tiles(product: MatrixProduct) -> Support:
    """Check that matrix tiles gain with levels of 8 bits, on a CPU that has them."""
    if product.depth <= _SHALLOW:
        return Support(f"sums of {product.depth} products in tiles")
    return check_rows_of_tiles(product)


def check_rows_of_tiles(product: MatrixProduct) -> Support:
    """Check that the rows of a product fill tiles, in loops the glue's functions know."""
    if not product.rows or product.rows[-1].extent < _LEAST_ROWS:
        return Support("a few rows in tiles")
    if len(product.rows) > MOST_ROW_LOOPS:
        return Support(f"rows in {len(product.rows)} loops")
    return SUPPORTED


def matrix_tiles_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are the workload's inputs, weights replaced: bfloat16, from the innermost (2 of a
    pair, PANEL columns, 16 pairs, 1, 1, blocks of 32 of the depth, panels), zeros behind the
    last column and the last row.
    """
    arguments = read_arguments(product, _packing(product), _packed_extents(product))
    rounded = _rounded(product, arguments)
    sums = tile_sums(SUMS, rounded, arguments.right)
    column, (w, h, n) = arguments.operands.variables[0], three_loops(arguments.rows)
    return chained_pipeline(
        product,
        arguments,
        sums[column % PANEL, w, h, column // PANEL, n],
        {ROUNDED: rounded, SUMS: sums},
        {
            ROUNDED: (("c", REDUCED), ("w", 0), ("h", 0), ("i", 0), ("n", 0)),
            SUMS: (("o", PANEL), ("w", 0), ("h", 0), ("b", 0), ("n", 0)),
        },
    )


def matrix_tiles_space(
    product: MatrixProduct, target: KernelTarget, name: str = PANELS_TILES, size: int = 2
) -> Space:
    """Return rows and panels of a task, the most promising first.

    Args:
        product: What is computed.
        target: Caches and threads.
        name: Of the algorithm.
        size: Bytes of a factor.
    """
    rows, panels = product.rows[-1].extent, panels_of(product)
    knobs = (
        Knob(KNOB, (name,)),
        Knob(TASK_ROWS, tuple(sorted({min(number, rows) for number in (*_ROWS, rows)}))),
        Knob(TASK_PANELS, tuple(sorted({min(number, panels) for number in _PANELS}))),
    )
    ranked = sorted(combinations(knobs), key=lambda values: _cost_us(values, product, target, size))
    return Space(knobs=knobs, first_guesses=tuple(ranked[:_GUESSES]))


def beside_tiles(in_tiles: Space, by_vectors: Space) -> Space:
    """Return the space of a product in matrix tiles, and by vectors.

    Of the guesses of vectors the first is tried, too: small products, or of a depth that fills no
    tile, may be faster so. What only the other algorithm chooses stays at its first choice.
    """
    spaces = {
        choice: space
        for space in (in_tiles, by_vectors)
        for knob in space.knobs
        if knob.name == KNOB
        for choice in knob.choices
    }
    others = [knob for space in (in_tiles, by_vectors) for knob in space.knobs if knob.name != KNOB]
    unused = {knob.name: knob.choices[0] for knob in others}

    def legal(values: Values) -> bool:
        space = spaces[values[KNOB]]
        own = {knob.name: values[knob.name] for knob in space.knobs}
        return {**unused, **own} == dict(values) and space.constraint(own)

    guesses = (*in_tiles.first_guesses[: _GUESSES - 1], *by_vectors.first_guesses[:1])
    return Space(
        knobs=(Knob(KNOB, tuple(spaces)), *others),
        constraint=legal,
        first_guesses=tuple({**unused, **guess} for guess in guesses),
    )


def task_steps(values: Values, product: MatrixProduct) -> Iterator[Step]:
    """Yield the steps of results and sums: tasks of rows and panels."""
    column, outer = product.columns.name, [axis.name for axis in reversed(product.rows)]
    row = outer[0]
    yield sch.Split(
        RESULT, column, "panels", "column", PANEL * int(values[TASK_PANELS]), sch.Tail.GUARD
    )
    yield sch.Split(RESULT, "column", "block", "lane", PANEL, sch.Tail.GUARD)
    yield sch.Split(RESULT, row, "rows", row, int(values[TASK_ROWS]), sch.Tail.SHIFT_INWARDS)
    yield sch.Reorder(RESULT, ("lane", "block", row, "rows", "panels", *outer[1:]))
    yield sch.Vectorize(RESULT, "lane", PANEL)
    yield sch.Fuse(RESULT, "panels", "rows", TASK)
    for name in outer[1:]:
        yield sch.Fuse(RESULT, name, TASK, TASK)
    yield sch.ComputeAt(SUMS, RESULT, TASK)
    yield sch.Parallel(RESULT, TASK)


def matrix_tiles_steps(
    values: Values, product: MatrixProduct, target: KernelTarget
) -> Iterator[Step]:
    """Yield the steps of a configuration in bfloat16."""
    yield from task_steps(values, product)
    yield sch.ComputeRoot(ROUNDED)
    yield sch.Split(ROUNDED, "c", "half", "c", PANEL)
    yield sch.Reorder(ROUNDED, ("c", "half", "i", "w", "h", "n"))
    yield sch.Vectorize(ROUNDED, "c", PANEL)
    yield sch.Unroll(ROUNDED, "half", REDUCED // PANEL)
    yield sch.Parallel(ROUNDED, "w")


def level_tiles_steps(
    values: Values, product: MatrixProduct, target: KernelTarget
) -> Iterator[Step]:
    """Yield the steps of a configuration in levels of 8 bits, made of float32 rows."""
    yield from task_steps(values, product)
    yield from quantising_steps(values, product)


def _rounded(product: MatrixProduct, arguments: ProductArguments) -> hl.Func:
    """Return the left matrix in bfloat16, zeros behind the last of its depth."""
    c, w, h, i, n = (hl.Var(name) for name in ("c", "w", "h", "i", "n"))
    read = arguments.left
    if product.depth % REDUCED:
        inside = [(hl.Expr(), hl.Expr())] * read.dimensions()
        inside[1 if product.left_turned else 0] = (0, product.depth)
        read = hl.BoundaryConditions.constant_exterior(read, constant(0.0), inside)
    here = (w, h, n)[: len(arguments.rows)]
    rounded = hl.Func(ROUNDED)
    place = left_place(product, here, i * REDUCED + c)
    rounded[c, w, h, i, n] = to_bfloat16(read[place])
    rounded.bound(c, 0, REDUCED).compute_root()  # steps place it closer
    return rounded


def _packed_extents(product: MatrixProduct) -> tuple[int, ...]:
    depth = -(-product.depth // REDUCED)
    return 2, PANEL, REDUCED // 2, 1, 1, depth, panels_of(product)


def _packing(product: MatrixProduct) -> PackedInput:
    q, o, t, x, y, i, b = (hl.Var(name) for name in ("q", "o", "t", "x", "y", "i", "b"))
    right, k = right_matrix(product), i * REDUCED + 2 * t + q
    packed = hl.Func(PACKED)
    value = element_or_zero(product, right, k, b * PANEL + o, ())
    packed[q, o, t, x, y, i, b] = to_bfloat16(value)
    packed.bound(q, 0, 2).bound(o, 0, PANEL).unroll(q).vectorize(o, PANEL)
    return packed_right(product, packed, right, "bfloat16")


def _cost_us(values: Values, product: MatrixProduct, target: KernelTarget, size: int) -> float:
    """Return the rough time of a configuration: sums, weights and data read again, idle cores."""
    rows, panels = int(values[TASK_ROWS]), int(values[TASK_PANELS])
    down, across = -(-product.rows[-1].extent // rows), -(-panels_of(product) // panels)
    outer = 1
    for axis in product.rows[:-1]:
        outer *= axis.extent
    tasks = outer * down * across
    filled = rows / (-(-rows // PANEL) * PANEL)
    summing = size * rows * panels * PANEL * product.depth / filled / OPERATIONS_PER_US
    weights, data = size * panels * PANEL * product.depth, size * rows * product.depth
    sums = 4 * rows * panels * PANEL
    spilt = sums * (1 if sums > target.l1_bytes else 0) * (4 if sums > target.l2_bytes // 2 else 1)
    moved = (weights / down + data + spilt + sums) / BYTES_PER_US
    if size == 1:
        # so fast are these that weights count: read from afar, then for each pair of tiles again
        pairs = -(-rows // (2 * PANEL))
        moved += weights * (1 + pairs / 3) / _NEAR_BYTES_PER_US
    return (summing + moved) * -(-tasks // target.threads)


_ALGORITHMS: Mapping[str, Callable[[MatrixProduct], Pipeline]] = {
    PANELS: panels_pipeline,
    PAIRS: pairs_pipeline,
    ROUNDED_WEIGHTS: rounded_weights_pipeline,
    PANELS_TILES: matrix_tiles_pipeline,
    QUANTISED_PANELS: quantised_pipeline,
    QUANTISED_TILES: quantised_in_tiles_pipeline,
    FEW_BITS: few_bits_pipeline,
}
_STEPS = {PANELS_TILES: matrix_tiles_steps, QUANTISED_TILES: level_tiles_steps}
"""Of algorithms in matrix tiles."""
_CHECKS: Mapping[Precision, Callable[[MatrixProduct], Support]] = {
    Precision.INT8: check_quantising,
    Precision.INT4: check_few_bits,
}
"""Refusals of products in integers."""


class MatMul(PlannedFamily[MatrixProduct]):
    """y = chain(a * b), b constant for a few rows, anything for many.

    ONNX Runtime's product of many rows runs near the roof of the hardware: what gains there is
    the chain, which it leaves as passes of their own. A few rows are bound by memory: there the
    panels of the weights, read as several gapless streams, gain by themselves.
    """

    name = "matmul"
    anchors = MATRIX_PRODUCTS

    def plan(self, workload: Workload) -> MatrixProduct | Support:
        """Plan one matrix product and a chain, or tell why not."""
        product = read_product(workload)
        if isinstance(product, Support):
            return product
        check = _CHECKS.get(workload.precision)
        refused = check(product) if check is not None else SUPPORTED
        if not refused:
            return refused
        few = not product.rows or product.rows[-1].extent <= FEW_ROWS
        if few and not product.has_weights:
            return Support("a few rows by a computed matrix")
        return product

    def pipeline_of(self, plan: MatrixProduct, algorithm: str) -> Pipeline:
        """Return the algorithm called `algorithm`; by default the first of its precision."""
        name = algorithm or algorithms_of(plan)[0]
        return _ALGORITHMS[known_algorithm(self.name, name, _ALGORITHMS)](plan)

    def space_of(self, plan: MatrixProduct, target: KernelTarget) -> Space:
        """Return the register tile and what a task is; of matrix tiles where the CPU has them."""
        in_tiles = plan.workload.precision is Precision.BFLOAT16 and target.bf16_tiles
        if in_tiles and check_matrix_tiles(plan):
            return matrix_tiles_space(plan, target)
        in_tiles = plan.workload.precision is Precision.INT8 and target.int8_tiles
        if in_tiles and check_level_tiles(plan):
            in_levels = matrix_tiles_space(plan, target, QUANTISED_TILES, size=1)
            return beside_tiles(in_levels, product_space(plan, target))
        return product_space(plan, target)

    def schedule_of(self, plan: MatrixProduct, values: Values, target: KernelTarget) -> Schedule:
        algorithm = str(values[KNOB])
        steps = _STEPS.get(algorithm, product_steps)
        return Schedule(tuple(steps(values, plan, target)), algorithm=algorithm)
