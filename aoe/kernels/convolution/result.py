"""Both ends of every convolution kernel: the buffers it reads, and what follows its sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import halide as hl

from aoe.kernels.convolution.shape import BIAS, SUM, WEIGHTS, ConvolutionPlan, ConvolutionShape, X
from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.math.functions import constant
from aoe.kernels.math.normalization import apply_activation


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelArguments:
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


def kernel_arguments(
    plan: ConvolutionPlan, weights: tuple[int, ...], kind: hl.Type | None = None
) -> KernelArguments:
    """Return the buffers of a convolution and its chain.

    Args:
        plan: What is computed.
        weights: Extents of the packed weights, innermost first.
        kind: Their type, float32 if not given.
    """
    extents = _extents(plan, weights)
    filters = plan.inputs[WEIGHTS]
    single = hl.Float(32)
    buffers = tuple(
        hl.ImageParam(kind or single if number == filters else single, len(extent), f"x{number}")
        for number, extent in enumerate(extents)
    )
    return KernelArguments(buffers=buffers, extents=extents, places=plan.inputs)


def image_read(plan: ConvolutionPlan, arguments: KernelArguments) -> hl.ImageParam | hl.Func:
    """Return the image: what the operator reads, or what the chain in front makes of inputs."""
    if plan.prologue is None:
        return arguments.at(X)
    image, place = hl.Func("image"), tuple(hl.Var(name) for name in ("c", "w", "h", "b", "n"))
    image[place] = plan.prologue.value(arguments.buffers, place)
    return image


def padded_image(
    x: hl.ImageParam | hl.Func, shape: ConvolutionShape, place: Sequence[hl.Var]
) -> hl.Expr:
    """Return a value of the image with its zeros around it.

    Args:
        x: The image.
        shape: What is computed of it.
        place: Index into it, innermost first; columns and rows are counted from the zeros.
    """
    exterior = hl.BoundaryConditions.constant_exterior(
        x, constant(0.0), [(0, extent) for extent in shape.image_extents]
    )
    top, left = shape.pads[:2]
    moved: list[hl.Expr] = list(place)
    column = 0 if shape.is_stem else 1
    moved[column], moved[column + 1] = place[column] - left, place[column + 1] - top
    value: hl.Expr = exterior[tuple(moved)]
    return value


def check_arguments(plan: ConvolutionPlan) -> Support:
    """Tell whether the chains read what the convolution reads, if anything, in the same way."""
    read, chained = _operator_extents(plan, ()), _chained_extents(plan)
    filters = plan.inputs[WEIGHTS]
    if any(filters in known for known in chained) or [*plan.inputs.values()].count(filters) > 1:
        return Support("the weights are read as something else too")
    for known in chained:
        for number, extents in known.items():
            if read.setdefault(number, extents) != extents:
                return Support(f"input {number} is read in two ways")
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
    value = summed
    if BIAS in arguments.places:
        value = value + arguments.at(BIAS)[place[0], place[3]]
    if SUM in arguments.places:
        value = value + arguments.at(SUM)[tuple(place)]
    total = hl.Func("total")
    total[tuple(place)] = value
    made = apply_activation(total[tuple(place)], plan.epilogue.product.attributes)
    return plan.epilogue.value(arguments.buffers, made, place)


def _extents(plan: ConvolutionPlan, weights: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    known = _operator_extents(plan, weights)
    for chained in _chained_extents(plan):
        known = chained | known
    return tuple(known[number] for number in range(len(plan.workload.inputs)))


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
        SUM: shape.result_extents,
    }
    return {number: of_input[at] for at, number in plan.inputs.items()}
