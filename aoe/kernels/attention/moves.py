"""Moves around an attention: heads that are read and written where they lie.

Exporters split `(batch, tokens, heads * size)` into heads by Slice, Reshape and Transpose, and join
the heads of the result. A kernel that reads and writes with the strides of the stored tensors moves
nothing: keys and values are packed anyway, and queries are read once. ViT-S takes 0.975 of the time
it takes with the moves as kernels of their own (one thread with AVX2 of a busy Zen 4, CPU time,
2026-11-28).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from aoe.kernels.family import BufferView, Pipeline, Support
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.movement.access_maps import CutLoop, NoPlaceError, Variables, variable
from aoe.kernels.movement.moves import Read, Tracer, moves_of
from aoe.operators import OperatorKind, Shape, facts_of, op_key
from aoe.operators.movement import permutation
from aoe.workload import Operation, TensorSpec, Workload

_TRANSPOSE = ("", "Transpose")


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedAttention:
    """An attention with the moves around it.

    Attributes:
        workload: The attention without them.
        views: Of its inputs, then of its result, with all dimensions of these tensors.
    """

    workload: Workload
    views: tuple[BufferView, ...]


def apart_from_moves(workload: Workload) -> MovedAttention | Support | None:
    """Return an attention and where its tensors lie, None where nothing is moved around it.

    It says why instead where moves are no strides, or the result is not written in rows.
    """
    operations = list(workload.operations)
    if not any(facts_of(item).kind is OperatorKind.MOVEMENT for item in operations):
        return None
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    back = operations.pop() if op_key(operations[-1]) == _TRANSPOSE else None
    moves = moves_of(workload)
    kept = [item for item in operations if item.output not in moves]
    if not kept or any(facts_of(item).kind is OperatorKind.MOVEMENT for item in kept):
        return Support("moves between the products of an attention")
    made = {item.output for item in kept}
    refs = (ref for item in kept for ref in item.inputs if ref and not ref.startswith("s"))
    read = dict.fromkeys(ref for ref in refs if ref not in made)
    views = []
    for ref in read:
        view = _view_of(workload, ref, shapes)
        if isinstance(view, Support):
            return view
        views.append(view)
    if {view.tensor for view in views} != set(range(len(workload.inputs))):
        return Support("an input that is not read")
    inside = kept[-1].output
    written = _written(back, shapes[inside], workload)
    if isinstance(written, Support):
        return written
    return MovedAttention(
        workload=_renumbered(workload, kept, list(read), shapes),
        views=(*views, written),
    )


def _view_of(workload: Workload, ref: str, shapes: Mapping[str, Shape]) -> BufferView | Support:
    """Return the view, of an input, that an operation reads as a tensor, or why there is none."""
    shape = shapes[ref]
    names = [f"d{at}" for at in range(len(shape))]
    variables = Variables(dict(zip(names, shape, strict=True)))
    index = tuple(map(variable, names, shape))
    try:
        found = Tracer(workload, shapes, variables).trace(ref, index)
    except (CutLoop, NoPlaceError):
        return Support("moves that are more than strides")
    if not isinstance(found, Read) or found.image or variables.made:
        return Support("moves that are more than strides")
    if ref.startswith("t") and workload.inputs[found.number].dtype != "float32":
        return Support("moves of another type than float32")
    return BufferView(
        tensor=found.number,
        strides=tuple(
            # where there is one element, any stride serves; 0 repeats elements, as Expand does
            found.address.coefficient(name) if extent > 1 else 1
            for name, extent in reversed([*zip(names, shape, strict=True)])
        ),
        offset=found.address.offset,
    )


def _written(back: Operation | None, made: Shape, workload: Workload) -> BufferView | Support:
    """Return the view of the result of an attention, whose dimensions a Transpose permutes."""
    order = tuple(range(len(made))) if back is None else permutation(back, len(made))
    if order[-1] != len(made) - 1:
        return Support("columns of the result that are written apart")
    stored = workload.output.shape
    strides = [prod(stored[order.index(at) + 1 :]) for at in reversed(range(len(made)))]
    return BufferView(tensor=len(workload.inputs), strides=tuple(strides))


def _renumbered(
    workload: Workload,
    kept: Sequence[Operation],
    read: Sequence[str],
    shapes: Mapping[str, Shape],
) -> Workload:
    """Return a workload of some operations, whose inputs are what these read."""
    names = {ref: f"x{number}" for number, ref in enumerate(read)}
    inputs = tuple(
        workload.inputs[int(ref[1:])] if ref.startswith("x") else TensorSpec(shape=shapes[ref])
        for ref in read
    )
    operations = tuple(
        replace(item, inputs=tuple(names.get(ref, ref) for ref in item.inputs)) for item in kept
    )
    output = replace(workload.output, shape=shapes[kept[-1].output])
    return replace(workload, inputs=inputs, operations=operations, output=output)


def with_views(
    pipeline: Pipeline,
    tensors: Sequence[BufferView],
    dimensions: Sequence[Sequence[int]],
) -> Pipeline:
    """Return a pipeline that reads and writes where the tensors lie.

    Args:
        pipeline: Of the attention alone.
        tensors: Views of its inputs and its result, with all dimensions of these tensors.
        dimensions: Of its buffers: for each dimension, innermost first, that of the tensor, below 0
            where the tensor has none.
    """
    views = [
        # dimensions count from the outermost, strides from the innermost
        replace(view, strides=tuple(view.strides[~at] if at >= 0 else 1 for at in of_buffer))
        for view, of_buffer in zip(tensors, dimensions, strict=True)
    ]
    # the first view of each input takes its place, further ones follow
    first = {view.tensor: number for number, view in reversed([*enumerate(views[:-1])])}
    order = [first[number] for number in range(len(first))]
    order += [number for number in range(len(views) - 1) if number not in order]
    return replace(
        pipeline,
        arguments=tuple(pipeline.arguments[number] for number in order),
        argument_extents=tuple(pipeline.argument_extents[number] for number in order),
        views={at: views[number] for at, number in enumerate((*order, len(views) - 1))},
    )
