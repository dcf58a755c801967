"""Operators on constants: their results become constants."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, any_shape_of, is_op, nodes_of, value_of
from aoe.graph.weights import brought_in

_NAME = "constants-folded"
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
            yield refuse(graph, _NAME, [index], results)
            continue
        rewriting = Rewriting(graph, _NAME, [index])
        if graph.output_names.intersection(node.output):
            yield refuse(graph, _NAME, [index], "it makes a result of the model")
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
    name=_NAME,
    what="Operators on constants, and Shape of what has the same in every run, become constants",
    needs="operators that do not round; the result is none of the model's",
    find=find_constants,
    is_done_anyway=True,
)
