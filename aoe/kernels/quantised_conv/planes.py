"""Convolutions of planes in integers, as `quantize_dynamic` writes them.

    extremes   lowest and highest value of parts of the image
    levels     scale and zero point of the image, as DynamicQuantizeLinear defines them
    padded     its levels, units of channels side by side; around them the zero point
    sums       products of levels, summed up exactly in 32 bits, less what the zero point adds
    finished   the chain behind them in float32: scales, bias, what is added, Relu
    y          planes again

Tensors between two such convolutions are float32 planes, channels in front of the axes. The pass
that quantises an image reads it plane by plane, and writes what the products read, so the change of
layout takes no pass of its own; the results of a register tile are written back as rows of planes.
Where levels are given, and not measured of a float32 image, the first two stages are missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import SUPPORTED, UPDATE, BufferView, Pipeline, Support
from aoe.kernels.halide.chain import RESULT, build_chain, check_chain
from aoe.kernels.halide.loops import v
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.math.elements import (
    element_type,
    loaded,
    measured_levels,
    nearest_level,
    stored,
    widened,
)
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.quantised_conv.direct import (
    PADDED,
    SUMMED,
    SUMS,
    Direct,
    direct_sums,
    packed_weights,
    weight_extents,
)
from aoe.kernels.quantised_conv.shape import (
    CENTRES,
    LANES,
    WEIGHTS,
    X_ZERO,
    QuantisedPlan,
    QuantisedShape,
    Unit,
    X,
    shape_of,
    weight_sums,
)
from aoe.kernels.tiled_products import (
    copy_steps,
    group_steps,
    register_steps,
    task_steps,
    tile_of,
)
from aoe.operators import RESULT_NUMBER, number, op_key
from aoe.operators.element_types import element_types, misread, read_types
from aoe.operators.quantised import INTEGER_CONVOLUTION, MEASURED_LEVELS, MEASURED_SCALE
from aoe.schedule import Step, Values
from aoe.workload import Layout, Operation, TensorSpec, Workload

EXTREMES, LEVELS, FINISHED = "extremes", "levels", "finished"
EXTREMES_UPDATE = f"{EXTREMES}{UPDATE}"
_ZERO_RESULT = 2
_SCALE, _ZERO = 0, 1
_AXES = 2
_SIGN = 128
_PART_LANES = 64
"""Values whose extremes are searched at once: four registers, which wait for themselves alone."""
_PARTS_MAX, _LEAST_PART = 16, 16384
"""Parts of an image that threads share, and the values below which one is not cut."""
_TINY, _GROWTH = 2.0**-64, 2.0**64
"""Scales below the first are multiplied by the second, values too, so that the reciprocal of a
scale is finite; exact, since both are powers of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanesPlan(QuantisedPlan):
    """A workload that is one convolution in integers and the chain behind it.

    Its `operation` has its inputs where a QLinearConv has them.
    """

    measured: str  # Reference of the scale that is measured; empty if it is not read
    is_measured: bool  # True if the image is float32 numbers, and its levels are found here

    @property
    def has_signed_weights(self) -> bool:
        """True if weights less their zero point are signed bytes."""
        return self.weight_zero == CENTRES[self.workload.inputs[self.inputs[WEIGHTS]].dtype]

    @property
    def image(self) -> TensorSpec:
        return self.workload.inputs[self.inputs[X]]


