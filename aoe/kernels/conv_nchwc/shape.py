"""A blocked convolution in numbers, the buffers its kernels read, and what follows the sums.

Functions that do not depend on the layout (`buffers_of`, `check_read_alike`, `finished_sum`,
`finished_pipeline`) are for plain tensors too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import halide as hl

from aoe.kernels.conv_nchwc.normal_form import (
    in_long_rows,
    without_padding_dropped,
    without_pooling,
)
from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Pipeline, Support
from aoe.kernels.halide.anchored import Epilogue, Prologue, read_prologue, split_at_product
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.math.functions import constant
from aoe.kernels.math.normalization import apply_activation, refuse_activation
from aoe.operators import BLOCKED_CONVOLUTION, integers, number, op_key
from aoe.workload import Layout, Operation, TensorSpec, Workload

X, WEIGHTS, BIAS, SUM = range(4)
"""Positions of the operator's inputs. Source: `com.microsoft.nchwc.Conv`, version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionShape:
    """Extents of one convolution of images."""

    batch: int  # Images
    channels_in: int  # Channels read, padding of the blocked layout included
    channels_out: int  # Channels written, likewise
    height: int  # Rows of an image read
    width: int  # Columns of an image read
    rows: int  # Rows of a result
    columns: int  # Columns of a result
    kernel: tuple[int, int]  # Rows and columns of a filter
    strides: tuple[int, int]  # Rows and columns from one result to the next
    dilations: tuple[int, int]  # Rows and columns from one value of a filter to the next
    pads: tuple[int, int, int, int]  # Zeros above, left, below, right
    block: int  # Channels of one block
    is_stem: bool  # True if the image is plain: fewer channels than a block has
    # Groups of channels that have nothing to do with each other, whole blocks each; as many as
    # channels where the convolution is depthwise.
    groups: int = 1
    is_made: bool = False  # True if a chain in front makes the image: it is never read itself
    pooled: int = 1  # Rows and columns of results of which the largest is written; 1 where all are
    # True if images have any number of rows and columns: these are for schedules alone.
    is_open: bool = False

    @property
    def is_depthwise(self) -> bool:
        """True if every channel has a filter of its own."""
        return self.groups > 1 and self.groups == self.channels_in

    @property
    def blocks_in(self) -> int:
        """Blocks of channels read."""
        return self.channels_in // self.block

    @property
    def blocks_out(self) -> int:
        """Blocks of channels written."""
        return self.channels_out // self.block

    @property
    def blocks_summed(self) -> int:
        """Blocks of channels summed up into one result."""
        return self.blocks_in // self.groups

    @property
    def blocks_together(self) -> int:
        """Blocks of results made of the same channels."""
        return self.blocks_out // self.groups

    @property
    def image_extents(self) -> tuple[int, ...]:
        """Extents of the buffer read, innermost first."""
        if self.is_stem:
            return self.width, self.height, self.channels_in, self.batch
        return self.block, self.width, self.height, self.blocks_in, self.batch

    @property
    def weight_extents(self) -> tuple[int, ...]:
        """Extents of the weights as the host keeps them, innermost first.

        "OIhw16i16o" with AVX-512, "OIhw16o" for a stem, "Ohw16o" for a depthwise convolution.
        """
        rows, columns = self.kernel
        if self.is_depthwise:
            return self.block, columns, rows, self.blocks_out
        if self.is_stem:
            return self.block, columns, rows, self.channels_in, self.blocks_out
        return self.block, self.block, columns, rows, self.blocks_summed, self.blocks_out

    @property
    def summed_extents(self) -> tuple[int, ...]:
        """Extents of the results, and of a tensor that is added to them, innermost first."""
        return self.block, self.columns, self.rows, self.blocks_out, self.batch

    @property
    def result_extents(self) -> tuple[int, ...]:
        """Extents of the buffer written, innermost first."""
        across, down = self.columns // self.pooled, self.rows // self.pooled
        return self.block, across, down, self.blocks_out, self.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionPlan:
    """A workload that is one convolution, the chain behind it, and perhaps one in front."""

    workload: Workload  # All of it but for a pooling at its end
    shape: ConvolutionShape  # What the convolution computes, in numbers
    epilogue: Epilogue  # The chain
    # The chain in front of it, which makes the image; None where there is none.
    prologue: Prologue | None = None

    @property
    def inputs(self) -> dict[int, int]:
        """Numbers of the workload inputs the operator itself reads, by its positions."""
        read = enumerate(self.epilogue.product.inputs)
        return {at: int(ref[1:]) for at, ref in read if ref.startswith("x")}


