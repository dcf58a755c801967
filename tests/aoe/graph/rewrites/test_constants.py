"""Constants that a graph computes in every run fold to the bits ONNX Runtime makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aoe.graph.rewrites.constants import fold_constants

_RNG = np.random.default_rng(0)


def _run(model: onnx.ModelProto) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": np.zeros((), np.float32)})[0]


def _model(
    nodes: list[onnx.NodeProto], constants: list[onnx.TensorProto], made: int = TensorProto.FLOAT
) -> onnx.ModelProto:
    """Return a model that gives what nodes make of constants under the name `w`."""
    behind = [
        helper.make_node("Cast", ["w"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "x"], ["y"]),
    ]
    graph = helper.make_graph(
        [*nodes, *behind],
        "constants",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _folds_to_the_same(model: onnx.ModelProto) -> bool:
    expected = _run(model)
    fold_constants(model)
    np.testing.assert_array_equal(_run(model), expected)
    made = {tensor.name for tensor in model.graph.initializer}
    return not made.isdisjoint(("w", "wide"))


def _tensor(name: str, values: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(values), name)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32"])
@pytest.mark.parametrize("scale", [np.float32, np.float16])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_dequantised_weights_have_the_same_bits(kind: str, scale: Any, axis: int | None) -> None:
    limits = np.iinfo(kind)
    levels = _RNG.integers(limits.min, limits.max, (6, 5, 4), kind, endpoint=True)
    count = () if axis is None else (levels.shape[axis],)
    zero = np.zeros(count, kind) if kind == "int32" else np.full(count, limits.max // 3, kind)
    node = helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=axis or 0)
    scales = (_RNG.random(count) * 1e-3 + 1e-4).astype(scale)
    constants = [_tensor("q", levels), _tensor("s", scales), _tensor("z", zero)]
    assert _folds_to_the_same(_model([node], constants))


def test_blocks_of_weights_are_dequantised_as_onnx_says() -> None:
    from onnx.reference import ReferenceEvaluator

    levels, scales = _RNG.integers(-8, 8, (6, 5), "int8"), _RNG.random((3, 5)).astype(np.float32)
    node = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=2)
    model = _model([node], [_tensor("q", levels), _tensor("s", scales)])
    (expected,) = ReferenceEvaluator(model).run(None, {"x": np.zeros((), np.float32)})
    fold_constants(model)
    np.testing.assert_array_equal(_run(model), expected)


def test_chains_behind_dequantised_and_cast_weights_fold_with_them() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"]),
        helper.make_node("Cast", ["d"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["c"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["w"]),
    ]
    constants = [
        _tensor("q", _RNG.integers(-128, 128, (4, 6), "int8")),
        _tensor("s", np.float16(0.01)),
        _tensor("shape", np.array([3, 8])),
    ]
    assert _folds_to_the_same(_model(nodes, constants))


def test_float16_weights_of_every_kind_are_widened_exactly() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    node = helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT)
    assert _folds_to_the_same(_model([node], [_tensor("h", every)]))


def test_what_rounds_or_is_a_result_stays() -> None:
    narrow = helper.make_node("Cast", ["f"], ["w"], to=TensorProto.FLOAT16)
    model = _model([narrow], [_tensor("f", np.float32([0.1, 70000]))])
    assert not _folds_to_the_same(model)
    wide = helper.make_node("Cast", ["h"], ["w"], to=TensorProto.FLOAT)
    model = _model([wide], [_tensor("h", np.float16([0.1]))])
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]))
    assert not _folds_to_the_same(model)
