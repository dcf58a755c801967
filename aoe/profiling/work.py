"""Work of the nodes of a graph by definition: operations, and bytes read and written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, TensorInfo, attributes_of, subgraphs
from aoe.operators import MICROSOFT_DOMAIN, OperatorKey, OperatorKind, Shape, facts_of, op_key
from aoe.operators.movement import RESHAPING
from aoe.profiling.peak import NodeWork
from aoe.workload import Operation

_VIEWS = RESHAPING | {("", "Identity"), ("", "Dropout"), ("", "Shape"), ("", "Constant")}
"""They move nothing: ONNX Runtime gives their result the memory of their input."""
_PICKING = frozenset(("", name) for name in ("Gather", "GatherElements", "GatherND", "Slice"))
"""They read of their first input only what they write."""


def graph_work(graph: ModelGraph, indices: Iterable[int]) -> NodeWork | None:
    """Return operations and bytes of nodes as one operator.

    What one of them makes and only they read counts as operations, not as bytes.

    Args:
        graph: Holds them.
        indices: Of the nodes, in topological order.

    Returns:
        None if the shape of a tensor may differ from run to run.
    """
    nodes = [graph.nodes[index] for index in indices]
    made = {name for node in nodes for name in node.output if name}
    inner = {name for name in made if _stays_inside(graph, name, nodes)}
    if any(True for node in nodes for _ in subgraphs(node)):
        return None  # how often a loop runs is not in the graph
    names = {name for node in nodes for name in (*node.input, *node.output) if name}
    infos = {name: graph.find_info(name) for name in names}
    if any(info is None for info in infos.values()):
        return None
    known = {name: info for name, info in infos.items() if info is not None}
    counts = [_flops(node, known) for node in nodes]
    touched = _touched(nodes, known, inner)
    weights = sum(size for name, size in touched.items() if name in graph.initializers)
    return NodeWork(
        flops=None if None in counts else sum(count or 0 for count in counts),
        weight_bytes=weights,
        activation_bytes=sum(touched.values()) - weights,
    )


def _stays_inside(graph: ModelGraph, name: str, nodes: Sequence[onnx.NodeProto]) -> bool:
    readers = graph.consumers.get(name, ())
    own = {id(node) for node in nodes}
    inside = all(id(graph.nodes[reader]) in own for reader in readers)
    return bool(readers) and inside and name not in graph.output_names


# ---- bytes ----


def _touched(
    nodes: Sequence[onnx.NodeProto], infos: Mapping[str, TensorInfo], inner: set[str]
) -> dict[str, int]:
    """Return the bytes read or written of each tensor, the largest part of it any node touches."""
    touched: dict[str, int] = {}
    for node in nodes:
        if op_key(node) in _VIEWS:
            continue
        written = sum(_bytes(infos[name]) for name in node.output if name)
        for position, name in enumerate(node.input):
            if name and name not in inner:
                size = _bytes(infos[name])
                if position == 0 and op_key(node) in _PICKING:
                    size = min(size, written)
                touched[name] = max(touched.get(name, 0), size)
        touched |= {name: _bytes(infos[name]) for name in node.output if name and name not in inner}
    return touched


def _bytes(info: TensorInfo) -> int:
    try:
        item = np.dtype(info.dtype).itemsize
    except TypeError:  # bfloat16 and shorter ones
        item = 2
    return math.prod(info.shape) * item


# ---- operations ----


def _flops(node: onnx.NodeProto, infos: Mapping[str, TensorInfo]) -> int | None:
    """Return the operations of a node; None where the table knows nothing about it."""
    shapes = [infos[name].shape if name else () for name in node.input]
    results = [infos[name].shape for name in node.output if name]
    key, attributes = op_key(node), attributes_of(node)
    if key in _VIEWS or not shapes:
        return 0
    counted = _COUNTED.get(key)
    if counted is not None:
        return counted(shapes, results)
    if "kernel_shape" not in attributes and len(shapes) > 1 and len(shapes[1]) > 2:
        attributes["kernel_shape"] = shapes[1][2:]
    operation = Operation(
        op_type=node.op_type,
        domain=node.domain,
        inputs=tuple(f"x{at}" if name else "" for at, name in enumerate(node.input)),
        output="y",
        attributes=attributes,
    )
    try:
        facts = facts_of(operation)
    except ValueError:
        return None
    made = math.prod(results[0])
    match facts.kind:
        case OperatorKind.PRODUCT:
            return 2 * made * facts.summed(operation, shapes[0])
        case OperatorKind.WINDOW:
            return made * int(math.prod(attributes.get("kernel_shape", ())))
        case OperatorKind.AXIS:
            return max(made, math.prod(shapes[0]))
        case OperatorKind.ELEMENTWISE:
            return made
        case OperatorKind.REORDER | OperatorKind.MOVEMENT:
            return 0


Shapes = Sequence[Shape]
Counted = Callable[[Shapes, Shapes], int | None]
"""Returns the operations of a node from the shapes of its inputs and results."""


def _deep_product(shapes: Shapes, results: Shapes) -> int:
    """A matrix product of another number format; the depth is the last axis of the left matrix."""
    return 2 * math.prod(results[0]) * shapes[0][-1]


def _convolution_of(weights: int) -> Counted:
    """A convolution of another number format, whose weights are that input."""

    def count(shapes: Shapes, results: Shapes) -> int:
        return 2 * math.prod(results[0]) * math.prod(shapes[weights][1:])

    return count


def _recurrent(shapes: Shapes, results: Shapes) -> int:
    """Per step and row, a product with the weights and one with the recurrent weights."""
    steps, rows = shapes[0][:2]
    return 2 * steps * rows * (math.prod(shapes[1]) + math.prod(shapes[2]))


def _attention(shapes: Shapes, results: Shapes) -> int | None:
    """Two products per query: with all keys, and of their weights with all values."""
    if len(shapes) < 2 or len(shapes[1]) < 3:
        return None  # query, key and value in one tensor
    # of five extents where key and value are in one tensor: batch, keys, heads, 2, extent of a head
    keys = shapes[1][1] if len(shapes[1]) > 4 else shapes[1][-2]
    return 4 * math.prod(shapes[0]) * keys


def _packed_attention(shapes: Shapes, results: Shapes) -> int | None:
    """The same, with the projections to query, key and value in front of it."""
    if len(shapes[0]) != 3 or len(shapes[1]) != 2:
        return None
    rows, length, width = shapes[0]
    projected = shapes[1][1]
    return 2 * rows * length * (width * projected + 2 * length * projected // 3)


def _nothing(shapes: Shapes, results: Shapes) -> int:
    """Elements are copied, or written in another type."""
    return 0


_COPYING = (
    *("Cast", "CastLike", "ConstantOfShape", "Range"),
    *("Gather", "GatherND", "ScatterND", "Split"),
)
_COUNTED: dict[OperatorKey, Counted] = {
    **{("", name): _nothing for name in _COPYING},
    ("", "MatMulInteger"): _deep_product,
    ("", "QLinearMatMul"): _deep_product,
    (MICROSOFT_DOMAIN, "DynamicQuantizeMatMul"): _deep_product,
    (MICROSOFT_DOMAIN, "MatMulIntegerToFloat"): _deep_product,
    (MICROSOFT_DOMAIN, "MatMulNBits"): _deep_product,
    ("", "ConvInteger"): _convolution_of(1),
    ("", "QLinearConv"): _convolution_of(3),
    ("", "LSTM"): _recurrent,
    ("", "GRU"): _recurrent,
    ("", "RNN"): _recurrent,
    ("", "Attention"): _attention,
    (MICROSOFT_DOMAIN, "MultiHeadAttention"): _attention,
    (MICROSOFT_DOMAIN, "Attention"): _packed_attention,
}
"""Operators no kernel is made for, but which take time. Source: their definitions."""
