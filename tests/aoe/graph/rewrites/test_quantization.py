"""Quantised models with uint8 activations compute the same bits, and more of them in integers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic
from support.engine.quantized import (
    SHAPE,
    TOKENS,
    Feed,
    Graph,
    attention,
    biased,
    feeds,
    quantized_static,
    residual,
)

from aoe.graph.rewrites.quantization import (
    with_biases_in_scale,
    with_folded_constants,
    with_uint8_activations,
)


def session(model: onnx.ModelProto, file: Path | None = None) -> ort.InferenceSession:
    """Return a session without optimisations, or with all, of which `file` gets the result."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if file is not None:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.optimized_model_filepath = str(file)
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def run(model: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    return list(session(model).run(None, feed))


def assert_same_bits(
    model: onnx.ModelProto, other: onnx.ModelProto, inputs: Iterator[Feed] | None = None
) -> None:
    for feed in inputs or feeds():
        for expected, found in zip(run(model, feed), run(other, feed), strict=True):
            assert expected.dtype == found.dtype
            np.testing.assert_array_equal(expected, found)


def types(model: onnx.ModelProto) -> dict[str, int]:
    """Return the types of what QuantizeLinear makes, by the node's result."""
    known = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return {
        node.output[0]: known[node.input[2]]
        for node in model.graph.node
        if node.op_type == "QuantizeLinear"
    }


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def optimized_kinds(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    session(model, folder / "optimized.onnx")
    return kinds(onnx.load(str(folder / "optimized.onnx")))


# ---- What ONNX Runtime's quantiser writes ----


def integer_options() -> Iterator[tuple[QuantFormat, bool, bool]]:
    for form in (QuantFormat.QDQ, QuantFormat.QOperator):
        yield from (
            (form, per_channel, symmetric)
            for per_channel in (False, True)
            for symmetric in (False, True)
        )


@pytest.mark.parametrize("activation", ["Relu", "Clip", "LeakyRelu", "SiLU"])
def test_residual_networks_keep_their_bits_and_have_integer_convolutions(
    activation: str, tmp_path: Path
) -> None:
    float_model = residual(activation)
    for form, per_channel, symmetric in integer_options():
        model = quantized_static(
            float_model,
            tmp_path,
            quant_format=form,
            per_channel=per_channel,
            activation_type=QuantType.QInt8,
            extra_options={"ActivationSymmetric": symmetric},
        )
        written = with_uint8_activations(model)
        assert set(types(written).values()) == {TensorProto.UINT8}
        assert_same_bits(model, written)
        found = optimized_kinds(written, tmp_path)
        assert (found["QLinearConv"], found["QLinearAdd"], found["QGemm"]) == (5, 1, 1)
        assert not {"Conv", "FusedConv", "Add"}.intersection(found)


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator])
def test_attention_keeps_its_bits_and_has_integer_products(
    form: QuantFormat, tmp_path: Path
) -> None:
    model = quantized_static(
        attention(), tmp_path, TOKENS, quant_format=form, activation_type=QuantType.QInt8
    )
    written = with_uint8_activations(model)
    assert_same_bits(model, written, feeds(TOKENS))
    found = optimized_kinds(written, tmp_path)
    assert (found["QLinearMatMul"], found["QLinearAdd"]) == (7, 6)
    assert not {"MatMul", "Gemm", "Add", "Mul"}.intersection(found)


def test_models_without_int8_activations_are_left_alone(tmp_path: Path) -> None:
    model = residual("Relu")
    assert with_uint8_activations(model) is model
    unsigned = quantized_static(model, tmp_path, activation_type=QuantType.QUInt8)
    assert with_uint8_activations(unsigned) is unsigned
    wide = quantized_static(model, tmp_path, activation_type=QuantType.QInt16)
    assert with_uint8_activations(wide) is wide
    quantize_dynamic(str(tmp_path / "float.onnx"), str(tmp_path / "dynamic.onnx"))
    dynamic = onnx.load(str(tmp_path / "dynamic.onnx"))
    assert with_uint8_activations(dynamic) is dynamic


# ---- Graphs by hand ----


