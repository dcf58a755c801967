"""Direct convolution: every product once, the sums of a register tile of results kept.

padded       the image with its zeros around it, rounded to bfloat16 where factors are; depthwise
             those may be made where they are read
products     sums over channels and filter of pixels times weights; depthwise over the filter alone
finished     the same put down, for chains too long to be written out for each of them
y            bias, the tensor added, activation, the chain
"""

from __future__ import annotations

import halide as hl

from aoe.kernels.conv_nchwc.result import (
    KernelArguments,
    finished_pipeline,
    finished_result,
    image_read,
    kernel_arguments,
    padded_image,
)
from aoe.kernels.conv_nchwc.shape import WEIGHTS, ConvolutionPlan, ConvolutionShape
from aoe.kernels.family import UPDATE, PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.workload import Precision

PADDED, PRODUCTS, FINISHED = "padded", "products", "finished"
SUMMED = f"{PRODUCTS}{UPDATE}"
REDUCED = ("r$x", "r$y", "r$z", "r$w", "r$4")
"""Loops over what is summed up, innermost first."""
PAIR = 2
"""Products of bfloat16 the hardware sums up at once: neighbours in memory."""


def direct_pipeline(plan: ConvolutionPlan, precision: Precision) -> Pipeline:
    """Return the algorithm.

    In float32 the arguments are those of the workload. In bfloat16 the weights are packed once,
    when the kernel is created: see `pair_packing`.
    """
    shape = plan.shape
    in_pairs = precision is Precision.BFLOAT16
    packing = pair_packing(shape) if in_pairs else None
    extents = pair_extents(shape) if in_pairs else shape.weight_extents
    arguments = kernel_arguments(plan, extents, hl.BFloat(16) if in_pairs else None)
    place = (v.o, v.w, v.h, v.b, v.n)
    image = image_read(plan, arguments)
    stages = _image(plan, arguments, in_pairs=in_pairs)
    read = stages.get(PADDED, image)
    products = direct_sums(read, arguments.at(WEIGHTS), shape, in_pairs=in_pairs)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[place] = products[place]
    result[place] = finished_result(plan, arguments, finished[place], place)
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    return finished_pipeline(
        arguments,
        stages,
        result,
        extents=shape.result_extents,
        known={"o": shape.block, "c": shape.block},
        reduced={SUMMED: zip(REDUCED, depth_extents(shape, in_pairs=in_pairs), strict=False)},
        packing=packing,
        inlined=(FINISHED, PADDED) if shape.is_depthwise else (FINISHED,),
    )


def needs_copy(shape: ConvolutionShape, precision: Precision) -> bool:
    """Return True if pixels are not read from the image itself."""
    return precision is Precision.BFLOAT16 or any(shape.pads) or shape.is_made


def is_thinned(shape: ConvolutionShape, precision: Precision) -> bool:
    """Return True if what lies between the strides of a 1x1 filter is not copied."""
    is_pointwise = shape.kernel == (1, 1) and not shape.is_stem
    return is_pointwise and needs_copy(shape, precision)


