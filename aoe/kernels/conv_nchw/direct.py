"""Direct convolution of plain tensors: every product once, the sums of a register tile kept.

padded       the image with its zeros around it; in bfloat16 where factors are, channels in pairs
products     sums over channels and filter of elements times weights
finished     the same put down, for chains too long to be written out for each of them
y            bias, the tensor added, activation, the chain

Channels written come in panels. With panels of a few channels (`rows`), a vector holds
neighbours along the innermost axis, and each weight is broadcast; with panels of a vector
(`channels`), a vector holds channels, and each element is broadcast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import halide as hl

from aoe.kernels.conv_nchw.result import finished_value, image_with_zeros, pixel, plain_arguments
from aoe.kernels.conv_nchw.shape import WEIGHTS, ConvNchwPlan, ConvNchwShape, X
from aoe.kernels.conv_nchwc.direct import FINISHED, PADDED, PRODUCTS, REDUCED, SUMMED
from aoe.kernels.conv_nchwc.result import KernelArguments, finished_pipeline
from aoe.kernels.family import PackedInput, Pipeline
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.loops import v
from aoe.kernels.math.functions import constant, to_bfloat16
from aoe.workload import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class Panels:
    """How the channels of a convolution are cut.

    Attributes:
        width: Channels of a panel.
        pair: Channels read that are multiplied at once.
        in_rows: True if vectors hold neighbours along the innermost axis, not channels.
    """

    width: int
    pair: int
    in_rows: bool

    def ordered(self, channel: hl.Expr, along: hl.Expr, *others: hl.Expr) -> tuple[hl.Expr, ...]:
        """Return an index into sums, what a vector holds innermost."""
        return (along, channel, *others) if self.in_rows else (channel, along, *others)

    def out(self, shape: ConvNchwShape) -> int:
        """Return panels of one group."""
        return -(-shape.channels_out // self.width)

    def pairs(self, shape: ConvNchwShape) -> int:
        """Return pairs of channels read by one group."""
        return -(-shape.channels_in // self.pair)

    def weight_extents(self, shape: ConvNchwShape) -> tuple[int, ...]:
        """Return the extents of the packed weights, innermost first (see `_packing`)."""
        pair = (self.pair,) if self.pair > 1 else ()
        phases, panels = prod(shape.phases), shape.groups * self.out(shape)
        return *pair, self.width, *shape.taps, self.pairs(shape), phases, panels

    def reduced_extents(self, shape: ConvNchwShape) -> tuple[int, ...]:
        """Return the extents of the loops that sum up, innermost first."""
        pair = (self.pair,) if self.pair > 1 else ()
        return *pair, *shape.taps, self.pairs(shape)


def plain_pipeline(plan: ConvNchwPlan, panels: Panels) -> Pipeline:
    """Return the algorithm; weights are packed once, when the kernel is created."""
    shape = plan.shape
    kind = hl.BFloat(16) if panels.pair > 1 else hl.Float(32)
    arguments = plain_arguments(plan, panels.weight_extents(shape), kind)
    stages = _image(arguments.at(X), shape, panels)
    products = _sums(stages.get(PADDED), arguments, shape, panels)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    finished[products.args()] = products[products.args()]
    place = pixel(shape, (v.w, v.h, v.d), v.o, v.n)
    summed = finished[_place_of_result(shape, panels)]
    result[place] = finished_value(plan, arguments, summed, place)
    for stage in (products, finished):
        stage.bound_extent(v.u, panels.width).bound_extent(v.p, shape.phases[0])
    stages |= {PRODUCTS: products, SUMMED: products.update(), FINISHED: finished}
    may_go_past = is_cut_short(shape) or (shape.is_open and needs_copy(shape, panels))
    made = finished_pipeline(
        arguments,
        stages,
        result,
        extents=shape.result_extents,
        known={"u": panels.width, "p": shape.phases[0], "i": panels.pair},
        reduced={SUMMED: zip(REDUCED, panels.reduced_extents(shape), strict=False)},
        packing=_packing(shape, panels),
        inlined=(FINISHED,),
        padded=frozenset({PADDED, *((PRODUCTS, FINISHED) if may_go_past else ())}),
    )
    return replace(made, multiples={"w": shape.phases[0]}) if shape.is_open else made


def needs_copy(shape: ConvNchwShape, panels: Panels) -> bool:
    """Return True if elements are not read from the image itself."""
    is_strided = shape.strides[0] > 1
    return panels.pair > 1 or shape.needs_zeros or is_strided or is_cut_short(shape)


def is_cut_short(shape: ConvNchwShape) -> bool:
    """Return True if the last element of a row makes fewer results than the others."""
    return shape.result[0] % shape.phases[0] != 0


def _image(x: hl.ImageParam, shape: ConvNchwShape, panels: Panels) -> dict[str, hl.Func]:
    """Return the stage that copies the image, if there is one.

    Its loops are: channel of a pair, every `stride`-th element along the innermost axis, which of
    them, the other axes, pairs of channels, images.
    """
    if not needs_copy(shape, panels):
        return {}
    per_group = panels.pairs(shape)
    channel = v.c % per_group * panels.pair + v.i
    group = v.c // per_group
    is_there = channel < shape.channels_in
    channel = group * shape.channels_in + hl.min(channel, shape.channels_in - 1)
    axes = (v.w * shape.strides[0] + v.s, v.h, v.d)
    value = image_with_zeros(x, shape, axes, channel, v.n)
    if shape.channels_in % panels.pair:
        value = hl.select(is_there, value, constant(0.0))
    padded = hl.Func(PADDED)
    stored = to_bfloat16(value) if panels.pair > 1 else value
    padded[v.i, v.w, v.s, v.h, v.d, v.c, v.n] = stored
    padded.bound_extent(v.i, panels.pair)
    return {PADDED: padded}


def _sums(
    padded: hl.Func | None, arguments: KernelArguments, shape: ConvNchwShape, panels: Panels
) -> hl.Func:
    """Return the sums of products; those of a pair are the innermost loop."""
    extents = panels.reduced_extents(shape)
    r = hl.RDom([(0, extent) for extent in extents], "r")
    reduced = [r[at] for at in range(len(extents))]
    pair = reduced[: len(extents) - 4]
    taps, channel = reduced[len(pair) : -1], reduced[-1]
    results = ((v.p, v.w), (v.h, 0), (v.d, 0))
    phases: list[hl.Expr] = []
    axes: list[hl.Expr] = []
    for at, (result, more) in enumerate(results):
        moved = result + shape.leads[at]
        first = (moved // shape.phases[at] + more) * shape.strides[at]
        axes.append(first + taps[at] * shape.dilations[at])
        phases.append(moved % shape.phases[at])
    of_group = v.b // panels.out(shape) if shape.groups > 1 else hl.Expr(0)
    read = channel + of_group * panels.pairs(shape)
    if padded is None:
        element = arguments.at(X)[pixel(shape, axes, read, v.n)]
    else:
        offset = taps[0] * shape.dilations[0]
        along = (v.p + shape.leads[0]) // shape.phases[0] + v.w + offset // shape.strides[0]
        step = offset % shape.strides[0]
        first = pair[0] if pair else hl.Expr(0)
        element = padded[first, along, step, axes[1], axes[2], read, v.n]
    phase = phases[0] + shape.phases[0] * (phases[1] + shape.phases[1] * phases[2])
    panel = hl.Expr(v.b)
    if is_cut_short(shape):  # panels past the last one may be asked for
        panel = hl.clamp(panel, 0, shape.groups * panels.out(shape) - 1)
    weight = arguments.at(WEIGHTS)[(*pair, v.u, *taps, channel, phase, panel)]
    products = hl.Func(PRODUCTS)
    place = panels.ordered(v.u, v.w, v.p, v.h, v.d, v.b, v.n)
    products[place] = constant(0.0)
    products[place] += hl.f32(element) * hl.f32(weight)
    if pair:
        products.update().atomic()  # lets the schedule vectorise a pair
    return products


def _place_of_result(shape: ConvNchwShape, panels: Panels) -> tuple[hl.Expr, ...]:
    """Return the index of a result's products."""
    if shape.groups > 1 and shape.channels_out % panels.width:
        inside = v.o % shape.channels_out
        panel = v.o // shape.channels_out * panels.out(shape) + inside // panels.width
    else:  # the same, in a form whose bounds are seen through
        inside, panel = v.o, v.o // panels.width
    along, phase = v.w // shape.phases[0], v.w % shape.phases[0]
    rows = v.h if shape.rank > 1 else hl.Expr(0)
    planes = v.d if shape.rank > 2 else hl.Expr(0)
    return panels.ordered(inside % panels.width, along, phase, rows, planes, panel, v.n)


