"""A quantised convolution in numbers, the buffers its kernels read, and what follows the sums.

    padded   levels of the image with its zeros around them, channels filled up to whole units
    sums     products of levels, summed up exactly in 32 bits
    y        bias and correction, requantised by channel, the chain behind

A sum of (x - x_zero) * w over a window is the sum of x * w less x_zero times the sum of w: the
padding holds x_zero, so that the second sum is one constant of a channel, made of the weights once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import SUPPORTED, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT, build_chain, check_chain, estimate_cycles
from aoe.kernels.halide.loops import v
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tables import is_point_function, looked_up, table_of
from aoe.kernels.math.elements import element_type, loaded, nearest_level, round_small, stored
from aoe.kernels.math.functions import strict
from aoe.operators import integers, number, op_key
from aoe.operators.element_types import LEVELS, element_types, misread, read_types
from aoe.operators.quantised import (
    QUANTISED_CONVOLUTIONS,
    WEIGHT_ZERO_POINT,
    channels_first_shape,
    channels_last,
)
from aoe.schedule import Schedule
from aoe.workload import Layout, Operation, Workload

X, X_SCALE, X_ZERO, WEIGHTS, W_SCALE, _, Y_SCALE, Y_ZERO, BIAS = range(9)
"""Positions of the inputs."""
CODES = "codes"
"""Stage of the levels that a table turns into results."""
LANES = 16
"""Channels of a block: a register of 32-bit sums with AVX-512, two with AVX2."""
_AXES = 2
_SIGN = 128
"""What is added to signed levels to make them unsigned, and to their zero point."""
CENTRES = {"int8": 0, "uint8": _SIGN}
"""Zero points of weights for which they are signed bytes, exactly."""
_LONGEST_ROW = 224
"""Pixels of a row of a pointwise convolution, which may be cut anywhere."""
Pair = tuple[int, int]
"""One number along a row, one down the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Products that one instruction sums up in each lane of 32 bits."""

    size: int  # Products
    levels: str  # Type of the levels of an image, NumPy spelling
    weights: str  # The same of the packed weights

    @property
    def level_type(self) -> hl.Type:
        return element_type(self.levels)

    @property
    def weight_type(self) -> hl.Type:
        return element_type(self.weights)


FOURS = Unit(size=4, levels="uint8", weights="int8")
PAIRS = Unit(size=2, levels="int16", weights="int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedShape:
    """Extents of a quantised convolution; pairs are (along a row, down the rows)."""

    batch: int
    groups: int
    channels_in: int  # Of one group
    channels_out: int  # Of one group
    image: Pair
    result: Pair
    kernel: Pair
    strides: Pair
    dilations: Pair
    before: Pair  # Zeros in front of the image

    @property
    def is_depthwise(self) -> bool:
        """True if every channel has a filter of its own, and makes one result."""
        return self.groups > 1 and self.channels_in == self.channels_out == 1

    @property
    def lanes(self) -> int:
        """Channels of a block: a vector of them, or all of a depthwise convolution."""
        return max(LANES, self.groups) if self.is_depthwise else LANES

    @property
    def blocks(self) -> int:
        """Blocks of channels of one group."""
        return -(-self.lanes_out // self.lanes)

    @property
    def lanes_out(self) -> int:
        """Channels that vectors are filled with: of a group, or of all where each is one."""
        return self.groups if self.is_depthwise else self.channels_out

    @property
    def depth(self) -> int:
        """Products summed up into one result."""
        return self.channels_in * prod(self.kernel)

    @property
    def has_padding(self) -> bool:
        """True if a window reaches past the image."""
        return any(self.before) or any(map(self._reaches_past, range(_AXES)))

    def _reaches_past(self, at: int) -> bool:
        last = (self.result[at] - 1) * self.strides[at] - self.before[at]
        return last + (self.kernel[at] - 1) * self.dilations[at] >= self.image[at]

    def extents(self, axes: Pair, channels: int) -> tuple[int, ...]:
        """Return the extents of a tensor of all groups, innermost first."""
        if self.is_depthwise:
            groups, channels = 1, self.groups
        else:
            groups = self.groups
        return channels, groups, *axes, self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedPlan:
    """A workload that is one quantised convolution and the chain behind it."""

    workload: Workload  # All of it
    shape: QuantisedShape  # What the convolution computes, in numbers
    operation: Operation  # The convolution
    chain: tuple[Operation, ...]  # The operations behind it

    @property
    def inputs(self) -> dict[int, int]:
        """Numbers of the workload inputs the operator reads, by its positions."""
        return {at: int(ref[1:]) for at, ref in enumerate(self.operation.inputs) if ref}

    @property
    def weight_zero(self) -> int:
        """Zero point of the weights."""
        return int(number(self.operation.attributes, WEIGHT_ZERO_POINT, 0))

    @property
    def is_signed(self) -> bool:
        """True if the levels of the image are signed."""
        return self.workload.inputs[self.inputs[X]].dtype == "int8"


def read_quantised(workload: Workload) -> QuantisedPlan | Support:
    """Return the quantised convolution of a workload, or the reason why there is none."""
    found = [item for item in workload.operations if op_key(item) in QUANTISED_CONVOLUTIONS]
    if len(found) != 1:
        return Support(f"{len(found)} quantised convolutions, kernels are built around one")
    operation = found[0]
    chain = tuple(item for item in workload.operations if item is not operation)
    types = element_types(workload)
    checked = check_chain(chain, types)
    reason = checked.reason or misread(operation, read_types(operation, types))
    reason = reason or _refusal(operation, workload)
    shapes = infer_shapes(workload)
    if reason or isinstance(shapes, str):
        return Support(reason or str(shapes))
    if shapes[operation.output] != workload.output.shape:
        return Support(f"a chain that broadcasts what {operation.op_type} makes")
    plan = QuantisedPlan(
        workload=workload, shape=shape_of(operation, workload), operation=operation, chain=chain
    )
    return _check_chained(plan) and plan


def _refusal(operation: Operation, workload: Workload) -> str:
    """Return the reason why kernels do not compute an operation; empty if they do."""
    if not all(ref.startswith("x") for ref in operation.inputs if ref):
        return f"{operation.op_type} reads a computed value or a scalar"
    specs = [workload.inputs[int(ref[1:])] if ref else None for ref in operation.inputs]
    by_position = dict(enumerate(specs))
    x, weights, bias = (by_position.get(at) for at in (X, WEIGHTS, BIAS))
    if x is None or weights is None or not weights.constant:
        return f"{operation.op_type} with computed weights"
    if any(spec is not None and spec.layout is not Layout.PLAIN for spec in specs):
        return f"{operation.op_type} in blocks"
    if any(by_position.get(at) is None for at in (X_SCALE, W_SCALE, Y_SCALE)):
        return f"{operation.op_type} without its scales"
    rank = len(weights.shape) - 2
    if not 1 <= rank <= _AXES or len(x.shape) != rank + 2:
        return f"{operation.op_type} of {rank} axes"
    if not channels_last(operation):
        # kernels gain nothing there (0.94x, 2026-11-29), and optimised graphs hold none
        return f"{operation.op_type} with channels in front of the axes"
    zero = number(operation.attributes, WEIGHT_ZERO_POINT, 0)
    if zero != CENTRES[weights.dtype]:
        return f"{operation.op_type} with weights of {weights.dtype} around {zero:.0f}"
    channels = x.shape[-1]
    groups, made = int(number(operation.attributes, "group", 1)), weights.shape[0]
    if groups < 1 or made % groups or channels != groups * weights.shape[1]:
        return f"{operation.op_type} in {groups} groups of {channels} channels"
    w_scale = specs[W_SCALE]
    if w_scale is None or w_scale.size not in (1, made):
        return f"{operation.op_type} with scales of another granularity"
    if bias is not None and bias.shape != (made,):
        return f"{operation.op_type} with a bias of another shape"
    others = [spec for at in (X_SCALE, X_ZERO, Y_SCALE, Y_ZERO) if (spec := by_position.get(at))]
    if any(spec.size != 1 for spec in others):
        return f"{operation.op_type} with levels of each channel"
    if str(operation.attributes.get("auto_pad", "NOTSET")) not in ("", "NOTSET"):
        return f"{operation.op_type} with automatic padding"
    return ""


def _check_chained(plan: QuantisedPlan) -> Support:
    """Check that the kernel can view each tensor the chain reads as its result."""
    numbers = plan.inputs
    extents = operator_extents(plan, plan.workload.inputs[numbers[WEIGHTS]].shape)
    result = plan.shape.extents(plan.shape.result, plan.shape.channels_out)
    for ref in _read_by(plan.chain):
        spec = plan.workload.inputs[int(ref[1:])]
        if spec.size != 1 and spec.shape != plan.workload.output.shape:
            return Support(f"{ref} is broadcast behind {plan.operation.op_type}")
        number_ = int(ref[1:])
        # the chain reads one element as a number, without loops
        by_chain = () if spec.size == 1 else result
        if number_ in numbers.values() and extents[number_] != by_chain:
            return Support(f"{ref} is read in two ways")
    return SUPPORTED


def _read_by(chain: Sequence[Operation]) -> list[str]:
    return [ref for item in chain for ref in item.inputs if ref.startswith("x")]


def shape_of(operation: Operation, workload: Workload) -> QuantisedShape:
    x, weights = (workload.inputs[int(operation.inputs[at][1:])] for at in (X, WEIGHTS))
    rank = len(x.shape) - 2
    last = channels_last(operation)
    image, result = (channels_first_shape(spec.shape, last=last) for spec in (x, workload.output))
    groups = int(number(operation.attributes, "group", 1))
    shape = QuantisedShape(
        batch=image[0],
        groups=groups,
        channels_in=image[1] // groups,
        channels_out=result[1] // groups,
        image=_pair(image[2:], 1),
        result=_pair(result[2:], 1),
        kernel=_pair(weights.shape[2:], 1),
        strides=_pair(integers(operation, "strides", rank, 1), 1),
        dilations=_pair(integers(operation, "dilations", rank, 1), 1),
        before=_pair(integers(operation, "pads", 2 * rank, 0)[:rank], 0),
    )
    return _in_rows(shape, in_planes=not last)


def _pair(outermost_first: Sequence[int], missing: int) -> Pair:
    wide, high = (*reversed(outermost_first), missing)[:_AXES]
    return wide, high


def _in_rows(shape: QuantisedShape, *, in_planes: bool) -> QuantisedShape:
    """Return a pointwise convolution over rows of any length: their ends mean nothing to it.

    Args:
        shape: Of the convolution.
        in_planes: True if the channels of an image lie between it and the next one.
    """
    is_pointwise = prod(shape.kernel) == 1 and shape.image == shape.result and not any(shape.before)
    if not is_pointwise or prod(shape.strides) > 1:
        return shape
    batch = shape.batch if in_planes else 1
    pixels = prod(shape.image) * shape.batch // batch
    parts = [n for n in range(1, min(pixels, _LONGEST_ROW) + 1) if pixels % n == 0]
    # vectors of planes hold pixels
    wide = max(parts, key=lambda n: (in_planes and n % LANES == 0, n))
    wide = max(wide, shape.image[0])
    rows = (wide, pixels // wide)
    changed = {**{name: getattr(shape, name) for name in shape.__slots__}}
    return QuantisedShape(**{**changed, "batch": batch, "image": rows, "result": rows})


# ---- buffers ----


def operator_extents(plan: QuantisedPlan, weights: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Return the extents of the buffers the operator reads, innermost first, by number."""
    shape = plan.shape
    of_input = {X: shape.extents(shape.image, shape.channels_in), WEIGHTS: weights}
    found = {}
    for at, number_ in plan.inputs.items():
        size = plan.workload.inputs[number_].size
        per_channel = at == BIAS or (at == W_SCALE and size > 1)
        found[number_] = of_input.get(at, (size,) if per_channel else ())
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffers:
    """Buffers a kernel reads."""

    plan: QuantisedPlan
    extents: tuple[tuple[int, ...], ...]  # Innermost first
    arguments: tuple[hl.ImageParam, ...]
    keeps_sign: bool = False  # True if signed levels are summed up as they are

    def at(self, position: int) -> hl.ImageParam:
        """Return the buffer of an input of the operator."""
        return self.arguments[self.plan.inputs[position]]

    def zero(self, position: int) -> hl.Expr:
        """Return a zero point as int32; 0 where it is omitted."""
        if position not in self.plan.inputs:
            return hl.i32(0)
        return hl.i32(self.at(position)[()])

    def image_zero(self) -> hl.Expr:
        """Return the zero point of the image's levels as they are summed up."""
        zero = self.zero(X_ZERO)
        return zero + _SIGN if self.plan.is_signed and not self.keeps_sign else zero

    def level(self, *place: hl.Expr) -> hl.Expr:
        """Return a level of the image as an unsigned one."""
        level = self.at(X)[place]
        return hl.reinterpret(hl.UInt(8), level) ^ hl.u8(_SIGN) if self.plan.is_signed else level


