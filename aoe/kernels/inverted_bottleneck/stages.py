"""Both convolutions as stages of one kernel.

    rounded        the image that is read, rounded to bfloat16, where factors are
    made sums      sums over the channels of the image that is read, in registers
    made finished  the same put down, for chains too long to be written out for each of them
    made           bias, activation, the chain between: the image of the second convolution
    padded         that image with the zeros around it, where there are any
    products, finished, y   as in `aoe.kernels.conv_nchwc.direct`

What is made between is there for some blocks of channels at a time, of all its rows or of those a
group of results needs: it never leaves the second-level cache. Zeros around it are zeros behind the
chain, as in the host.
"""

from __future__ import annotations

from dataclasses import replace

import halide as hl

from aoe.kernels.conv_nchwc.direct import (
    FINISHED,
    PADDED,
    PRODUCTS,
    REDUCED,
    SUMMED,
    depth_extents,
    direct_sums,
    pair_extents,
    pair_packing,
)
from aoe.kernels.conv_nchwc.result import (
    KernelArguments,
    buffers_of,
    finished_pipeline,
    finished_result,
    finished_sum,
)
from aoe.kernels.conv_nchwc.shape import WEIGHTS, ConvolutionShape, X
from aoe.kernels.family import UPDATE, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.inverted_bottleneck.shape import BottleneckShape
from aoe.kernels.math.functions import constant, to_bfloat16

ROUNDED, MADE, MADE_SUMS, MADE_FINISHED = "rounded", "made", "made_sums", "made_finished"
MADE_SUMMED = f"{MADE_SUMS}{UPDATE}"
MADE_DEPTH = ("k$x", "k$y", "k$z", "k$w", "k$4")
"""Loops over what the first convolution sums up, innermost first; the last is there for pairs."""


def expansion_pipeline(expansion: BottleneckShape) -> Pipeline:
    """Return the algorithm; the arguments are those of the workload.

    In bfloat16 the weights of the first convolution are packed once: see `pair_packing`.
    """
    first, second = expansion.first, expansion.second
    known = dict(enumerate(expansion.extents))
    if expansion.in_pairs:
        known[first.inputs[WEIGHTS]] = pair_extents(first.shape)
    kind = hl.BFloat(16) if expansion.in_pairs else hl.Float(32)
    of_first = buffers_of(known, first.inputs, kind)
    of_second = replace(of_first, places=second.inputs)
    place = (v.o, v.w, v.h, v.b, v.n)
    stages = _made(expansion, of_first)
    read = _padded(stages[MADE], second.shape)
    if read is not stages[MADE]:
        stages[PADDED] = read
    products = direct_sums(read, of_second.at(WEIGHTS), second.shape, in_pairs=False)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[place] = products[place]
    result[place] = finished_result(second, of_second, finished[place], place)
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    return finished_pipeline(
        of_first,
        stages,
        result,
        extents=second.shape.result_extents,
        known={"o": second.shape.block, "c": second.shape.block},
        reduced={
            SUMMED: zip(REDUCED, depth_extents(second.shape, in_pairs=False), strict=False),
            MADE_SUMMED: zip(MADE_DEPTH, made_depth(expansion), strict=False),
        },
        packing=pair_packing(first.shape) if expansion.in_pairs else None,
        inlined=(FINISHED, MADE_FINISHED, PADDED),
    )


def _made(expansion: BottleneckShape, arguments: KernelArguments) -> dict[str, hl.Func]:
    """Return the stages of the first convolution."""
    first, place = expansion.first, (v.o, v.w, v.h, v.b, v.n)
    rounded = _rounded(arguments.at(X)) if expansion.in_pairs else None
    sums = direct_sums(
        arguments.at(X) if rounded is None else rounded,
        arguments.at(WEIGHTS),
        first.shape,
        in_pairs=expansion.in_pairs,
        name=MADE_SUMS,
        depth_name=MADE_DEPTH[0].partition("$")[0],
    )
    finished, made = hl.Func(MADE_FINISHED), hl.Func(MADE)
    finished[place] = sums[place]
    made[place] = finished_sum(first.epilogue, arguments, finished[place], place, (v.o, v.b))
    stages = {MADE_SUMS: sums, MADE_SUMMED: sums.update(), MADE_FINISHED: finished, MADE: made}
    return stages if rounded is None else {ROUNDED: rounded, **stages}


def _rounded(image: hl.ImageParam) -> hl.Func:
    """Return the image as bfloat16."""
    rounded, place = hl.Func(ROUNDED), (v.c, v.w, v.h, v.b, v.n)
    rounded[place] = to_bfloat16(image[place])
    return rounded


def _padded(made: hl.Func, shape: ConvolutionShape) -> hl.Func:
    """Return the image with its zeros around it; as it is where there are none."""
    if not any(shape.pads):
        return made
    anywhere = (hl.Expr(), hl.Expr())
    bounds = [anywhere, (0, shape.width), (0, shape.height), anywhere, anywhere]
    exterior = hl.BoundaryConditions.constant_exterior(made, constant(0.0), bounds)
    top, left = shape.pads[:2]
    padded = hl.Func(PADDED)
    padded[v.c, v.w, v.h, v.b, v.n] = exterior[v.c, v.w - left, v.h - top, v.b, v.n]
    return padded


def made_depth(expansion: BottleneckShape) -> tuple[int, ...]:
    """Return the extents of `MADE_DEPTH`; in pairs the first one are those of a pair."""
    return depth_extents(expansion.first.shape, in_pairs=expansion.in_pairs)
