"""What a model computes anew in every run though nothing it reads ever changes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from aoe.graph.model_graph import ModelGraph, names_read, subgraphs
from aoe.graph.rewrites.cleanup import RANDOM


def find_recomputed(graph: ModelGraph) -> tuple[int, ...]:
    """Return the nodes that read constants, and results of such nodes, alone.

    ONNX Runtime computes most of them once, when it loads a model, but those with graphs of their
    own (Loop, Scan), and what reads their results, in every run.
    """
    constant = set(graph.initializers)
    found = []
    for index, node in enumerate(graph.nodes):
        if not _draws(node) and constant.issuperset(names_read(node)):
            constant.update(name for name in node.output if name)
            found.append(index)
    return tuple(found)


def _draws(node: onnx.NodeProto) -> bool:
    """True if a node, or one in its graphs, gives something else each time."""
    return node.op_type in RANDOM or any(_draws(inner) for inner in _inner(node))


def _inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for graph in subgraphs(node):
        yield from graph.node
