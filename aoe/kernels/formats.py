"""The layout choice of a kernel: what ONNX Runtime reorders in a workload.

A kernel that takes a Reorder or a Transpose in reads or writes the layout on the other side of it,
so that none is done. What that choice alone is worth is what ONNX Runtime's own operators gain
where nothing is reordered, and everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from aoe.kernels.halide.shapes import infer_shapes
from aoe.operators import Shape, is_reorder
from aoe.workload import Operation, Workload


def layout_moves(workload: Workload) -> frozenset[str]:
    """Return the operations that change the layout alone, by the reference they make.

    Reorders wherever they are, and at the borders Transposes, too: what alone reads an input that
    is no constant, and what makes the result. None where nothing computes besides.
    """
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return frozenset()
    moves = frozenset((*_moves(workload, shapes), *_last_moves(workload)))
    return moves if len(moves) < len(workload.operations) else frozenset()


def without_moves(model: onnx.ModelProto, workload: Workload) -> onnx.ModelProto:
    """Return the baseline model of a workload without its `layout_moves`.

    Values pass for values of the other layout, so that it computes something else, in the time it
    would take without reordering.

    Args:
        model: As `workload_model` makes it: inputs `x0`, `x1`, ..., the result the only output.
        workload: What it computes.
    """
    shapes = infer_shapes(workload)
    assert not isinstance(shapes, str)
    moves, last_moves = _moves(workload, shapes), _last_moves(workload)
    found = onnx.ModelProto()
    found.CopyFrom(model)
    graph = found.graph
    for ref, source in moves.items():
        _reshape(graph.input, source, shapes[ref])
    last = next(iter(last_moves.values()), workload.result)
    del graph.node[:]
    for node, operation in zip(model.graph.node, workload.operations, strict=True):
        if operation.output in moves or operation.output in last_moves:
            continue
        kept = graph.node.add()
        kept.CopyFrom(node)
        kept.input[:] = [moves.get(name, name) for name in node.input]
        if operation.output == last:
            kept.output[:] = [graph.output[0].name]
    _reshape(graph.output, graph.output[0].name, shapes[last])
    return found


def _moves(workload: Workload, shapes: Mapping[str, Shape]) -> Mapping[str, str]:
    """Return moves that do not make the result, by what they make, with what takes its place."""
    inputs = {f"x{at}" for at, spec in enumerate(workload.inputs) if not spec.constant}
    last, moves = _last_moves(workload), dict[str, str]()
    for operation in workload.operations:
        read = operation.inputs[0]
        source = moves.get(read, read)
        if operation.output in last or not _changes_layout(operation):
            continue
        is_first = source in inputs and _readers(workload, read) == 1
        alike = is_reorder(operation) and shapes[operation.output] == shapes[read]
        if is_first or (alike and source not in inputs):
            moves[operation.output] = source
    return moves


def _last_moves(workload: Workload) -> Mapping[str, str]:
    """Return moves behind each other that make the result, the first one first: what each reads."""
    made = {operation.output: operation for operation in workload.operations}
    moves: list[tuple[str, str]] = []
    ref = workload.result
    while ref in made and _changes_layout(made[ref]) and _readers(workload, ref) <= 1:
        moves.append((ref, made[ref].inputs[0]))
        ref = made[ref].inputs[0]
    return dict(reversed(moves))


def _changes_layout(operation: Operation) -> bool:
    return is_reorder(operation) or (operation.op_type, operation.domain) == ("Transpose", "")


def _readers(workload: Workload, ref: str) -> int:
    return sum(operation.inputs.count(ref) for operation in workload.operations)


def _reshape(values: Iterable[onnx.ValueInfoProto], name: str, shape: Shape) -> None:
    for value in values:
        if value.name == name:
            dims = value.type.tensor_type.shape.dim
            del dims[:]
            for extent in shape:
                dims.add().dim_value = extent
