"""Constants that a graph computes anew in every run, as the tensors they are.

ONNX Runtime folds constants before it casts float16 to float32, and DequantizeLinear never: with a
product behind it, that is a quantised one to it. Where it has found none, weights are dequantised
in every run, and no kernel knows them. So what is left is folded behind its optimisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from aoe.graph.model_graph import attributes_of
from aoe.graph.protos import refill
from aoe.graph.rewrite import drop_unused_initializers
from aoe.graph.rewrites.matching import Array, is_op
from aoe.graph.weights import INLINE_BYTES, array_of, bytes_of, place_of

_COPYING = ("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity")
_FOLDED = ("Cast", "DequantizeLinear", *_COPYING)
_DEQUANTISED = frozenset(("int4", "uint4", "int8", "uint8", "int16", "uint16", "int32"))
_SCALES = frozenset(("float16", "float32"))
_WIDENED = frozenset((TensorProto.FLOAT16, TensorProto.BFLOAT16))


def fold_constants(proto: onnx.ModelProto, *op_types: str) -> None:
    """Compute casts, dequantised weights and moves of constants, in place.

    Weights that lie outside stay there, and so do constants that would make a model too large.

    Args:
        proto: The model.
        op_types: Operators that are computed; all that can be if there are none.
    """
    wanted = op_types or _FOLDED
    graph = proto.graph
    known: dict[str, TensorProto] = _constants(graph)
    outputs = {value.name for value in graph.output}
    room = INLINE_BYTES - sum(map(bytes_of, known.values()))
    kept = []
    for node in graph.node:
        result = node.output[0]
        is_wanted = result not in outputs and is_op(node, *wanted)
        value = _value(proto, node, known) if is_wanted else None
        if value is None or value.nbytes > room:
            kept.append(node)
            continue
        room -= value.nbytes
        known[result] = numpy_helper.from_array(np.ascontiguousarray(value), result)
        graph.initializer.append(known[result])
    if len(kept) < len(graph.node):
        refill(graph.node, kept)
        drop_unused_initializers(graph)


def _constants(graph: onnx.GraphProto) -> dict[str, TensorProto]:
    inputs = {value.name for value in graph.input}
    return {
        tensor.name: tensor
        for tensor in graph.initializer
        if tensor.name not in inputs and place_of(tensor) is None
    }


def _value(
    proto: onnx.ModelProto, node: onnx.NodeProto, known: Mapping[str, TensorProto]
) -> Array | None:
    """Return the result of a node with constant inputs, None if that is not sure."""
    if any(name and name not in known for name in node.input):
        return None
    tensors = [known[name] for name in node.input if name]
    said = attributes_of(node)
    if is_op(node, "DequantizeLinear"):
        return dequantised([array_of(tensor) for tensor in tensors], said)
    if is_op(node, "Cast"):
        is_wider = tensors[0].data_type in _WIDENED and said["to"] == TensorProto.FLOAT
        return array_of(tensors[0]).astype(np.float32) if is_wider else None
    result = helper.make_empty_tensor_value_info(node.output[0])
    inner = helper.make_graph([node], "folded", [], [result], tensors)
    model = helper.make_model(inner, opset_imports=proto.opset_import)
    made: Any = ReferenceEvaluator(model).run(None, {})
    return np.asarray(made[0])


def dequantised(inputs: Sequence[Array], attributes: Mapping[str, Any]) -> Array | None:
    """Return the result of a DequantizeLinear to the bit of ONNX Runtime; None if unknown.

    Args:
        inputs: Integers, scale and, if there is one, zero point.
        attributes: Of the operator: `axis`, `block_size`.
    """
    levels, scale, *zero_points = inputs
    if levels.dtype.name not in _DEQUANTISED or scale.dtype.name not in _SCALES:
        return None
    if attributes.get("output_dtype"):
        return None
    spread = [_spread(one, levels.shape, attributes) for one in (scale, *zero_points)]
    if any(one is None for one in spread):
        return None
    factors, *offsets = (one for one in spread if one is not None)
    whole = levels.astype(np.int64)
    for offset in offsets:
        whole = whole - offset.astype(np.int64)
    made = whole.astype(np.float32) * factors.astype(np.float32)
    with np.errstate(over="ignore"):
        return np.asarray(made.astype(scale.dtype))


def _spread(values: Array, shape: tuple[int, ...], attributes: Mapping[str, Any]) -> Array | None:
    """Return scales in a shape that goes with that of the integers, None if they do not fit."""
    if values.size == 1:
        return values.reshape(())
    axis = attributes.get("axis", 1)
    if not -len(shape) <= axis < len(shape):
        return None
    axis %= len(shape)
    if values.ndim == 1 and values.size == shape[axis]:
        return values.reshape(-1, *(1,) * (len(shape) - axis - 1))
    block = attributes.get("block_size", 0)
    if not block or values.ndim != len(shape):
        return None
    wide = np.repeat(values, block, axis=axis).take(range(shape[axis]), axis=axis)
    return wide if wide.shape == shape else None
