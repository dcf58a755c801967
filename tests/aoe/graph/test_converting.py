"""Conversions of element types in regions: where they join, and where they leave room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.engine.models import make_model

from aoe.graph.extraction import extract_workload
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import partition
from aoe.kernels.registry import FUSIBLE, anchors, classify

_SHAPE = (8, 32)
_HALF, _SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT


def _graph(
    nodes: list[onnx.NodeProto], types: Mapping[str, str], **weights: np.ndarray[Any, Any]
) -> ModelGraph:
    made = {name for node in nodes for name in node.output}
    infos = {name: TensorInfo(dtype=types.get(name, "float32"), shape=_SHAPE) for name in made}
    last = nodes[-1].output[0]
    model = make_model(nodes, {"x": _SHAPE}, [last], weights=weights)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(types.get("x", "float32")))
    model.graph.input[0].type.tensor_type.elem_type = kind
    return ModelGraph(model, infos, block=0)


def _cast(read: str, made: str, to: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [read], [made], made, to=to)


def _dynamic(
    name: str, levels: str, weights: tuple[int, ...] = (8, 8, 1, 1)
) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray[Any, Any]]]:
    """Return a convolution in integers of measured levels, as `quantize_dynamic` writes it."""
    parts = [f"{name}_{part}" for part in ("w", "ws", "sums", "numbers", "scale")]
    w, ws, sums, numbers, scale = parts
    nodes = [
        helper.make_node("ConvInteger", [f"{levels}_q", w, f"{levels}_z"], [sums], sums),
        _cast(sums, numbers, _SINGLE),
        _op("Mul", [f"{levels}_s", ws], scale),
        _op("Mul", [numbers, scale], name),
    ]
    return nodes, {w: np.ones(weights, np.int8), ws: np.array(0.5, np.float32)}


def _measured(read: str) -> onnx.NodeProto:
    made = [f"{read}_{part}" for part in "qsz"]
    return helper.make_node("DynamicQuantizeLinear", [read], made, f"{read}_levels")


def _image_graph(
    nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray[Any, Any]], *results: str
) -> ModelGraph:
    image = (1, 8, 4, 4)
    types = {"sums": "int32", "q": "uint8", "z": "uint8"}
    infos = {
        name: TensorInfo(
            dtype=types.get(name.split("_")[-1], "float32"),
            shape=() if name.split("_")[-1] in ("s", "z", "scale") else image,
        )
        for node in nodes
        for name in node.output
    }
    model = make_model(nodes, {"x": image}, list(results), weights=weights)
    return ModelGraph(model, infos, block=0)


def _op(op_type: str, read: list[str], made: str) -> onnx.NodeProto:
    return helper.make_node(op_type, read, [made], made)


def _regions(graph: ModelGraph) -> list[list[str]]:
    found = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    return [[graph.nodes[at].output[0] for at in region.nodes] for region in found.regions]


def test_casts_around_a_chain_are_part_of_it() -> None:
    nodes = [_cast("x", "a", _SINGLE), _op("Sigmoid", ["a"], "b"), _cast("b", "y", _HALF)]
    graph = _graph(nodes, {"x": "float16", "y": "float16"})
    assert _regions(graph) == [["a", "b", "y"]]


def test_casts_around_a_normalisation_are_part_of_it() -> None:
    nodes = [
        _cast("x", "a", _SINGLE),
        helper.make_node("Softmax", ["a"], ["b"], "b", axis=-1),
        _cast("b", "y", _HALF),
    ]
    assert _regions(_graph(nodes, {"x": "float16", "y": "float16"})) == [["a", "b", "y"]]


def test_quantisation_of_a_chain_is_part_of_it() -> None:
    levels = {"scale": np.array(0.1, np.float32), "zero": np.array(3, np.uint8)}
    nodes = [
        _op("DequantizeLinear", ["x", "scale", "zero"], "a"),
        _op("HardSwish", ["a"], "b"),
        _op("QuantizeLinear", ["b", "scale", "zero"], "y"),
    ]
    graph = _graph(nodes, {"x": "uint8", "y": "uint8"}, **levels)
    assert _regions(graph) == [["a", "b", "y"]]
    found = extract_workload(graph, range(3))
    assert not isinstance(found, str)
    assert found.scalars == ("scale",)
    assert [spec.dtype for spec in found.workload.inputs] == ["uint8", "uint8"]


def test_levels_that_are_interpolated_are_dequantised_in_the_same_region() -> None:
    image, made = (1, 8, 4, 4), (1, 8, 8, 8)
    weights = {"scale": np.array(0.1, np.float32), "zero": np.array(3, np.uint8)}
    weights["scales"] = np.array([1, 1, 2, 2], np.float32)
    nodes = [
        _op("DequantizeLinear", ["x", "scale", "zero"], "a"),
        helper.make_node("Resize", ["a", "", "scales"], ["b"], "b", mode="linear"),
        _op("QuantizeLinear", ["b", "scale", "zero"], "y"),
    ]
    infos = {
        name: TensorInfo(dtype=dtype, shape=shape)
        for name, dtype, shape in (
            ("a", "float32", image),
            ("b", "float32", made),
            ("y", "uint8", made),
        )
    }
    model = make_model(nodes, {"x": image}, ["y"], weights=weights)
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    assert _regions(ModelGraph(model, infos, block=0)) == [["a", "b", "y"]]


def test_cast_behind_a_product_leaves_the_chain_to_it() -> None:
    """The product's kernel makes float32; with its chain it saves more than the cast does."""
    nodes = [
        _op("MatMul", ["x", "w"], "m"),
        _op("Sigmoid", ["m"], "b"),
        _cast("b", "y", _HALF),
    ]
    graph = _graph(nodes, {"y": "float16"}, w=np.ones((32, 32), np.float32))
    assert _regions(graph) == [["m", "b"], ["y"]]