def _packing(shape: ConvNchwShape, panels: Panels) -> PackedInput:
    """Return the weights in panels, zeros where a panel, a pair or a phase has none.

    From the innermost: channels of a pair (bfloat16 only), channels of a panel, taps along width,
    height, depth, pairs of channels read, phases, panels.
    """
    i, u, f, c, b = (hl.Var(name) for name in ("i", "u", "f", "c", "b"))
    taps = tuple(hl.Var(f"tap_{at}") for at in range(len(shape.taps)))
    weights = hl.ImageParam(hl.Float(32), shape.rank + 2, "weights")
    read: hl.Expr = c * panels.pair + i if panels.pair > 1 else hl.Expr(c)
    group, inside = b // panels.out(shape), b % panels.out(shape) * panels.width + u
    values, is_there = _filter_values(shape, taps, f)
    is_there = is_there & (read < shape.channels_in) & (inside < shape.channels_out)
    read = hl.clamp(read, 0, shape.channels_in - 1)
    inside = hl.clamp(inside, 0, shape.channels_out - 1)
    if shape.is_transposed:
        place = pixel(shape, values, inside, group * shape.channels_in + read)
    else:
        place = pixel(shape, values, read, group * shape.channels_out + inside)
    value = hl.select(is_there, weights[place], constant(0.0))
    packed = hl.Func("packed")
    inner = (i, u) if panels.pair > 1 else (u,)
    stored = to_bfloat16(value) if panels.pair > 1 else value
    packed[(*inner, *taps, c, f, b)] = stored
    return PackedInput(
        output=packed,
        argument=weights,
        argument_extents=shape.weight_extents,
        dtype=(Precision.BFLOAT16 if panels.pair > 1 else Precision.FLOAT32).value,
    )


def _filter_values(
    shape: ConvNchwShape, taps: Sequence[hl.Var], phase: hl.Var
) -> tuple[list[hl.Expr], hl.Expr]:
    """Return which values of a filter the taps of a phase are, and whether there are such."""
    values: list[hl.Expr] = []
    is_there = hl.Expr(True)
    rest: hl.Expr = hl.Expr(phase)
    for at, tap in enumerate(taps):
        value: hl.Expr = hl.Expr(tap)
        if shape.is_transposed:
            value = rest % shape.phases[at] + shape.phases[at] * (shape.taps[at] - 1 - tap)
            rest = rest // shape.phases[at]
        is_there = is_there & (value < shape.kernel[at])
        values.append(hl.clamp(value, 0, shape.kernel[at] - 1))
    return values, is_there
