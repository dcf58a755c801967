"""Boundary tensors of rewritten subgraphs: inverse Transposes and Reshapes at a boundary cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import onnx

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.rewrites.cleanup import PAIRS_RULE
from aoe.graph.rewrites.editing import apply_edits, choose_disjoint
from aoe.graph.rewrites.protocol import RewriteMatch

_VIEWS = frozenset({"Reshape", "Squeeze", "Transpose", "Unsqueeze"})


InferTensors = Callable[[onnx.ModelProto], Mapping[str, TensorInfo]]
"""Returns type and shape of the node results of a model, by name."""


def cancel_at_boundaries(
    proto: onnx.ModelProto, imported: onnx.ModelProto, infer: InferTensors
) -> onnx.ModelProto:
    """Return a model without the pairs of Reshapes or Transposes its other rewrites have made.

    Pairs the imported model has are left to its own rules. The bits stay the same.

    Args:
        proto: The model with other rewrites of its subgraphs.
        imported: The same as it was imported.
        infer: Is asked where there is such a pair only.
    """
    known = {node.name for node in imported.graph.node}
    if not _has_boundary(proto, known):
        return proto
    graph = ModelGraph(proto, infer(proto), block=0)
    matches = [
        found
        for found in PAIRS_RULE.findings(graph)
        if isinstance(found, RewriteMatch) and _is_new(graph, found, known)
    ]
    return apply_edits(proto, [match.edit for match in choose_disjoint(graph, matches)])


def _has_boundary(proto: onnx.ModelProto, known: set[str]) -> bool:
    """True if a view that a rewrite candidate has made reads another view."""
    views = {
        name: node for node in proto.graph.node if node.op_type in _VIEWS for name in node.output
    }
    return any(
        node.input[0] in views and not {node.name, views[node.input[0]].name} <= known
        for node in views.values()
    )


def _is_new(graph: ModelGraph, match: RewriteMatch, known: set[str]) -> bool:
    (index,) = match.edit.removed
    node = graph.nodes[index]
    return not {node.name, graph.nodes[graph.producer[node.input[0]]].name} <= known