def read_convolution(
    workload: Workload, *, takes_long_rows: bool = False
) -> ConvolutionPlan | Support:
    """Return the plan of a blocked convolution, or why the workload is none.

    Args:
        workload: What is computed.
        takes_long_rows: True if a pointwise convolution may be one of images of other rows.
    """
    workload, pooled = without_pooling(workload)
    workload, channels = without_padding_dropped(workload)
    found = _read(workload, pooled, channels)
    if isinstance(found, Support) or not takes_long_rows or workload.is_open:
        return found
    longer = in_long_rows(workload, found.epilogue.product)
    again = found if longer is workload else _read(longer, pooled, channels)
    return found if isinstance(again, Support) else again


def _read(workload: Workload, pooled: int, channels: int) -> ConvolutionPlan | Support:
    """Return the plan of a blocked convolution without its pooling, or why it is none.

    Args:
        workload: What is computed in front of the pooling.
        pooled: See `ConvolutionShape`.
        channels: See `read_prologue`.
    """
    epilogue = split_at_product(workload, takes_front=True)
    if isinstance(epilogue, Support):
        return epilogue
    operation = epilogue.product
    if op_key(operation) != BLOCKED_CONVOLUTION:
        return Support(f"{operation.op_type} is no blocked convolution")
    prologue = _prologue(workload, epilogue, channels)
    if isinstance(prologue, Support):
        return prologue
    made = prologue.made if prologue else None
    specs = [_spec(workload, ref, made) if ref else None for ref in operation.inputs]
    refused = _refusal(operation, workload, specs)
    if refused:
        return Support(refused)
    x, weights = specs[X], specs[WEIGHTS]
    assert x is not None and weights is not None
    top, left, bottom, right = integers(operation, "pads", 4, 0)
    down, along = integers(operation, "strides", 2, 1)
    rows_apart, columns_apart = integers(operation, "dilations", 2, 1)
    shape = ConvolutionShape(
        batch=x.shape[0],
        channels_in=x.shape[1],
        channels_out=weights.shape[0],
        height=x.shape[2],
        width=x.shape[3],
        rows=workload.output.shape[2],
        columns=workload.output.shape[3],
        kernel=(weights.shape[2], weights.shape[3]),
        strides=(down, along),
        dilations=(rows_apart, columns_apart),
        pads=(top, left, bottom, right),
        block=workload.output.block,
        is_stem=x.layout is Layout.PLAIN,
        groups=groups_of(operation),
        is_made=prologue is not None,
        pooled=pooled,
        is_open=workload.is_open,
    )
    return ConvolutionPlan(workload=workload, shape=shape, epilogue=epilogue, prologue=prologue)


def _prologue(workload: Workload, epilogue: Epilogue, channels: int) -> Prologue | Support | None:
    """Return the chain in front of a convolution, None if there is none, or why it has no form."""
    if not epilogue.front:
        return None
    shapes = infer_shapes(workload)
    assert not isinstance(shapes, str)  # they are what the epilogue was split by
    return read_prologue(workload, epilogue.front, shapes, channels)


def _spec(workload: Workload, ref: str, made: TensorSpec | None) -> TensorSpec:
    """Return the operands of a convolution; its image may be `made` in front of it."""
    if ref.startswith("x"):
        return workload.inputs[int(ref[1:])]
    assert made is not None
    return made


def _refusal(operation: Operation, workload: Workload, specs: Sequence[TensorSpec | None]) -> str:
    """Return the reason why an operation is no convolution with constant weights; "" if it is."""
    x, weights, bias, added = (*specs, None, None)[:4]
    block = workload.output.block
    if x is None or weights is None or not weights.constant or not block:
        return "Conv with computed weights"
    if refused := _refused_groups(groups_of(operation), x, weights, block):
        return refused
    if x.layout is Layout.PLAIN and x.shape[1] >= block:
        return f"Conv of a plain tensor with {x.shape[1]} channels"
    if weights.shape[0] % block or len(weights.shape) != 4:
        return f"Conv with weights {weights.shape} in blocks of {block}"
    if bias is not None and (not bias.constant or bias.shape != weights.shape[:1]):
        return "Conv with a computed bias"
    if added is not None and not _is_like(added, workload.output):
        return "Conv that adds a tensor of another shape"
    if str(operation.attributes.get("auto_pad", "NOTSET")) not in ("NOTSET", ""):
        return "Conv with automatic padding"
    return refuse_activation(operation)


def groups_of(operation: Operation) -> int:
    """Return the attribute `group` of a convolution."""
    return int(number(operation.attributes, "group", 1))


def _refused_groups(groups: int, x: TensorSpec, weights: TensorSpec, block: int) -> str:
    """Return the reason why the host's blocked convolution has no such groups of channels."""
    if groups < 1 or weights.shape[1] * groups != x.shape[1]:
        return f"Conv in {groups} groups of {weights.shape[1]} channels"
    if groups == 1:
        return ""
    if x.layout is Layout.PLAIN:
        return "Conv of a plain tensor in groups"
    if groups == x.shape[1]:
        return "" if weights.shape[0] == groups else "Conv with several filters for each channel"
    is_whole = weights.shape[1] % block == 0 and weights.shape[0] % (groups * block) == 0
    return "" if is_whole else f"Conv in groups of {weights.shape[1]} channels, no whole blocks"


