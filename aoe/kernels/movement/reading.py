"""What a movement reads, as Halide expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import halide as hl

from aoe.kernels.family import Pipeline
from aoe.kernels.halide.chain import RESULT, build_chain, in_type
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.math.elements import element_type, loaded, stored
from aoe.kernels.math.functions import constant
from aoe.kernels.movement.access_maps import Bound, KeptInside, Made, Position
from aoe.kernels.movement.moves import Fill, Read, Source
from aoe.kernels.movement.open_pixels import buffer_extents
from aoe.kernels.movement.windows import SplitAround, WindowReads, tap
from aoe.operators.element_types import element_types
from aoe.workload import Workload

Values = Mapping[str, hl.Expr]
Load = Callable[[hl.Expr, int], hl.Expr]
"""Makes a number of an element, given the input it is read from."""


def read_arguments(workload: Workload, open_rank: int = 1) -> tuple[hl.ImageParam, ...]:
    """Return the buffers of a kernel, each in one dimension but for open ones."""
    return tuple(
        hl.ImageParam(element_type(spec.dtype), open_rank if spec.open else 1, f"x{number}")
        for number, spec in enumerate(workload.inputs)
    )


def as_it_is(read: hl.Expr, number: int) -> hl.Expr:
    """Return an element that is only moved."""
    return read


def loading(workload: Workload) -> Load:
    """Return the function that makes float32 of the elements of a workload's inputs."""
    return lambda read, number: loaded(read, workload.inputs[number].dtype)


def position_variables(variables: Values, made: Mapping[str, Made]) -> Values:
    """Return every variable of a position: the given ones, and what is made of them."""
    known = dict(variables)
    for name, made_of in made.items():
        if isinstance(made_of, KeptInside):
            known[name] = _kept_inside(made_of, known)
        else:
            known[name] = _expression(made_of.place, known) // made_of.divisor
    return known


def element(
    source: Source,
    arguments: Sequence[hl.ImageParam],
    variables: Values,
    scalars: Sequence[float],
    load: Load,
) -> hl.Expr:
    """Return an element, read or chosen.

    Args:
        source: Where it comes from.
        arguments: Buffers of all workload inputs.
        variables: From `position_variables`.
        scalars: Of the workload.
        load: Makes a number of what is read.
    """
    match source:
        case Read(number, address, image):
            places = reversed(address.apart(image)) if image else (address,)
            return load(
                arguments[number][tuple(_expression(at, variables) for at in places)], number
            )
        case Fill(ref):
            return constant(scalars[int(ref[1:])] if ref else 0.0)
    place = _expression(source.place, variables)
    within = hl.likely((place >= source.low) & (place < source.high))
    inside, outside = (
        element(part, arguments, variables, scalars, load)
        for part in (source.inside, source.outside)
    )
    return hl.select(within, inside, outside)


def neighbour(
    split: SplitAround, nest: WindowReads, arguments: Sequence[hl.ImageParam], variables: Values
) -> hl.Expr:
    """Return the element of the image at the taps, which are among the variables."""
    if not split.workload.inputs[nest.read.number].open:
        there = position_variables(variables, nest.made)
        return element(nest.read, arguments, there, (), loading(split.workload))
    known = {**variables, **{names[0]: variables[tap(at)] for at, names in nest.dimensions.items()}}
    value: hl.Expr = arguments[nest.read.number][tuple(known[a.name] for a in reversed(nest.axes))]
    return value


def image_extent(
    split: SplitAround, nest: WindowReads, arguments: Sequence[hl.ImageParam], at: int
) -> int | hl.Expr:
    """Return an extent of the image neighbours are read of: that of its buffer where it is open."""
    number, extent = nest.read.number, split.given[at]
    if at not in split.workload.inputs[number].open:
        return extent
    loops = [axis.name for axis in reversed(nest.axes)]
    return arguments[number].dim(loops.index(nest.dimensions[at][0])).extent()


def window_pipeline(
    split: SplitAround,
    nest: WindowReads,
    arguments: tuple[hl.ImageParam, ...],
    made: hl.Expr,
    stages: Mapping[str, hl.Func],
) -> Pipeline:
    """Return the pipeline of an operation that reads neighbours, with the chain behind it.

    Args:
        split: The operation and its chain.
        nest: Loops over the result.
        arguments: From `read_arguments`.
        made: What the operation makes, for one iteration.
        stages: What `made` reads, by name.
    """
    workload, anchor, types = split.workload, split.anchor, element_types(split.workload)
    variables = tuple(hl.Var(axis.name) for axis in reversed(nest.axes))
    values = {anchor.output: in_type(anchor, made, types[anchor.output])}
    places = position_variables({v.name(): hl.Expr(v) for v in variables}, nest.made)
    for ref, source in nest.sources.items():
        if isinstance(source, Read) and workload.inputs[source.number].open:
            values[ref] = arguments[source.number][variables]
        else:
            values[ref] = element(source, arguments, places, workload.scalars, loading(workload))
    known = build_chain(split.chain, values, workload.scalars, variables, types)
    result = stored(known[workload.result], workload.output.dtype)
    made_there = moved_pipeline(workload, nest.axes, arguments, result, stages)
    return replace(made_there, argument_extents=_buffer_extents(split, nest))


def _buffer_extents(split: SplitAround, nest: WindowReads) -> tuple[tuple[int, ...], ...]:
    """Return the extents of all buffers; open ones have the loops of the result."""
    image = {names[0]: split.given[at] for at, names in nest.dimensions.items()}
    found = []
    for number, spec in enumerate(split.workload.inputs):
        known = image if number == nest.read.number else {}
        extents = tuple(known.get(axis.name, axis.extent) for axis in reversed(nest.axes))
        found.append(extents if spec.open else (spec.size,))
    return tuple(found)


def moved_pipeline(
    workload: Workload,
    axes: Sequence[Axis],
    arguments: tuple[hl.ImageParam, ...],
    result: hl.Expr,
    stages: Mapping[str, hl.Func],
) -> Pipeline:
    """Return the pipeline of a result in its loops.

    Args:
        workload: What is computed.
        axes: Loops over the result, outermost first.
        arguments: From `read_arguments`.
        result: One element.
        stages: What it reads, by name; a schedule says how far their loops go.
    """
    output, nest = hl.Func(RESULT), tuple((axis.name, axis.extent) for axis in reversed(axes))
    output[tuple(hl.Var(name) for name, _ in nest)] = result
    unbounded = {name: tuple((v.name(), 0) for v in f.args()) for name, f in stages.items()}
    return Pipeline(
        output=output,
        stages={RESULT: output, **stages},
        arguments=arguments,
        argument_extents=tuple(buffer_extents(spec) for spec in workload.inputs),
        output_extents=tuple(extent for _, extent in nest),
        loops={RESULT: nest, **unbounded},
    )


def _expression(place: Position, variables: Values) -> hl.Expr:
    total = hl.i32(place.offset)
    for name, coefficient in place.terms:
        total = total + variables[name] * coefficient
    return total


def _kept_inside(kept: KeptInside, variables: Values) -> hl.Expr:
    at, last = _expression(kept.place, variables), kept.extent - 1
    inside = hl.likely((at >= 0) & (at <= last))
    if kept.bound is Bound.REFLECT:
        before = hl.max(at, -at)
        behind = last - before
        at = hl.select(inside, at, last - hl.max(behind, -behind))
    elif kept.bound is Bound.WRAP:
        at = hl.select(inside, at, hl.select(at < 0, at + kept.extent, at - kept.extent))
    return hl.clamp(hl.likely(at), 0, last)
