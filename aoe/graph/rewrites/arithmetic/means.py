"""Means over whole channels: a GlobalAveragePool stays in ONNX Runtime's blocked layout."""

from __future__ import annotations

from collections.abc import Iterator

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import attribute, integers_of, nodes_of, shape_of

_NAME = "mean-to-global-pool"


def find_means(graph: ModelGraph) -> Iterator[Finding]:
    """Yield ReduceMeans over everything behind the channels."""
    for index, node in nodes_of(graph, "ReduceMean"):
        shape = shape_of(graph, node.input[0])
        axes = integers_of(graph, node, "axes", 1)
        if shape is None or axes is None:
            yield refuse(graph, _NAME, [index], "its shape or its axes are not known")
            continue
        if len(shape) < 3 or sorted(at % len(shape) for at in axes) != list(range(2, len(shape))):
            yield refuse(graph, _NAME, [index], f"it goes over the axes {axes} of {len(shape)}")
            continue
        rewriting = Rewriting(graph, _NAME, [index])
        keeps = attribute(node, "keepdims", 1)
        made = rewriting.add("GlobalAveragePool", [node.input[0]], node.output[0] if keeps else "")
        if not keeps:
            rewriting.reshape(made, shape[:2], node.output[0])
        yield rewriting.finish()


MEAN_RULE = RewriteRule(
    name=_NAME,
    what="ReduceMean over height and width becomes GlobalAveragePool",
    needs="float32; the axes are all those behind the channels",
    tolerance=1e-5,
    find=find_means,
)
