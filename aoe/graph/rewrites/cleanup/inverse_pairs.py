"""Two operators in a row that are one, or none."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import any_shape_of, attribute, is_op, maker, nodes_of

_NAME = "pairs-joined"
_VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
_HELD_BY = {
    "bool": {"float16", "float32", "float64", "int32", "int64"},
    "float16": {"float32", "float64"},
    "float32": {"float64"},
    "int32": {"int64", "float64"},
}
"""Types that hold every value of a type."""


def find_pairs(graph: ModelGraph) -> Iterator[Finding]:
    """Yield the second one of two Transposes, Casts or operators that only change the shape."""
    for index, node in nodes_of(graph, "Transpose", "Cast", *_VIEWS):
        before = maker(graph, node.input[0])
        if before is None or not before.input or not before.input[0]:
            continue
        rewriting = Rewriting(graph, _NAME, [index])
        if is_op(node, *_VIEWS) and is_op(before, *_VIEWS):
            done = _join_views(graph, rewriting, before, node)
        elif is_op(node, "Transpose") and is_op(before, "Transpose"):
            done = _join_transposes(graph, rewriting, before, node)
        elif is_op(node, "Cast") and is_op(before, "Cast"):
            done = _join_casts(graph, rewriting, before, node)
        else:
            continue
        if done:
            yield rewriting.finish()


def _join_views(
    graph: ModelGraph, rewriting: Rewriting, before: onnx.NodeProto, node: onnx.NodeProto
) -> bool:
    source, shape = any_shape_of(graph, before.input[0]), any_shape_of(graph, node.output[0])
    if shape is None or 0 in shape:
        return False
    if source == shape and node.output[0] not in graph.output_names:
        rewriting.alias(node.output[0], before.input[0])
        return True
    rewriting.reshape(before.input[0], shape, node.output[0])
    return True


def _join_transposes(
    graph: ModelGraph, rewriting: Rewriting, before: onnx.NodeProto, node: onnx.NodeProto
) -> bool:
    shape = any_shape_of(graph, node.output[0])
    if shape is None:
        return False
    backwards = tuple(range(len(shape)))[::-1]
    first, second = (attribute(one, "perm", backwards) for one in (before, node))
    order = tuple(first[axis] for axis in second)
    if order == tuple(range(len(shape))) and node.output[0] not in graph.output_names:
        rewriting.alias(node.output[0], before.input[0])
    else:
        rewriting.add("Transpose", [before.input[0]], node.output[0], perm=order)
    return True


def _join_casts(
    graph: ModelGraph, rewriting: Rewriting, before: onnx.NodeProto, node: onnx.NodeProto
) -> bool:
    infos = [graph.find_info(name) for name in (before.input[0], node.input[0], node.output[0])]
    source, middle, result = (None if info is None else info.dtype for info in infos)
    if source is None or middle is None or middle not in _HELD_BY.get(source, ()):
        return False
    if source == result and node.output[0] not in graph.output_names:
        rewriting.alias(node.output[0], before.input[0])
    else:
        kind = attribute(node, "to", TensorProto.FLOAT)
        rewriting.add("Cast", [before.input[0]], node.output[0], to=kind)
    return True


PAIRS_RULE = RewriteRule(
    name=_NAME,
    what="Two Transposes, two Casts, or two of Reshape, Flatten, Squeeze, Unsqueeze become one",
    needs="known shapes; the type between two Casts holds every value",
    find=find_pairs,
)
