"""Rows times constant weights in bfloat16, summed in the CPU's matrix tiles (AMX).

rounded    the left matrix in bfloat16, in blocks of 32 of the depth
sums       sums of products, by `aoe_sum_tiles` of the glue, float32
y          the chain behind the product: bias, activation, residual
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product as combinations

import halide as hl

from aoe.kernels.algorithms import KNOB
from aoe.kernels.family import SUPPORTED, KernelTarget, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT, chain_pipeline, read_operands
from aoe.kernels.halide.tiling import TASK
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.kernels.matmul.result import PANEL, left_argument, left_extents, left_place, panels_of
from aoe.kernels.matmul.shape import MatrixProduct
from aoe.schedule import (
    Choice,
    ComputeAt,
    ComputeRoot,
    Fuse,
    Knob,
    Parallel,
    Reorder,
    Space,
    Split,
    Step,
    Tail,
    Unroll,
    Vectorize,
)

PANELS_TILES = "panels_tiles"
ROUNDED, SUMS = "rounded", "sums"
TASK_ROWS, TASK_PANELS = "task_rows", "task_panels"
_REDUCED = 32
"""Products summed by one instruction: 64 bytes of bfloat16."""
_MOST_ROW_LOOPS = 3
"""Loops over rows the glue's function runs through."""
_LEAST_ROWS = 4
"""Rows below which tiles stay so empty that reading the weights decides alone."""
_ROWS, _PANELS = (16, 32, 64, 128), (2, 4, 8, 16)
_GUESSES = 5
_OPERATIONS_PER_US = 1.0e6
_BYTES_PER_US = 2.0e4
"""Rough rates of one core, for the order of candidates: 1 TFLOP/s out of tiles and 20 GB/s of
weights from the third-level cache. Measured on a Xeon with AMX (model 167), 2026-11-22."""


def check_matrix_tiles(product: MatrixProduct) -> Support:
    """Tell whether tiles compute a product, on a CPU that has them."""
    if not product.has_weights:
        return Support("product of two computed tensors in tiles")
    if not product.rows or product.rows[-1].extent < _LEAST_ROWS:
        return Support("a few rows in tiles")
    if len(product.rows) > _MOST_ROW_LOOPS:
        return Support(f"rows in {len(product.rows)} loops")
    return SUPPORTED


def matrix_tiles_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are those of the workload, weights replaced: bfloat16, from the innermost (2 of a
    pair, PANEL columns, 16 pairs, 1, 1, blocks of 32 of the depth, panels), zeros behind the
    last column and the last row.
    """
    operands = read_operands(product.chain, product.iteration)
    rows = operands.variables[1:]
    left = left_argument(product, operands.arguments[product.left])
    weights = hl.ImageParam(hl.BFloat(16), len(_packed_extents(product)), f"x{product.right}")
    rounded = _rounded(product, left, rows)
    sums = _sums(rounded, weights)
    column = operands.variables[0]
    made = sums[(column % PANEL, *_three(rows)[:2], column // PANEL, _three(rows)[2])]
    behind = replace(operands, values={**operands.values, product.product: made})
    chain = chain_pipeline(
        product.chain,
        behind,
        [item for item in product.chain.operations if item.output != product.product],
        {ROUNDED: rounded, SUMS: sums},
        {
            ROUNDED: (("c", _REDUCED), ("w", 0), ("h", 0), ("i", 0), ("n", 0)),
            SUMS: (("o", PANEL), ("w", 0), ("h", 0), ("b", 0), ("n", 0)),
        },
    )
    arguments, extents = list(operands.arguments[:-2]), list(chain.argument_extents[:-2])
    arguments[product.left], arguments[product.right] = left, weights
    extents[product.left] = left_extents(product)
    extents[product.right] = _packed_extents(product)
    return replace(
        chain,
        arguments=tuple(arguments),
        argument_extents=tuple(extents),
        packings={product.right: _packing(product)},
    )


def matrix_tiles_space(product: MatrixProduct, target: KernelTarget) -> Space:
    """Return rows and panels of a task, the most promising first."""
    rows, panels = product.rows[-1].extent, panels_of(product)
    knobs = (
        Knob(KNOB, (PANELS_TILES,)),
        Knob(TASK_ROWS, tuple(sorted({min(number, rows) for number in (*_ROWS, rows)}))),
        Knob(TASK_PANELS, tuple(sorted({min(number, panels) for number in _PANELS}))),
    )
    names = [knob.name for knob in knobs]
    offered = [
        dict(zip(names, choices, strict=True))
        for choices in combinations(*(knob.choices for knob in knobs))
    ]
    ranked = sorted(offered, key=lambda values: _cost_us(values, product, target))
    return Space(knobs=knobs, first_guesses=tuple(ranked[:_GUESSES]))


def matrix_tiles_steps(
    values: Mapping[str, Choice], product: MatrixProduct, target: KernelTarget
) -> Iterator[Step]:
    """Yield the steps of a configuration."""
    column, outer = product.columns.name, [axis.name for axis in reversed(product.rows)]
    row = outer[0]
    yield Split(RESULT, column, "panels", "column", PANEL * int(values[TASK_PANELS]), Tail.GUARD)
    yield Split(RESULT, "column", "block", "lane", PANEL, Tail.GUARD)
    yield Split(RESULT, row, "rows", row, int(values[TASK_ROWS]), Tail.SHIFT_INWARDS)
    yield Reorder(RESULT, ("lane", "block", row, "rows", "panels", *outer[1:]))
    yield Vectorize(RESULT, "lane", PANEL)
    yield Fuse(RESULT, "panels", "rows", TASK)
    for name in outer[1:]:
        yield Fuse(RESULT, name, TASK, TASK)
    yield ComputeAt(SUMS, RESULT, TASK)
    yield ComputeRoot(ROUNDED)
    yield Split(ROUNDED, "c", "half", "c", PANEL)
    yield Reorder(ROUNDED, ("c", "half", "i", "w", "h", "n"))
    yield Vectorize(ROUNDED, "c", PANEL)
    yield Unroll(ROUNDED, "half", _REDUCED // PANEL)
    if target.threads > 1:
        yield Parallel(RESULT, TASK)
        yield Parallel(ROUNDED, "w")


def _three(rows: tuple[hl.Var, ...]) -> tuple[hl.Expr, ...]:
    """Return the three row loops of the glue's function, innermost first."""
    return tuple(hl.Expr(row) for row in rows) + (hl.Expr(0),) * (_MOST_ROW_LOOPS - len(rows))