def read_buffers(plan: QuantisedPlan, weights: tuple[int, ...], kind: hl.Type) -> Buffers:
    """Return the buffers of a convolution and its chain.

    Args:
        plan: What is computed.
        weights: Extents of the packed weights, innermost first.
        kind: Their type.
    """
    known = operator_extents(plan, weights)
    result = plan.shape.extents(plan.shape.result, plan.shape.channels_out)
    extents, arguments = [], []
    for at, spec in enumerate(plan.workload.inputs):
        here = known.get(at, () if spec.size == 1 else result)
        is_weights = at == plan.inputs[WEIGHTS]
        extents.append(here)
        arguments.append(
            hl.ImageParam(kind if is_weights else element_type(spec.dtype), len(here), f"x{at}")
        )
    return Buffers(plan=plan, extents=tuple(extents), arguments=tuple(arguments))


def with_zeros(buffers: Buffers, *, is_padded: bool) -> hl.Func:
    """Return the levels over (w, h, channel, group, n), around the image its zero point.

    Args:
        buffers: What is read.
        is_padded: True if pixels outside the image are read.
    """
    shape, levels = buffers.plan.shape, hl.Func("levels")
    # channels behind the last one meet weights of zero, or make results nobody reads
    channels = shape.lanes_out if shape.is_depthwise else shape.channels_in
    is_whole = shape.is_depthwise and shape.lanes == channels
    i = v.i if is_whole else hl.min(v.i, channels - 1)
    levels[v.w, v.h, v.i, v.g, v.n] = buffers.level(i, v.g, v.w, v.h, v.n)
    if not is_padded:
        return levels
    zero = hl.cast(hl.UInt(8), buffers.image_zero())
    bounds = [(0, extent) for extent in shape.image]
    return hl.BoundaryConditions.constant_exterior(levels, zero, bounds)