def moved_codes(graph: Graph, op_type: str, codes: str) -> str:
    """Return codes an operator has moved or bounded."""

    def row(*values: int) -> str:
        return graph.constant(values, "int64")

    shape = graph.constant([1, 1, 2, 2])
    match op_type:
        case "Reshape":
            return graph.add("Reshape", codes, row(4, 36))
        case "Gather":
            return graph.add("Gather", codes, row(2, 0), axis=1)
        case "Slice":
            return graph.add("Slice", codes, row(1), row(3), row(1))
        case "Expand":
            return graph.add("Expand", codes, row(2, 4, 6, 6))
        case "Pad":
            return graph.add("Pad", codes, row(0, 0, 1, 1, 0, 0, 1, 0))
        case "Pad of a number":
            number = graph.constant(-7, "int8")
            return graph.add("Pad", codes, row(0, 0, 1, 1, 0, 0, 1, 0), number)
        case "Pad that mirrors":
            return graph.add("Pad", codes, row(0, 0, 1, 1, 0, 0, 1, 0), mode="reflect")
        case "Resize":
            return graph.add("Resize", codes, "", shape, mode="nearest")
        case "MaxPool":
            return graph.add("MaxPool", codes, kernel_shape=[3, 3], pads=[1] * 4)
        case "Split":
            return graph.add("Split", codes, row(1, 3), outputs=2, axis=1)
        case "Concat":
            return graph.add("Concat", codes, codes, axis=1)
        case "Concat with a constant":
            values = np.arange(-72, 72).reshape(SHAPE)
            return graph.add("Concat", codes, graph.constant(values, "int8"), axis=1)
        case "Where":
            is_left = graph.constant([True, False] * 3, "bool")
            return graph.add("Where", is_left, codes, graph.constant(-5, "int8"))
        case "Clip":
            return graph.add("Clip", codes, graph.constant(-9, "int8"), graph.constant(90, "int8"))
        case "Clip from above":
            return graph.add("Clip", codes, "", graph.constant(-9, "int8"))
        case "ReduceMax":
            return graph.add("ReduceMax", codes, axes=[1])
        case _:
            return graph.add(op_type, codes)


MOVES = [
    *("Reshape", "Gather", "Slice", "Expand", "Pad", "Pad of a number", "Pad that mirrors"),
    *("Resize", "MaxPool", "Split", "Concat", "Concat with a constant", "Where", "Clip"),
    *("Clip from above", "ReduceMax", "Relu", "Transpose", "Flatten", "Identity"),
]


@pytest.mark.parametrize("op_type", MOVES)
def test_codes_stay_the_same_through(op_type: str) -> None:
    graph = Graph()
    codes = graph.quantized("x")
    model = graph.model(
        graph.dequantized(moved_codes(graph, op_type, codes)), graph.dequantized(codes)
    )
    written = with_uint8_activations(model)
    assert set(types(written).values()) == {TensorProto.UINT8}
    assert len(written.graph.node) == len(model.graph.node)
    assert_same_bits(model, written)


def test_zero_points_that_are_not_given_stand_for_zero() -> None:
    graph = Graph(opset=21)
    codes = graph.add("QuantizeLinear", "x", graph.constant(0.05), output_dtype=TensorProto.INT8)
    model = graph.model(graph.dequantized(codes, zero=None))
    written = with_uint8_activations(model)
    assert set(types(written).values()) == {TensorProto.UINT8}
    assert_same_bits(model, written)
    unsigned = Graph()
    plain = unsigned.add("QuantizeLinear", "x", unsigned.constant(0.05))
    model = unsigned.model(unsigned.add("DequantizeLinear", plain, unsigned.constant(0.05)))
    assert with_uint8_activations(model) is model


@pytest.mark.parametrize("is_given", [True, False])
def test_scales_of_channels_have_zero_points_of_channels(is_given: bool) -> None:
    graph = Graph(opset=21)
    scales = graph.constant([0.05, 0.1, 0.02, 0.3])
    points = (graph.constant([3, -5, -128, 127], "int8"),) if is_given else ()
    codes = graph.add("QuantizeLinear", "x", scales, *points, axis=1, output_dtype=TensorProto.INT8)
    model = graph.model(graph.add("DequantizeLinear", codes, scales, *points, axis=1))
    written = with_uint8_activations(model)
    assert set(types(written).values()) == {TensorProto.UINT8}
    assert_same_bits(model, written)


