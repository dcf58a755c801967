"""Matrix products by weights of 4 bits, which have a scale for each block of 32 of the depth.

    levels of a block   -8 ... 7: its largest value, with its sign, is -8 scales (a bfloat16)
    levels of a row     0 ... 255, as in `quantising.py`

quantised    the left matrix in 8 bits
parts        products of one block summed up in 32 bits, four by one instruction
sums         parts times their scale
finished, y  numbers again, and the chain behind them

For a few rows: reading the weights is what takes the time, and 4.5 bits each are a seventh of
float32. Source: G. Gerganov et al., ggml (Q4_0); ONNX Runtime's MatMulNBits has the same blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import halide as hl

from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Pipeline, Support
from aoe.kernels.math.functions import constant, strict, to_bfloat16
from aoe.kernels.matmul.int8 import with_extremes
from aoe.kernels.matmul.panels import element_or_zero, packed_right, right_matrix
from aoe.kernels.matmul.quantising import (
    DISTANCE,
    LEVELS,
    QUANTISED,
    SUMMED_BY_ONE,
    ZERO,
    is_finite,
    level_of,
    magnitude_bits,
    quantised_rows,
    row_extremes,
    row_levels,
)
from aoe.kernels.matmul.result import (
    BLOCK,
    LANE,
    PACKED,
    PANEL,
    SUMS,
    finished_pipeline,
    last_panel_at_most,
    packed_element,
    panels_of,
    read_arguments,
)
from aoe.kernels.matmul.shape import FEW_ROWS, MatrixProduct

PARTS = "parts"
PARTS_UPDATE = f"{PARTS}{UPDATE}"
DEPTH_OF_BLOCK = 32
HALVES, FOURS = 2, DEPTH_OF_BLOCK // SUMMED_BY_ONE // 2
"""A byte holds two levels: of the first half of its block, and of the second one."""
_LOWEST, _HIGHEST = -8, 7
_LEAST_MAGNITUDE = 1e-36
"""Blocks below count as zeros: their scale would be no normal number."""


def check_few_bits(product: MatrixProduct) -> Support:
    """Check that a product can be computed by weights of 4 bits."""
    if not product.has_weights:
        return Support("product of two computed tensors in int4")
    if product.rows and product.rows[-1].extent > FEW_ROWS:
        return Support(f"more than {FEW_ROWS} rows in int4")
    return SUPPORTED


def few_bits_pipeline(product: MatrixProduct) -> Pipeline:
    """Return the algorithm.

    Arguments are those of the workload, weights replaced by pairs of levels, each with 8 added:
    bytes, from the innermost (4 of the depth, PANEL columns, fours of half a block, blocks,
    panels); then the scales of their blocks: bfloat16, (PANEL, blocks, panels); then the sums of
    what columns stand for: float32, (PANEL, panels).
    """
    blocks, panels = _blocks_of(product), panels_of(product)
    extents = (SUMMED_BY_ONE, PANEL, FOURS, blocks, panels)
    arguments = read_arguments(product, _packed_levels(product), extents)
    scales = hl.ImageParam(hl.BFloat(16), 3, "scales")
    column_sums = hl.ImageParam(hl.Float(32), 2, "column_sums")
    extremes = row_extremes(product, arguments)
    levels = row_levels(product, arguments, extremes)
    quantised = quantised_rows(product, arguments, levels, multiple=DEPTH_OF_BLOCK)
    lane, block, group, rows = hl.Var(LANE), hl.Var(BLOCK), hl.Var("g"), arguments.rows
    panel = last_panel_at_most(product, block)
    p = hl.RDom([(0, SUMMED_BY_ONE), (0, FOURS), (0, HALVES)], "p")
    parts, place = hl.Func(PARTS), (lane, block, group, *rows)
    byte = packed_element(product, arguments, (p.x, lane, p.y, group, panel))
    level = hl.i8(_half_of(byte, p.z)) + hl.i8(_LOWEST)
    k = DEPTH_OF_BLOCK * group + DEPTH_OF_BLOCK // HALVES * p.z + SUMMED_BY_ONE * p.y + p.x
    parts[place] = hl.i32(0)
    parts[place] += hl.i32(quantised[(k, *rows)]) * hl.i32(level)
    parts.bound_extent(lane, PANEL).compute_root()  # steps place it closer
    r = hl.RDom([(0, blocks)], "r")
    sums = hl.Func(SUMS)
    sums[(lane, block, *rows)] = constant(0.0)
    part = parts[(lane, block, r.x, *rows)]
    sums[(lane, block, *rows)] += hl.f32(part) * hl.f32(scales[lane, r.x, panel])
    sums.bound_extent(lane, PANEL).compute_root()

    def finish(total: hl.Expr, place: Sequence[hl.Expr]) -> hl.Expr:
        distance, zero = (levels[(which, *rows)] for which in (DISTANCE, ZERO))
        column_sum = column_sums[place[0], last_panel_at_most(product, place[1])]
        return strict((total - zero * column_sum) * distance)

    stages = {LEVELS: levels, QUANTISED: quantised, PARTS: parts}
    depths = ((r.x.name(), blocks),)
    found = finished_pipeline(product, arguments, sums, depths, stages, finish=finish)
    found = with_extremes(found, product, arguments, extremes)
    number, summed = len(found.arguments), ((p.x, SUMMED_BY_ONE), (p.y, FOURS), (p.z, HALVES))
    pure = ((LANE, PANEL), *found.loops[PARTS][1:])
    of_update = (*pure, *((loop.name(), extent) for loop, extent in summed))
    return replace(
        found,
        stages={**found.stages, PARTS_UPDATE: parts.update()},
        loops={**found.loops, PARTS: pure, PARTS_UPDATE: of_update},
        padded=found.padded | {PARTS},
        arguments=(*found.arguments, scales, column_sums),
        argument_extents=(*found.argument_extents, (PANEL, blocks, panels), (PANEL, panels)),
        packings={
            **found.packings,
            number: _packed_scales(product),
            number + 1: _packed_sums(product),
        },
    )


def _blocks_of(product: MatrixProduct) -> int:
    return -(-product.depth // DEPTH_OF_BLOCK)


def _half_of(byte: hl.Expr, half: hl.Expr) -> hl.Expr:
    """Return the lower (0) or the higher (1) four bits of a byte."""
    bits = hl.reinterpret(hl.UInt(8), byte)
    return hl.select(half == 0, bits & hl.u8(15), bits >> hl.u8(4))


# ---- weights ----


def _packed_levels(product: MatrixProduct) -> PackedInput:
    part, lane, four, group, panel = (
        hl.Var(name) for name in ("part", "lane", "four", "group", "panel")
    )
    right = right_matrix(product)
    scales = _scales(product, right)

    def level(half: int) -> hl.Expr:
        k = DEPTH_OF_BLOCK * group + DEPTH_OF_BLOCK // HALVES * half + SUMMED_BY_ONE * four + part
        value = element_or_zero(product, right, k, panel * PANEL + lane, ())
        return _level(value, scales[lane, group, panel]) - hl.i32(_LOWEST)

    packed = hl.Func(PACKED)
    byte = hl.u8(level(0)) | (hl.u8(level(1)) << hl.u8(4))
    packed[part, lane, four, group, panel] = hl.reinterpret(hl.Int(8), byte)
    packed.bound(part, 0, SUMMED_BY_ONE).bound(lane, 0, PANEL).unroll(part).vectorize(lane, PANEL)
    return packed_right(product, packed, right, "int8")


def _packed_scales(product: MatrixProduct) -> PackedInput:
    lane, group, panel = hl.Var("lane"), hl.Var("group"), hl.Var("panel")
    right = right_matrix(product)
    found = hl.Func("block_scales")
    found[lane, group, panel] = to_bfloat16(_scales(product, right)[lane, group, panel])
    found.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    return packed_right(product, found, right, "bfloat16", product.right)


def _packed_sums(product: MatrixProduct) -> PackedInput:
    lane, panel = hl.Var("lane"), hl.Var("panel")
    right = right_matrix(product)
    scales = _scales(product, right)
    r = hl.RDom([(0, DEPTH_OF_BLOCK), (0, _blocks_of(product))], "s")
    scale = scales[lane, r.y, panel]
    value = element_or_zero(product, right, DEPTH_OF_BLOCK * r.y + r.x, panel * PANEL + lane, ())
    found = hl.Func("column_sums")
    found[lane, panel] = constant(0.0)
    found[lane, panel] += hl.f32(_level(value, scale)) * scale
    found.bound(lane, 0, PANEL).vectorize(lane, PANEL)
    found.update().reorder(lane, r.x, r.y, panel).vectorize(lane, PANEL)
    return packed_right(product, found, right, "float32", product.right)


def _scales(product: MatrixProduct, right: hl.ImageParam) -> hl.Func:
    """Return the scales of blocks over (PANEL columns, blocks, panels), rounded to bfloat16.

    0 for a block of zeros, NaN for one that holds a NaN or an infinity.
    """
    lane, group, panel = hl.Var("lane"), hl.Var("group"), hl.Var("panel")
    r = hl.RDom([(0, DEPTH_OF_BLOCK)], "m")
    value = element_or_zero(product, right, DEPTH_OF_BLOCK * group + r.x, panel * PANEL + lane, ())
    extreme, place = hl.Func("extreme"), (lane, group, panel)
    extreme[place] = (hl.i32(0), constant(0.0))  # bits of the magnitude, and the value
    bits, known = magnitude_bits(value), extreme[place]
    is_larger = bits > known[0]
    extreme[place] = (hl.select(is_larger, bits, known[0]), hl.select(is_larger, value, known[1]))
    extreme.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    extreme.update().reorder(lane, r.x, group, panel).vectorize(lane, PANEL)
    largest, signed = known[0], known[1]
    magnitude = hl.reinterpret(hl.Float(32), largest)
    scale = hl.select(
        strict(magnitude < constant(_LEAST_MAGNITUDE)),
        constant(0.0),
        signed * constant(1 / _LOWEST),
    )
    nan = hl.reinterpret(hl.Float(32), hl.i32(0x7FC00000))
    rounded = hl.f32(to_bfloat16(hl.select(is_finite(largest), scale, nan)))
    found = hl.Func("scale")
    found[place] = rounded
    found.bound(lane, 0, PANEL).compute_root().vectorize(lane, PANEL)
    return found


def _level(value: hl.Expr, scale: hl.Expr) -> hl.Expr:
    """Return the level of a weight, an integer; 0 where the scale is 0 or NaN."""
    size = hl.select(strict(scale < constant(0.0)), -scale, scale)
    signed = hl.select(strict(scale < constant(0.0)), -value, value)
    return hl.clamp(level_of(signed, size), _LOWEST, _HIGHEST)
