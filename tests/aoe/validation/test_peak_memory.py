"""A real small U-Net is tuned: its session takes no more memory than it may."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import aoe
from aoe.runs.operators.result import OpatResult
from aoe.validation.memory_pruning import PEAK_RATIO, excess_bytes

_WIDTH, _SIDE = 192, 24


def _unet() -> onnx.ModelProto:
    """Return two levels, joined by a Concat; what Winograd kernels keep is more than all else."""
    rng = np.random.default_rng(0)
    initializers: list[onnx.TensorProto] = []

    def convolution(name: str, source: str, inputs: int, stride: int = 1) -> onnx.NodeProto:
        weights = rng.standard_normal((_WIDTH, inputs, 3, 3)) / np.sqrt(9 * inputs)
        initializers.append(numpy_helper.from_array(weights.astype(np.float32), f"{name}_w"))
        return helper.make_node(
            "Conv",
            [source, f"{name}_w"],
            [name],
            name=name,
            kernel_shape=[3, 3],
            strides=[stride, stride],
            pads=[1, 1, 1, 1],
        )

    sizes = numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "sizes")
    nodes = [
        convolution("down", "image", 16),
        helper.make_node("Relu", ["down"], ["flat"]),
        convolution("halved", "flat", _WIDTH, stride=2),
        helper.make_node("Relu", ["halved"], ["deep"]),
        convolution("bottom", "deep", _WIDTH),
        helper.make_node("Relu", ["bottom"], ["low"]),
        helper.make_node("Resize", ["low", "", "sizes"], ["up"], mode="nearest"),
        helper.make_node("Concat", ["up", "flat"], ["both"], axis=1),
        convolution("joined", "both", 2 * _WIDTH),
        helper.make_node("Relu", ["joined"], ["last"]),
        convolution("head", "last", _WIDTH),
    ]
    shapes = {"image": (1, 16, _SIDE, _SIDE), "head": (1, _WIDTH, _SIDE, _SIDE)}
    image, head = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in shapes.items()
    )
    graph = helper.make_graph(nodes, "unet", [image], [head], [*initializers, sizes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
def test_tuned_unet_takes_no_more_memory_than_it_may(tmp_path: Path) -> None:
    model = tmp_path / "unet.onnx"
    onnx.save(_unet(), model)
    weights = sum(len(tensor.raw_data) for tensor in _unet().graph.initializer)
    tuned = aoe.tune(
        model, output=tmp_path / "held", bank=tmp_path / "bank", trials=3, accept_busy=True
    )
    held = tuned.get(OpatResult)
    assert held.validation.memory is not None
    assert excess_bytes(held.validation.memory, PEAK_RATIO, weights) <= 0