def test_half_precision_scales_stay() -> None:
    graph = Graph(opset=19)
    scale, zero = graph.constant(0.05, "float16"), graph.constant(3, "int8")
    codes = graph.add("QuantizeLinear", "x", scale, zero)
    model = graph.model(
        graph.add("DequantizeLinear", codes, scale, zero), dtype=TensorProto.FLOAT16
    )
    written = with_uint8_activations(model)
    assert set(types(written).values()) == {TensorProto.UINT8}
    assert_same_bits(model, written, feeds(dtype="float16"))


def test_blocks_of_scales_stay_int8() -> None:
    graph = Graph(opset=21)
    scales = graph.constant(np.full((1, 2, 6, 6), 0.05))
    points = graph.constant(np.zeros((1, 2, 6, 6)), "int8")
    codes = graph.add("QuantizeLinear", "x", scales, points, axis=1, block_size=2)
    model = graph.model(graph.add("DequantizeLinear", codes, scales, points, axis=1, block_size=2))
    assert with_uint8_activations(model) is model


def test_mixed_types_become_one() -> None:
    """Some quantisers write int8 where values are signed, and uint8 behind a Relu."""
    graph = Graph()
    signed = graph.dequantized(graph.quantized("x"))
    step, zero = graph.constant(0.05), graph.constant(0, "uint8")
    codes = graph.add("QuantizeLinear", graph.add("Relu", signed), step, zero)
    unsigned = graph.add("DequantizeLinear", codes, step, zero)
    model = graph.model(graph.dequantized(graph.quantized(graph.add("Add", signed, unsigned))))
    written = with_uint8_activations(model)
    assert list(types(written).values()) == [TensorProto.UINT8] * 3
    assert_same_bits(model, written)


@pytest.mark.parametrize("op_type", ["Cast", "MatMulInteger", "If", "result"])
def test_codes_that_other_operators_need_stay_int8(op_type: str) -> None:
    graph = Graph()
    codes = graph.quantized("x")
    other = codes
    if op_type == "Cast":
        other = graph.add("Cast", codes, to=TensorProto.FLOAT)
    elif op_type == "MatMulInteger":
        weights = graph.constant(np.arange(-18, 18).reshape(6, 6), "int8")
        other = graph.add("MatMulInteger", codes, weights)
    elif op_type == "If":
        same = helper.make_node("Identity", [codes], ["inner"])
        branch = helper.make_graph(
            [same], "branch", [], [helper.make_empty_tensor_value_info("inner")]
        )
        is_so = graph.constant(True, "bool")
        other = graph.add("If", is_so, then_branch=branch, else_branch=branch)
    model = graph.model(graph.dequantized(codes), other)
    assert with_uint8_activations(model) is model


def linear(graph: Graph, op_type: str, *codes: str, scale: float = 0.0625) -> str:
    """Return codes an operator on codes of one scale makes."""
    step, zero = graph.constant(scale), graph.constant(-4, "int8")
    quantized = [name for one in codes for name in (one, step, zero)]
    if op_type == "QLinearConv":
        weights = graph.constant(np.arange(-72, 72).reshape(4, 4, 3, 3), "int8")
        parts = weights, graph.constant(0.125), graph.constant(0, "int8"), step, zero
        return graph.add("QLinearConv", *quantized, *parts, pads=[1] * 4)
    if op_type == "QLinearConcat":
        return graph.add(op_type, step, zero, *quantized, axis=1, domain="com.microsoft")
    if op_type == "QLinearMatMul":
        return graph.add(op_type, *quantized, step, zero)
    own = {"channels_last": 0} if op_type == "QLinearGlobalAveragePool" else {}
    own |= {"opset": 13} if op_type == "QLinearSoftmax" else {}
    return graph.add(op_type, *quantized, step, zero, domain="com.microsoft", **own)