# ---- weights ----


def raw_weights(plan: QuantisedPlan, name: str) -> tuple[hl.ImageParam, tuple[int, ...]]:
    """Return the weights as the model has them, and their extents."""
    shape = plan.shape
    extents = (*shape.kernel, shape.channels_in, shape.groups * shape.channels_out)
    kind = element_type(plan.workload.inputs[plan.inputs[WEIGHTS]].dtype)
    return hl.ImageParam(kind, len(extents), name), extents


def weight_at(
    plan: QuantisedPlan,
    raw: hl.ImageParam,
    tap: Sequence[hl.Expr],
    i: hl.Expr,
    place: Sequence[hl.Expr],
) -> hl.Expr:
    """Return a weight from zero, int32; 0 behind the last channel.

    Args:
        plan: What is computed.
        raw: Weights as the model has them.
        tap: Column and row of the filter.
        i: Channel read, of the group.
        place: Lane, block and group of the channel written.
    """
    shape = plan.shape
    lane, block, group = place
    o = block * shape.lanes + lane
    channel = group * shape.lanes_out + hl.min(o, shape.lanes_out - 1)
    value = raw[tap[0], tap[1], hl.min(i, shape.channels_in - 1), channel]
    inside = (i < shape.channels_in) & (o < shape.lanes_out)
    return hl.select(inside, hl.i32(value) - plan.weight_zero, 0)


