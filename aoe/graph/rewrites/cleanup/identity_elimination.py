"""Operators that give back what they get, and second copies of what is there already."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from aoe.graph.model_graph import ModelGraph, subgraphs
from aoe.graph.rewrites.building import Rewriting
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import STANDARD, attribute, is_op, nodes_of, value_of

_IDENTITY = "nothing-done"
_TWICE = "duplicates-merged"
_IDLE = ("Identity", "Dropout", "Cast", "Reshape", "Transpose", "Expand", "Squeeze", "Unsqueeze")
RANDOM = (
    "RandomNormal",
    "RandomUniform",
    "Multinomial",
    "Bernoulli",
    "Dropout",
    "RandomNormalLike",
    "RandomUniformLike",
)
"""Operators that give something else each time."""


def find_idle(graph: ModelGraph) -> Iterator[Finding]:
    """Yield operators whose result is their input."""
    for index, node in nodes_of(graph, *_IDLE):
        if not node.input or not node.input[0] or not _is_idle(graph, node):
            continue
        rewriting = Rewriting(graph, _IDENTITY, [index])
        rewriting.alias(node.output[0], node.input[0])
        yield rewriting.finish()


def _is_idle(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    if is_op(node, "Identity"):
        return True
    if is_op(node, "Dropout"):
        trains = node.input[2] if len(node.input) > 2 else ""
        value = value_of(graph, trains) if trains else None
        without_mask = len(node.output) < 2 or not node.output[1]
        return without_mask and (not trains or (value is not None and not value.any()))
    before, after = graph.find_info(node.input[0]), graph.find_info(node.output[0])
    if before is None or before != after:
        return False
    if is_op(node, "Transpose"):
        order = attribute(node, "perm", tuple(range(len(before.shape)))[::-1])
        return bool(order == tuple(range(len(before.shape))))
    return True


def find_duplicates(graph: ModelGraph) -> Iterator[Finding]:
    """Yield operators that compute what an earlier one has computed."""
    first: dict[tuple[object, ...], onnx.NodeProto] = {}
    for index, node in enumerate(graph.nodes):
        if node.domain not in STANDARD or node.op_type in RANDOM or any(subgraphs(node)):
            continue
        attributes = [item.SerializeToString() for item in node.attribute]
        key = (node.op_type, tuple(sorted(attributes)), tuple(node.input), len(node.output))
        other = first.setdefault(key, node)
        if other is node:
            continue
        rewriting = Rewriting(graph, _TWICE, [index])
        for name, same in zip(node.output, other.output, strict=True):
            if name:
                rewriting.alias(name, same)
        if all(same or not name for name, same in zip(node.output, other.output, strict=True)):
            yield rewriting.finish()


IDLE_RULE = RewriteRule(
    name=_IDENTITY,
    what="Identity, Dropout, and Cast, Reshape, Transpose, Expand to what is there already, go",
    needs="the same type and shape in every run; the result is none of the model's",
    find=find_idle,
)
DUPLICATES_RULE = RewriteRule(
    name=_TWICE,
    what="Equal operators on equal inputs become one",
    needs="nothing random, no control flow; the result is none of the model's",
    find=find_duplicates,
)
