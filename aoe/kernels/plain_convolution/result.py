"""Both ends of every kernel here: the buffers it reads, and what follows its sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import halide as hl

from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.math.functions import constant
from aoe.kernels.math.normalization import apply_activation
from aoe.kernels.plain_convolution.shape import BIAS, SUM, WEIGHTS, PlainPlan, PlainShape, X


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainArguments:
    """Buffers a kernel reads.

    Attributes:
        buffers: In the order of the workload's inputs.
        extents: Of each, innermost first.
        places: Their numbers, by the operator's positions.
    """

    buffers: tuple[hl.ImageParam, ...]
    extents: tuple[tuple[int, ...], ...]
    places: Mapping[int, int]

    def at(self, position: int) -> hl.ImageParam:
        """Return what the operator reads at a position."""
        return self.buffers[self.places[position]]


def plain_arguments(plan: PlainPlan, weights: tuple[int, ...], kind: hl.Type) -> PlainArguments:
    """Return the buffers of a convolution and its chain.

    Args:
        plan: What is computed.
        weights: Extents of the packed weights, innermost first.
        kind: Their type.
    """
    known = plan.epilogue.argument_extents() | _operator_extents(plan, weights)
    extents = tuple(known[number] for number in range(len(plan.workload.inputs)))
    filters = plan.inputs[WEIGHTS]
    buffers = tuple(
        hl.ImageParam(kind if number == filters else hl.Float(32), len(extent), f"x{number}")
        for number, extent in enumerate(extents)
    )
    return PlainArguments(buffers=buffers, extents=extents, places=plan.inputs)


def check_plain_arguments(plan: PlainPlan) -> Support:
    """Tell whether the chain reads what the convolution reads, if anything, in the same way."""
    read, behind = _operator_extents(plan, ()), plan.epilogue.argument_extents()
    filters = plan.inputs[WEIGHTS]
    if filters in behind or list(plan.inputs.values()).count(filters) > 1:
        return Support("the weights are read as something else too")
    for number in set(read) & set(behind):
        if read[number] != behind[number]:
            return Support(f"input {number} is read in two ways")
    return SUPPORTED


def pixel(shape: PlainShape, axes: Sequence[hl.Expr], *outer: hl.Expr) -> tuple[hl.Expr, ...]:
    """Return an index of a buffer from three axes, those that are missing left out."""
    return *axes[: shape.rank], *outer


def image_with_zeros(
    x: hl.ImageParam, shape: PlainShape, axes: Sequence[hl.Expr], channel: hl.Expr, n: hl.Expr
) -> hl.Expr:
    """Return an element of the image, counted from the first zero in front of it."""
    exterior = hl.BoundaryConditions.constant_exterior(
        x, constant(0.0), [(0, extent) for extent in shape.image_extents]
    )
    moved = [axis - before for axis, before in zip(axes, shape.before, strict=True)]
    value: hl.Expr = exterior[pixel(shape, moved, channel, n)]
    return value


def finished_value(
    plan: PlainPlan, arguments: PlainArguments, summed: hl.Expr, place: Sequence[hl.Var]
) -> hl.Expr:
    """Return one result: bias and the tensor added come before the activation, as in the host.

    Args:
        plan: What is computed.
        arguments: What it is computed from.
        summed: The sum of products at `place`.
        place: Index into the result, innermost first.
    """
    value = summed
    if BIAS in arguments.places:
        value = value + arguments.at(BIAS)[place[plan.shape.rank]]
    if SUM in arguments.places:
        value = value + arguments.at(SUM)[tuple(place)]
    total = hl.Func("total")
    total[tuple(place)] = value
    made = apply_activation(total[tuple(place)], plan.epilogue.product.attributes)
    return plan.epilogue.value(arguments.buffers, made, place)


def _operator_extents(plan: PlainPlan, weights: tuple[int, ...]) -> dict[int, tuple[int, ...]]:
    """Return the extents of the buffers the operator reads, by number."""
    shape = plan.shape
    of_input = {
        X: shape.image_extents,
        WEIGHTS: weights,
        BIAS: (shape.groups * shape.channels_out,),
        SUM: shape.result_extents,
    }
    return {number: of_input[at] for at, number in plan.inputs.items()}