def weight_sums(plan: QuantisedPlan) -> PackedInput:
    """Return the sums of the weights of channels: int32, (lanes, blocks, groups)."""
    raw, extents = raw_weights(plan, "weights_of_sums")
    shape, place = plan.shape, (v.lane, v.block, v.g)
    taps = hl.RDom([(0, extent) for extent in (*shape.kernel, shape.channels_in)], "t")
    sums = hl.Func("weight_sums")
    sums[place] = hl.i32(0)
    sums[place] += weight_at(plan, raw, (taps.x, taps.y), taps.z, place)
    return PackedInput(
        output=sums,
        argument=raw,
        argument_extents=extents,
        dtype="int32",
        source=plan.inputs[WEIGHTS],
    )


# ---- behind the sums ----


def requantised(
    plan: QuantisedPlan, buffers: Buffers, weight_sum: hl.ImageParam
) -> tuple[hl.Func, hl.Func]:
    """Return offset and factor of each channel: a result is (sum + offset) * factor.

    Both are made in every call, of a few numbers for each channel: scales are inputs.
    """
    shape, place = plan.shape, (v.lane, v.block, v.g)
    o = v.block * shape.lanes + v.lane
    if shape.lanes_out % shape.lanes:
        o = hl.min(o, shape.lanes_out - 1)
    channel = v.g * shape.lanes_out + o
    offset, factor = hl.Func("offset"), hl.Func("factor")
    bias = buffers.at(BIAS)[channel] if BIAS in plan.inputs else hl.i32(0)
    offset[place] = bias - buffers.image_zero() * weight_sum[place]
    of_weights = buffers.at(W_SCALE)
    scale = of_weights[channel] if of_weights.dimensions() else of_weights[()]
    product = strict(buffers.at(X_SCALE)[()] * scale)
    factor[place] = strict(product / buffers.at(Y_SCALE)[()])
    for made in (offset, factor):
        made.bound(v.lane, 0, shape.lanes).compute_root()
        made.vectorize(v.lane, LANES, hl.TailStrategy.ShiftInwards)
    return offset, factor


