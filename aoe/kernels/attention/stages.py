"""An attention as stages of a kernel.

    packed keys, packed values   in panels of 16 columns, made for all queries of a batch
    score sums       products of queries and keys, in registers
    scores           with the chain behind them: scale, mask
    peak             largest score of a query
    grown            e^(score - peak)
    total            their sum
    value sums       products of those and the values, in registers
    y                value sums / total

In bfloat16 queries, keys, values and `grown` are rounded, and products are summed up in pairs;
`total` is that of the rounded weights, so that they add up to one.

The softmax of a query is divided by its total at the end, once for all keys. Special values are
ONNX Runtime's: a query whose scores are all minus infinity makes NaN, and so does one with a NaN.
Where weights that are no numbers become zeros, both make zeros.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import add
from typing import Any

import halide as hl

from aoe.kernels.attention.shape import Attention
from aoe.kernels.family import UPDATE, Pipeline
from aoe.kernels.halide.chain import RESULT, build_chain
from aoe.kernels.halide.reductions import AxisReduction, OuterLoops, gathered
from aoe.kernels.math.functions import LOWEST, constant, strict, to_bfloat16, weight_of_negative
from aoe.kernels.matmul.bfloat16_pairs import (
    PAIR,
    PAIRED_DEPTH,
    ROUNDED,
    pair_arguments,
    pair_sums,
    pairs_of,
    round_left,
)
from aoe.kernels.matmul.panels import DEPTH, panel_arguments, panel_sums
from aoe.kernels.matmul.result import (
    LANE,
    PANEL,
    ProductArguments,
    left_extents,
    left_place,
    nearest,
    right_sizes,
)
from aoe.kernels.matmul.shape import MatrixProduct

SCORES, PEAK, GROWN, TOTAL = "scores", "peak", "grown", "total"
SCORE_SUMS, VALUE_SUMS = "score_sums", "value_sums"
KEYS_PACKED, VALUES_PACKED = "keys", "values"

Loops = tuple[tuple[str, int], ...]


def attention_pipeline(attention: Attention) -> Pipeline:
    """Return the algorithm. Arguments are those of the workload."""
    arguments_of = pair_arguments if attention.in_pairs else panel_arguments
    of_scores, of_values = arguments_of(attention.scores), arguments_of(attention.values)
    made: dict[str, hl.Func] = {}
    score_sums = _score_sums(attention, of_scores, made)
    scores = hl.Func(SCORES)
    scores[of_scores.operands.variables] = score_of(
        attention, of_scores, in_panels(score_sums, of_scores)
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
    loops |= {name: _loops(stage) for name, stage in made.items()}
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
    pure: Loops = ((LANE, PANEL), *_loops(sums)[1:])
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


def score_of(attention: Attention, arguments: ProductArguments, made: hl.Expr) -> hl.Expr:
    """Return a product with the chain behind it.

    Scores of an open number of keys end with a whole panel: minus infinity weighs nothing, and no
    softmax has a tail. What the chain reads besides is read within its bounds.
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


def _loops(stage: hl.Func) -> Loops:
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
