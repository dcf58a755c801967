"""A workload of moves and a chain: its loops, and where each operand comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoe.kernels.family import SUPPORTED, Support
from aoe.kernels.halide.chain import check_chain
from aoe.kernels.halide.iteration import MAX_ARGUMENTS, MAX_AXES, Axis
from aoe.kernels.halide.shapes import shapes_of
from aoe.kernels.movement.access_maps import CutLoop, Made, NoPlaceError, Variables
from aoe.kernels.movement.loops import Loops, merging, result_loops
from aoe.kernels.movement.moves import (
    Source,
    Tracer,
    operand_sources,
    positions_of,
    segments_of,
    written_in,
)
from aoe.kernels.movement.open_pixels import in_pixels, with_extents
from aoe.operators import (
    KERNEL_DTYPES,
    MOVED_DTYPES,
    OPERATORS,
    REORDER_INPUT,
    STORED_DTYPES,
    OperatorKind,
    Shape,
    facts_of,
    is_reorder,
    op_key,
)
from aoe.operators.element_types import element_types
from aoe.operators.movement import RESHAPE
from aoe.workload import Operation, Workload

_FLOAT32 = "float32"
_CUTS_MAX = 16
"""Loops that may be cut in two for reshapes between moves."""
_PIECE_MIN = 8
"""Elements in a row below which a piece of a Concat costs more than it copies."""
_ELEMENTS_MAX = 1 << 31
"""Elements from which 32 bits do not count a tensor's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Movement:
    """What a kernel of this family does.

    Attributes:
        workload: All of it.
        chain: Element-wise operations behind the moves, in topological order.
        axes: Loops over the result, outermost first; the result is dense over them.
        sources: Where the operands of the chain come from; without a chain, the result.
        made: Variables that are no loops, each behind those it is made of.
    """

    workload: Workload
    chain: tuple[Operation, ...]
    axes: tuple[Axis, ...]
    sources: Mapping[str, Source]
    made: Mapping[str, Made]


def read_movement(workload: Workload) -> Movement | Support:
    """Return the moves of a workload, or the reason why it is not moves with a chain."""
    moves = moves_of(workload)
    checked = _check_moved(workload) if _is_moved_alone(workload) else check_tensors(workload)
    if not checked:
        return checked
    chain = tuple(item for item in workload.operations if item.output not in moves)
    checked = _check_parts(moves, chain, element_types(workload))
    if not checked:
        return checked
    walked = in_pixels(workload, moves.values()) if workload.is_open else workload
    if isinstance(walked, Support):
        return walked
    shapes = _shapes(walked)
    if isinstance(shapes, Support):
        return shapes
    for item in chain:
        last = item.attributes.get("channels_last", 0)
        if is_reorder(item) and (last or shapes[item.inputs[0]] != shapes[item.output]):
            return Support(f"{item.op_type} of what the chain makes")
    made = {item.output for item in chain}
    refs = [ref for item in chain for ref in item.inputs if ref and ref not in made]
    operands, loops = refs if chain else [workload.result], result_loops(walked.output)
    for _ in range(_CUTS_MAX):
        variables = Variables(
            {axis.name: axis.extent for axis in loops.axes},
            divided_when_run=frozenset(axis.name for axis in loops.axes[:-1]),
        )
        tracer = Tracer(walked, shapes, variables)
        try:
            sources = operand_sources(tracer, operands, loops.index())
        except CutLoop as cut:
            loops = loops.cut(cut)
        except NoPlaceError as error:
            return Support(str(error))
        else:
            return _merged(workload, chain, loops, sources, variables.made)
    return Support("reshapes cut too many loops")


def moves_of(workload: Workload) -> Mapping[str, Operation]:
    """Return the operations that move what was read, not what was computed, by their results."""
    moves: dict[str, Operation] = {}
    for item in workload.operations:
        kind = _kind(item)
        read = [ref for ref in item.inputs if ref.startswith("t")]
        if kind in (OperatorKind.MOVEMENT, OperatorKind.REORDER) and moves.keys() >= set(read):
            moves[item.output] = item
    return moves


