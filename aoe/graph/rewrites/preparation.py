"""The form in which rules find an imported model."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from aoe.graph.model_graph import attributes_of
from aoe.graph.protos import copied, free_name, refill
from aoe.graph.rewrites.matching import is_op

_SINGLE = {"value_float": "float32", "value_int": "int64"}
_LISTS = {"value_floats": "float32", "value_ints": "int64"}


def prepared(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose constants are initializers, and whose nodes have distinct names.

    Exporters write constants as nodes; a rule then asks one place only. Constants that are
    results of the model, or hold text or sparse tensors, stay nodes.
    """
    model = copied(proto)
    results = {value.name for value in model.graph.output}
    kept = []
    for node in model.graph.node:
        tensor = None if results.intersection(node.output) else _constant(node)
        if tensor is None:
            kept.append(node)
        else:
            model.graph.initializer.append(tensor)
    refill(model.graph.node, kept)
    _name_nodes(model.graph)
    return model


def _constant(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if not is_op(node, "Constant"):
        return None
    for name, value in attributes_of(node).items():
        if name == "value":
            tensor: onnx.TensorProto = copied(value)
            tensor.name = node.output[0]
            return tensor
        dtype = _SINGLE.get(name) or _LISTS.get(name)
        if dtype is not None:
            return numpy_helper.from_array(np.array(value, dtype), node.output[0])
    return None


def _name_nodes(graph: onnx.GraphProto) -> None:
    taken = {node.name for node in graph.node if node.name}
    seen: set[str] = set()
    for node in graph.node:
        if node.name and node.name not in seen:
            seen.add(node.name)
            continue
        wanted = node.name or f"{node.op_type}_{next(filter(None, node.output), '')}"
        node.name = free_name(wanted, taken)
        taken.add(node.name)
        seen.add(node.name)