def pair_extents(shape: ConvolutionShape) -> tuple[int, ...]:
    """Return the extents of weights in pairs, innermost first (see `pair_packing`)."""
    rows, columns = shape.kernel
    if shape.is_stem:
        pairs = -(-columns // PAIR)
        return PAIR, shape.block, pairs, rows, shape.channels_in, shape.blocks_out
    pairs = shape.block // PAIR
    return PAIR, shape.block, pairs, columns, rows, shape.blocks_summed, shape.blocks_out


def pair_packing(shape: ConvolutionShape) -> PackedInput:
    """Return the weights as vectors of pairs, rounded to bfloat16.

    Pairs of channels: from the innermost 2 channels read, block of o, pairs of a block, columns,
    rows, blocks in, blocks out ("OIhw8i16o2i" with AVX-512), from "OIhw16i16o". For a stem pairs
    of columns: 2 columns, block of o, pairs, rows, channels, blocks out, with zeros behind the
    last column, from "OIhw16o".
    """
    extents = shape.weight_extents
    i, o, p, *outer = (hl.Var(f"axis_{at}") for at in range(len(extents) + 1))
    weights = hl.ImageParam(hl.Float(32), len(extents), "weights")
    at, last = PAIR * p + i, extents[1] - 1
    value = weights[(o, hl.clamp(at, 0, last), *outer)]
    packed = hl.Func("packed")
    packed[(i, o, p, *outer)] = to_bfloat16(hl.select(at <= last, value, constant(0.0)))
    packed.bound(i, 0, PAIR).unroll(i).vectorize(o, shape.block)
    dtype = Precision.BFLOAT16.value
    return PackedInput(output=packed, argument=weights, argument_extents=extents, dtype=dtype)


def _image(
    plan: ConvolutionPlan, arguments: KernelArguments, *, in_pairs: bool
) -> dict[str, hl.Func]:
    """Return the stage that copies the image, if there is one."""
    shape = plan.shape
    precision = _precision(in_pairs=in_pairs)
    if not needs_copy(shape, precision):
        return {}
    place = (v.w, v.h, v.c, v.n) if shape.is_stem else (v.c, v.w, v.h, v.b, v.n)
    down, along = shape.strides if is_thinned(shape, precision) else (1, 1)
    apart = (v.w * along, v.h * down)
    read = (*apart, v.c, v.n) if shape.is_stem else (v.c, *apart, v.b, v.n)
    value = padded_image(plan, arguments, read)
    padded = hl.Func(PADDED)
    padded[place] = to_bfloat16(value) if in_pairs else value
    return {PADDED: padded}


def _precision(*, in_pairs: bool) -> Precision:
    return Precision.BFLOAT16 if in_pairs else Precision.FLOAT32


def met_taps(shape: ConvolutionShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first row of the filter that meets more than zeros, and how many do; columns too.

    Filters dilated by more than the image has rows meet it with one of theirs.
    """
    if shape.is_open:
        return (0, shape.kernel[0]), (0, shape.kernel[1])
    sizes = ((shape.height, shape.rows), (shape.width, shape.columns))
    found = []
    for at, (size, results) in enumerate(sizes):
        first, apart = -shape.pads[at], shape.dilations[at]
        reach = first + (results - 1) * shape.strides[at]
        met = [tap for tap in range(shape.kernel[at]) if -reach <= tap * apart < size - first]
        found.append((met[0], len(met)) if met else (0, shape.kernel[at]))
    return found[0], found[1]


def depth_extents(shape: ConvolutionShape, *, in_pairs: bool) -> tuple[int, ...]:
    """Return the extents of the loops that sum up, innermost first.

    In pairs the first one are those of a pair; a depthwise convolution has none.
    """
    rows, columns = shape.kernel
    pair = (PAIR,) if in_pairs else ()
    step = PAIR if in_pairs else 1
    if shape.is_depthwise:
        return columns, rows
    if shape.is_stem:
        return (*pair, -(-columns // step), rows, shape.channels_in)
    (_, rows), (_, columns) = met_taps(shape)
    return (*pair, shape.block // step, columns, rows, shape.blocks_summed)


def direct_sums(
    read: hl.Func | hl.ImageParam,
    weights: hl.ImageParam,
    shape: ConvolutionShape,
    *,
    in_pairs: bool,
    name: str = PRODUCTS,
    depth_name: str = "r",
) -> hl.Func:
    """Return the sums of products; those of a pair are the innermost loop.

    Args:
        read: The image, with its zeros around it.
        weights: As the host keeps them, or in pairs (see `pair_packing`).
        shape: What is computed.
        in_pairs: True if factors are bfloat16, summed up in pairs.
        name: Of the stage.
        depth_name: Of its loops over what is summed up, before `$x`, `$y`, ...
    """
    is_dense = is_thinned(shape, _precision(in_pairs=in_pairs))
    strides = (1, 1) if is_dense else shape.strides
    extents = depth_extents(shape, in_pairs=in_pairs)
    r = hl.RDom([(0, extent) for extent in extents], depth_name)
    depth = [r[at] for at in range(len(extents))]
    if in_pairs:
        first = PAIR * depth[1] + depth[0]
        taken = [first, *depth[2:]]
    else:
        first, taken = depth[0], depth
    if shape.is_depthwise:
        pixel = [v.o, *tap(shape, strides, (v.w, v.h), taken[0], taken[1]), v.b, v.n]
    elif shape.is_stem:
        pixel = [*tap(shape, strides, (v.w, v.h), taken[0], taken[1]), taken[2], v.n]
    else:
        (above, _), (left, _) = met_taps(shape)
        taken[1], taken[2] = taken[1] + left, taken[2] + above
        depth[-3:-1] = taken[1:3]
        block = taken[3]
        if shape.groups > 1:
            block = block + v.b // shape.blocks_together * shape.blocks_summed
        pixel = [taken[0], *tap(shape, strides, (v.w, v.h), taken[1], taken[2]), block, v.n]
    place_of_weight = [v.o, *depth, v.b]
    if in_pairs:
        place_of_weight[:2] = depth[0], v.o
    products, place = hl.Func(name), (v.o, v.w, v.h, v.b, v.n)
    products[place] = constant(0.0)
    products[place] += hl.f32(read[tuple(pixel)]) * hl.f32(weights[tuple(place_of_weight)])
    if in_pairs:
        products.update().atomic()  # lets the schedule vectorise a pair
    return products


def tap(
    shape: ConvolutionShape,
    strides: tuple[int, int],
    result: tuple[hl.Var, hl.Var],
    column: hl.Expr,
    row: hl.Expr,
) -> tuple[hl.Expr, hl.Expr]:
    """Return the column and the row of the padded image a value of the filter meets.

    Args:
        shape: What is computed.
        strides: Rows and columns of the image that is read from one result to the next.
        result: Column and row of the result.
        column: Of the value of the filter.
        row: Likewise.
    """
    (down, along), (rows_apart, columns_apart) = strides, shape.dilations
    return result[0] * along + column * columns_apart, result[1] * down + row * rows_apart