def _kind(operation: Operation) -> OperatorKind | None:
    """Return the kind of an operation, of a bank perhaps, which may name anything."""
    return facts_of(operation).kind if op_key(operation) in OPERATORS else None


def _shapes(workload: Workload) -> Mapping[str, Shape] | Support:
    """Return the shape of every reference; a reorder at the end may pad the channels."""
    shapes, last = shapes_of(workload), workload.operations[-1]
    if isinstance(shapes, str):
        return Support(shapes)
    found, wanted, block = shapes[workload.result], workload.output.shape, workload.output.block
    if found == wanted:
        return shapes
    pads = op_key(last) == REORDER_INPUT and block and len(found) == 4
    if pads and wanted == (found[0], -(-found[1] // block) * block, *found[2:]):
        return {**shapes, workload.result: wanted}
    return Support(f"the result has shape {found}, not {wanted}")


def _is_moved_alone(workload: Workload) -> bool:
    """True if elements of a type in which kernels do not compute only change their place."""
    kinds = {_kind(operation) for operation in workload.operations}
    return workload.output.dtype in MOVED_DTYPES and kinds == {OperatorKind.MOVEMENT}


def _check_moved(workload: Workload) -> Support:
    """Check that such elements only change their place."""
    made = workload.output.dtype
    if any(spec.dtype != made for spec in workload.inputs):
        return Support(f"{made} beside another type")
    if _pads(workload):
        return Support(f"Pad of {made}")
    plain = replace(workload.output, dtype=_FLOAT32)
    inputs = tuple(replace(spec, dtype=_FLOAT32) for spec in workload.inputs)
    return check_tensors(replace(workload, inputs=inputs, output=plain))


def check_tensors(workload: Workload) -> Support:
    """Check that a kernel can read the types, sizes and layouts of a workload's tensors."""
    block = workload.output.block
    for spec in (*workload.inputs, workload.output):
        if spec.dtype not in KERNEL_DTYPES | STORED_DTYPES:
            return Support(f"a tensor of {spec.dtype}, kernels compute in float32")
        if spec.dtype not in KERNEL_DTYPES and _pads(workload):
            return Support(f"Pad of {spec.dtype}")
        if spec.size >= _ELEMENTS_MAX:
            return Support(f"a tensor of {spec.size} elements")
        block = block or spec.block
        if spec.block not in (0, block):
            return Support(f"blocks of {spec.block} and of {block} channels")
    if len(workload.inputs) >= MAX_ARGUMENTS:
        return Support(f"{len(workload.inputs)} tensors are too many")
    return SUPPORTED


def _pads(workload: Workload) -> bool:
    return any(operation.op_type == "Pad" for operation in workload.operations)


def _check_parts(
    moves: Mapping[str, Operation], chain: tuple[Operation, ...], types: Mapping[str, str]
) -> Support:
    """Check that an operator moves elements, with a chain behind it."""
    late = [item for item in chain if _kind(item) is OperatorKind.MOVEMENT]
    if late:
        return Support(f"{late[0].op_type} of what is computed")
    if not any(_kind(item) is OperatorKind.MOVEMENT for item in moves.values()):
        return Support("nothing is moved")
    if all(op_key(item) == RESHAPE for item in moves.values()):
        return Support("only the shape changes")
    return check_chain(chain, types)


def _merged(
    workload: Workload,
    chain: tuple[Operation, ...],
    loops: Loops,
    sources: Mapping[str, Source],
    made: Mapping[str, Made],
) -> Movement | Support:
    places = [place for source in sources.values() for place in positions_of(source)]
    places += [item.place for item in made.values()]
    axes, written = merging(loops.axes, places)
    if len(axes) > MAX_AXES:
        return Support(f"{len(axes)} loops are too many")
    short = min(segments_of(sources.values(), axes[-1].name), default=_PIECE_MIN)
    if short < _PIECE_MIN:
        return Support(f"pieces of {short} elements in a row")
    return Movement(
        workload=workload,
        chain=chain,
        axes=with_extents(axes, workload.output.shape[2:]),
        sources={ref: written_in(source, written) for ref, source in sources.items()},
        made={name: replace(item, place=written(item.place)) for name, item in made.items()},
    )
