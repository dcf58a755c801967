"""Operators of float16 that ONNX Runtime takes apart are one again in the graph that is tuned."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aoe.device.registry import default_device
from aoe.graph.rewrites.inlined import joined_again
from aoe.ort.offline_optimization import optimize_offline

_RNG = np.random.default_rng(0)


def _model(kind: int, opset: int, axis: int) -> onnx.ModelProto:
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["s"]),
            helper.make_node("Softmax", ["s"], ["p"], axis=axis),
            helper.make_node("MatMul", ["p", "w"], ["y"]),
        ],
        "attention",
        [helper.make_tensor_value_info("x", kind, [2, 9, 8])],
        [helper.make_tensor_value_info("y", kind, [2, 9, 8])],
        [helper.make_tensor("w", kind, [2, 8, 8], _RNG.standard_normal(128).astype(np.float32))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_softmax_between_two_products_is_one_node(opset: int, axis: int, tmp_path: Path) -> None:
    model = _model(TensorProto.FLOAT16, opset, axis)
    found = optimize_offline(
        model, tmp_path / "optimized.onnx", default_device().open_session, threads=1
    )
    kinds = Counter(node.op_type for node in found.graph.node)
    assert kinds["Softmax"] == 1
    assert not kinds["Exp"]
    x = _RNG.standard_normal((2, 9, 8)).astype(np.float16)
    left, right = (
        ort.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"]).run(
            None, {"x": x}
        )[0]
        for one in (model, found)
    )
    np.testing.assert_allclose(right, left, rtol=2e-3, atol=1e-3)


def _parts(axes: tuple[int, int], kind: type[np.floating], *, is_read: bool) -> onnx.ModelProto:
    node, name = helper.make_node, helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    outputs = ["y", "e"] if is_read else ["y"]
    graph = helper.make_graph(
        [
            node("ReduceMax", ["x", "first"], ["m"]),
            node("Sub", ["x", "m"], ["d"]),
            node("Exp", ["d"], ["e"]),
            node("ReduceSum", ["e", "second"], ["t"]),
            node("Div", ["e", "t"], ["y"]),
        ],
        "parts",
        [helper.make_tensor_value_info("x", name, [5, 7])],
        [helper.make_tensor_value_info(one, name, [5, 7]) for one in outputs],
        [
            numpy_helper.from_array(np.array([axis]), one)
            for axis, one in zip(axes, ("first", "second"), strict=True)
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    ("axes", "kind", "is_read", "joined"),
    [
        ((1, 1), np.float32, False, True),
        ((0, 0), np.float32, False, True),
        ((1, 0), np.float32, False, False),
        ((1, 1), np.float16, False, False),
        ((1, 1), np.float32, True, False),
    ],
)
def test_only_the_whole_of_float32_along_one_axis_is_joined(
    axes: tuple[int, int], kind: type[np.floating], is_read: bool, joined: bool
) -> None:
    model = _parts(axes, kind, is_read=is_read)
    found = joined_again(model)
    assert [node.op_type for node in found.graph.node] == (
        ["Softmax"] if joined else [node.op_type for node in model.graph.node]
    )
