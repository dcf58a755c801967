"""A convolution of plain tensors, transposed or not, in numbers; its buffers and results.

All are written as images of three axes, the missing ones of extent 1, and every tuple over the
axes starts with the innermost: width, height, depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import halide as hl

from aoe.kernels.conv_nchwc.normal_form import in_long_rows
from aoe.kernels.conv_nchwc.shape import (
    KernelArguments,
    buffers_of,
    check_read_alike,
    finished_sum,
)
from aoe.kernels.family import Support
from aoe.kernels.halide.anchored import Epilogue, split_at_product
from aoe.kernels.math.functions import constant
from aoe.kernels.math.normalization import refuse_activation
from aoe.operators import integers, number, op_key
from aoe.operators.products import PLAIN_CONVOLUTIONS, TRANSPOSED_CONVOLUTION
from aoe.workload import Layout, Operation, Precision, TensorSpec, Workload

X, WEIGHTS, BIAS, SUM = range(4)
"""Positions of the operator's inputs. Source: `Conv` and `com.microsoft.FusedConv`, version 1."""
AXES = 3
MOST_PHASES = 16
"""Results between two elements that a register tile still holds."""
Extents = tuple[int, int, int]
_OWN_PADS = ("NOTSET", "", "VALID")
"""Values of `auto_pad` with which `pads` are what they say, or not there and zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNchwShape:
    """Extents of one convolution.

    A result at `w` sums up, for each tap t, the element
    ((w + leads) // phases) * strides + t * dilations - before of the image.
    """

    batch: int  # Images
    groups: int  # Groups of channels, each with filters of its own
    channels_in: int  # Channels read by a group
    channels_out: int  # Channels written by a group
    rank: int  # Axes of an image that are there
    image: Extents  # Extents of an image read
    result: Extents  # Extents of a result
    kernel: Extents  # Extents of a filter
    taps: Extents  # Values of a filter along an axis one result meets
    strides: Extents  # Elements of the image from one result to the next
    dilations: Extents  # Elements of the image from one tap to the next
    before: Extents  # Zeros in front of the image
    phases: Extents  # Results between two elements of the image, 1 but for a transposed convolution
    leads: Extents  # Results cut off in front
    is_transposed: bool  # True for a transposed convolution
    behind: Extents  # Zeros behind the image; none of a transposed convolution
    # Dimensions of the buffer read, innermost first, that have any extent: those here are for
    # schedules alone.
    open_axes: tuple[int, ...]

    @property
    def is_open(self) -> bool:
        """True if images have any extents."""
        return bool(self.open_axes)

    @property
    def image_extents(self) -> tuple[int, ...]:
        """Extents of the buffer read, innermost first."""
        return *self.image[: self.rank], self.groups * self.channels_in, self.batch

    @property
    def result_extents(self) -> tuple[int, ...]:
        """Extents of the buffer written, innermost first."""
        return *self.result[: self.rank], self.groups * self.channels_out, self.batch

    @property
    def weight_extents(self) -> tuple[int, ...]:
        """Extents of the weights as the model has them, innermost first."""
        channels = self.channels_in, self.channels_out
        inner, outer = channels[::-1] if self.is_transposed else channels
        return *self.kernel[: self.rank], inner, outer * self.groups

    @property
    def depth(self) -> int:
        """Products summed up into one result."""
        return self.channels_in * prod(self.taps)

    @property
    def needs_zeros(self) -> bool:
        """True if results read elements in front of the image or behind it."""
        return any(self.before[at] or self._reads_behind(at) for at in range(AXES))

    def _reads_behind(self, at: int) -> bool:
        # of some extents the last stride ends behind the image, of others it does not
        if at in self.open_axes and not self.is_transposed:
            return self.behind[at] > 0
        return self._last(at) >= self.image[at]

    def _last(self, at: int) -> int:
        furthest = (self.result[at] - 1 + self.leads[at]) // self.phases[at] * self.strides[at]
        return furthest + (self.taps[at] - 1) * self.dilations[at] - self.before[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvNchwPlan:
    """A workload that is one convolution and the chain behind it."""

    workload: Workload  # All of it
    shape: ConvNchwShape  # What the convolution computes, in numbers
    epilogue: Epilogue  # The chain

    @property
    def inputs(self) -> dict[int, int]:
        """Numbers of the workload inputs the operator reads, by its positions."""
        return {at: int(ref[1:]) for at, ref in enumerate(self.epilogue.product.inputs) if ref}

    @property
    def in_pairs(self) -> bool:
        """True if factors are rounded to bfloat16 and multiplied in pairs."""
        return self.workload.precision is Precision.BFLOAT16


def read_plain(workload: Workload) -> ConvNchwPlan | Support:
    """Return the convolution of plain tensors in a workload, or the reason why there is none."""
    epilogue = split_at_product(workload)
    if isinstance(epilogue, Support):
        return epilogue
    operation = epilogue.product
    if op_key(operation) not in PLAIN_CONVOLUTIONS:
        return Support(f"{operation.op_type} is no convolution of plain tensors")
    refused = _refusal(operation, workload)
    if refused:
        return Support(refused)
    merged = in_long_rows(workload, operation)
    if merged is not workload:
        return read_plain(merged)
    shape = _shape(operation, workload)
    if shape.is_open and shape.result[0] % shape.phases[0]:
        return Support("ConvTranspose of images of any size whose rows are no multiple of a stride")
    if workload.precision is Precision.STRICT_FLOAT32 and any(
        shape.kernel[at] % shape.phases[at] for at in range(AXES)
    ):
        return Support("ConvTranspose with filters no multiple of the strides multiplies zeros")
    return ConvNchwPlan(workload=workload, shape=shape, epilogue=epilogue)


def _shape(operation: Operation, workload: Workload) -> ConvNchwShape:
    x, weights = (workload.inputs[int(operation.inputs[at][1:])] for at in (X, WEIGHTS))
    rank = len(x.shape) - 2
    transposed = op_key(operation) == TRANSPOSED_CONVOLUTION
    groups = int(number(operation.attributes, "group", 1))
    strides, dilations = (
        _innermost_first(integers(operation, name, rank, 1), 1) for name in ("strides", "dilations")
    )
    pads = integers(operation, "pads", 2 * rank, 0)
    before, behind = (_innermost_first(some, 0) for some in (pads[:rank], pads[rank:]))
    kernel = _innermost_first(weights.shape[2:], 1)
    none = (1, 1, 1)
    taps = _each(lambda at: -(-kernel[at] // strides[at])) if transposed else kernel
    return ConvNchwShape(
        batch=x.shape[0],
        groups=groups,
        channels_in=x.shape[1] // groups,
        channels_out=workload.output.shape[1] // groups,
        rank=rank,
        image=_innermost_first(x.shape[2:], 1),
        result=_innermost_first(workload.output.shape[2:], 1),
        kernel=kernel,
        taps=taps,
        strides=none if transposed else strides,
        dilations=none if transposed else dilations,
        before=_each(lambda at: taps[at] - 1) if transposed else before,
        phases=strides if transposed else none,
        leads=before if transposed else (0, 0, 0),
        is_transposed=transposed,
        behind=(0, 0, 0) if transposed else behind,
        open_axes=tuple(rank + 1 - axis for axis in x.open),
    )


def _each(value: Callable[[int], int]) -> Extents:
    return value(0), value(1), value(2)


def _innermost_first(extents: tuple[int, ...], missing: int) -> Extents:
    wide, high, deep = (*reversed(extents), *(missing,) * AXES)[:AXES]
    return wide, high, deep


def _refusal(operation: Operation, workload: Workload) -> str:
    """Return the reason why an operation is no convolution with constant weights; "" if it is."""
    specs = [workload.inputs[int(ref[1:])] if ref else None for ref in operation.inputs]
    x, weights, bias, added = (*specs, None, None)[:4]
    name = operation.op_type
    if x is None or weights is None or not weights.constant:
        return f"{name} with computed weights"
    if any(spec.layout is not Layout.PLAIN for spec in (x, workload.output)):
        return f"{name} in blocks"
    rank = len(x.shape) - 2
    if not 1 <= rank <= AXES or len(weights.shape) != rank + 2:
        return f"{name} of {rank} axes"
    transposed = op_key(operation) == TRANSPOSED_CONVOLUTION
    groups = int(number(operation.attributes, "group", 1))
    written = workload.output.shape[1]
    if groups < 1 or x.shape[1] % groups or written % groups:
        return f"{name} in {groups} groups of {x.shape[1]} channels"
    channels = (x.shape[1], written // groups) if transposed else (written, x.shape[1] // groups)
    if weights.shape[:2] != channels:
        return f"{name} with weights {weights.shape}"
    if bias is not None and (not bias.constant or bias.shape != (written,)):
        return f"{name} with a computed bias"
    if added is not None and not _is_like(added, workload.output):
        return f"{name} that adds a tensor of another shape"
    if str(operation.attributes.get("auto_pad", "NOTSET")) not in _OWN_PADS:
        return f"{name} with automatic padding"
    if transposed and set(integers(operation, "dilations", rank, 1)) != {1}:
        return f"{name} with dilated filters"
    if transposed and _shares_padding(operation, rank):
        return f"{name} whose output_shape shares the padding out in another way than pads"
    if transposed and integers(operation, "strides", rank, 1)[-1] > MOST_PHASES:
        return f"{name} with strides beyond {MOST_PHASES}"
    return refuse_activation(operation)


def _shares_padding(operation: Operation, rank: int) -> bool:
    """Return True if ONNX Runtime takes halves of `pads`, the first the larger, and they differ."""
    pads = integers(operation, "pads", 2 * rank, 0)
    pairs = zip(pads[:rank], pads[rank:], strict=True)
    shared = any(before - behind not in (0, 1) for before, behind in pairs)
    return shared and bool(operation.attributes.get("output_shape", ()))


def _is_like(spec: TensorSpec, output: TensorSpec) -> bool:
    return (spec.shape, spec.layout) == (output.shape, output.layout)


def plain_arguments(plan: ConvNchwPlan, weights: tuple[int, ...], kind: hl.Type) -> KernelArguments:
    """Return the buffers of a convolution and its chain.

    Args:
        plan: What is computed.
        weights: Extents of the packed weights, innermost first.
        kind: Their type.
    """
    known = plan.epilogue.argument_extents() | _operator_extents(plan, weights)
    return buffers_of(known, plan.inputs, kind)


def check_plain_arguments(plan: ConvNchwPlan) -> Support:
    """Check that the chain reads an input of the convolution in the same way as it does."""
    chained = [plan.epilogue.argument_extents()]
    return check_read_alike(_operator_extents(plan, ()), chained, plan.inputs)


def pixel(shape: ConvNchwShape, axes: Sequence[hl.Expr], *outer: hl.Expr) -> tuple[hl.Expr, ...]:
    """Return an index of a buffer from three axes, missing axes left out."""
    return *axes[: shape.rank], *outer


def image_with_zeros(
    x: hl.ImageParam, shape: ConvNchwShape, axes: Sequence[hl.Expr], channel: hl.Expr, n: hl.Expr
) -> hl.Expr:
    """Return an element of the image, counted from the first zero in front of it."""
    extents = [
        x.dim(at).extent() if at in shape.open_axes else extent
        for at, extent in enumerate(shape.image_extents)
    ]
    exterior = hl.BoundaryConditions.constant_exterior(
        x, constant(0.0), [(0, extent) for extent in extents]
    )
    moved = [axis - before for axis, before in zip(axes, shape.before, strict=True)]
    value: hl.Expr = exterior[pixel(shape, moved, channel, n)]
    return value


def finished_value(
    plan: ConvNchwPlan, arguments: KernelArguments, summed: hl.Expr, place: Sequence[hl.Var]
) -> hl.Expr:
    """Return one result: bias and the tensor added come before the activation, as in the host.

    Args:
        plan: What is computed.
        arguments: What it is computed from.
        summed: The sum of products at `place`.
        place: Index into the result, innermost first.
    """
    channel = (place[plan.shape.rank],)
    return finished_sum(plan.epilogue, arguments, summed, place, channel)


def _operator_extents(plan: ConvNchwPlan, weights: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Return the extents of the buffers the operator reads, by number."""
    shape = plan.shape
    of_input = {
        X: shape.image_extents,
        WEIGHTS: weights,
        BIAS: (shape.groups * shape.channels_out,),
        SUM: shape.result_extents,
    }
    return {number: of_input[at] for at, number in plan.inputs.items()}
