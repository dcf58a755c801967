"""Random graphs in ONNX Runtime's two layouts, and what a graph computes, as symbols."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper

from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.operators import BLOCKED_CONVOLUTION
from aoe.workload import NCHWC_DOMAIN
from support.engine.models import make_model

BLOCK = 8
SHAPE = (1, 16, 4, 4)
UNARY = ("Relu", "Tanh", "Neg")
BINARY = ("Add", "Mul")
WITH_PARAMETER = ("PRelu", "Sub")
OTHER = ("MaxPool", "GlobalLpPool")
FUSIBLE = frozenset(("", name) for name in (*UNARY, *BINARY, *WITH_PARAMETER)) | {
    BLOCKED_CONVOLUTION
}
ANCHORS = frozenset({("", "LRN")})
_KINDS = (*UNARY, *BINARY, *BINARY, *WITH_PARAMETER, *OTHER, "LRN", "in", "out", "conv")


@st.composite
def graphs(draw: st.DrawFn, most_nodes: int = 14) -> ModelGraph:
    """Draw a graph of fusible, anchored, reordering and other nodes; all tensors alike in size.

    Tensors are plain or blocked as ONNX Runtime would have them: layout-bound operators see the
    layout they need, element-wise ones two operands of one layout.
    """
    plain: list[str] = ["x", "z"]
    blocked: list[str] = []
    nodes: list[onnx.NodeProto] = []
    for number in range(draw(st.integers(1, most_nodes))):
        kind = draw(st.sampled_from(_KINDS))
        pool = draw(st.sampled_from([plain, blocked])) if blocked else plain
        result = f"t{number}"
        if kind in ("out", "conv") and not blocked:
            kind = "in"
        if kind in WITH_PARAMETER and pool is blocked:
            kind = "Relu"  # ONNX Runtime keeps parameters of a channel out of the blocked layout
        if kind == "LRN":
            pool = plain
        source = draw(st.sampled_from(blocked if kind in ("out", "conv") else pool))
        nodes.append(_node(draw, kind, source, pool, result))
        is_blocked = kind in ("in", "conv") or (kind != "out" and pool is blocked)
        (blocked if is_blocked else plain).append(result)
    made = [node.output[0] for node in nodes]
    outputs = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    weights = {
        "slope": np.ones((16, 1, 1), np.float32),
        "half": np.full((), 0.5, np.float32),
        "w": np.ones((16, 16, 3, 3), np.float32),
    }
    model = make_model(
        nodes, {"x": SHAPE, "z": SHAPE}, outputs, weights=weights, domains={NCHWC_DOMAIN: 1}
    )
    return ModelGraph(model, tensors_of(made), block=BLOCK)


def tensors_of(names: Iterable[str]) -> dict[str, TensorInfo]:
    """Return float32 tensors of `SHAPE`."""
    return {name: TensorInfo(dtype="float32", shape=SHAPE) for name in names}


def _node(
    draw: st.DrawFn, kind: str, source: str, pool: Sequence[str], result: str
) -> onnx.NodeProto:
    name = f"node_{result}"
    if kind == "in":
        return helper.make_node(
            "ReorderInput", [source], [result], name, domain=NCHWC_DOMAIN, channels_last=0
        )
    if kind == "out":
        return helper.make_node(
            "ReorderOutput", [source], [result], name, domain=NCHWC_DOMAIN, channels=16
        )
    if kind == "conv":
        pads = [1, 1, 1, 1]
        return helper.make_node(
            "Conv", [source, "w"], [result], name, domain=NCHWC_DOMAIN, pads=pads
        )
    if kind in BINARY:
        return helper.make_node(kind, [source, draw(st.sampled_from(pool))], [result], name)
    if kind in WITH_PARAMETER:
        parameter = "slope" if kind == "PRelu" else draw(st.sampled_from(["slope", "half"]))
        return helper.make_node(kind, [source, parameter], [result], name)
    return helper.make_node(kind, [source], [result], name, **_ATTRIBUTES.get(kind, {}))


_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "LRN": {"size": 3},
    "MaxPool": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
}


def meaning(model: onnx.ModelProto) -> dict[str, object]:
    """Return what each graph output computes, as a nested tuple of operators and inputs.

    Calls of model-local functions are expanded, so a rewritten model means what the original
    does exactly if this is equal.
    """
    functions = {function.name: function for function in model.functions}
    names: dict[str, object] = {value.name: value.name for value in model.graph.input}
    names |= {tensor.name: _contents(tensor) for tensor in model.graph.initializer}
    _run(model.graph.node, names, functions)
    return {value.name: names[value.name] for value in model.graph.output}


def _run(
    nodes: Iterable[onnx.NodeProto],
    names: dict[str, object],
    functions: Mapping[str, onnx.FunctionProto],
) -> None:
    for node in nodes:
        function = functions.get(node.op_type) if node.domain == "aoe" else None
        if function is not None:
            inner: dict[str, object] = {
                formal: names[actual]
                for formal, actual in zip(function.input, node.input, strict=True)
            }
            _run(function.node, inner, functions)
            names[node.output[0]] = inner[function.output[0]]
        elif node.op_type == "Constant":
            names[node.output[0]] = _contents(node.attribute[0].t)
        else:
            attributes = tuple(sorted(a.SerializeToString() for a in node.attribute))
            operands = tuple(names[name] if name else None for name in node.input)
            for position, name in enumerate(node.output):
                names[name] = (node.domain, node.op_type, attributes, operands, position)


def _contents(tensor: onnx.TensorProto) -> tuple[object, ...]:
    array = onnx.numpy_helper.to_array(tensor)
    return (array.shape, array.tobytes())
