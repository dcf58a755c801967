"""Regions of moves: what is copied from place to place, and the chain that reads it.

A move costs nothing inside a kernel, it is only where the kernel reads. So moves join one another
in any number; element-wise operators join behind them only, since a move may read one element
many times. A Split and a reorder also join where others read them: they are read through. A chain
takes the Split in front of it where it alone reads the parts, as in gated linear units. In front
of a normalisation of the channels joins what puts them last, alone or with what puts them back.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from heapq import heapify, heappop, heappush

import onnx

from aoe.graph.extraction import has_kernel_types
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.operators import (
    KERNEL_DTYPES,
    MOVED_DTYPES,
    OPERATORS,
    REORDER_OUTPUT,
    STORED_DTYPES,
    OperatorKey,
    OperatorKind,
    is_reorder,
    op_key,
)
from aoe.operators.movement import RESHAPING, SPLIT, interpolates

_READ_THROUGH = (SPLIT, REORDER_OUTPUT)
_TRANSPOSE: OperatorKey = ("", "Transpose")
_NORMALISATIONS = frozenset(
    {("", "LayerNormalization"), ("", "RMSNormalization"), ("", "SimplifiedLayerNormalization")}
)


def is_move(node: onnx.NodeProto) -> bool:
    """Return True for nodes that only copy, or only change the shape."""
    if op_key(node) in RESHAPING or op_key(node) == SPLIT:
        return True
    facts = OPERATORS.get(op_key(node))
    if facts is None or facts.kind is not OperatorKind.MOVEMENT:
        return False
    return not interpolates(op_key(node), attributes_of(node))


def is_read_through(node: onnx.NodeProto) -> bool:
    """Return True for nodes a region may share with others."""
    return op_key(node) in _READ_THROUGH


def grow_moves(
    graph: ModelGraph, sink: int, *, fusible: Container[OperatorKey], free: Collection[int]
) -> tuple[int, ...]:
    """Return the moves, and the chain behind them, that end in `sink`; () if none is moved.

    Args:
        graph: The model.
        sink: Index of the node that makes the result.
        fusible: Element-wise operators.
        free: Indices of nodes that belong to no region yet.
    """
    node = graph.nodes[sink]
    key = op_key(node)
    chains = key in fusible and has_kernel_types(graph, node)
    ends = chains or is_reorder(node) or (is_move(node) and key not in (*RESHAPING, SPLIT))
    result = graph.find_info(node.output[0])
    dtypes = KERNEL_DTYPES | (MOVED_DTYPES if is_move(node) else STORED_DTYPES)
    if not ends or len(node.output) > 1 or (result and result.dtype not in dtypes):
        return ()  # moves of wide integers compute shapes
    members, moved = {sink}, set() if key in fusible else {sink}
    waiting = [-index for index in _producers(graph, sink)]
    heapify(waiting)  # what is read by a node is looked at behind all that read it
    while waiting:
        index = -heappop(waiting)
        if index not in free or index in members:
            continue
        readers, found = _readers(graph, index), graph.nodes[index]
        is_shared = is_read_through(found)
        if not is_shared and (readers - members or _is_result(graph, found)):
            continue
        if is_move(found) or is_reorder(found):
            moved.add(index)
        elif (
            op_key(found) not in fusible
            or readers & moved
            or len(found.output) > 1
            or not has_kernel_types(graph, found)
        ):
            continue
        members.add(index)
        for producer in _producers(graph, index):
            heappush(waiting, -producer)
    return _trimmed(graph, members)


def grow_resized(graph: ModelGraph, sink: int, *, free: Collection[int]) -> tuple[int, ...]:
    """Return a blocked interpolation and the reorder that alone reads it; () if `sink` is none."""
    node = graph.nodes[sink]
    made_by = graph.producer.get(node.input[0]) if op_key(node) == REORDER_OUTPUT else None
    if made_by is None or made_by not in free or _is_result(graph, graph.nodes[made_by]):
        return ()
    resize = graph.nodes[made_by]
    if not interpolates(op_key(resize), attributes_of(resize)):
        return ()
    return (made_by, sink) if _readers(graph, made_by) == {sink} else ()


def grow_turned(
    graph: ModelGraph, nodes: Collection[int], *, free: Collection[int]
) -> tuple[int, ...]:
    """Return a region with what puts the channels last that it normalises; () if nothing does.

    Args:
        graph: The model.
        nodes: Indices of the nodes of the region.
        free: Indices of nodes that belong to no region yet.
    """
    found = [at for at in nodes if op_key(graph.nodes[at]) in _NORMALISATIONS]
    front = graph.producer.get(graph.nodes[found[0]].input[0]) if found else None
    if front is None or front in nodes or front not in free or len(found) > 1:
        return ()
    node = graph.nodes[front]
    is_reorder_to_rows = op_key(node) == REORDER_OUTPUT and attributes_of(node).get("channels_last")
    if op_key(node) != _TRANSPOSE and not is_reorder_to_rows:
        return ()
    is_read_once = _readers(graph, front) == {found[0]} and not _is_result(graph, node)
    return tuple(sorted({front, *nodes})) if is_read_once else ()


def grow_turned_back(graph: ModelGraph, sink: int, *, free: Collection[int]) -> tuple[int, ...]:
    """Return a normalisation, what puts its channels last, and the Transpose behind it.

    Args:
        graph: The model.
        sink: Index of that Transpose.
        free: Indices of nodes that belong to no region yet.

    Returns:
        The three nodes; () if `sink` is something else, or others read what is between them.
    """
    if op_key(graph.nodes[sink]) != _TRANSPOSE:
        return ()
    made_by = graph.producer.get(graph.nodes[sink].input[0])
    if made_by is None or made_by not in free:
        return ()
    node = graph.nodes[made_by]
    if op_key(node) not in _NORMALISATIONS or _is_result(graph, node):
        return ()
    is_read_once = _readers(graph, made_by) == {sink}
    return grow_turned(graph, (made_by, sink), free=free) if is_read_once else ()


def _trimmed(graph: ModelGraph, members: set[int]) -> tuple[int, ...]:
    """Return the members without the reshapes in front, () if they spare no move."""
    kept: list[int] = []
    for index in sorted(members):
        node = graph.nodes[index]
        made = {graph.producer.get(name) for name in node.input}
        if op_key(node) not in RESHAPING or made & set(kept):
            kept.append(index)
    moves = any(_saves_copy(graph, index, kept) for index in kept)
    return tuple(kept) if moves else ()


def _saves_copy(graph: ModelGraph, index: int, members: Collection[int]) -> bool:
    """Return True if a kernel of these nodes, the last of which is its result, spares a move."""
    node, last = graph.nodes[index], graph.nodes[max(members)]
    if op_key(node) == SPLIT:  # which stays where others read its parts
        is_gone = _readers(graph, index) <= set(members) and not _is_result(graph, node)
        return is_gone and not is_move(last) and not is_reorder(last)
    return is_move(node) and op_key(node) not in RESHAPING


def _producers(graph: ModelGraph, index: int) -> set[int]:
    made_by = (graph.producer.get(name) for name in graph.nodes[index].input)
    return {at for at in made_by if at is not None}


def _readers(graph: ModelGraph, index: int) -> set[int]:
    found: set[int] = set()
    for name in graph.nodes[index].output:
        found.update(graph.consumers.get(name, ()))
    return found


def _is_result(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    return any(name in graph.output_names for name in node.output)
