"""Kernels that read some neighbours along some dimensions: their loops, and what is read where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoe.kernels.family import Support
from aoe.kernels.halide.chain import check_around
from aoe.kernels.halide.iteration import MAX_AXES, Axis
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.movement.access_maps import (
    CutLoop,
    Made,
    NoPlaceError,
    Position,
    Variables,
    variable,
)
from aoe.kernels.movement.loops import Loops, merging
from aoe.kernels.movement.moves import (
    Read,
    Source,
    Tracer,
    operand_sources,
    positions_of,
    written_in,
)
from aoe.kernels.movement.plan import check_tensors, moves_of
from aoe.operators import Shape
from aoe.workload import Operation, Workload

_CUTS_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitAround:
    """A workload split at the operation that reads neighbours.

    Attributes:
        workload: All of it.
        anchor: The operation; what it reads is moved at most.
        chain: Operations behind it, in topological order.
        shapes: Of every reference.
    """

    workload: Workload
    anchor: Operation
    chain: tuple[Operation, ...]
    shapes: Mapping[str, Shape]

    @property
    def given(self) -> Shape:
        """Shape of what the anchor reads."""
        return self.shapes[self.anchor.inputs[0]]

    @property
    def made(self) -> Shape:
        """Shape of what the anchor makes."""
        return self.shapes[self.anchor.output]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReads:
    """Loops and reads around such an operation.

    Attributes:
        axes: Loops over the result, outermost first; the result is dense over them.
        dimensions: For each dimension neighbours are read along, its loops, outermost first.
        read: The element at the taps: variables called `tap(dimension)`.
        made: Variables that are neither loops nor taps, each behind those it is made of.
        sources: Where the other operands of the chain come from.
    """

    axes: tuple[Axis, ...]
    dimensions: Mapping[int, tuple[str, ...]]
    read: Read
    made: Mapping[str, Made]
    sources: Mapping[str, Source]


def tap(dimension: int) -> str:
    """Return the variable of the element that is read along a dimension."""
    return f"tap{dimension}"


def split_around(workload: Workload, anchor: Operation) -> SplitAround | Support:
    """Return a workload split at an operation, or why it is not one with a chain behind it."""
    checked = check_tensors(workload)
    if not checked:
        return checked
    moves = moves_of(workload)
    done = {anchor.output, *moves}
    chain = tuple(item for item in workload.operations if item.output not in done)
    checked = check_around(workload, anchor, chain)
    if not checked:
        return checked
    if not anchor.inputs[0].startswith("x") and anchor.inputs[0] not in moves:
        return Support(f"{anchor.op_type} reads a computed value")
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    made, result = shapes[anchor.output], workload.output.shape
    if len(made) != len(result) or made[2:] != result[2:] or made[0] != result[0]:
        return Support("what follows changes the shape")  # channels may be cropped
    split = SplitAround(workload=workload, anchor=anchor, chain=chain, shapes=shapes)
    if workload.is_open and not _is_alike(split):
        return Support("open images of other layouts, types or extents than the result")
    return split


def _is_alike(split: SplitAround) -> bool:
    """True if the loops of the result read every open image."""
    output, read = split.workload.output, split.anchor.inputs[0]
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
    read = tracer.trace(around.anchor.inputs[0], there)
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
