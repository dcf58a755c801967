"""Elements a kernel reads of moved tensors, and neighbours around them, as Halide expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import halide as hl

from aoe.kernels.elementwise_ops import ELEMENTWISE_OPS
from aoe.kernels.family import Pipeline, Support
from aoe.kernels.halide.chain import RESULT, build_chain, check_around, in_type
from aoe.kernels.halide.iteration import MAX_AXES, Axis
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.math.elements import element_type, loaded, stored
from aoe.kernels.math.functions import constant
from aoe.kernels.movement.access_maps import (
    Bound,
    CutLoop,
    KeptInside,
    Loops,
    Made,
    NoPlaceError,
    Position,
    Variables,
    merging,
    variable,
)
from aoe.kernels.movement.moves import (
    Fill,
    Read,
    Source,
    Tracer,
    buffer_extents,
    check_tensors,
    moves_of,
    operand_sources,
    positions_of,
    written_in,
)
from aoe.operators import Shape, op_key
from aoe.operators.element_types import element_types
from aoe.workload import Operation, Workload

_CUTS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAround:
    """A workload split at the operation that reads neighbours."""

    workload: Workload  # All of it
    anchor: Operation  # The operation; what it reads is moved at most, then dequantised
    chain: tuple[Operation, ...]  # Operations behind it, in topological order
    # The DequantizeLinear in front of it, by one scale; None where it reads numbers.
    dequantised: Operation | None = None
    shapes: Mapping[str, Shape]  # Of every reference

    @property
    def given(self) -> Shape:
        """Shape of what the anchor reads."""
        return self.shapes[self.anchor.inputs[0]]

    @property
    def made(self) -> Shape:
        """Shape of what the anchor makes."""
        return self.shapes[self.anchor.output]

    @property
    def image(self) -> str:
        """Reference of the tensor neighbours are read of."""
        return (self.dequantised or self.anchor).inputs[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReads:
    """Loops and reads around such an operation."""

    axes: tuple[Axis, ...]  # Loops over the result, outermost first; the result is dense over them
    # For each dimension neighbours are read along, its loops, outermost first.
    dimensions: Mapping[int, tuple[str, ...]]
    read: Read  # The element at the taps: variables called `tap(dimension)`
    # Variables that are neither loops nor taps, each behind those it is made of.
    made: Mapping[str, Made]
    sources: Mapping[str, Source]  # Where the other operands of the chain come from


def tap(dimension: int) -> str:
    """Return the variable of the element that is read along a dimension."""
    return f"tap{dimension}"


def split_around(
    workload: Workload, anchor: Operation, *, dequantises: bool = False
) -> SplitAround | Support:
    """Return a workload split at an operation, or why it is not one with a chain behind it.

    Args:
        workload: What is computed.
        anchor: The operation.
        dequantises: True if levels in front of it are dequantised where they are read.
    """
    checked = check_tensors(workload)
    if not checked:
        return checked
    moves = moves_of(workload)
    done = {anchor.output, *moves}
    chain = tuple(item for item in workload.operations if item.output not in done)
    checked = check_around(workload, anchor, chain)
    if not checked:
        return checked
    dequantised = _dequantised(workload, anchor) if dequantises else None
    if dequantised is not None:
        chain = tuple(item for item in chain if item is not dequantised)
    image = (dequantised or anchor).inputs[0]
    if not image.startswith("x") and image not in moves:
        return Support(f"{anchor.op_type} reads a computed value")
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    made, result = shapes[anchor.output], workload.output.shape
    if len(made) != len(result) or made[2:] != result[2:] or made[0] != result[0]:
        return Support("what follows changes the shape")  # channels may be cropped
    split = SplitAround(
        workload=workload, anchor=anchor, chain=chain, shapes=shapes, dequantised=dequantised
    )
    if workload.is_open and not _is_alike(split):
        return Support("open images of other layouts, types or extents than the result")
    return split


def _dequantised(workload: Workload, anchor: Operation) -> Operation | None:
    """Return the DequantizeLinear by one scale that `anchor` alone reads; None if there is none."""
    makers = [item for item in workload.operations if item.output == anchor.inputs[0]]
    if not makers or op_key(makers[0]) != ("", "DequantizeLinear"):
        return None
    readers = [item for item in workload.operations if makers[0].output in item.inputs]
    read = [int(ref[1:]) for ref in makers[0].inputs[1:] if ref.startswith("x")]
    is_of_one = all(workload.inputs[number].size == 1 for number in read)
    return makers[0] if readers == [anchor] and is_of_one else None


def _is_alike(split: SplitAround) -> bool:
    """True if the loops of the result read every open image."""
    output, read = split.workload.output, split.image
    chained = {ref for item in split.chain for ref in item.inputs}
    if not read.startswith("x") or (read in chained and split.given != split.made):
        return False
    shapes = {**split.shapes, read: (*split.given[:2], *output.shape[2:])}
    return all(
        spec.dtype == "float32"
        and spec.block == output.block
        and (not spec.open or shapes[f"x{number}"] == output.shape)
        for number, spec in enumerate(split.workload.inputs)
        if spec.open or f"x{number}" == read
    )


def read_neighbours(
    around: SplitAround, along: frozenset[int], loops: Loops
) -> WindowReads | Support:
    """Return as few loops as there can be, and what is read in them.

    Args:
        around: The operation.
        along: Dimensions it reads neighbours along; their loops stay apart.
        loops: Over the result.
    """
    for _ in range(_CUTS_MAX):
        try:
            return _read(around, along, loops)
        except CutLoop as cut:
            loops = loops.cut(cut)
        except NoPlaceError as error:
            return Support(str(error))
    return Support("loops cannot be cut")


def _read(around: SplitAround, along: frozenset[int], loops: Loops) -> WindowReads | Support:
    index, given = loops.index(), around.given
    variables = Variables(
        {axis.name: axis.extent for axis in loops.axes} | {tap(at): given[at] for at in along},
        divided_when_run=frozenset(axis.name for axis in loops.axes[:-1]),
    )
    tracer = Tracer(around.workload, around.shapes, variables)
    there = tuple(
        variable(tap(at), given[at]) if at in along else place for at, place in enumerate(index)
    )
    read = tracer.trace(around.image, there)
    if not isinstance(read, Read):
        raise NoPlaceError("pieces or borders in front of what reads neighbours")
    made = {around.anchor.output, *(item.output for item in around.chain)}
    refs = [ref for item in around.chain for ref in item.inputs if ref and ref not in made]
    sources = operand_sources(tracer, refs, index)
    dimensions = {at: loops.dimensions[at] for at in sorted(along)}
    apart = [Position(0, ((name, 1),)) for names in dimensions.values() for name in names]
    places = [place for source in (read, *sources.values()) for place in positions_of(source)]
    places += [item.place for item in variables.made.values()]
    axes, written = merging(loops.axes, [*places, *apart])
    if len(axes) > MAX_AXES:
        return Support(f"{len(axes)} loops are too many")
    return WindowReads(
        axes=axes,
        dimensions=dimensions,
        read=replace(read, address=written(read.address)),
        made={n: replace(item, place=written(item.place)) for n, item in variables.made.items()},
        sources={ref: written_in(source, written) for ref, source in sources.items()},
    )


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
        there, load = position_variables(variables, nest.made), loading(split.workload)
        found = element(nest.read, arguments, there, (), load)
        return _number(split, arguments, found) if split.dequantised is not None else found
    known = {**variables, **{names[0]: variables[tap(at)] for at, names in nest.dimensions.items()}}
    value: hl.Expr = arguments[nest.read.number][tuple(known[a.name] for a in reversed(nest.axes))]
    return value


def _number(split: SplitAround, arguments: Sequence[hl.ImageParam], level: hl.Expr) -> hl.Expr:
    """Return the number of an integer level, by the scale and zero point of its tensor."""
    operation, workload = split.dequantised, split.workload
    assert operation is not None
    values = [level]
    for ref in operation.inputs[1:]:
        number = int(ref[1:])
        if ref.startswith("s"):
            values.append(constant(workload.scalars[number]))
        else:
            values.append(loaded(arguments[number][0], workload.inputs[number].dtype))
    rule = ELEMENTWISE_OPS[op_key(operation)]
    return rule.build(values, operation.attributes, operation.version)


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
