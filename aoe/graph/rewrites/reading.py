"""What rules ask of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.weights import array_of

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
STANDARD = ("", "ai.onnx")

UNARY = frozenset(
    {
        *("Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Elu", "Selu"),
        *("Softplus", "Softsign", "Mish", "Gelu", "Neg", "Abs", "Exp", "Erf", "Sin", "Cos"),
    }
)
"""Operators of one tensor that compute every element from the one at its place."""


def is_op(node: onnx.NodeProto | None, *op_types: str) -> bool:
    """Return True for a node of ONNX's own domain with one of the types."""
    return node is not None and node.domain in STANDARD and node.op_type in op_types


def nodes_of(graph: ModelGraph, *op_types: str) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Yield nodes of ONNX's own domain by type, with their indices."""
    for index, node in enumerate(graph.nodes):
        if is_op(node, *op_types):
            yield index, node


def opset_lacks(graph: ModelGraph, what: str, since: int) -> str:
    """Name the opset that has no such operator or form yet; empty if the model's has."""
    opset = graph.opset("")
    return f"opset {opset} has no {what}, {since} does" if opset < since else ""


def maker(graph: ModelGraph, name: str) -> onnx.NodeProto | None:
    """Return the node that makes a tensor, None for inputs and constants."""
    index = graph.producer.get(name)
    return None if index is None else graph.nodes[index]


def attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    """Return an attribute as a plain value, see `attributes_of`."""
    return attributes_of(node).get(name, default)


def value_of(graph: ModelGraph, name: str) -> Array | None:
    """Return a constant's value, None for what is none."""
    tensor = graph.initializers.get(name)
    return None if tensor is None else array_of(tensor)


def number_of(graph: ModelGraph, name: str) -> float | None:
    """Return the value of a float constant with one element, else None."""
    value = value_of(graph, name) if name else None
    if value is None or value.size != 1 or value.dtype.kind != "f":
        return None
    return float(value.reshape(-1)[0])


def integers_of(graph: ModelGraph, node: onnx.NodeProto, name: str, at: int) -> Shape | None:
    """Return a list of integers that was an attribute in older opsets and is an input since.

    None if it is an input that is no constant; () if it is not given.
    """
    given = attributes_of(node).get(name)
    if given is not None:
        return (int(given),) if isinstance(given, int) else tuple(map(int, given))
    if len(node.input) <= at or not node.input[at]:
        return ()
    value = value_of(graph, node.input[at])
    return None if value is None else tuple(int(item) for item in value.reshape(-1))


def shape_of(graph: ModelGraph, name: str) -> Shape | None:
    """Return the shape of a float32 tensor, None if it is none or may differ between runs."""
    info = graph.find_info(name)
    return info.shape if info is not None and info.dtype == "float32" else None


def any_shape_of(graph: ModelGraph, name: str) -> Shape | None:
    """Return the shape of a tensor of any type, None if it may differ between runs."""
    info = graph.find_info(name)
    return None if info is None else info.shape


def only_reader(graph: ModelGraph, name: str) -> int | None:
    """Return the index of the node that alone reads a tensor, None if it is not the only one."""
    readers = graph.consumers.get(name, ())
    return readers[0] if len(readers) == 1 and name not in graph.output_names else None


def unfit_window(node: onnx.NodeProto) -> str:
    """Return the reason why a Conv is not pointwise (1x1, stride 1, no padding); empty if it is."""
    attributes = attributes_of(node)
    if any(extent != 1 for extent in attributes.get("kernel_shape", ())):
        return f"its kernel is {attributes['kernel_shape']}"
    if attributes.get("auto_pad", "NOTSET") != "NOTSET" or any(attributes.get("pads", ())):
        return "it pads"
    if any(step != 1 for step in attributes.get("strides", ())):
        return f"its strides are {attributes['strides']}"
    return ""
