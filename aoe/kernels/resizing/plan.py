"""A workload of one interpolation and the chain behind it: loops, taps, and what is read where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoe.kernels.family import Support
from aoe.kernels.halide.chain import check_chain
from aoe.kernels.halide.iteration import MAX_AXES, Axis
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.movement.loops import Loops, merging, result_loops
from aoe.kernels.movement.moves import (
    Read,
    Source,
    Tracer,
    operand_sources,
    positions_of,
    written_in,
)
from aoe.kernels.movement.places import CutLoop, Made, NoPlaceError, Position, Variables, variable
from aoe.kernels.movement.plan import check_tensors, moves_of
from aoe.kernels.resizing.taps import Taps, check_interpolation, coordinates_of, cubic_of
from aoe.operators import Shape, op_key
from aoe.operators.movement import RESIZES, interpolates, resize_scales
from aoe.workload import Operation, Workload

_WOVEN_MAX = 4
"""Results per element up to which their vectors are woven into one another."""
_CUTS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """A dimension that is resized.

    Attributes:
        taps: How.
        loop: The loop over the results.
        rest: The loop over the results that have an element in common, innermost; empty where
            there is none.
        tap: Variable of the element that is read.
    """

    taps: Taps
    loop: str
    rest: str
    tap: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resizing:
    """What a kernel of this family does.

    Attributes:
        workload: All of it.
        resize: The operation that interpolates.
        chain: Operations behind it, in topological order.
        axes: Loops over the result, outermost first; the result is dense over them.
        dimensions: Those that are resized, outermost first.
        read: The element at the taps.
        made: Variables that are neither loops nor taps, each behind those it is made of.
        sources: Where the other operands of the chain come from.
    """

    workload: Workload
    resize: Operation
    chain: tuple[Operation, ...]
    axes: tuple[Axis, ...]
    dimensions: tuple[Dimension, ...]
    read: Read
    made: Mapping[str, Made]
    sources: Mapping[str, Source]

    @property
    def last(self) -> Dimension:
        """The innermost of the resized dimensions."""
        return self.dimensions[-1]


def read_resizing(workload: Workload) -> Resizing | Support:
    """Return how a workload interpolates, or why it is not one interpolation with a chain."""
    checked = check_tensors(workload)
    if not checked:
        return checked
    at = [op for op in workload.operations if interpolates(op_key(op), op.attributes)]
    if len(at) != 1:
        return Support(f"{len(at)} interpolations")
    resize, moves = at[0], moves_of(workload)
    checked = check_interpolation(resize)
    if not checked:
        return checked
    done = {resize.output, *moves}
    chain = tuple(item for item in workload.operations if item.output not in done)
    checked = check_chain(chain)
    if not checked:
        return checked
    source = resize.inputs[0]
    if not source.startswith("x") and source not in moves:
        return Support(f"{resize.op_type} reads a computed value")
    if any(op_key(item) in RESIZES for item in moves.values()):
        return Support("two resizes")
    return _planned(workload, resize, chain)


def _planned(
    workload: Workload, resize: Operation, chain: tuple[Operation, ...]
) -> Resizing | Support:
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    made, shape = shapes[resize.output], shapes[resize.inputs[0]]
    result = workload.output.shape
    if len(made) != len(result) or made[2:] != result[2:] or made[0] != result[0]:
        return Support("what follows changes the shape")
    scales = resize_scales(resize, shape)
    resized = {
        at: Taps(
            extent=shape[at],
            made=made[at],
            scale=scales[at],
            coordinates=coordinates_of(resize),
            cubic=cubic_of(resize),
        )
        for at in range(len(shape))
        if made[at] != shape[at] or scales[at] != 1.0
    }
    if not 1 <= len(resized) <= 3:
        return Support(f"{len(resized)} dimensions are resized")
    if any(taps.made == 1 for taps in resized.values()):
        return Support("a dimension of one result")
    last = resized[max(resized)]
    loops = result_loops(workload.output)
    is_woven = 2 <= last.factor <= _WOVEN_MAX and max(resized) == len(result) - 1
    if is_woven and not workload.output.block:
        loops = loops.cut(CutLoop(loops.dimensions[-1][-1], last.factor))
    for _ in range(_CUTS_MAX):
        dimensions = tuple(
            _dimension(taps, loops.dimensions[at], f"tap{at}") for at, taps in resized.items()
        )
        try:
            return _merged(workload, _Parts(resize, chain, shapes, dimensions, loops))
        except CutLoop as cut:
            loops = loops.cut(cut)
        except NoPlaceError as error:
            return Support(str(error))
    return Support("loops cannot be cut")


@dataclass(frozen=True, slots=True)
class _Parts:
    resize: Operation
    chain: tuple[Operation, ...]
    shapes: Mapping[str, Shape]
    dimensions: tuple[Dimension, ...]
    loops: Loops


def _dimension(taps: Taps, names: tuple[str, ...], tap: str) -> Dimension:
    rest = names[-1] if len(names) > 1 else ""
    return Dimension(taps=taps, loop=names[0], rest=rest, tap=tap)


def _merged(workload: Workload, parts: _Parts) -> Resizing | Support:
    """Return the plan over as few loops as there can be.

    Raises:
        CutLoop: it is possible once a loop is cut.
        NoPlaceError: it is not possible.
    """
    loops, dimensions, index = parts.loops, parts.dimensions, parts.loops.index()
    variables = Variables(
        {axis.name: axis.extent for axis in loops.axes}
        | {item.tap: item.taps.extent for item in dimensions},
        divided_when_run=frozenset(axis.name for axis in loops.axes[:-1]),
    )
    tracer = Tracer(workload, parts.shapes, variables)
    taken = {names: item for item in dimensions for names in (item.loop, item.rest) if names}
    there = tuple(
        variable(taken[names[0]].tap, taken[names[0]].taps.extent) if names[0] in taken else place
        for names, place in zip(loops.dimensions, index, strict=True)
    )
    read = tracer.trace(parts.resize.inputs[0], there)
    if not isinstance(read, Read):
        raise NoPlaceError("pieces or borders in front of an interpolation")
    made = {parts.resize.output, *(item.output for item in parts.chain)}
    refs = [ref for item in parts.chain for ref in item.inputs if ref and ref not in made]
    sources = operand_sources(tracer, refs, index)
    alone = [Position(0, ((name, 1),)) for name in taken]
    places = [place for source in (read, *sources.values()) for place in positions_of(source)]
    places += [item.place for item in variables.made.values()]
    axes, written = merging(loops.axes, [*places, *alone])
    if len(axes) > MAX_AXES:
        return Support(f"{len(axes)} loops are too many")
    return Resizing(
        workload=workload,
        resize=parts.resize,
        chain=parts.chain,
        axes=axes,
        dimensions=dimensions,
        read=replace(read, address=written(read.address)),
        sources={ref: written_in(source, written) for ref, source in sources.items()},
        made={n: replace(item, place=written(item.place)) for n, item in variables.made.items()},
    )
