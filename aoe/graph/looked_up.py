"""Regions of look-ups: rows of constant tables that a Concat puts side by side.

Each look-up is a Gather, and what changes its shape. In front of it stands what picks its indices,
a column of a matrix perhaps: a Split, a Slice or a Gather by a constant.
"""

from __future__ import annotations

from collections.abc import Collection

from aoe.graph.extraction import is_look_up
from aoe.graph.model_graph import ModelGraph
from aoe.graph.walking import Backwards, is_result, readers_of, without_reshapes
from aoe.operators import OperatorKey, op_key
from aoe.operators.gathering import GATHER
from aoe.operators.movement import RESHAPING, SPLIT

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
        reshaped, nodes = without_reshapes(graph, name)
        at = graph.producer.get(reshaped)
        if at is None or not is_look_up(graph, graph.nodes[at]):
            continue
        around = {*members, *nodes, at}
        if all(_is_inner(graph, index, around, free) for index in (*nodes, at)):
            members = around
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


def _is_inner(
    graph: ModelGraph, index: int, members: Collection[int], free: Collection[int]
) -> bool:
    """Return True for a free node that members alone read."""
    is_read = readers_of(graph, index) <= set(members)
    return index in free and is_read and not is_result(graph, graph.nodes[index])