def read_planes(workload: Workload) -> PlanesPlan | Support:
    """Return the convolution in integers of a workload, or the reason why there is none."""
    found = [item for item in workload.operations if op_key(item) == INTEGER_CONVOLUTION]
    measuring = [item for item in workload.operations if op_key(item) == MEASURED_LEVELS]
    if len(found) != 1:
        return Support(f"{len(found)} convolutions in integers, kernels are built around one")
    convolution = found[0]
    results = {
        int(number(item.attributes, RESULT_NUMBER, 0)): item.output
        for item in measuring
        if item.inputs == measuring[0].inputs
    }
    chain = tuple(item for item in workload.operations if item not in (*measuring, convolution))
    types, shapes = element_types(workload), infer_shapes(workload)
    levels, weights, *zeros = convolution.inputs
    zero = zeros[0] if zeros else ""
    is_measured = bool(measuring)
    if is_measured and (
        len(results) != len(measuring)
        or (levels, zero) != (results.get(0), results.get(_ZERO_RESULT))
        or any(ref in item.inputs for item in chain for ref in (levels, zero))
    ):
        return Support("levels of several tensors")
    checked = check_chain(chain, types)
    reason = checked.reason or misread(convolution, read_types(convolution, types))
    if reason or isinstance(shapes, str):
        return Support(reason or str(shapes))
    image = measuring[0].inputs[0] if is_measured else levels
    read = (image, "", "" if is_measured else zero, weights)
    operation = replace(convolution, inputs=read)
    reason = _refusal(operation, workload)
    if not reason and shapes[operation.output] != workload.output.shape:
        reason = "a chain that broadcasts what ConvInteger makes"
    if not reason and types[workload.result] not in ("float32", "float16"):
        reason = f"a chain that makes {types[workload.result]}"
    if reason:
        return Support(reason)
    plan = PlanesPlan(
        workload=workload,
        shape=shape_of(operation, workload),
        operation=operation,
        chain=chain,
        measured=results.get(MEASURED_SCALE, ""),
        is_measured=is_measured,
    )
    return _check_operands(plan) and plan


def _refusal(operation: Operation, workload: Workload) -> str:
    """Return the reason why kernels do not compute a convolution in integers; empty if they do."""
    if not all(ref.startswith("x") for ref in operation.inputs if ref):
        return "ConvInteger reads a computed value"
    x, _, zero, weights = (
        workload.inputs[int(ref[1:])] if ref else None for ref in operation.inputs
    )
    if x is None or weights is None or not weights.constant:
        return "ConvInteger with computed weights"
    if any(spec.layout is not Layout.PLAIN for spec in workload.inputs):
        return "ConvInteger in blocks"
    rank = len(weights.shape) - 2
    if not 1 <= rank <= _AXES or len(x.shape) != rank + 2:
        return f"ConvInteger of {rank} axes"
    channels, groups = x.shape[1], int(number(operation.attributes, "group", 1))
    if groups < 1 or weights.shape[0] % groups or channels != groups * weights.shape[1]:
        return f"ConvInteger in {groups} groups of {channels} channels"
    if zero is not None and zero.size != 1:
        return "ConvInteger with levels of each channel"
    if str(operation.attributes.get("auto_pad", "NOTSET")) not in ("", "NOTSET"):
        return "ConvInteger with automatic padding"
    return ""


def _check_operands(plan: PlanesPlan) -> Support:
    """Check that the kernel can view each tensor the chain reads as its result."""
    is_kept = image_extents(plan) == result_extents(plan)
    for ref in _read_by(plan):
        at = int(ref[1:])
        if _operand_extents(plan, plan.workload.inputs[at]) is None:
            return Support(f"{ref} is broadcast behind ConvInteger")
        if at == plan.inputs[WEIGHTS] or (at == plan.inputs[X] and not is_kept):
            return Support(f"{ref} is read in two ways")
    return SUPPORTED


def _read_by(plan: PlanesPlan) -> list[str]:
    refs = [ref for item in plan.chain for ref in item.inputs if ref.startswith("x")]
    return list(dict.fromkeys(refs))


def _operand_extents(plan: PlanesPlan, spec: TensorSpec) -> tuple[int, ...] | None:
    """Return the extents of what the chain reads, innermost first; None if they do not fit."""
    made = plan.workload.output.shape
    if spec.size == 1:
        return ()
    if spec.shape == made:
        return result_extents(plan)
    shape = (*(1,) * (len(made) - len(spec.shape)), *spec.shape)
    return (made[1],) if shape == (1, made[1], *(1,) * (len(made) - 2)) else None


def image_extents(plan: PlanesPlan) -> tuple[int, ...]:
    """Return the extents of the image: columns, rows, channels of a group, groups, images."""
    return _in_planes(plan.shape, plan.shape.image, plan.shape.channels_in)


