"""Models of float16 and bfloat16 in float32: the same computation, rounded at its ends alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from aoe.graph.rewrites.half_precision import is_half_precision, written_in_float32

F16, BF16, F32 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT
_RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def _weights(name: str, *shape: int, scale: float = 0.2) -> onnx.TensorProto:
    values = (_RNG.standard_normal(shape) * scale).astype(np.float16)
    return numpy_helper.from_array(values, name)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[int]]],
    outputs: Sequence[tuple[str, int, Sequence[int | str]]],
    constants: Sequence[onnx.TensorProto] = (),
    opset: int = 17,
    value_info: Sequence[onnx.ValueInfoProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "half",
        [helper.make_tensor_value_info(*one) for one in inputs],
        [helper.make_tensor_value_info(*one) for one in outputs],
        list(constants),
        value_info=list(value_info),
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.checker.check_model(model)
    return model


def _run(model: onnx.ModelProto, *arrays: Array) -> list[Any]:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {value.name: array for value, array in zip(session.get_inputs(), arrays, strict=True)}
    return list(session.run(None, feed))


def _types(model: onnx.ModelProto) -> dict[str, int]:
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True).graph
    values = (*inferred.input, *inferred.output, *inferred.value_info)
    return {value.name: value.type.tensor_type.elem_type for value in values}


def _half(*shape: int) -> Array:
    return _RNG.standard_normal(shape).astype(np.float16)


def _residual_block(channels: int = 5) -> onnx.ModelProto:
    node = helper.make_node
    shape = [1, channels, 9, 7]
    return _model(
        [
            node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
            node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"], "norm"),
            node("Relu", ["n"], ["r"], "relu"),
            node("Add", ["r", "x"], ["sum"], "add"),
            node("GlobalAveragePool", ["sum"], ["y"], "pool"),
        ],
        [("x", F16, shape)],
        [("y", F16, [1, channels, 1, 1])],
        [
            _weights("w", channels, channels, 3, 3),
            *(_weights(name, channels) for name in "sbm"),
            numpy_helper.from_array(np.ones(channels, np.float16), "v"),
        ],
        value_info=[helper.make_tensor_value_info("r", F16, shape)],
    )


def test_a_residual_block_is_float32_between_casts() -> None:
    model = _residual_block()
    made = written_in_float32(model)
    casts = [node for node in made.graph.node if node.op_type == "Cast"]
    assert {node.output[0] for node in casts} >= {"x_float32", "y"}
    types = _types(made)
    assert types["x"] == types["y"] == F16
    assert {types[name] for name in ("a", "n", "r", "sum")} == {F32}
    assert [n.name for n in made.graph.node if n.op_type != "Cast"] == [
        n.name for n in model.graph.node
    ]
    x = _half(1, 5, 9, 7)
    (found,), (expected,) = _run(made, x), _run(model, x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, expected, rtol=2e-2, atol=2e-3)


def test_results_are_closer_to_exact_ones_than_those_of_the_model_as_written() -> None:
    from onnx.reference import ReferenceEvaluator

    model = _residual_block()
    x = _half(1, 5, 9, 7)
    exact = ReferenceEvaluator(written_in_float32(model)).run(None, {"x": x})[0]
    rounded = ReferenceEvaluator(model).run(None, {"x": x})[0]
    (found,) = _run(written_in_float32(model), x)
    assert np.abs(found.astype(float) - exact).max() <= np.abs(rounded.astype(float) - exact).max()


def test_a_float32_model_stays_the_one_it_is() -> None:
    shape = [2, 3]
    model = _model(
        [helper.make_node("Relu", ["x"], ["y"])], [("x", F32, shape)], [("y", F32, shape)]
    )
    assert not is_half_precision(model)
    assert written_in_float32(model) is model


def test_large_weights_stay_what_they_are_and_small_ones_are_widened() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    constants = [_weights("w", 64, 32), _weights("b", 32)]
    made = written_in_float32(
        _model(nodes, [("x", F16, [3, 64])], [("y", F16, [3, 32])], constants)
    )
    assert {one.name: one.data_type for one in made.graph.initializer} == {
        "w": F16,
        "b_float32": F32,
    }


def test_tables_of_embeddings_stay_narrow_and_rows_are_widened() -> None:
    node = helper.make_node
    model = _model(
        [node("Gather", ["table", "i"], ["rows"]), node("Mul", ["rows", "rows"], ["y"])],
        [("i", TensorProto.INT64, [3])],
        [("y", F16, [3, 16])],
        [_weights("table", 50, 16)],
    )
    made = written_in_float32(model)
    assert {one.name: one.data_type for one in made.graph.initializer} == {"table": F16}
    assert _types(made)["rows"] == F32
    i = np.array([49, 0, 7])
    np.testing.assert_array_equal(_run(made, i)[0], _run(model, i)[0])


def test_autocast_models_lose_the_casts_around_their_products() -> None:
    node = helper.make_node
    model = _model(
        [
            node("Cast", ["x"], ["h"], to=F16),
            node("MatMul", ["h", "w"], ["p"]),
            node("Cast", ["p"], ["y"], to=F32),
        ],
        [("x", F32, [3, 64])],
        [("y", F32, [3, 32])],
        [_weights("w", 64, 32)],
    )
    assert _types(written_in_float32(model))["p"] == F32
    x = _half(3, 64).astype(np.float32)
    (found,), (expected,) = _run(written_in_float32(model), x), _run(model, x)
    np.testing.assert_allclose(found, expected, rtol=1e-2, atol=2e-2)


def test_overflow_becomes_infinite_at_the_ends_alone() -> None:
    node, ten = helper.make_node, numpy_helper.from_array(np.array([10], np.float16), "ten")
    model = _model(
        [node("Mul", ["x", "ten"], ["large"]), node("Div", ["large", "ten"], ["y"])],
        [("x", F16, [6])],
        [("y", F16, [6]), ("large", F16, [6])],
        [ten],
    )
    x = np.array([60000, -60000, 6e-8, np.inf, np.nan, 1], np.float16)
    y, large = _run(written_in_float32(model), x)
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(large, np.array([np.inf, -np.inf, 6e-7, np.inf, np.nan, 10], "e"))


def _branches() -> onnx.ModelProto:
    """A model whose If reads a narrow tensor from outside."""
    node = helper.make_node
    result = [helper.make_tensor_value_info("b", F16, [2, 3])]
    then = helper.make_graph([node("Neg", ["h"], ["b"])], "then", [], result)
    other = helper.make_graph([node("Identity", ["h"], ["b"])], "else", [], result)
    return _model(
        [
            node("Mul", ["x", "x"], ["h"]),
            node("If", ["c"], ["i"], then_branch=then, else_branch=other),
            node("Add", ["i", "h"], ["y"]),
        ],
        [("x", F16, [2, 3]), ("c", TensorProto.BOOL, [])],
        [("y", F16, [2, 3])],
    )


def _levels() -> onnx.ModelProto:
    """A model that reads the bits of a random number, and numbers of another type."""
    node = helper.make_node
    return _model(
        [
            node("RandomNormalLike", ["x"], ["noise"], seed=1.0),
            node("Mul", ["noise", "zero"], ["none"]),
            node("Add", ["x", "none"], ["h"]),
            node("Cast", ["h"], ["whole"], to=TensorProto.INT32),
            node("Cast", ["whole"], ["k"], to=F16),
            node("Where", ["c", "k", "h"], ["y"]),
        ],
        [("x", F16, [2, 3]), ("c", TensorProto.BOOL, [2, 3])],
        [("y", F16, [2, 3])],
        [numpy_helper.from_array(np.zeros(1, np.float16), "zero")],
    )


@pytest.mark.parametrize(("model", "kept"), [(_branches(), "If"), (_levels(), "RandomNormalLike")])
def test_operators_that_are_left_read_and_make_what_they_did(
    model: onnx.ModelProto, kept: str
) -> None:
    made = written_in_float32(model)
    assert kept in {node.op_type for node in made.graph.node}
    x, shape = _half(2, 3), model.graph.input[1].type.tensor_type.shape.dim
    condition = np.ones([dim.dim_value for dim in shape], bool)
    np.testing.assert_allclose(
        *(_run(one, x, condition)[0] for one in (model, made)), rtol=2e-3, atol=1e-3
    )


def test_operators_of_onnx_runtime_carry_their_type_on() -> None:
    node = helper.make_node
    model = _model(
        [
            node("SkipLayerNormalization", ["x", "x", "g"], ["n"], domain="com.microsoft"),
            node("Softmax", ["n"], ["y"]),
        ],
        [("x", F16, [1, 4, 8])],
        [("y", F16, [1, 4, 8])],
        [_weights("g", 8)],
    )
    made = written_in_float32(model)
    assert Counter(node.op_type for node in made.graph.node)["Cast"] == 2  # in and out alone
    x = _half(1, 4, 8)
    np.testing.assert_allclose(_run(made, x)[0], _run(model, x)[0], rtol=5e-3, atol=1e-3)


@pytest.mark.parametrize("opset", [13, 17, 18, 21, 22])
def test_an_attention_of_any_opset_is_float32(opset: int) -> None:
    node = helper.make_node
    model = _model(
        [
            node("Transpose", ["k"], ["t"], perm=[0, 2, 1]),
            node("MatMul", ["q", "t"], ["s"]),
            node("Softmax", ["s"], ["p"]),
            node("MatMul", ["p", "k"], ["a"]),
            node("ReduceMax", ["a"], ["y"]),
        ],
        [("q", F16, [2, 5, 7]), ("k", F16, [2, 11, 7])],
        [("y", F16, [1, 1, 1])],
        opset=opset,
    )
    made = written_in_float32(model)
    q, k = _half(2, 5, 7), _half(2, 11, 7)
    np.testing.assert_allclose(_run(made, q, k)[0], _run(model, q, k)[0], rtol=5e-3)
    assert Counter(node.op_type for node in made.graph.node)["Cast"] == 3


def test_bfloat16_models_run_in_float32() -> None:
    weights = helper.make_tensor("w", BF16, [3, 2], np.arange(6, dtype=np.float32) - 2)
    model = _model(
        [
            helper.make_node("Cast", ["x"], ["h"], to=BF16),
            helper.make_node("MatMul", ["h", "w"], ["p"]),
            helper.make_node("Relu", ["p"], ["r"]),
            helper.make_node("Cast", ["r"], ["y"], to=F32),
        ],
        [("x", F32, [1, 3])],
        [("y", F32, [1, 2])],
        [weights],
    )
    assert is_half_precision(model, BF16)
    assert not is_half_precision(model, F16)
    with pytest.raises(Exception, match="NOT_IMPLEMENTED"):
        _run(model, np.ones((1, 3), np.float32))
    found = _run(written_in_float32(model), np.array([[1, 2, 3]], np.float32))
    np.testing.assert_array_equal(found[0], [[4, 10]])
