"""Operators that go: on constants, without effect, computed twice, undone by the next one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from aoe.graph.model_graph import ModelGraph, subgraphs
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    STANDARD,
    Array,
    any_shape_of,
    attribute,
    is_op,
    maker,
    nodes_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.weights import brought_in

# ---- Operators on constants: their results become constants ----

_FOLDED = "constants-folded"
_EXACT = (
    *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather", "Concat"),
    *("Cast", "Identity", "Expand", "Tile", "Split", "Range", "ConstantOfShape", "Shape", "Size"),
    *("Add", "Sub", "Mul", "Neg", "Equal", "Greater", "Less", "Not", "And", "Or", "Where"),
)
"""Operators that give the same bits wherever they are computed."""
_MOST_ELEMENTS = 1 << 22


def find_constants(graph: ModelGraph) -> Iterator[Finding]:
    """Yield operators whose results are the same in every run."""
    for index, node in nodes_of(graph, *_EXACT):
        results: list[Array] | str = _shape(graph, node) if is_op(node, "Shape", "Size") else []
        if not results:
            values = [value_of(graph, name) for name in node.input if name]
            if any(value is None for value in values) or not node.input:
                continue
            results = _computed(graph, node)
        if isinstance(results, str):
            yield refuse(graph, _FOLDED, [index], results)
            continue
        rewriting = Rewriting(graph, _FOLDED, [index])
        if graph.output_names.intersection(node.output):
            yield refuse(graph, _FOLDED, [index], "it makes a result of the model")
            continue
        for name, value in zip(filter(None, node.output), results, strict=True):
            rewriting.replace_by_constant(name, value)
        yield rewriting.finish()


def _shape(graph: ModelGraph, node: onnx.NodeProto) -> list[Array]:
    shape = any_shape_of(graph, node.input[0])
    if shape is None or node.attribute:  # a part of the shape is computed like all else
        return []
    extents = np.array(shape, np.int64)
    return [np.array(extents.prod(), np.int64) if is_op(node, "Size") else extents]


def _computed(graph: ModelGraph, node: onnx.NodeProto) -> list[Array] | str:
    sizes = [int(np.prod(any_shape_of(graph, name) or (0,))) for name in node.output if name]
    if sum(sizes) > _MOST_ELEMENTS:
        return f"{sum(sizes)} elements are more than {_MOST_ELEMENTS}"
    inner = helper.make_graph(
        [node],
        "folded",
        [],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        [brought_in(graph.initializers[name]) for name in dict.fromkeys(filter(None, node.input))],
    )
    model = helper.make_model(inner, opset_imports=[helper.make_opsetid("", graph.opset(""))])
    try:
        made = ReferenceEvaluator(model).run(None, {})
    except Exception as error:  # onnx.reference raises whatever NumPy does
        return f"onnx.reference cannot compute it: {error}"
    expected = [graph.find_info(name) for name in node.output if name]
    found = [np.asarray(value) for value in made]
    for value, info in zip(found, expected, strict=True):
        if info is not None and (value.dtype.name, value.shape) != (info.dtype, info.shape):
            return "onnx.reference makes another type or shape of it"
    return found


CONSTANTS_RULE = RewriteRule(
    name=_FOLDED,
    what="Operators on constants, and Shape of what has the same in every run, become constants",
    needs="operators that do not round; the result is none of the model's",
    find=find_constants,
    is_done_anyway=True,
)


# ---- Operators that give back what they get, and second copies of what is there already ----

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


# ---- Two operators in a row that are one, or none ----

_PAIRS = "pairs-joined"
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
        rewriting = Rewriting(graph, _PAIRS, [index])
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
        # with what it says of numbers too large for 8 bits
        rewriting.copy(node, [before.input[0]], node.output[0])
    return True


PAIRS_RULE = RewriteRule(
    name=_PAIRS,
    what="Two Transposes, two Casts, or two of Reshape, Flatten, Squeeze, Unsqueeze become one",
    needs="known shapes; the type between two Casts holds every value",
    find=find_pairs,
)