def result_extents(plan: PlanesPlan) -> tuple[int, ...]:
    """Return the extents of the result, in the same order."""
    return _in_planes(plan.shape, plan.shape.result, plan.shape.channels_out)


def _in_planes(shape: QuantisedShape, axes: tuple[int, int], channels: int) -> tuple[int, ...]:
    channels, groups, *others = shape.extents(axes, channels)
    return (*others[:_AXES], channels, groups, others[_AXES])


# ---- buffers ----


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaneBuffers:
    """Buffers a kernel reads, and the levels of its image."""

    plan: PlanesPlan
    extents: tuple[tuple[int, ...], ...]  # Innermost first
    arguments: tuple[hl.ImageParam, ...]
    levels: hl.Func | None  # Scale and zero point that are measured
    extremes: hl.Func | None
    flat: hl.ImageParam | None  # The image as one row

    def zero(self) -> hl.Expr:
        """Return the zero point of unsigned levels, int32."""
        if self.levels is not None:
            return hl.i32(self.levels[_ZERO])
        known = self.plan.inputs.get(X_ZERO)
        zero = hl.i32(0) if known is None else hl.i32(self.arguments[known][()])
        return zero + _SIGN if self.plan.is_signed else zero

    def level(self, *place: hl.Var) -> hl.Expr:
        """Return an unsigned level of the image at (column, row, channel, group, image)."""
        value = self.arguments[self.plan.inputs[X]][place]
        if self.levels is not None:
            return _level_of(value, self.levels[_SCALE], self.zero(), place)
        return hl.reinterpret(hl.UInt(8), value) ^ hl.u8(_SIGN) if self.plan.is_signed else value


def read_planes_buffers(plan: PlanesPlan, weights: tuple[int, ...], kind: hl.Type) -> PlaneBuffers:
    """Return the buffers of a convolution and its chain.

    Args:
        plan: What is computed.
        weights: Extents of the packed weights, innermost first.
        kind: Their type.
    """
    of_operator = {plan.inputs[X]: image_extents(plan), plan.inputs[WEIGHTS]: weights}
    extents, arguments = [], []
    for at, spec in enumerate(plan.workload.inputs):
        here = of_operator.get(at, _operand_extents(plan, spec) or ())
        dtype = kind if at == plan.inputs[WEIGHTS] else element_type(spec.dtype)
        extents.append(here)
        arguments.append(hl.ImageParam(dtype, len(here), f"x{at}"))
    flat = hl.ImageParam(hl.Float(32), 1, "flat") if plan.is_measured else None
    extremes, levels = _measured(plan.image.size, flat) if flat is not None else (None, None)
    return PlaneBuffers(
        plan=plan,
        extents=tuple(extents),
        arguments=tuple(arguments),
        levels=levels,
        extremes=extremes,
        flat=flat,
    )


def _measured(size: int, flat: hl.ImageParam) -> tuple[hl.Func, hl.Func]:
    """Return the extremes of parts of an image, by lane and part, and its scale and zero point."""
    lanes, parts, steps = measuring_loops(size)
    extremes, levels, r = hl.Func(EXTREMES), hl.Func(LEVELS), hl.RDom([(0, steps)], "e")
    # the last vectors overlap: a value may count twice
    first = hl.min((v.part * steps + r.x) * lanes, size - lanes)
    value = flat[first + v.lane]
    extremes[v.lane, v.part] = (constant(0.0), constant(0.0))
    low, high = (extremes[v.lane, v.part][at] for at in range(2))
    extremes[v.lane, v.part] = widened(low, high, value, value)
    extremes.bound(v.lane, 0, lanes).bound(v.part, 0, parts).compute_root()
    every = hl.RDom([(0, lanes), (0, parts)], "l")
    ends = hl.Func("ends")
    ends[()] = (constant(0.0), constant(0.0))
    known, here = ends[()], extremes[every.x, every.y]
    ends[()] = widened(known[0], known[1], here[0], here[1])
    ends.compute_root()
    scale, zero = measured_levels(ends[()][0], ends[()][1])
    levels[v.which] = hl.select(v.which == _SCALE, scale, zero)
    levels.bound(v.which, 0, 2).unroll(v.which).compute_root()
    return extremes, levels


