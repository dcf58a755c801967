"""A subgraph that takes its batch in pieces, so that what flows inside it stays in the caches.

Only where every node treats the rows of a batch alike, and names the batch nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.protos import copied
from aoe.graph.subgraphs.segment import Segment
from aoe.graph.weights import array_of

_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
_ROW_BY_ROW = frozenset(
    (
        *("Abs", "Add", "AveragePool", "BatchNormalization", "Ceil", "Clip", "Concat", "Conv"),
        *("ConvTranspose", "DepthToSpace", "Div", "Elu", "Erf", "Exp", "Flatten", "Floor", "Gelu"),
        *("Gemm", "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "HardSigmoid"),
        *("HardSwish", "Identity", "InstanceNormalization", "LRN", "LayerNormalization"),
        *("LeakyRelu", "Log", "MatMul", "Max", "MaxPool", "Min", "Mish", "Mul", "Neg", "PRelu"),
        *(
            "Pow",
            "Reciprocal",
            *_REDUCTIONS,
            "Relu",
            "Selu",
            "Sigmoid",
            "Sign",
            "Softmax",
            "Softplus",
            "Split",
        ),
        *("Softsign", "SpaceToDepth", "Sqrt", "Sub", "Tanh", "Transpose"),
    )
)
_WEIGHTS = frozenset({("Conv", 1), ("ConvTranspose", 1), ("Gemm", 1), ("MatMul", 1)})
_CHUNKS_MAX = 4


def chunkings(segment: Segment, *, uneven: bool) -> tuple[tuple[int, ...], ...]:
    """Return the ways the batch of a subgraph can be cut, none if it cannot be.

    Args:
        segment: The subgraph.
        uneven: True for pieces of different size too, where they cannot all be alike.
    """
    batch = batch_of(segment)
    if batch is None:
        return ()
    ways = []
    for count in range(2, min(batch, _CHUNKS_MAX) + 1):
        small, more = divmod(batch, count)
        if not more or uneven:
            ways.append((small + 1,) * more + (small,) * (count - more))
    return tuple(ways)


def batch_of(segment: Segment) -> int | None:
    """Return the batch of a subgraph that may be cut, else None.

    Every tensor that is no constant has it as its first extent, and so no node makes another
    axis of it.
    """
    graph = segment.graph
    made = [name for node in graph.nodes for name in node.output if name]
    first = set()
    for name in (*segment.inputs, *made):
        info = graph.find_info(name)
        first.add(info.shape[0] if info is not None and info.shape else None)
    batch = first.pop() if len(first) == 1 else None
    if batch is None or batch < 2 or not segment.inputs:
        return None
    return batch if all(_is_row_by_row(graph, node, batch) for node in graph.nodes) else None


def _is_row_by_row(graph: ModelGraph, node: onnx.NodeProto, batch: int) -> bool:
    """True if a node computes each row of its batch from that row alone."""
    if node.domain or node.op_type not in _ROW_BY_ROW:
        return False
    rank, attributes = _rank(graph, node), attributes_of(node)
    match node.op_type:
        case "Concat" | "Split" | "Softmax" | "LayerNormalization":
            axis = attributes.get("axis", 0 if node.op_type == "Split" else -1)
            if axis % rank == 0:
                return False
        case "Flatten":
            if attributes.get("axis", 1) % rank != 1:
                return False
        case "Transpose":
            if attributes.get("perm", (rank,))[0] != 0:
                return False
        case "Gemm":
            if attributes.get("transA", 0):
                return False
        case "BatchNormalization":
            if attributes.get("training_mode", 0):
                return False
        case "MatMul":
            return _is_row_by_row_product(graph, node)
        case name if name in _REDUCTIONS:
            return _keeps_rows(graph, node, attributes.get("axes"))
    return all(
        _goes_with_rows(graph, name, rank, batch, is_weight=(node.op_type, at) in _WEIGHTS)
        for at, name in enumerate(node.input)
        if name
    )


def _goes_with_rows(
    graph: ModelGraph, name: str, rank: int, batch: int, *, is_weight: bool
) -> bool:
    """True if an input is the same for every row of the batch, or its first axis is the batch."""
    if name in graph.initializers:
        # a constant with the extent of the batch has a value for each of its rows
        return is_weight or not _spans_batch(graph, name, rank, batch)
    info = graph.find_info(name)
    # of fewer axes, the first one is broadcast to another than the batch
    return not is_weight and info is not None and len(info.shape) == rank


def _keeps_rows(graph: ModelGraph, node: onnx.NodeProto, axes: Sequence[int] | None) -> bool:
    """True if a reduction leaves the first axis alone; without axes it takes all."""
    if len(node.input) > 1 and node.input[1]:
        tensor = graph.initializers.get(node.input[1])
        axes = None if tensor is None else array_of(tensor).reshape(-1).tolist()
    info = graph.find_info(node.input[0])
    return bool(axes) and info is not None and all(a % len(info.shape) for a in axes or ())


def _is_row_by_row_product(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    left, right = (graph.find_info(name) for name in node.input)
    if left is None or right is None or node.input[0] in graph.initializers:
        return False
    if node.input[1] in graph.initializers:
        return len(left.shape) >= 2 and len(right.shape) <= 2
    return len(left.shape) == len(right.shape) > 2


def _spans_batch(graph: ModelGraph, name: str, rank: int, batch: int) -> bool:
    shape = graph.initializers[name].dims
    return len(shape) >= rank and shape[0] == batch


def _rank(graph: ModelGraph, node: onnx.NodeProto) -> int:
    infos = (graph.find_info(name) for name in (*node.output, *node.input) if name)
    return max((len(info.shape) for info in infos if info is not None), default=1)


def in_chunks(
    segment: Segment, rewrite: onnx.ModelProto, chunks: Sequence[int]
) -> onnx.ModelProto | str:
    """Return a rewrite of a subgraph that runs on one piece of the batch after another.

    Args:
        segment: The subgraph.
        rewrite: What is computed for each piece, with the inputs and outputs of the subgraph.
        chunks: Extents of the pieces.
    """
    batch = batch_of(segment)
    if batch is None or sum(chunks) != batch:
        return f"its batch cannot be cut into {'+'.join(map(str, chunks))}"
    odd = [node.op_type for node in rewrite.graph.node if node.op_type not in _ROW_BY_ROW]
    if odd:
        return f"a rewrite made a {odd[0]} of it, which may name the batch"
    model = copied(rewrite)
    graph = model.graph
    bodies = list(graph.node)
    del graph.node[:], graph.value_info[:]
    sizes = f"{segment.outputs[0]}/chunks"
    graph.initializer.append(numpy_helper.from_array(np.array(chunks, np.int64), sizes))
    version = segment.graph.opset("")
    for name in segment.inputs:
        parts = [_part(name, at) for at in range(len(chunks))]
        graph.node.append(_split(name, parts, sizes, chunks, version))
    for at in range(len(chunks)):
        graph.node.extend(_body(bodies, at, segment))
    for name in segment.outputs:
        parts = [_part(name, at) for at in range(len(chunks))]
        graph.node.append(helper.make_node("Concat", parts, [name], f"{name}/joined", axis=0))
    return model


def _split(
    name: str, parts: Sequence[str], sizes: str, chunks: Sequence[int], version: int
) -> onnx.NodeProto:
    if version < 13:  # the sizes were an attribute
        return helper.make_node("Split", [name], parts, f"{name}/cut", axis=0, split=list(chunks))
    return helper.make_node("Split", [name, sizes], parts, f"{name}/cut", axis=0)


def _body(nodes: Sequence[onnx.NodeProto], at: int, segment: Segment) -> Iterator[onnx.NodeProto]:
    """Yield the nodes for one piece, its tensors called after it."""
    own = {*segment.inputs, *(name for node in nodes for name in node.output if name)}
    for node in nodes:
        copy = copied(node)
        copy.name = _part(node.name, at)
        copy.input[:] = [_part(name, at) if name in own else name for name in node.input]
        copy.output[:] = [_part(name, at) if name else name for name in node.output]
        yield copy


def _part(name: str, at: int) -> str:
    return f"{name}/part{at}"
