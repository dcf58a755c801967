"""Quantised models: what ONNX Runtime's quantiser writes of small networks, and graphs by hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

Feed = dict[str, np.ndarray[Any, Any]]
SHAPE = (1, 4, 6, 6)
TOKENS = (1, 6, 16)
LARGE = (1, 4, 48, 48)


class Graph:
    """A model that is put together node by node, with the constants its nodes read."""

    def __init__(self, opset: int = 17) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.opset = opset

    def constant(self, value: object, dtype: str = "float32") -> str:
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"{op_type}_{len(self.nodes)}_{at}" for at in range(outputs)]
        domain = str(attributes.pop("domain", ""))
        node = helper.make_node(op_type, list(inputs), names, names[0], domain=domain, **attributes)
        self.nodes.append(node)
        return names[0]

    def quantized(self, x: str, scale: float = 0.05, zero: int | None = 3) -> str:
        points = () if zero is None else (self.constant(zero, "int8"),)
        return self.add("QuantizeLinear", x, self.constant(scale), *points)

    def dequantized(self, codes: str, scale: float = 0.05, zero: int | None = 3) -> str:
        points = () if zero is None else (self.constant(zero, "int8"),)
        return self.add("DequantizeLinear", codes, self.constant(scale), *points)

    def model(
        self, *outputs: str, shape: Sequence[int] = SHAPE, dtype: int = TensorProto.FLOAT
    ) -> onnx.ModelProto:
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(
            self.nodes,
            "quantised",
            [helper.make_tensor_value_info("x", dtype, shape)],
            results,
            self.constants,
        )
        domains = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        ir_version = 8 if self.opset < 21 else 10
        return helper.make_model(graph, opset_imports=domains, ir_version=ir_version)


def feeds(shape: Sequence[int] = SHAPE, dtype: str = "float32") -> Iterator[Feed]:
    rng = np.random.default_rng(5)
    for largest in (1, 4, 100):
        x = rng.normal(size=shape) * largest
        yield {"x": np.clip(x, -128, 127).astype(dtype) if dtype == "int8" else x.astype(dtype)}


class Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, shape: Sequence[int]) -> None:
        self._left = feeds(shape)

    def get_next(self) -> Feed | None:
        return next(self._left, None)


def residual(activation: str) -> onnx.ModelProto:
    """Return a network with a shortcut, a Concat, a depthwise convolution, pools and a Gemm."""
    rng, graph = np.random.default_rng(3), Graph()

    def conv(x: str, read: int, made: int, kernel: int, group: int = 1) -> str:
        weights = rng.normal(size=(made, read // group, kernel, kernel)) / kernel
        names = graph.constant(weights), graph.constant(rng.normal(size=made) / 9)
        return graph.add(
            "Conv", x, *names, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, group=group
        )

    def activated(x: str) -> str:
        if activation == "SiLU":
            return graph.add("Mul", x, graph.add("Sigmoid", x))
        bounds = (graph.constant(0), graph.constant(2)) if activation == "Clip" else ()
        return graph.add(activation, x, *bounds)

    stem = activated(conv("x", 4, 8, 3))
    pooled = graph.add("MaxPool", stem, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    added = activated(graph.add("Add", pooled, conv(activated(conv(pooled, 8, 8, 3)), 8, 8, 1)))
    joined = graph.add("Concat", activated(conv(added, 8, 8, 3, group=8)), added, axis=1)
    large = graph.add("Resize", activated(conv(joined, 16, 8, 1)), "", graph.constant([1, 1, 2, 2]))
    flat = graph.add("Flatten", graph.add("GlobalAveragePool", large))
    weights = graph.constant(rng.normal(size=(8, 5)))
    return graph.model(graph.add("Gemm", flat, weights, graph.constant(rng.normal(size=5))))


def attention() -> onnx.ModelProto:
    """Return a layer of a transformer, with LayerNormalization and a scale of the scores."""
    rng, graph, width = np.random.default_rng(4), Graph(), TOKENS[2]

    def linear(x: str) -> str:
        weights = graph.constant(rng.normal(size=(width, width)) / 4)
        return graph.add(
            "Add", graph.add("MatMul", x, weights), graph.constant(rng.normal(size=width))
        )

    heads, tokens = graph.constant([1, 6, 2, 8], "int64"), graph.constant(TOKENS, "int64")
    query, key, value = (graph.add("Reshape", linear("x"), heads) for _ in range(3))
    query, value = (graph.add("Transpose", one, perm=[0, 2, 1, 3]) for one in (query, value))
    scores = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 2, 3, 1]))
    shares = graph.add("Softmax", graph.add("Mul", scores, graph.constant(0.35)))
    mixed = graph.add("Transpose", graph.add("MatMul", shares, value), perm=[0, 2, 1, 3])
    added = graph.add("Add", linear(graph.add("Reshape", mixed, tokens)), "x")
    scale = graph.constant(rng.normal(size=width)), graph.constant(rng.normal(size=width))
    return graph.model(linear(graph.add("LayerNormalization", added, *scale)), shape=TOKENS)


def quantized_static(
    model: onnx.ModelProto, folder: Path, shape: Sequence[int] = SHAPE, **options: object
) -> onnx.ModelProto:
    before, after = folder / "float.onnx", folder / "quantised.onnx"
    onnx.save(model, str(before))
    logging.disable(logging.WARNING)  # the quantiser asks for its preprocessing
    try:
        quantize_static(str(before), str(after), Calibration(shape), **options)
    finally:
        logging.disable(logging.NOTSET)
    return onnx.load(str(after))


def int8_model(folder: Path, shape: tuple[int, ...] = LARGE) -> Path:
    """Write a residual network as ONNX Runtime's quantiser does by default."""
    network = residual("Relu")
    for dim, extent in zip(network.graph.input[0].type.tensor_type.shape.dim, shape, strict=True):
        dim.dim_value = extent
    file = folder / "net.onnx"
    onnx.save(quantized_static(network, folder, shape, activation_type=QuantType.QInt8), str(file))
    return file


