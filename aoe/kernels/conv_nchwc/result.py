"""Both ends of every convolution kernel: the buffers it reads, and what follows its sums.

What does not depend on the layout (`buffers_of`, `check_read_alike`, `finished_sum`,
`finished_pipeline`) is for plain tensors too.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import halide as hl

from aoe.kernels.conv_nchwc.shape import BIAS, SUM, WEIGHTS, ConvolutionPlan, X
from aoe.kernels.family import SUPPORTED, UPDATE, PackedInput, Pipeline, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.epilogue import Epilogue
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
        places: Numbers of those the operator reads, by its positions.
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
    """Return the extents of the image, innermost first; those that are open as a buffer has them.

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
        known: Extents of loops that are alike in all stages; a schedule says how far others go.
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
