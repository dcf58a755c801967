"""Regions of look-ups: rows of constant tables that a Concat puts side by side.

Each look-up is a Gather, and what changes its shape. In front of it stands what picks its indices,
a column of a matrix perhaps: a Split, a Slice or a Gather by a constant.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx

from aoe.graph.extraction import is_look_up
from aoe.graph.model_graph import ModelGraph
from aoe.graph.walking import Backwards, is_result, readers_of
from aoe.operators import OperatorKey, op_key
from aoe.operators.gathering import GATHER
from aoe.operators.movement import RESHAPING, SPLIT

MAX_TABLES = 63
"""Tensors a kernel that looks rows up may read, one after the other: what the glue calls."""
_CONCAT: OperatorKey = ("", "Concat")
_PICKING = frozenset({*RESHAPING, SPLIT, GATHER, ("", "Slice")})


def grow_looked_up(graph: ModelGraph, sink: int, *, free: Collection[int]) -> tuple[int, ...]:
    """Return a Concat with the look-ups in constant tables it joins, and what picks their indices.

    A part of the Concat that is something else, or that others read too, is made outside.

    Args:
        graph: The model.
        sink: Index of the Concat.
        free: Nodes that belong to no region yet.

    Returns:
        Indices of nodes; () if `sink` is no Concat, or joins fewer than two look-ups.
    """
    if op_key(graph.nodes[sink]) != _CONCAT:
        return ()
    members, gathers = {sink}, list[int]()
    for name in graph.nodes[sink].input:
        reshaped, nodes = _without_reshapes(graph, name, members, free)
        at = graph.producer.get(reshaped)
        around = {*members, *nodes}
        if at is None or not is_look_up(graph, graph.nodes[at]):
            continue
        if _is_inner(graph, at, around, free):
            members = {*around, at}
            gathers.append(at)
    before = Backwards(graph, [graph.nodes[at].input[1] for at in gathers])
    for index in before:
        node = graph.nodes[index]
        if op_key(node) not in _PICKING or is_look_up(graph, node) or is_result(graph, node):
            continue
        # a Split is read through where others read it, too
        is_shared = op_key(node) == SPLIT and index in free
        if is_shared or _is_inner(graph, index, members, free):
            members.add(index)
            before.add(node.input[:1])
    return tuple(sorted(members)) if len(gathers) > 1 else ()


def looks_up(graph: ModelGraph, nodes: Collection[int]) -> bool:
    """Return True if one of some nodes looks rows of a table up."""
    return any(is_look_up(graph, graph.nodes[at]) for at in nodes)


def _without_reshapes(
    graph: ModelGraph, name: str, members: Collection[int], free: Collection[int]
) -> tuple[str, set[int]]:
    """Return the tensor that becomes `name` by other shapes alone, and the nodes between."""
    found: set[int] = set()
    while (at := graph.producer.get(name)) is not None and _reshapes(graph.nodes[at]):
        if not _is_inner(graph, at, {*members, *found}, free):
            break
        found.add(at)
        name = graph.nodes[at].input[0]
    return name, found


def _reshapes(node: onnx.NodeProto) -> bool:
    return op_key(node) in RESHAPING


def _is_inner(
    graph: ModelGraph, index: int, members: Collection[int], free: Collection[int]
) -> bool:
    """Return True for a free node that members alone read."""
    is_read = readers_of(graph, index) <= set(members)
    return index in free and is_read and not is_result(graph, graph.nodes[index])