def measuring_loops(size: int) -> tuple[int, int, int]:
    """Return lanes, parts and vectors of a part in which the extremes of an image are searched."""
    lanes = min(_PART_LANES, 1 << (size.bit_length() - 1))
    parts = max(1, min(_PARTS_MAX, size // _LEAST_PART))
    return lanes, parts, -(-size // (lanes * parts))


def _level_of(value: hl.Expr, scale: hl.Expr, zero: hl.Expr, loops: Sequence[hl.Var]) -> hl.Expr:
    """Return the level of a number, uint8: its quotient, rounded once, as ONNX Runtime has it.

    The quotient is a product by the reciprocal and one correction, by two fused multiply-adds,
    which leave the nearest number; a vector of quotients takes eight times as long.
    """
    growth = hl.select(scale < constant(_TINY), constant(_GROWTH), constant(1.0))
    grown, number_ = strict(scale * growth), strict(value * growth)
    reciprocal = strict(constant(1.0) / grown)
    about = strict(number_ * reciprocal)
    exact, where = hl.Func("quotient"), tuple(loops)
    exact[where] = about + (number_ - about * grown) * reciprocal
    # a call, which `strict` does not reach into: there would be no fused multiply-adds
    quotient, low = exact[where], hl.f32(-zero)
    return nearest_level(strict(hl.select(quotient > low, quotient, low)), zero, "uint8")


def finished_chain(
    buffers: PlaneBuffers, total: hl.Expr, place: Mapping[str, hl.Expr], loops: Sequence[hl.Var]
) -> hl.Expr:
    """Return an element of the result: the chain of a sum.

    Args:
        buffers: What is read.
        total: The sum.
        place: Column, row, channel of a group, group and image by the names w, h, o, g, n.
        loops: Loops of the stage that computes it.
    """
    plan = buffers.plan
    types = element_types(plan.workload)
    where = tuple(place[name] for name in ("w", "h", "o", "g", "n"))
    channel = place["g"] * plan.shape.lanes_out + place["o"]
    values: dict[str, hl.Expr] = {}
    if plan.measured and buffers.levels is not None:
        values[plan.measured] = buffers.levels[_SCALE]
    read = {plan.operation.output: hl.f32(total)}
    for ref in _read_by(plan):
        at = int(ref[1:])
        buffer, extents = buffers.arguments[at], buffers.extents[at]
        index = () if not extents else (channel,) if len(extents) == 1 else where
        read[ref] = loaded(buffer[index], plan.workload.inputs[at].dtype)
    for ref, value in read.items():
        function = hl.Func(f"{ref}_read")  # operators take plain values
        function[tuple(loops)] = value
        values[ref] = hl.Expr(function[tuple(loops)])
    known = build_chain(plan.chain, values, plan.workload.scalars, loops, types)
    return stored(known[plan.workload.result], plan.workload.output.dtype)


def planes_arguments(pipeline: Pipeline, buffers: PlaneBuffers) -> Pipeline:
    """Return a pipeline with the stages that measure its image, which it reads as one row, too."""
    plan, number_ = buffers.plan, len(pipeline.arguments)
    if buffers.extremes is None or buffers.flat is None:
        return pipeline
    size = plan.image.size
    lanes, parts, steps = measuring_loops(size)
    pure = (("lane", lanes), ("part", parts))
    return replace(
        pipeline,
        stages={
            **pipeline.stages,
            EXTREMES: buffers.extremes,
            EXTREMES_UPDATE: buffers.extremes.update(),
        },
        loops={
            **pipeline.loops,
            EXTREMES: pure,
            EXTREMES_UPDATE: (*pure, ("e$x", steps)),
        },
        arguments=(*pipeline.arguments, buffers.flat),
        argument_extents=(*pipeline.argument_extents, (size,)),
        views={**pipeline.views, number_: BufferView(tensor=plan.inputs[X], strides=(1,))},
    )


def measuring_steps(plan: PlanesPlan) -> Iterator[Step]:
    """Yield the steps of the stages that measure an image."""
    if not plan.is_measured:
        return
    lanes, parts, _ = measuring_loops(plan.image.size)
    if lanes > 1:
        yield sch.Vectorize(EXTREMES, "lane", lanes)
        yield sch.Reorder(EXTREMES_UPDATE, ("lane", "e$x", "part"))
        yield sch.Vectorize(EXTREMES_UPDATE, "lane", lanes)
    if parts > 1:
        yield sch.Parallel(EXTREMES_UPDATE, "part")


# ---- dense filters ----


def direct_planes_pipeline(plan: PlanesPlan, unit: Unit) -> Pipeline:
    """Return the algorithm of a dense convolution; its weights are packed as images last need."""
    shape = plan.shape
    buffers = read_planes_buffers(plan, weight_extents(shape, unit), unit.weight_type)
    weight_sum = hl.ImageParam(hl.Int(32), 3, "weight_sum")
    padded = _padded(buffers, unit)
    offset = start_of_sums(buffers, weight_sum)

    def level(
        part: hl.Expr, number_: hl.Expr, g: hl.Expr, w: hl.Expr, h: hl.Expr, n: hl.Expr
    ) -> hl.Expr:
        return padded[part, w, h, number_, g, n]

    weights = buffers.arguments[plan.inputs[WEIGHTS]]
    sums, reduced = direct_sums(shape, weights, level, offset, unit)
    place = (v.w, v.h, v.o, v.g, v.n)
    loops = (v.o, v.g, v.w, v.h, v.n)
    block = hl.min(v.o // LANES, shape.blocks - 1)  # whole tiles are finished
    total = sums[v.o % LANES, block, v.g, v.w, v.h, v.n]
    inside = hl.min(v.o, shape.lanes_out - 1)
    finished, result = hl.Func(FINISHED), hl.Func(RESULT)
    where = {"w": hl.Expr(v.w), "h": hl.Expr(v.h), "g": hl.Expr(v.g), "n": hl.Expr(v.n)}
    finished[loops] = finished_chain(buffers, total, {**where, "o": inside}, loops)
    finished.compute_root()
    result[place] = finished[loops]
    extents = result_extents(plan)
    outer = (("g", 0), ("w", 0), ("h", 0), ("n", 0))
    of_sums = (("lane", LANES), ("block", 0), *outer)
    pipeline = Pipeline(
        output=result,
        stages={
            RESULT: result,
            FINISHED: finished,
            PADDED: padded,
            SUMS: sums,
            SUMMED: sums.update(),
        },
        arguments=(*buffers.arguments, weight_sum),
        argument_extents=(*buffers.extents, (LANES, shape.blocks, shape.groups)),
        output_extents=extents,
        loops={
            RESULT: tuple((one.name(), extent) for one, extent in zip(place, extents, strict=True)),
            FINISHED: (("o", 0), *outer),
            PADDED: (("part", unit.size), ("w", 0), ("h", 0), ("unit", 0), ("g", 0), ("n", 0)),
            SUMS: of_sums,
            SUMMED: (*of_sums, *reduced),
        },
        packings={
            plan.inputs[WEIGHTS]: packed_weights(plan, unit),
            len(buffers.arguments): weight_sums(plan),
        },
        padded=frozenset({SUMS, PADDED, FINISHED}),
    )
    return planes_arguments(pipeline, buffers)


def image_around(buffers: PlaneBuffers) -> hl.Func:
    """Return levels over (column, row, channel, group, image), and their zero point around them."""
    levels = hl.Func("image_levels")
    levels[v.w, v.h, v.i, v.g, v.n] = buffers.level(v.w, v.h, v.i, v.g, v.n)
    zero = hl.cast(hl.UInt(8), buffers.zero())
    bounds = [(0, extent) for extent in buffers.plan.shape.image]
    return hl.BoundaryConditions.constant_exterior(levels, zero, bounds)


def _padded(buffers: PlaneBuffers, unit: Unit) -> hl.Func:
    """Return levels and zero points around them over (part, column, row, unit, group, image)."""
    shape, padded, around = buffers.plan.shape, hl.Func(PADDED), image_around(buffers)
    # channels behind the last one meet weights of zero
    i = hl.min(v.unit * unit.size + v.part, shape.channels_in - 1)
    w, h = v.w - shape.before[0], v.h - shape.before[1]
    level = around[w, h, i, v.g, v.n]
    padded[v.part, v.w, v.h, v.unit, v.g, v.n] = hl.cast(unit.level_type, level)
    padded.bound(v.part, 0, unit.size).compute_root()
    return padded


def start_of_sums(buffers: PlaneBuffers, weight_sum: hl.ImageParam) -> hl.Func:
    """Return the first value of a channel's sums, over (lane, block, group).

    It takes the zero point of the image, times the sum of the weights, off every sum.
    """
    offset, place = hl.Func("offset"), (v.lane, v.block, v.g)
    offset[place] = -buffers.zero() * weight_sum[place]
    offset.bound(v.lane, 0, buffers.plan.shape.lanes).compute_root()
    offset.vectorize(v.lane, LANES, hl.TailStrategy.ShiftInwards)
    return offset


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectPlanes(Direct):
    """The direct convolution between planes: its tiles, and rows of planes made of each."""

    def pipeline(self, plan: QuantisedPlan) -> Pipeline:
        assert isinstance(plan, PlanesPlan)
        return direct_planes_pipeline(plan, self.unit)

    def steps(self, values: Values, plan: QuantisedPlan) -> Iterator[Step]:
        assert isinstance(plan, PlanesPlan)
        blocks, wide, high = tile_of(values)
        yield sch.Split(RESULT, "h", "h", "in_h", high, sch.Tail.SHIFT_INWARDS)
        yield sch.Split(RESULT, "w", "w", "in_w", wide, sch.Tail.SHIFT_INWARDS)
        # guards depend on the block alone where channels are whole blocks
        yield sch.Split(RESULT, "o", "block", "lane", LANES, sch.Tail.GUARD)
        yield sch.Split(RESULT, "block", "panel", "in_block", blocks, sch.Tail.GUARD)
        inner = ("in_w", "lane", "in_block", "in_h", "w", "h", "panel", "g")
        yield from group_steps(values, inner)
        written_out = {"in_w": wide, "lane": LANES, "in_block": blocks, "in_h": high}
        for name, factor in written_out.items():
            yield sch.Unroll(RESULT, name, factor)
        yield from task_steps(values, "panel")
        yield sch.ComputeAt(FINISHED, RESULT, "w")
        yield sch.Split(FINISHED, "o", "block", "o", LANES, sch.Tail.ROUND_UP)
        unrolled = {"block": blocks, "w": wide, "h": high}
        yield from register_steps((FINISHED,), ("o", LANES), unrolled)
        yield from copy_steps(values, PADDED, "unit")
        yield from _copy_steps(plan.shape, self.unit)
        yield from self.sum_steps(values)
        yield from measuring_steps(plan)


def _copy_steps(shape: QuantisedShape, unit: Unit) -> Iterator[Step]:
    """Yield steps that quantise rows of planes: their vectors are woven, and stored as one."""
    wide = (shape.result[0] - 1) * shape.strides[0] + (shape.kernel[0] - 1) * shape.dilations[0] + 1
    lanes = min(LANES, 1 << (wide.bit_length() - 1))
    yield sch.Split(PADDED, "w", "w", "lane", lanes, sch.Tail.SHIFT_INWARDS)
    yield sch.Reorder(PADDED, ("part", "lane", "w", "h", "unit", "g", "n"))
    if lanes > 1:
        yield sch.Vectorize(PADDED, "lane", lanes)
    yield sch.Unroll(PADDED, "part", unit.size)
