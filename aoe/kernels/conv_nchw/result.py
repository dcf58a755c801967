"""Both ends of every kernel here: the buffers it reads, and what follows its sums."""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from aoe.kernels.conv_nchw.shape import BIAS, SUM, WEIGHTS, ConvNchwPlan, ConvNchwShape, X
from aoe.kernels.conv_nchwc.result import (
    KernelArguments,
    buffers_of,
    check_read_alike,
    finished_sum,
)
from aoe.kernels.family import Support
from aoe.kernels.math.functions import constant


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
    """Return an index of a buffer from three axes, those that are missing left out."""
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