def test_cast_beside_a_product_stays_out_of_its_region() -> None:
    nodes = [
        _cast("x", "a", _SINGLE),
        _op("MatMul", ["a", "w"], "m"),
        _cast("x", "c", _SINGLE),
        _op("Add", ["m", "c"], "y"),
    ]
    graph = _graph(nodes, {"x": "float16"}, w=np.ones((32, 32), np.float32))
    assert _regions(graph) == [["a"], ["c"], ["m", "y"]]


@pytest.mark.parametrize("dtype", ["int64", "bool", "float64"])
def test_cast_of_what_kernels_cannot_read_ends_the_chain(dtype: str) -> None:
    nodes = [_cast("x", "a", _SINGLE), _op("Sigmoid", ["a"], "b"), _op("Neg", ["b"], "y")]
    graph = _graph(nodes, {"x": dtype})
    assert _regions(graph) == [["b", "y"]]
    found = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    assert found.refusals == ()


def test_cast_to_integers_is_none_of_ours() -> None:
    nodes = [_op("Sigmoid", ["x"], "a"), _cast("a", "y", TensorProto.UINT8)]
    assert _regions(_graph(nodes, {"y": "uint8"})) == [["a"]]


def test_chain_that_converts_levels_joins_a_quantised_convolution_in_front_of_it() -> None:
    step, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    weights = {"s": step, "z": zero, "w": np.ones((8, 8, 1, 1), np.int8), "wz": np.int8([0])[0]}
    parameters = {"pads": [0] * 4, "strides": [1, 1], "kernel_shape": [1, 1], "channels_last": 1}
    nodes = [
        helper.make_node(
            "QLinearConv",
            ["x", "s", "z", "w", "s", "wz", "s", "z"],
            ["c"],
            "c",
            domain="com.microsoft",
            **parameters,
        ),
        _op("DequantizeLinear", ["c", "s", "z"], "a"),
        _op("HardSigmoid", ["a"], "b"),
        _op("QuantizeLinear", ["b", "s", "z"], "g"),
        helper.make_node(
            "QLinearMul",
            ["c", "s", "z", "g", "s", "z", "s", "z"],
            ["y"],
            "y",
            domain="com.microsoft",
        ),
    ]
    shape = (1, 12, 12, 8)
    types = {"x": "uint8", "c": "uint8", "g": "uint8", "y": "uint8"}
    model = make_model(
        nodes,
        {"x": shape},
        ["y"],
        weights={name: np.asarray(value) for name, value in weights.items()},
        domains={"com.microsoft": 1},
    )
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8
    infos = {
        name: TensorInfo(dtype=types.get(name, "float32"), shape=shape)
        for node in nodes
        for name in node.output
    }
    graph = ModelGraph(model, infos, block=0)
    assert _regions(graph) == [["c", "a", "b", "g", "y"]]


def _types_of_regions(graph: ModelGraph) -> list[list[str]]:
    found = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    return [[graph.nodes[at].op_type for at in region.nodes] for region in found.regions]


_DYNAMIC = ["DynamicQuantizeLinear", "ConvInteger", "Cast", "Mul", "Mul"]


def test_convolution_in_integers_is_one_with_what_is_around_it() -> None:
    convolution, weights = _dynamic("c", "x")
    nodes = [_measured("x"), *convolution, _op("Add", ["c", "x"], "added")]
    graph = _image_graph([*nodes, _op("Relu", ["added"], "y")], weights, "y")
    assert _types_of_regions(graph) == [[*_DYNAMIC, "Add", "Relu"]]
    extracted = extract_workload(graph, range(len(graph.nodes)))
    assert not isinstance(extracted, str)
    assert not extracted.scalars  # scales are inputs: layers of one shape share a record


def test_levels_that_two_convolutions_read_are_measured_in_both_kernels() -> None:
    first, weights = _dynamic("a", "x")
    second, more = _dynamic("b", "x")
    ends = [_op("Relu", ["a"], "y"), _op("Sigmoid", ["b"], "end")]
    graph = _image_graph([_measured("x"), *first, *second, *ends], weights | more, "y", "end")
    assert sorted(_types_of_regions(graph)) == [[*_DYNAMIC, "Relu"], [*_DYNAMIC, "Sigmoid"]]


def test_of_two_convolutions_that_are_added_the_last_takes_the_sum() -> None:
    first, weights = _dynamic("a", "x")
    between = [_op("Relu", ["a"], "r"), _measured("r")]
    second, more = _dynamic("b", "r")
    beside, others = _dynamic("c", "x")
    nodes = [_measured("x"), *first, *between, *second, *beside, _op("Add", ["b", "c"], "y")]
    graph = _image_graph(nodes, weights | more | others, "y")
    assert _types_of_regions(graph) == [[*_DYNAMIC, "Relu"], _DYNAMIC, [*_DYNAMIC, "Add"]]


def test_sums_that_something_else_reads_stay_with_onnx_runtime() -> None:
    convolution, weights = _dynamic("c", "x")
    nodes = [_measured("x"), *convolution, _cast("c_sums", "again", _HALF)]
    graph = _image_graph(nodes, weights, "c", "again")
    assert all("ConvInteger" not in one for one in _types_of_regions(graph))
