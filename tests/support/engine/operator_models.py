"""Models of one operator each, at a given opset, and of what is left to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.engine.models import Array, Shape, make_model

Build = Callable[[int], onnx.ModelProto]
"""Makes a model of an opset."""

_IMAGE = (2, 32, 12, 12)
_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def integers(*values: int) -> Array:
    """Return a tensor of int64 in one dimension."""
    return np.array(values, np.int64)


def numbers(*shape: int) -> Array:
    """Return a seeded tensor of positive float32."""
    found: Array = np.random.default_rng(7).uniform(0.5, 1.5, shape).astype(np.float32)
    return found


def one_operator(
    op_type: str,
    opset: int,
    weights: Mapping[str, Array] | None = None,
    inputs: Mapping[str, Shape] | None = None,
    *,
    names: str = "x",
    shape: Shape = _IMAGE,
    results: Sequence[str] = ("y",),
    integer: Sequence[str] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """Return a model of one operator.

    Args:
        op_type: ONNX's own.
        opset: Of the model.
        weights: Initializers by name.
        inputs: Shapes of the inputs but `x`.
        names: What it reads, with blanks between, `-` for an omitted one.
        shape: Of `x`.
        results: What it makes.
        integer: Inputs and results that are int64.
        attributes: Of the operator.
    """
    refs = ["" if name == "-" else name for name in names.split()]
    node = helper.make_node(op_type, refs, list(results), **attributes)
    return make_model(
        [node],
        {"x": shape, **(inputs or {})},
        list(results),
        weights=weights,
        opset=opset,
        types=dict.fromkeys(integer, TensorProto.INT64),
    )


def _by_constants(
    op_type: str, since: int, values: Mapping[str, Sequence[int]], **attributes: Any
) -> Build:
    """Return how to make an operator whose lists are inputs from an opset on."""

    def build(opset: int) -> onnx.ModelProto:
        if opset < since:
            lists = {name: list(items) for name, items in values.items()}
            return one_operator(op_type, opset, **lists, **attributes)
        weights = {name: integers(*items) for name, items in values.items()}
        return one_operator(op_type, opset, weights, names=" ".join(("x", *values)), **attributes)

    return build


def _resize(opset: int, mode: str = "nearest", **attributes: Any) -> onnx.ModelProto:
    weights = {
        "roi": np.zeros(0, np.float32),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    return one_operator("Resize", opset, weights, names="x roi scales", mode=mode, **attributes)


def _per_channel(op_type: str, opset: int, names: str, **attributes: Any) -> onnx.ModelProto:
    weights = {name: numbers(32) for name in names.split()}
    return one_operator(op_type, opset, weights, names=f"x {names}", **attributes)


def _between(op_type: str, opset: int, shape: Sequence[int]) -> onnx.ModelProto:
    """Return a model of an operator that only changes the shape between two Transposes."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]),
        helper.make_node(op_type, ["a", "shape"], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[1, 0, 2]),
    ]
    weights = {"shape": integers(*shape)}
    return make_model(nodes, {"x": _IMAGE}, ["y"], weights=weights, opset=opset)


def _concat(opset: int) -> onnx.ModelProto:
    return one_operator("Concat", opset, inputs={"z": _IMAGE}, names="x z", axis=1)


def _recurrent(
    op_type: str, gates: int, opset: int, names: str = "x w r", **changes: Any
) -> onnx.ModelProto:
    weights = {"w": numbers(1, gates * 16, 8), "r": numbers(1, gates * 16, 16)}
    reset = {"linear_before_reset": 1} if op_type == "GRU" else {}
    given = {"hidden_size": 16, **reset, **changes}
    return one_operator(op_type, opset, weights, names=names, shape=(5, 2, 8), **given)


_INDEXED = {"names": "x i", "integer": ("i",)}
_SCATTERED = {"names": "x i u", "integer": ("i",)}
_PART = (2, 5, 12, 12)
_WINDOW = {"kernel_shape": [3, 3], "strides": [2, 2]}


def quantised_convolution_model(opset: int, weight_zero: int = 0) -> onnx.ModelProto:
    """Return a model of one QLinearConv."""
    weights: dict[str, Array] = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(7, np.uint8),
        "w": np.arange(-128, 128, dtype=np.int8).repeat(36).reshape(32, 32, 3, 3),
        "ws": np.full(32, 0.01, np.float32),
        "wz": np.full(32, weight_zero, np.int8),
        "ys": np.array(0.5, np.float32),
        "yz": np.array(9, np.uint8),
    }
    node = helper.make_node("QLinearConv", ["x", *weights], ["y"], kernel_shape=[3, 3])
    types = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    return make_model([node], {"x": _IMAGE}, ["y"], weights=weights, opset=opset, types=types)


