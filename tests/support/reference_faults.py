"""Operators that `onnx.reference` is no oracle for: tests compare them with NumPy in float64.

The table in docs/kernels.md says what it computes instead; tests/test_reference_faults.py shows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx

from aoe.graph.model_graph import attributes_of

_ALONG_ONE_AXIS = 13
"""Opset from which on Softmax is along one axis."""
_LENGTHS = 4
"""Input of a recurrent operator with the lengths of its sequences."""
Is = Callable[[onnx.NodeProto, Mapping[str, Any], int], bool]


def _flattens(node: onnx.NodeProto, said: Mapping[str, Any], opset: int) -> bool:
    return opset < _ALONG_ONE_AXIS and said.get("axis", 1) != -1


def _counts_beyond(node: onnx.NodeProto, said: Mapping[str, Any], opset: int) -> bool:
    return bool(said.get("ceil_mode", 0))


def _ends_early(node: onnx.NodeProto, said: Mapping[str, Any], opset: int) -> bool:
    return "clip" in said or (len(node.input) > _LENGTHS and bool(node.input[_LENGTHS]))


_FAULTS: Mapping[str, Is] = {
    "LRN": lambda node, said, opset: True,  # unless there are as many images as channels
    "AveragePool": _counts_beyond,
    "LpPool": _counts_beyond,
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _flattens),
    "Attention": lambda node, said, opset: bool(said.get("softcap")) and len(node.output) > 1,
    "Resize": lambda node, said, opset: (
        said.get("mode", "nearest") == "nearest"
        and (
            said.get("coordinate_transformation_mode") == "align_corners"
            or said.get("nearest_mode") == "ceil"
        )
    ),
    "GridSample": lambda node, said, opset: (
        said.get("mode") == "cubic" and said.get("padding_mode", "zeros") != "zeros"
    ),
    "LpNormalization": lambda node, said, opset: said.get("p", 2) == 1,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), _ends_early),
}


def misjudged(proto: onnx.ModelProto) -> str:
    """Return an operator of a model that the reference computes wrongly; empty if there is none."""
    opset = max(entry.version for entry in proto.opset_import if not entry.domain)
    for node in proto.graph.node:
        is_fault = _FAULTS.get(node.op_type) if not node.domain else None
        if is_fault is not None and is_fault(node, attributes_of(node), opset):
            return str(node.op_type)
    return ""
