"""Opset 7 to the newest ONNX Runtime knows: what is tunable in them computes the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, version_converter
from support.engine.cpu import open_session
from support.engine.first_guesses import OLDEST_OPSET, FirstGuesses, newest_opset, small_net
from support.tiers import chosen_every_day

from aoe.errors import RunError
from aoe.ort.sessions import session_options


def _normal(*shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    return rng.standard_normal(shape).astype(np.float32)


def _image_net() -> onnx.ModelProto:
    weights = {
        "w": _normal(16, 3, 3, 3),
        **{name: np.abs(_normal(16)) + 1 for name in ("scale", "shift", "mean", "variance")},
        "slope": np.abs(_normal(16, 1, 1)),
        "fc": _normal(400, 10),
        "bias": _normal(10),
    }
    statistics = ["scale", "shift", "mean", "variance"]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["a", *statistics], ["b"], "norm"),
        helper.make_node("PRelu", ["b", "slope"], ["c"], "prelu"),
        helper.make_node("LRN", ["c"], ["d"], "lrn", size=5),
        helper.make_node("MaxPool", ["d"], ["e"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["e"], ["f"], "flat"),
        helper.make_node("Gemm", ["f", "fc", "bias"], ["g"], "fc"),
        helper.make_node("Softmax", ["g"], ["y"], "softmax", axis=1),
    ]
    return small_net(nodes, {"x": (1, 3, 10, 10)}, weights)


def _chain_net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Softplus", ["x"], ["a"], "softplus"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("Mul", ["b", "x"], ["c"], "mul"),
        helper.make_node("Elu", ["c"], ["d"], "elu"),
        helper.make_node("Sum", ["d", "x", "a"], ["e"], "sum"),
        helper.make_node("ReduceMean", ["e"], ["y"], "mean", axes=[1], keepdims=1),
    ]
    return small_net(nodes, {"x": (2, 8, 12, 12)})


def _layout_net() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], "turn", perm=[0, 2, 3, 1]),
        helper.make_node("Slice", ["a"], ["b"], "slice", axes=[1], starts=[1], ends=[7]),
        helper.make_node("Pad", ["b"], ["c"], "pad", pads=[0, 1, 1, 0, 0, 1, 1, 0]),
        helper.make_node("Concat", ["c", "c"], ["d"], "join", axis=3),
        helper.make_node("Unsqueeze", ["d"], ["e"], "more", axes=[0]),
        helper.make_node("Squeeze", ["e"], ["f"], "less", axes=[0]),
        helper.make_node("Reshape", ["f", "shape"], ["y"], "flat"),
    ]
    return small_net(nodes, {"x": (2, 8, 8, 8)}, {"shape": np.array([2, -1], np.int64)})


NETS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "image": _image_net,
    "chain": _chain_net,
    "layout": _layout_net,
}
OPSETS = range(OLDEST_OPSET, onnx.defs.onnx_opset_version() + 1)


_EVERYDAY = {(OLDEST_OPSET, "chain"), (13, "layout"), (21, "chain"), (OPSETS[-1], "chain")}


@pytest.mark.parametrize(
    ("opset", "net"),
    chosen_every_day(((opset, net) for net in NETS for opset in OPSETS), _EVERYDAY),
)
def test_networks_of_every_opset_are_tuned(opset: int, net: str, models: FirstGuesses) -> None:
    if opset > newest_opset():
        pytest.skip(f"onnxruntime knows opsets up to {newest_opset()}")
    assert models.compare(version_converter.convert_version(NETS[net](), opset)) > 0


def test_a_newer_opset_ends_in_one_message() -> None:
    if newest_opset() == onnx.defs.onnx_opset_version():
        pytest.skip("onnxruntime knows every opset onnx has")
    model = version_converter.convert_version(_chain_net(), newest_opset() + 1)
    with pytest.raises(RunError, match="does not read this opset yet"):
        open_session(model.SerializeToString(), session_options(threads=1, optimize=True))
