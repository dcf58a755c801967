"""Operators that ONNX Runtime has taken apart, because it has no kernel of float16 for them.

It writes them as the functions ONNX defines them by, and casts in front of and behind these
afterwards: what stands there is a Softmax of float32 in five nodes, which walk the tensor one by
one, and in which nobody finds an attention.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, apply_edits
from aoe.graph.rewrites.half_precision import element_types
from aoe.graph.rewrites.matching import attribute, integers_of, is_op, maker, nodes_of
from aoe.graph.rewrites.protocol import Finding, RewriteMatch, RewriteRule, RuleUse

_SINCE = 13
"""Opset in which Softmax is along one axis."""


def joined_again(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return an optimised model with each Softmax in one node; the model itself without any."""
    kinds = {node.op_type for node in proto.graph.node}
    if not kinds.issuperset(SOFTMAX_RULE.op_types):
        return proto
    found = SOFTMAX_RULE.findings(ModelGraph(proto, {}, block=0))
    edits = [one.edit for one in found if isinstance(one, RewriteMatch)]
    return apply_edits(proto, edits, tidy=False) if edits else proto


def find_softmax(graph: ModelGraph) -> Iterator[Finding]:
    """Yield every Softmax of float32 in five nodes."""
    types: dict[str, int] = {}
    for index, node in nodes_of(graph, "Div") if graph.opset("") >= _SINCE else ():
        found = _softmax(graph, index, node)
        if found is None:
            continue
        types = types or element_types(graph)
        x, axis, nodes = found
        if types.get(node.output[0]) != TensorProto.FLOAT:
            continue
        rewriting = Rewriting(graph, SOFTMAX_RULE.name, nodes, prefix="")
        rewriting.add("Softmax", [x], node.output[0], name=f"{node.output[0]}_softmax", axis=axis)
        yield rewriting.finish()


def _softmax(
    graph: ModelGraph, index: int, node: onnx.NodeProto
) -> tuple[str, int, tuple[int, ...]] | None:
    """Return argument, axis and nodes of the Softmax that a Div ends, None if it ends none."""
    powers, total = maker(graph, node.input[0]), maker(graph, node.input[1])
    if powers is None or total is None or not is_op(powers, "Exp") or not is_op(total, "ReduceSum"):
        return None
    below = maker(graph, powers.input[0])
    if below is None or not is_op(below, "Sub") or total.input[0] != powers.output[0]:
        return None
    peak = maker(graph, below.input[1])
    if peak is None or not is_op(peak, "ReduceMax") or peak.input[0] != below.input[0]:
        return None
    axes = {integers_of(graph, one, "axes", 1) for one in (peak, total)}
    axis = axes.pop()
    keeps = all(attribute(one, "keepdims", 1) for one in (peak, total))
    if axes or axis is None or len(axis) != 1 or not keeps:
        return None
    parts = (graph.producer[one.output[0]] for one in (powers, total, below, peak))
    return below.input[0], axis[0], (index, *parts)


SOFTMAX_RULE = RewriteRule(
    name="softmax-taken-apart",
    what="ReduceMax, Sub, Exp, ReduceSum, Div become Softmax",
    needs="float32 along one axis; nobody else reads what lies between",
    tolerance=1e-6,
    find=find_softmax,
    use=RuleUse.ALWAYS,
    op_types=("ReduceMax", "Sub", "Exp", "ReduceSum", "Div"),
)