QLINEAR = {
    "QLinearConv": 1,
    "QLinearSigmoid": 1,
    "QLinearLeakyRelu": 1,
    "QLinearSoftmax": 1,
    "QLinearGlobalAveragePool": 1,
    "QLinearAdd": 2,
    "QLinearMul": 2,
    "QLinearMatMul": 2,
    "QLinearConcat": 2,
}


@pytest.mark.parametrize("op_type", QLINEAR)
def test_int8_of_callers_is_converted_around_operators_on_codes(op_type: str) -> None:
    graph = Graph()
    inner = linear(graph, op_type, *["x"] * QLINEAR[op_type])
    other = graph.add("Cast", inner, to=TensorProto.INT32)
    model = graph.model(inner, other, graph.dequantized(inner), dtype=TensorProto.INT8)
    written = with_uint8_activations(model)
    assert kinds(written)["QuantizeLinear"] == 2
    assert_same_bits(model, written, feeds(dtype="int8"))


def test_weights_stay_int8_and_other_constants_join_what_they_meet(tmp_path: Path) -> None:
    model = quantized_static(attention(), tmp_path, TOKENS, activation_type=QuantType.QInt8)
    written = with_uint8_activations(model)
    known = {one.name: one.data_type for one in written.graph.initializer}
    reads = {name: node for node in written.graph.node for name in node.input}
    constants = Counter(
        (reads[node.output[0]].op_type, known[node.input[0]])
        for node in written.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in known
    )
    assert constants["MatMul", TensorProto.INT8] == 5
    assert constants["Add", TensorProto.UINT8] == 5
    assert constants["Mul", TensorProto.UINT8] == 1


def test_weights_quantised_in_the_model_stay_int8() -> None:
    graph, rng = Graph(), np.random.default_rng(2)
    weights = graph.quantized(graph.constant(rng.normal(size=(4, 4, 1, 1))), zero=0)
    moved = graph.add("Transpose", weights, perm=[1, 0, 2, 3])
    x = graph.dequantized(graph.quantized("x"))
    conv = graph.add("Conv", x, graph.dequantized(moved, zero=0))
    model = graph.model(graph.dequantized(graph.quantized(conv)))
    written = with_uint8_activations(model)
    assert Counter(types(written).values()) == {TensorProto.UINT8: 2, TensorProto.INT8: 1}
    assert_same_bits(model, written)


@pytest.mark.parametrize("bounds", [(), (-0.3, 0.9), (0.2, None), (None, 0.1)])
def test_clamps_stand_behind_the_rounding(bounds: tuple[float | None, ...]) -> None:
    graph = Graph()
    named = ["" if one is None else graph.constant(one) for one in bounds]
    product = graph.add("Sigmoid", graph.dequantized(graph.quantized("x")))
    clamped = graph.add("Clip" if bounds else "Relu", product, *named)
    again = graph.add("Clip" if bounds else "Relu", graph.dequantized(graph.quantized("x")), *named)
    model = graph.model(
        graph.dequantized(graph.quantized(clamped)), graph.dequantized(graph.quantized(again))
    )
    written = with_uint8_activations(model)
    order = [node.op_type for node in written.graph.node]
    assert order.count("Clip") == 2
    assert "Relu" not in order
    assert order.count("QuantizeLinear") == 3  # the second clamp is between codes
    assert_same_bits(model, written)


