"""How nodes are written in a workload: constant inputs as attributes, few words for one thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.weights import array_of
from aoe.operators import OPERATORS, OperatorKey, Shape, op_key
from aoe.operators.movement import RESHAPE, RESHAPING, SPLIT
from aoe.workload import AttributeValue

_FOLDED_MAX = 64
"""Elements up to which a constant may be an attribute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """A node as an operation, for one of its results.

    Attributes:
        key: Operator.
        inputs: Names of the tensors it reads; empty where an input is omitted, or folded.
        attributes: Those of the node, and its constant inputs.
    """

    key: OperatorKey
    inputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]


def fold(graph: ModelGraph, node: onnx.NodeProto, output: str) -> Folded | str:
    """Return how a node makes `output`, or why a workload cannot say so.

    What only changes the shape is a Reshape, a part of a Split is a Slice: equal computations
    are equal workloads, whatever the model calls them.
    """
    key = op_key(node)
    if key in RESHAPING:
        info = graph.find_info(output)
        if info is None:
            return f"the shape of {output} may differ from run to run"
        return Folded(key=RESHAPE, inputs=(node.input[0],), attributes={"shape": info.shape})
    if key == SPLIT:
        return _slice_of_split(graph, node, output)
    inputs, attributes = list(node.input), dict(attributes_of(node))
    facts = OPERATORS.get(key)
    for constant in facts.constants if facts else ():
        if constant.position >= len(inputs) or not inputs[constant.position]:
            continue
        name = inputs[constant.position]
        value = _constant(graph, name)
        if value is None or value.ndim > 1:
            return f"{node.op_type} reads {name}, which is no short constant"
        if value.size:  # an empty one is as good as none: sizes and scales of a Resize
            found = value.tolist()
            attributes[constant.name] = tuple(found) if isinstance(found, list) else found
        inputs[constant.position] = ""
    while inputs and not inputs[-1]:
        inputs.pop()
    return Folded(key=key, inputs=tuple(inputs), attributes=attributes)


def is_folded(node: onnx.NodeProto, position: int) -> bool:
    """Return True if an input of a node becomes an attribute."""
    key = op_key(node)
    if key in RESHAPING or key == SPLIT:
        return position > 0
    facts = OPERATORS.get(key)
    return facts is not None and any(item.position == position for item in facts.constants)


def _slice_of_split(graph: ModelGraph, node: onnx.NodeProto, output: str) -> Folded | str:
    """Return the part of a Split as a Slice."""
    whole = graph.find_info(node.input[0])
    parts: list[Shape] = []
    for name in node.output:
        info = graph.find_info(name)
        if info is None:
            return f"the shape of {name} may differ from run to run"
        parts.append(info.shape)
        if name == output:
            break
    if whole is None:
        return f"the shape of {node.input[0]} may differ from run to run"
    axis = int(attributes_of(node).get("axis", 0)) % len(whole.shape)
    end = sum(shape[axis] for shape in parts)
    attributes = {"axes": (axis,), "ends": (end,), "starts": (end - parts[-1][axis],)}
    return Folded(key=("", "Slice"), inputs=(node.input[0],), attributes=attributes)


def _constant(
    graph: ModelGraph, name: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None:
    tensor = graph.initializers.get(name)
    if tensor is None or int(np.prod(tensor.dims, dtype=np.int64)) > _FOLDED_MAX:
        return None
    return array_of(tensor)