TABLE_CYCLES = 16
"""Cycles of a vector of a chain from which on a table of its 256 results is faster.

SiLU behind 1x1 filters from 24 to 144 channels of 56x56, 72 us alone, makes 95 us by look-ups with
VBMI, 173 where bytes are looked up in the tile; depthwise 3x3 filters of 144 channels 106 and 215
(one thread of a Xeon with AVX-512 VNNI, CPU time in pairs, 2026-11-29).
"""


def has_table(plan: QuantisedPlan) -> bool:
    """True if the chain is a function of the level alone, and an expensive one."""
    made = plan.operation.output
    is_point = is_point_function(plan.workload, plan.chain, made)
    return is_point and estimate_cycles(plan.chain) >= TABLE_CYCLES


def results(
    plan: QuantisedPlan,
    buffers: Buffers,
    total: hl.Expr,
    factor: hl.Expr,
    place: Sequence[hl.Var],
) -> tuple[hl.Func, dict[str, hl.Func]]:
    """Return the results: requantised as ONNX Runtime does, and what the chain makes of them.

    Where the chain has a table, what it reads is a stage of its own.

    Args:
        plan: What is computed.
        buffers: What it is computed from.
        total: Sum of products, corrected and with its bias.
        factor: Scale of the sum over that of the result.
        place: Index into the result, innermost first.
    """
    types = element_types(plan.workload)
    made, result = types[plan.operation.output], hl.Func(RESULT)
    zero, here = buffers.zero(Y_ZERO), tuple(place)
    # limits and rounding in front of the zero point. Source: MlasRequantizeOutput
    scaled = strict(hl.f32(total) * factor)
    low, high = (-128, 127) if made == "int8" else (0, 255)
    if has_table(plan):
        table = table_of(plan.workload, plan.chain, plan.operation.output, buffers.arguments)
        codes = hl.Func(CODES)
        codes[here] = nearest_level(scaled, zero, made)
        codes.compute_root()
        # what an extern stage asks for is known when it runs; tiles need it before
        for loop, extent in zip(
            here, plan.shape.extents(plan.shape.result, plan.shape.channels_out), strict=True
        ):
            codes.bound(loop, 0, extent)
        found = looked_up(RESULT, codes, table, here, plan.workload.output.dtype)
        return found, {CODES: codes}
    if not plan.chain:
        result[here] = nearest_level(scaled, zero, made)
        return result, {}
    limited = hl.max(hl.min(scaled, hl.f32(high - zero)), hl.f32(low - zero))
    level = strict(round_small(limited) + hl.f32(zero))
    result[here] = _chained(plan, buffers, level, place, types)
    return result, {}