def _is_like(spec: TensorSpec, output: TensorSpec) -> bool:
    return (spec.shape, spec.layout, spec.block) == (output.shape, output.layout, output.block)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelArguments:
    """Buffers a kernel reads."""

    buffers: tuple[hl.ImageParam, ...]  # In the order of the workload's inputs
    extents: tuple[tuple[int, ...], ...]  # Of each, innermost first
    places: Mapping[int, int]  # Their numbers, by the operator's positions

    def at(self, position: int) -> hl.ImageParam:
        """Return the operand of the operator at a position."""
        return self.buffers[self.places[position]]


def kernel_arguments(
    plan: ConvolutionPlan, weights: tuple[int, ...], kind: hl.Type | None = None
) -> KernelArguments:
    """Return the buffers of a convolution and its chain.

    Args:
        plan: What is computed.
        weights: Extents of the packed weights, innermost first.
        kind: Their type, float32 if not given.
    """
    return buffers_of(read_extents(plan, weights), plan.inputs, kind or hl.Float(32))


def read_extents(plan: ConvolutionPlan, weights: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Return the extents of what a convolution and its chains read, innermost first, by number.

    Args:
        plan: What is computed.
        weights: Extents of the weights as they are read.
    """
    known = _operator_extents(plan, weights)
    for chained in _chained_extents(plan):
        known = chained | known
    return known


def buffers_of(
    extents: Mapping[int, tuple[int, ...]], places: Mapping[int, int], kind: hl.Type
) -> KernelArguments:
    """Return the buffers a kernel reads.

    Args:
        extents: Of each, innermost first, by number.
        places: Numbers of the inputs the operator reads, by its positions.
        kind: Type of the weights.
    """
    single, filters = hl.Float(32), places[WEIGHTS]
    ordered = tuple(extents[number] for number in range(len(extents)))
    buffers = tuple(
        hl.ImageParam(kind if number == filters else single, len(extent), f"x{number}")
        for number, extent in enumerate(ordered)
    )
    return KernelArguments(buffers=buffers, extents=ordered, places=places)


def image_read(plan: ConvolutionPlan, arguments: KernelArguments) -> hl.ImageParam | hl.Func:
    """Return the image: what the operator reads, or what the chain in front makes of inputs."""
    if plan.prologue is None:
        return arguments.at(X)
    image, place = hl.Func("image"), tuple(hl.Var(name) for name in ("c", "w", "h", "b", "n"))
    image[place] = plan.prologue.value(arguments.buffers, place)
    return image


def padded_image(
    plan: ConvolutionPlan, arguments: KernelArguments, place: Sequence[hl.Expr]
) -> hl.Expr:
    """Return a value of the image with its zeros around it.

    Args:
        plan: What is computed.
        arguments: What it is computed from.
        place: Index into the image, innermost first; columns and rows are counted from the zeros.
    """
    shape = plan.shape
    bounds = [(0, extent) for extent in _image_extents(plan, arguments)]
    image = image_read(plan, arguments)
    exterior = hl.BoundaryConditions.constant_exterior(image, constant(0.0), bounds)
    top, left = shape.pads[:2]
    moved: list[hl.Expr] = list(place)
    column = 0 if shape.is_stem else 1
    moved[column], moved[column + 1] = place[column] - left, place[column + 1] - top
    value: hl.Expr = exterior[tuple(moved)]
    return value


def _image_extents(plan: ConvolutionPlan, arguments: KernelArguments) -> tuple[int | hl.Expr, ...]:
    """Return the extents of the image, innermost first; open extents as a buffer has them.

    An image made in front of the convolution has the extents of what it is made of.
    """
    extents, number = plan.shape.image_extents, plan.inputs.get(X, 0)
    if not plan.shape.is_open:
        return extents
    if plan.prologue is not None:
        ranks = {at: len(arguments.extents[at]) for at in plan.prologue.numbers}
        number = max(ranks, key=lambda at: ranks[at])
    column = 0 if plan.shape.is_stem else 1
    places = {0: len(extents) - 1, 2: column + 1, 3: column}
    is_open = {places[axis] for axis in plan.workload.inputs[number].open}
    buffer = arguments.buffers[number]
    return tuple(
        buffer.dim(at).extent() if at in is_open else extent for at, extent in enumerate(extents)
    )


def check_arguments(plan: ConvolutionPlan) -> Support:
    """Check that the chains read an input of the convolution in the same way as it does."""
    return check_read_alike(_operator_extents(plan, ()), _chained_extents(plan), plan.inputs)


def check_read_alike(
    operator: Mapping[int, tuple[int, ...]],
    chained: Sequence[Mapping[int, tuple[int, ...]]],
    places: Mapping[int, int],
) -> Support:
    """Check that every input is read in one way.

    Args:
        operator: Extents of what the operator reads, by number.
        chained: The same for each of the chains.
        places: Numbers of what the operator reads, by its positions.
    """
    read, filters = dict(operator), places[WEIGHTS]
    if any(filters in known for known in chained) or [*places.values()].count(filters) > 1:
        return Support("the weights are read as something else too")
    for known in chained:
        for at, extents in known.items():
            if read.setdefault(at, extents) != extents:
                return Support(f"input {at} is read in two ways")
    return SUPPORTED


def finished_result(
    plan: ConvolutionPlan, arguments: KernelArguments, summed: hl.Expr, place: Sequence[hl.Var]
) -> hl.Expr:
    """Return one result: bias and the tensor added come before the activation, as in the host.

    Args:
        plan: What is computed.
        arguments: What it is computed from.
        summed: The sum of products at `place`.
        place: Channel of a block, column, row, block, image.
    """
    return finished_sum(plan.epilogue, arguments, summed, place, (place[0], place[3]))


def finished_sum(
    epilogue: Epilogue,
    arguments: KernelArguments,
    summed: hl.Expr,
    place: Sequence[hl.Var],
    channel: Sequence[hl.Var],
) -> hl.Expr:
    """Return one result.

    Args:
        epilogue: The convolution and the chain behind it.
        arguments: What it is computed from.
        summed: The sum of products at `place`.
        place: Index into the result, innermost first.
        channel: Index into the bias.
    """
    value = summed
    if BIAS in arguments.places:
        value = value + arguments.at(BIAS)[tuple(channel)]
    if SUM in arguments.places:
        value = value + arguments.at(SUM)[tuple(place)]
    total = hl.Func("total")
    total[tuple(place)] = value
    made = apply_activation(total[tuple(place)], epilogue.product.attributes)
    return epilogue.value(arguments.buffers, made, place)


def finished_pipeline(
    arguments: KernelArguments,
    stages: Mapping[str, Any],
    result: hl.Func,
    *,
    extents: tuple[int, ...],
    known: Mapping[str, int],
    own: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
    reduced: Mapping[str, Iterable[tuple[str, int]]],
    packing: PackedInput | None = None,
    inlined: Container[str] = (),
    padded: frozenset[str] = frozenset(),
) -> Pipeline:
    """Return a kernel of its stages and its result.

    Args:
        arguments: What it reads.
        stages: By name, the result not among them.
        result: Of the kernel.
        extents: Of the result, innermost first.
        known: Extents of loops that are the same in all stages; a schedule says how far others go.
        own: Extents of the loops of one stage alone.
        reduced: Loops that sum up, innermost first, by the name of the update.
        packing: Of the weights; None where they stay as they are.
        inlined: Stages that are computed where they are read, unless a schedule says where.
        padded: Stages that may be computed past what is read of them.
    """
    whole, loops = {**stages, RESULT: result}, {}
    for name, stage in whole.items():
        if name.endswith(UPDATE):
            continue
        if name != RESULT and name not in inlined:
            stage.compute_root()  # steps place it closer
        names = [variable.name() for variable in stage.args()]
        here = {**known, **own.get(name, {})}
        loops[name] = tuple((loop, here.get(loop, 0)) for loop in names)
    loops[RESULT] = tuple(zip((name for name, _ in loops[RESULT]), extents, strict=True))
    for update, depth in reduced.items():
        loops[update] = (*loops[update.removesuffix(UPDATE)], *depth)
    return Pipeline(
        output=result,
        stages=whole,
        arguments=arguments.buffers,
        argument_extents=arguments.extents,
        output_extents=extents,
        loops=loops,
        packings={arguments.places[WEIGHTS]: packing} if packing else {},
        padded=padded,
    )


def _chained_extents(plan: ConvolutionPlan) -> list[dict[int, tuple[int, ...]]]:
    """Return the extents of the buffers each of the chains reads, by number."""
    chains = (plan.epilogue, plan.prologue)
    return [chain.argument_extents() for chain in chains if chain is not None]


def _operator_extents(
    plan: ConvolutionPlan, weights: tuple[int, ...]
) -> dict[int, tuple[int, ...]]:
    """Return the extents of the buffers the operator reads, by number."""
    shape = plan.shape
    of_input = {
        X: shape.image_extents,
        WEIGHTS: weights,
        BIAS: (shape.block, shape.blocks_out),
        SUM: shape.summed_extents,
    }
    return {number: of_input[at] for at, number in plan.inputs.items()}
