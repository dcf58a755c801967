"""Rotary embeddings of heads, computed in front of the Transpose of heads and length.

Exporters put heads in front of the length, then turn the halves of each head by the cosines of its
position, which all heads share: (batch, heads, length, size) by (batch, 1, length, size). With the
length in front each token is a row with cosines of its own, whatever batch and length are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import attributes_of
from aoe.graph.protos import copied, refill, rename_tensors
from aoe.operators.extents import Extent

_PERM = (0, 2, 1, 3)
_ELEMENTWISE = ("Add", "Mul", "Neg", "Sub")

Shapes = Mapping[str, OpenShape]
Values = Mapping[str, Sequence[Extent | None]]
Shared = Mapping[str, onnx.NodeProto]
"""What makes tensors all heads share, by their names: Unsqueezes of the heads."""


def sink_transposes(graph: onnx.GraphProto, shapes: Shapes, values: Values) -> int:
    """Move Transposes behind the rotary embeddings that alone read them, in place.

    Args:
        graph: In topological order.
        shapes: Of its tensors, as far as they are proven.
        values: Elements of its lists of integers, likewise.

    Returns:
        How many have been moved.
    """
    shared = {
        node.output[0]: node
        for node in graph.node
        if node.op_type == "Unsqueeze"
        and _axes(node, 1, values) in ((1,), (-3,))
        and len(shapes.get(node.output[0], ())) == len(_PERM)
    }
    turns = [
        (node.input[0], node.output[0])
        for node in graph.node
        if node.op_type == "Transpose" and attributes_of(node).get("perm") == _PERM
    ]
    embeddings = [(*turn, _embedding(graph, turn[1], shared, values)) for turn in turns]
    found = [one for one in embeddings if one[2]]
    for source, turned, members in found:
        _sink(graph, source, turned, members, shared)
    return len(found)


def _axes(node: onnx.NodeProto, at: int, values: Values) -> tuple[Extent | None, ...]:
    """Return the axes an input of a node names; () where that is none, or not known."""
    return tuple(values.get(node.input[at], ())) if len(node.input) > at else ()


def _embedding(
    graph: onnx.GraphProto, turned: str, shared: Shared, values: Values
) -> list[onnx.NodeProto]:
    """Return the nodes that make one tensor of a tensor only they read; [] if nothing is turned."""
    made, members = {turned}, list[onnx.NodeProto]()
    for node in graph.node:
        if not made.isdisjoint(node.input) and _joins(node, made, shared, values):
            made.update(node.output)
            members.append(node)
    read = {value.name for value in graph.output}
    read.update(name for node in graph.node if made.isdisjoint(node.output) for name in node.input)
    rotates = any(node.op_type == "Concat" for node in members)
    return members if rotates and made & read == {members[-1].output[0]} else []


def _joins(node: onnx.NodeProto, made: set[str], shared: Shared, values: Values) -> bool:
    """Return True for a node that computes heads and positions apart, each head the same."""
    others = set(node.input) - made
    if node.domain:
        return False
    if node.op_type in _ELEMENTWISE:
        return others <= shared.keys()
    if node.op_type == "Slice":
        return _axes(node, 3, values) in ((-1,), (3,))
    is_move = node.op_type == "Split" or (node.op_type == "Concat" and not others)
    return is_move and attributes_of(node).get("axis", 0) in (-1, 3)


def _sink(
    graph: onnx.GraphProto,
    source: str,
    turned: str,
    members: Sequence[onnx.NodeProto],
    shared: Shared,
) -> None:
    """Compute nodes of the source of a Transpose, and transpose what they make, in place."""
    made, last = {name for node in members for name in node.output}, members[-1].output[0]
    names, nodes = {turned: source, last: f"{last}/length_first"}, list[onnx.NodeProto]()
    for node in graph.node:
        if node.output[0] == turned:
            continue
        if node.output[0] in made:
            for name in [one for one in node.input if one in shared and one not in names]:
                names[name] = f"{name}/of/{last}"
                nodes.append(behind := copied(shared[name]))
                axes, behind.name = f"{names[name]}/axes", names[name]
                behind.input[1], behind.output[0] = axes, names[name]
                graph.initializer.append(numpy_helper.from_array(np.array([2], np.int64), axes))
            rename_tensors(node, names)
        nodes.append(node)
        if node.output[0] == names[last]:
            nodes.append(helper.make_node("Transpose", [names[last]], [last], last, perm=_PERM))
    refill(graph.node, nodes)
    refill(graph.value_info, [one for one in graph.value_info if one.name not in made - {last}])