def test_constants_that_are_dequantised_in_every_run_are_folded(tmp_path: Path) -> None:
    """A product whose result is not quantised stays in float, its weights do not stay in codes."""
    graph, rng = Graph(), np.random.default_rng(2)

    def weights() -> str:
        codes = rng.integers(-128, 128, size=(4, 4, 3, 3))
        scales, zero = graph.constant([0.1, 0.2, 0.3, 0.4]), graph.constant([0] * 4, "int8")
        return graph.add("DequantizeLinear", graph.constant(codes, "int8"), scales, zero, axis=0)

    x = graph.dequantized(graph.quantized("x"))
    bias = graph.add(
        "DequantizeLinear", graph.constant([7, -9, 1 << 20, 0], "int32"), graph.constant(0.005)
    )
    first = graph.dequantized(graph.quantized(graph.add("Conv", x, weights())))
    model = graph.model(graph.add("Conv", first, weights(), bias))
    session(model, tmp_path / "optimized.onnx")
    optimized = onnx.load(str(tmp_path / "optimized.onnx"))
    folded = with_folded_constants(model, optimized)
    assert kinds(model)["DequantizeLinear"] - kinds(folded)["DequantizeLinear"] == 2
    assert_same_bits(model, folded)
    found = optimized_kinds(folded, tmp_path)
    assert found["QLinearConv"] == 1
    assert found["Conv"] == 1
    assert found["DequantizeLinear"] == 1


# ---- Biases in another scale than that of products ----


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("factor", [0.5, 10, 0.001])
@pytest.mark.parametrize("op_type", ["Gemm", "Conv"])
def test_biases_of_any_scale_are_computed_in_integers(
    op_type: str, factor: float, per_channel: bool, tmp_path: Path
) -> None:
    """As written, ONNX Runtime joins no such Conv, and computes a Gemm wrongly."""
    model = biased(op_type, factor, per_channel=per_channel)
    written, readers = with_biases_in_scale(model)
    assert [node.op_type for node in readers] == [op_type]
    assert optimized_kinds(written, tmp_path)["QGemm" if op_type == "Gemm" else "QLinearConv"] == 1
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    feed = {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    (exact,), (found,) = run(model, feed), session(written, tmp_path / "o.onnx").run(None, feed)
    steps = np.rint(np.abs(exact - found) / 0.4)
    assert steps.max() <= 1 and steps.mean() < 0.05


def test_biases_in_the_scale_of_products_stay() -> None:
    model = biased("Gemm", 1)
    assert with_biases_in_scale(model) == (model, [])
    for name in ("alpha", "beta"):  # no integer operator has them
        scaled = biased("Gemm", 0.5)
        gemm = next(node for node in scaled.graph.node if node.op_type == "Gemm")
        gemm.attribute.append(helper.make_attribute(name, 2.0))
        assert with_biases_in_scale(scaled) == (scaled, [])


# ---- Random graphs ----


def random_model(draw: st.DataObject) -> onnx.ModelProto:
    """Return a graph of moves, operators on codes and pairs of nodes, read at random places.

    Scales are powers of two: sums of codes are exact then, in whatever order.
    """
    graph = Graph()
    values, results = [graph.quantized("x", 0.0625, -4)], list[str]()
    steps = st.sampled_from(
        [
            "Relu",
            "Concat",
            "Transpose",
            "MaxPool",
            "QLinearAdd",
            "QLinearMul",
            "QLinearSigmoid",
            "pair",
            "add",
        ]
    )
    for _ in range(draw.draw(st.integers(1, 8))):
        step, x = draw.draw(steps), draw.draw(st.sampled_from(values))
        if step.startswith("QLinear"):
            values.append(linear(graph, step, *[x] * QLINEAR[step]))
        elif step == "pair":
            values.append(graph.quantized(graph.dequantized(x, 0.0625, -4), 0.0625, -4))
        elif step == "add":
            other = graph.constant(draw.draw(st.integers(-128, 127)), "int8")
            added = graph.add(
                "Add", graph.dequantized(x, 0.0625, -4), graph.dequantized(other, 0.25, 0)
            )
            values.append(graph.quantized(added, 0.0625, -4))
        else:
            values.append(moved_codes(graph, step, x))
        if draw.draw(st.integers(0, 4)) == 0:
            results.append(graph.add("Cast", x, to=TensorProto.INT32))
        if draw.draw(st.integers(0, 4)) == 0:
            results.append(values[-1])
    results.append(graph.dequantized(values[-1], 0.0625, -4))
    return graph.model(*dict.fromkeys(results))


@given(st.data())
@settings(deadline=None)
def test_random_graphs_keep_their_bits(draw: st.DataObject) -> None:
    model = random_model(draw)
    written = with_uint8_activations(model)
    assert_same_bits(model, written)
