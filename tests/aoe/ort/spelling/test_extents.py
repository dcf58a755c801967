"""Extents that are computed where they are known: constants."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from aoe.ort.spelling.extents import write_known_extents


def _model(extents: list[int | str], result: str = "y", **attributes: int) -> onnx.ModelProto:
    """Return a model whose result is the shape of its input behind a ReLU, `s` before the Cast."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"], **attributes),
        helper.make_node("Cast", ["s"], ["y"], to=TensorProto.FLOAT),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, extents)]
    kind = TensorProto.INT64 if result == "s" else TensorProto.FLOAT
    outputs = [helper.make_tensor_value_info(result, kind, ["rank"])]
    graph = helper.make_graph(nodes, "net", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [({}, [2, 3, 5]), ({"start": 1}, [3, 5]), ({"start": -3, "end": -1}, [2, 3])],
)
def test_shape_of_known_extents_is_a_constant(
    attributes: dict[str, int], wanted: list[int]
) -> None:
    written = write_known_extents(_model([2, 3, 5], **attributes))
    onnx.checker.check_model(written, full_check=True)
    assert [node.op_type for node in written.graph.node] == ["Relu", "Cast"]
    (constant,) = written.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(constant), wanted)


def test_claims_of_the_file_are_not_believed() -> None:
    model = _model([2, "n"])
    model.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 7]))
    assert write_known_extents(model) is model


@pytest.mark.parametrize("model", [_model(["n", 3]), _model([2, 3], result="s")])
def test_open_extents_and_results_stay(model: onnx.ModelProto) -> None:
    assert write_known_extents(model) is model