def _rounded(product: MatrixProduct, left: hl.ImageParam, rows: tuple[hl.Var, ...]) -> hl.Func:
    """Return the left matrix in bfloat16, zeros behind the last of its depth."""
    c, w, h, i, n = (hl.Var(name) for name in ("c", "w", "h", "i", "n"))
    inside = [(hl.Expr(), hl.Expr())] * left.dimensions()
    inside[1 if product.left_turned else 0] = (0, product.depth)
    read = left if product.depth % _REDUCED == 0 else _exterior(left, inside)
    here = (w, h, n)[: len(rows)]
    rounded = hl.Func(ROUNDED)
    place = left_place(product, here, i * _REDUCED + c)
    rounded[c, w, h, i, n] = to_bfloat16(read[place])
    rounded.bound(c, 0, _REDUCED).compute_root()  # steps place it closer
    return rounded


def _exterior(left: hl.ImageParam, bounds: list[tuple[object, object]]) -> hl.Func:
    return hl.BoundaryConditions.constant_exterior(left, constant(0.0), bounds)


def _sums(rounded: hl.Func, weights: hl.ImageParam) -> hl.Func:
    ones = [hl.Expr(1)] * 4  # strides and dilations of the convolution a product is
    sums = hl.Func(SUMS)
    sums.define_extern(
        "aoe_sum_tiles",
        [hl.ExternFuncArgument(parameter) for parameter in (rounded, weights, *ones)],
        [hl.Float(32)],
        [hl.Var(name) for name in ("o", "w", "h", "b", "n")],
        hl.NameMangling.C,
    )
    sums.bound(sums.args()[0], 0, PANEL).compute_root()  # steps place it closer
    return sums


def _packed_extents(product: MatrixProduct) -> tuple[int, ...]:
    depth = -(-product.depth // _REDUCED)
    return 2, PANEL, _REDUCED // 2, 1, 1, depth, panels_of(product)


def _packing(product: MatrixProduct) -> PackedInput:
    columns, depth = product.columns.extent, product.depth
    extents = (depth, columns) if product.right_turned else (columns, depth)
    weights = hl.ImageParam(hl.Float(32), 2, "weights")
    bounds = [(0, extent) for extent in extents]
    exterior = hl.BoundaryConditions.constant_exterior(weights, constant(0.0), bounds)
    q, o, t, x, y, i, b = (hl.Var(name) for name in ("q", "o", "t", "x", "y", "i", "b"))
    k, column = i * _REDUCED + 2 * t + q, b * PANEL + o
    value = exterior[k, column] if product.right_turned else exterior[column, k]
    packed = hl.Func("packed")
    packed[q, o, t, x, y, i, b] = to_bfloat16(value)
    packed.bound(q, 0, 2).bound(o, 0, PANEL).unroll(q).vectorize(o, PANEL)
    return PackedInput(output=packed, argument=weights, argument_extents=extents, dtype="bfloat16")


def _cost_us(values: Mapping[str, Choice], product: MatrixProduct, target: KernelTarget) -> float:
    """Return the rough time of a configuration: sums, weights and data read again, idle cores."""
    rows, panels = int(values[TASK_ROWS]), int(values[TASK_PANELS])
    down, across = -(-product.rows[-1].extent // rows), -(-panels_of(product) // panels)
    outer = 1
    for axis in product.rows[:-1]:
        outer *= axis.extent
    tasks = outer * down * across
    filled = rows / (-(-rows // PANEL) * PANEL)
    summing = 2 * rows * panels * PANEL * product.depth / filled / _OPERATIONS_PER_US
    weights, data = 2 * panels * PANEL * product.depth, 2 * rows * product.depth
    sums = 4 * rows * panels * PANEL
    spilt = sums * (1 if sums > target.l1_bytes else 0) * (4 if sums > target.l2_bytes // 2 else 1)
    moved = (weights / down + data + spilt + sums) / _BYTES_PER_US
    return (summing + moved) * -(-tasks // target.threads)