def integer_convolution_model(opset: int, *, computed: bool = False) -> onnx.ModelProto:
    """Return a model of one ConvInteger, with what makes numbers of its sums."""
    weights: dict[str, Array] = {
        "xz": np.array(7, np.uint8),
        "s": np.array(0.01, np.float32),
        "w": np.arange(-128, 128, dtype=np.int8).repeat(36).reshape(32, 32, 3, 3),
    }
    numbers_ = "y" if computed else "numbers"
    nodes = [
        helper.make_node("ConvInteger", ["x", "w", "xz"], ["sums"], kernel_shape=[3, 3]),
        helper.make_node("Cast", ["sums"], [numbers_], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["numbers", "s"], ["y"]),
    ]
    shapes: dict[str, Shape] = {"x": _IMAGE}
    types = {"x": TensorProto.UINT8}
    if computed:
        nodes.pop()
        shapes["w"], types["w"] = weights.pop("w").shape, TensorProto.INT8
    return make_model(nodes, shapes, ["y"], weights=weights, opset=opset, types=types)


def quantised_product_model(opset: int, *, computed: bool = False) -> onnx.ModelProto:
    """Return a model of one QLinearMatMul, by weights or, of four rows, by a second input."""
    weights: dict[str, Array] = {
        "xs": np.array(0.02, np.float32),
        "xz": np.array(7, np.uint8),
        "w": np.arange(-128, 128, dtype=np.int8).repeat(8).reshape(64, 32),
        "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8),
        "ys": np.array(0.5, np.float32),
        "yz": np.array(9, np.uint8),
    }
    node = helper.make_node("QLinearMatMul", ["x", *weights], ["y"])
    shapes: dict[str, Shape] = {"x": (2, 16, 64)}
    types = {"x": TensorProto.UINT8, "y": TensorProto.UINT8}
    if computed:
        shapes["x"] = (4, 64)
        shapes["w"], types["w"] = weights.pop("w").shape, TensorProto.INT8
    return make_model([node], shapes, ["y"], weights=weights, opset=opset, types=types)


OPERATOR_MODELS: Mapping[str, Build] = {
    **{name: partial(one_operator, name, axis=1, integer=("y",)) for name in ("ArgMax", "ArgMin")},
    **{
        name: partial(one_operator, name, **_WINDOW)
        for name in ("AveragePool", "LpPool", "MaxPool")
    },
    "BatchNormalization": partial(_per_channel, "BatchNormalization", names="a b c d"),
    "Concat": _concat,
    "Conv": lambda opset: one_operator("Conv", opset, {"w": numbers(32, 32, 3, 3)}, names="x w"),
    "ConvTranspose": lambda opset: one_operator(
        "ConvTranspose", opset, {"w": numbers(32, 8, 2, 2)}, names="x w", strides=[2, 2]
    ),
    "CumSum": lambda opset: one_operator("CumSum", opset, {"a": integers(3)}, names="x a"),
    "DepthToSpace": partial(one_operator, "DepthToSpace", blocksize=2),
    "Expand": lambda opset: one_operator(
        "Expand", opset, {"s": integers(*_IMAGE)}, names="x s", shape=(2, 32, 1, 12)
    ),
    "Gather": lambda opset: one_operator(
        "Gather", opset, {"i": integers(1, 3, 5)}, names="x i", axis=1
    ),
    "GatherElements": lambda opset: one_operator(
        "GatherElements", opset, inputs={"i": _PART}, axis=1, **_INDEXED
    ),
    "Gemm": lambda opset: one_operator(
        "Gemm", opset, {"w": numbers(64, 32), "b": numbers(32)}, names="x w b", shape=(16, 64)
    ),
    **{
        name: partial(one_operator, name)
        for name in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
    },
    "GRU": partial(_recurrent, "GRU", 3),
    "GridSample": lambda opset: one_operator(
        "GridSample", opset, inputs={"g": (2, 5, 6, 2)}, names="x g"
    ),
    "GroupNormalization": partial(_per_channel, "GroupNormalization", names="a b", num_groups=4),
    "InstanceNormalization": partial(_per_channel, "InstanceNormalization", names="a b"),
    "LRN": partial(one_operator, "LRN", size=5),
    "LSTM": partial(_recurrent, "LSTM", 4),
    "LayerNormalization": lambda opset: one_operator(
        "LayerNormalization", opset, {"a": numbers(12), "b": numbers(12)}, names="x a b"
    ),
    **{
        name: partial(one_operator, name, axis=3 if name == "Softmax" else -1)
        for name in ("LogSoftmax", "Softmax")
    },
    "MatMul": lambda opset: one_operator(
        "MatMul", opset, {"w": numbers(64, 32)}, names="x w", shape=(2, 16, 64)
    ),
    "Pad": _by_constants("Pad", 11, {"pads": (0, 0, 1, 1, 0, 0, 1, 1)}, mode="reflect"),
    "ConvInteger": integer_convolution_model,
    "QLinearConv": quantised_convolution_model,
    "QLinearMatMul": quantised_product_model,
    "RMSNormalization": lambda opset: one_operator(
        "RMSNormalization", opset, {"a": numbers(12)}, names="x a"
    ),
    "RNN": partial(_recurrent, "RNN", 1),
    **{
        name: _by_constants(name, 13 if name == "ReduceSum" else 18, {"axes": (2, 3)})
        for name in _REDUCTIONS
    },
    "Reshape": lambda opset: _between("Reshape", opset, (2, 144, 32)),
    "Resize": _resize,
    "ScatterElements": lambda opset: one_operator(
        "ScatterElements", opset, inputs={"i": _PART, "u": _PART}, axis=1, **_SCATTERED
    ),
    "Slice": _by_constants("Slice", 10, {"starts": (0, 0, 2), "ends": (2, 16, 9)}),
    "SpaceToDepth": partial(one_operator, "SpaceToDepth", blocksize=2),
    "Tile": lambda opset: one_operator("Tile", opset, {"r": integers(1, 1, 2, 3)}, names="x r"),
    "Transpose": partial(one_operator, "Transpose", perm=[0, 2, 3, 1]),
}
"""A form of each operator that is tuned."""

