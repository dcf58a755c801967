"""Results of a network in float64, by the reference of ONNX."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from support.reference_faults import misjudged

_FROM, _TO = TensorProto.FLOAT, TensorProto.DOUBLE


def exact_results(proto: onnx.ModelProto, feed: Mapping[str, Any]) -> list[Any]:
    """Return what a network of float32 computes where nothing is rounded to that.

    Nothing where the reference lacks an operator, computes it wrongly, or has it for float32 alone.

    Args:
        proto: Its parts in float16 stay so.
        feed: Inputs in float32.
    """
    if misjudged(proto):
        return []
    exact = {name: np.asarray(value, np.float64) for name, value in feed.items()}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return list(ReferenceEvaluator(in_doubles(proto)).run(None, exact))
        except Exception:  # of somebody else's code: it may be any
            return []


def in_doubles(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a network whose tensors of float32 are of float64."""
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    graph = made.graph
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == _FROM:
            value.type.tensor_type.elem_type = _TO
    for tensor in graph.initializer:
        _widen(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                _widen(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == _FROM:
                attribute.i = _TO
    return made


def _widen(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _FROM:
        values = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
