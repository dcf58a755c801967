"""Direct convolution: every product once, the sums of a register tile of results kept.

padded       the image with its zeros around it, rounded to bfloat16 where factors are
products     sums over channels and filter of pixels times weights
finished     the same put down, for chains too long to be written out for each of them
y            bias, the tensor added, activation, the chain
"""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl

from aoe.kernels.convolution.result import finished_result, kernel_arguments, padded_image
from aoe.kernels.convolution.shape import WEIGHTS, ConvolutionPlan, ConvolutionShape, X
from aoe.kernels.family import PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.workload import Precision

PADDED, PRODUCTS, FINISHED = "padded", "products", "finished"
SUMMED = f"{PRODUCTS}.update"
PAIR = 2
"""Products of bfloat16 the hardware sums up at once: neighbouring channels."""


@dataclass(frozen=True, slots=True)
class _Loops:
    """Loop variables; names are those schedule steps use."""

    o: hl.Var
    c: hl.Var
    w: hl.Var
    h: hl.Var
    b: hl.Var
    n: hl.Var


def direct_pipeline(plan: ConvolutionPlan, precision: Precision) -> Pipeline:
    """Return the algorithm.

    In float32 the arguments are those of the workload. In bfloat16 the weights are packed once,
    when the kernel is created: see `pair_packing`.
    """
    shape, v = plan.shape, _Loops(*(hl.Var(name) for name in _Loops.__slots__))
    in_pairs = precision is Precision.BFLOAT16
    packing = pair_packing(shape) if in_pairs else None
    extents = pair_extents(shape) if in_pairs else shape.weight_extents
    arguments = kernel_arguments(plan, extents, hl.BFloat(16) if in_pairs else None)
    place = (v.o, v.w, v.h, v.b, v.n)
    stages = _image(arguments.at(X), shape, v, in_pairs=in_pairs)
    read = stages.get(PADDED, arguments.at(X))
    sums = _pair_sums if in_pairs else _sums
    products = sums(read, arguments.at(WEIGHTS), shape, v)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[place] = products[place]
    result[place] = finished_result(plan, arguments, finished[place], place)
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    for name, stage in stages.items():
        if name not in (SUMMED, FINISHED):
            stage.compute_root()  # steps place it closer
    stages[RESULT] = result
    return Pipeline(
        output=result,
        stages=stages,
        arguments=arguments.buffers,
        argument_extents=arguments.extents,
        output_extents=shape.result_extents,
        loops=_loop_extents(stages, shape, in_pairs=in_pairs),
        packings={plan.inputs[WEIGHTS]: packing} if packing else {},
    )


def needs_copy(shape: ConvolutionShape, precision: Precision) -> bool:
    """Return True if pixels are not read from the image itself."""
    return precision is Precision.BFLOAT16 or any(shape.pads)


def pair_extents(shape: ConvolutionShape) -> tuple[int, ...]:
    """Return the extents of weights in pairs of channels, innermost first (see `pair_packing`)."""
    rows, columns = shape.kernel
    pairs = shape.block // PAIR
    return PAIR, shape.block, pairs, columns, rows, shape.blocks_in, shape.blocks_out


def pair_packing(shape: ConvolutionShape) -> PackedInput:
    """Return the weights as vectors of pairs, rounded to bfloat16.

    From the innermost: 2 channels read, block of o, pairs of a block, columns, rows, blocks in,
    blocks out ("OIhw8i16o2i" with AVX-512), from what the host keeps ("OIhw16i16o").
    """
    i, o, p, kx, ky, ib, ob = (hl.Var(name) for name in ("i", "o", "p", "kx", "ky", "ib", "ob"))
    extents = shape.weight_extents
    weights = hl.ImageParam(hl.Float(32), len(extents), "weights")
    packed = hl.Func("packed")
    packed[i, o, p, kx, ky, ib, ob] = to_bfloat16(weights[o, PAIR * p + i, kx, ky, ib, ob])
    packed.bound(i, 0, PAIR).unroll(i).vectorize(o, shape.block)
    return PackedInput(
        output=packed, argument=weights, argument_extents=extents, dtype=Precision.BFLOAT16.value
    )


def _image(
    x: hl.ImageParam, shape: ConvolutionShape, v: _Loops, *, in_pairs: bool
) -> dict[str, hl.Func]:
    """Return the stage that copies the image, if there is one."""
    if not needs_copy(shape, Precision.BFLOAT16 if in_pairs else Precision.FLOAT32):
        return {}
    place = (v.c, v.w, v.h, v.b, v.n)
    value = padded_image(x, shape, place)
    padded = hl.Func(PADDED)
    padded[place] = to_bfloat16(value) if in_pairs else value
    return {PADDED: padded}


def _sums(
    read: hl.Func | hl.ImageParam, weights: hl.ImageParam, shape: ConvolutionShape, v: _Loops
) -> hl.Func:
    rows, columns = shape.kernel
    r = hl.RDom([(0, shape.block), (0, columns), (0, rows), (0, shape.blocks_in)], "r")
    products = hl.Func(PRODUCTS)
    place = (v.o, v.w, v.h, v.b, v.n)
    products[place] = constant(0.0)
    pixel = (*_tap(shape, v, r[1], r[2]), r[3], v.n)
    products[place] += read[(r[0], *pixel)] * weights[v.o, r[0], r[1], r[2], r[3], v.b]
    return products


def _pair_sums(
    read: hl.Func | hl.ImageParam, weights: hl.ImageParam, shape: ConvolutionShape, v: _Loops
) -> hl.Func:
    rows, columns = shape.kernel
    pairs = shape.block // PAIR
    extents = [(0, PAIR), (0, pairs), (0, columns), (0, rows), (0, shape.blocks_in)]
    r = hl.RDom(extents, "r")
    products = hl.Func(PRODUCTS)
    place = (v.o, v.w, v.h, v.b, v.n)
    products[place] = constant(0.0)
    pixel = (*_tap(shape, v, r[2], r[3]), r[4], v.n)
    value = hl.f32(read[(PAIR * r[1] + r[0], *pixel)])
    products[place] += value * hl.f32(weights[r[0], v.o, r[1], r[2], r[3], r[4], v.b])
    products.update().atomic()  # lets the schedule vectorise a pair
    return products


def _tap(
    shape: ConvolutionShape, v: _Loops, column: hl.Expr, row: hl.Expr
) -> tuple[hl.Expr, hl.Expr]:
    """Return the pixel of the padded image a value of the filter meets."""
    (down, along), (rows_apart, columns_apart) = shape.strides, shape.dilations
    return v.w * along + column * columns_apart, v.h * down + row * rows_apart


def _loop_extents(
    stages: dict[str, hl.Func], shape: ConvolutionShape, *, in_pairs: bool
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return the loops of every stage; 0 where the schedule decides how far they go."""
    known = {"o": shape.block, "c": shape.block}
    whole = {"w": shape.columns, "h": shape.rows, "b": shape.blocks_out, "n": shape.batch}
    loops = {}
    for name, stage in stages.items():
        if name != SUMMED:
            here = known | (whole if name == RESULT else {})
            loops[name] = tuple((v.name(), here.get(v.name(), 0)) for v in stage.args())
    rows, columns = shape.kernel
    depth = (PAIR, shape.block // PAIR) if in_pairs else (shape.block,)
    extents = (*depth, columns, rows, shape.blocks_in)
    reduced = zip(("r$x", "r$y", "r$z", "r$w", "r$4"), extents, strict=False)
    loops[SUMMED] = (*loops[PRODUCTS], *reduced)
    return loops
