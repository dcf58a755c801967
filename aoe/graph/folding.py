"""How nodes are written in a workload: constant inputs as attributes, few words for one thing.

A convolution says how many zeros are around its image, never by which rule they are to be found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.weights import array_of
from aoe.operators import BLOCKED_CONVOLUTION, OPERATORS, RESULT_NUMBER, OperatorKey, Shape, op_key
from aoe.operators.movement import RESHAPE, RESHAPING, SPLIT
from aoe.operators.products import PLAIN_CONVOLUTIONS, TRANSPOSED_CONVOLUTION
from aoe.operators.windows import same_padding
from aoe.workload import AttributeValue

_FOLDED_MAX = 64
"""Elements up to which a constant may be an attribute."""
_PADDED = (PLAIN_CONVOLUTIONS | {BLOCKED_CONVOLUTION}) - {TRANSPOSED_CONVOLUTION}
"""Operators whose zeros around what they read depend on its extents alone."""


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
    """Return the nodes folded into `output`, or the reason why a workload cannot hold them.

    What only changes the shape is a Reshape, a part of a Split is a Slice: equal computations
    are equal workloads, whatever the model calls them. Of several results, an attribute says which.
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
    if key in _PADDED:
        attributes = _with_pads(graph, node, attributes)
    if output != node.output[0]:
        attributes[RESULT_NUMBER] = list(node.output).index(output)
    return Folded(key=key, inputs=tuple(inputs), attributes=attributes)


def _with_pads(
    graph: ModelGraph, node: onnx.NodeProto, attributes: dict[str, AttributeValue]
) -> dict[str, AttributeValue]:
    """Return the attributes of a convolution with the zeros its `auto_pad` stands for."""
    rule = str(attributes.get("auto_pad", "NOTSET"))
    image, weights = graph.find_info(node.input[0]), graph.find_info(node.input[1])
    if rule not in ("SAME_UPPER", "SAME_LOWER", "VALID") or image is None or weights is None:
        return attributes
    ends = list(_ends(rule, image.shape[2:], weights.shape[2:], attributes))
    pads = (*(before for before, _ in ends), *(behind for _, behind in ends))
    return attributes | {"auto_pad": "NOTSET", "pads": pads}


def _ends(
    rule: str, extents: Shape, kernel: Shape, attributes: Mapping[str, AttributeValue]
) -> Iterator[tuple[int, int]]:
    """Yield the zeros before and behind each axis of an image."""
    strides, dilations = (_along(attributes, name, kernel) for name in ("strides", "dilations"))
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        reach = dilation * (size - 1) + 1
        is_same = rule.startswith("SAME")
        yield same_padding(rule, extent, stride, reach) if is_same else (0, 0)


def _along(attributes: Mapping[str, AttributeValue], name: str, kernel: Shape) -> Shape:
    """Return an attribute with a number for each axis of a kernel; ones if it is not given."""
    given = attributes.get(name)
    return tuple(int(item) for item in given) if isinstance(given, tuple) else (1,) * len(kernel)


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