def int8_activations(model: onnx.ModelProto) -> int:
    """Return the number of QuantizeLinear that make int8."""
    known = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    return sum(known[node.input[2]] == TensorProto.INT8 for node in nodes)


def biased(op_type: str, factor: float, *, per_channel: bool = False) -> onnx.ModelProto:
    """Return one Gemm or Conv on uint8 codes whose bias has `factor` times the products' scale."""
    graph, rng = Graph(21), np.random.default_rng(5)
    is_gemm = op_type == "Gemm"
    steps = np.float32(0.01) * (1 + np.arange(4)) if per_channel else np.float32(0.01)
    w_scale, b_scale = (np.asarray(one, np.float32) for one in (steps, steps * 0.02 * factor))
    zero, scale = graph.constant(128, "uint8"), graph.constant(0.02)
    x = graph.add("DequantizeLinear", graph.add("QuantizeLinear", "x", scale, zero), scale, zero)
    weights = rng.integers(-127, 128, (8, 4) if is_gemm else (4, 8, 3, 3))
    axis = {"axis": 1 if is_gemm else 0} if per_channel else {}
    w_zero = graph.constant(np.zeros_like(w_scale), "int8")
    inputs = graph.constant(weights, "int8"), graph.constant(w_scale), w_zero
    w = graph.add("DequantizeLinear", *inputs, **axis)
    codes = graph.constant(np.rint(np.array([-3, 2, 1, 4]) / b_scale), "int32")
    b = graph.add(
        "DequantizeLinear", codes, graph.constant(b_scale), **({"axis": 0} if per_channel else {})
    )
    made, zero = graph.constant(0.4), graph.constant(120, "uint8")
    y = graph.add("QuantizeLinear", graph.add(op_type, x, w, b), made, zero)
    return graph.model(
        graph.add("DequantizeLinear", y, made, zero), shape=(6, 8) if is_gemm else (1, 8, 9, 9)
    )