Loops: TypeAlias = tuple[tuple[str, int], ...]
"""Names and extents of a stage's loops, innermost first."""


def pipeline_of(
    buffers: Buffers,
    weight_sum: hl.ImageParam,
    made: tuple[hl.Func, Mapping[str, hl.Func]],
    place: Sequence[hl.Var],
    parts: Mapping[str, tuple[Any, Loops]],
    *,
    weights: PackedInput,
    sum_extents: tuple[int, ...],
    padded: Iterable[str],
) -> Pipeline:
    """Return the algorithm of a convolution.

    Args:
        buffers: What it is computed from.
        weight_sum: Sums of the weights, the argument behind the workload's inputs.
        made: Its results, and the stages in front of them by name; see `results`.
        place: Index into the result, innermost first.
        parts: The other stages, each with its loops.
        weights: What packs the weights when the kernel is created.
        sum_extents: Of `weight_sum`.
        padded: Names of stages that hold more than what is read.
    """
    plan, (result, in_front) = buffers.plan, made
    extents = plan.shape.extents(plan.shape.result, plan.shape.channels_out)
    names = [one.name() for one in place]
    return Pipeline(
        output=result,
        stages={
            RESULT: result,
            **{name: stage for name, (stage, _) in parts.items()},
            **in_front,
        },
        arguments=(*buffers.arguments, weight_sum),
        argument_extents=(*buffers.extents, sum_extents),
        output_extents=extents,
        loops={
            RESULT: tuple(zip(names, extents, strict=True)),
            **{name: loops for name, (_, loops) in parts.items()},
            **{name: tuple((one, 0) for one in names) for name in in_front},
        },
        packings={plan.inputs[WEIGHTS]: weights, len(buffers.arguments): weight_sums(plan)},
        padded=frozenset(padded),
    )


def _chained(
    plan: QuantisedPlan,
    buffers: Buffers,
    level: hl.Expr,
    place: Sequence[hl.Var],
    types: Mapping[str, str],
) -> hl.Expr:
    convolved = hl.Func(plan.operation.output)
    convolved[tuple(place)] = level
    values: dict[str, hl.Expr] = {plan.operation.output: hl.Expr(convolved[tuple(place)])}
    for ref in dict.fromkeys(_read_by(plan.chain)):
        buffer, spec = buffers.arguments[int(ref[1:])], plan.workload.inputs[int(ref[1:])]
        function = hl.Func(f"{ref}_loaded")
        element = buffer[()] if not buffer.dimensions() else buffer[tuple(place)]
        function[tuple(place)] = loaded(element, spec.dtype)
        values[ref] = hl.Expr(function[tuple(place)])
    known = build_chain(plan.chain, values, plan.workload.scalars, place, types)
    result, dtype = known[plan.workload.result], plan.workload.output.dtype
    # levels are rounded and saturated where an operator makes them
    return (
        hl.cast(element_type(dtype), hl.i32(result)) if dtype in LEVELS else stored(result, dtype)
    )


def with_look_ups(schedule: Schedule) -> Schedule:
    """Return the schedule of a result that is looked up: tiles are of the codes, made before it."""
    names = ("stage", "at_stage")
    steps = []
    for step in schedule.steps:
        moved: dict[str, Any] = {
            name: CODES for name in names if getattr(step, name, None) == RESULT
        }
        steps.append(replace(step, **moved))
    return replace(schedule, steps=(*steps, sch.Parallel(RESULT, "n"), sch.Parallel(RESULT, "h")))