_ONE_INPUT = {"names": "x a", "integer": ("a",)}

LEFT_MODELS: Mapping[tuple[str, str], Build] = {
    ("ArgMax", "integers"): partial(one_operator, "ArgMax", axis=1, integer=("x", "y")),
    ("Conv", "weights that are computed"): lambda opset: one_operator(
        "Conv", opset, inputs={"w": (32, 32, 3, 3)}, names="x w"
    ),
    ("QLinearConv", "weights with another zero point"): partial(
        quantised_convolution_model, weight_zero=3
    ),
    ("ConvInteger", "weights that are computed"): partial(integer_convolution_model, computed=True),
    ("ConvTranspose", "weights that are computed"): lambda opset: one_operator(
        "ConvTranspose", opset, inputs={"w": (32, 8, 2, 2)}, names="x w"
    ),
    ("CumSum", "an axis that is an input"): lambda opset: one_operator(
        "CumSum", opset, inputs={"a": (1,)}, **_ONE_INPUT
    ),
    ("Expand", "a shape that is an input"): lambda opset: one_operator(
        "Expand", opset, inputs={"a": (4,)}, **_ONE_INPUT
    ),
    ("Gather", "indices that are an input"): lambda opset: one_operator(
        "Gather", opset, inputs={"i": (3,)}, axis=1, **_INDEXED
    ),
    ("Gather", "in no regular order"): lambda opset: one_operator(
        "Gather", opset, {"i": integers(3, 1, 2)}, names="x i", axis=1
    ),
    ("GatherElements", "fewer indices along another axis"): lambda opset: one_operator(
        "GatherElements", opset, inputs={"i": (2, 5, 12, 3)}, axis=1, **_INDEXED
    ),
    ("GRU", "a reset before the product"): partial(_recurrent, "GRU", 3, linear_before_reset=0),
    ("GlobalLpPool", "`p` other than 2"): partial(one_operator, "GlobalLpPool", p=3),
    ("LRN", "any rank but 4"): partial(one_operator, "LRN", size=3, shape=(2, 8, 20)),
    ("LSTM", "several results"): partial(_recurrent, "LSTM", 4, results=("y", "h")),
    ("LSTM", "weights that are computed"): lambda opset: one_operator(
        "LSTM",
        opset,
        inputs={"w": (1, 64, 8), "r": (1, 64, 16)},
        names="x w r",
        shape=(5, 2, 8),
        hidden_size=16,
    ),
    ("RNN", "other activations"): partial(_recurrent, "RNN", 1, activations=["Relu"]),
    ("LpPool", "`p` above 2"): partial(one_operator, "LpPool", p=3, **_WINDOW),
    ("MatMul", "up to 4 rows by a matrix that is computed"): lambda opset: one_operator(
        "MatMul", opset, inputs={"w": (64, 32)}, names="x w", shape=(4, 64)
    ),
    ("QLinearMatMul", "up to 4 rows by a matrix that is computed"): partial(
        quantised_product_model, computed=True
    ),
    ("MaxPool", "with indices"): partial(
        one_operator, "MaxPool", results=("y", "z"), integer=("z",), **_WINDOW
    ),
    ("Pad", "pads that are an input"): lambda opset: one_operator(
        "Pad", opset, inputs={"a": (8,)}, **_ONE_INPUT
    ),
    ("ReduceMean", "axes that are an input"): lambda opset: one_operator(
        "ReduceMean", max(opset, 18), inputs={"a": (1,)}, **_ONE_INPUT
    ),
    ("Resize", "`tf_crop_and_resize`"): partial(
        _resize, mode="linear", coordinate_transformation_mode="tf_crop_and_resize"
    ),
    ("Resize", "`antialias`"): lambda opset: _resize(max(opset, 18), mode="linear", antialias=1),
    ("ScatterElements", "fewer indices along another axis"): lambda opset: one_operator(
        "ScatterElements",
        opset,
        inputs={"i": (2, 5, 12, 3), "u": (2, 5, 12, 3)},
        axis=1,
        **_SCATTERED,
    ),
    ("Slice", "bounds that are inputs"): lambda opset: one_operator(
        "Slice", opset, inputs={"a": (4,), "b": (4,)}, names="x a b", integer=("a", "b")
    ),
    ("Tile", "repeats that are an input"): lambda opset: one_operator(
        "Tile", opset, inputs={"a": (4,)}, **_ONE_INPUT
    ),
}
"""By operator and the words the page has for it, a form that is not."""
