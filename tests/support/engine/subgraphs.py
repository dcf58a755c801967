"""Models with subgraphs that rules match, and random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from aoe.device.cpu.device import Cpu
from aoe.execute.messages import ModelPart
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.subgraphs.segment import Segment, cut_out
from aoe.ort.sessions import run_session, session_options
from aoe.ort.static_shapes import infer_tensors
from aoe.workload import KERNEL_DOMAIN
from support.engine.models import make_model

Array = np.ndarray[Any, Any]


class NetworkBuilder:
    """Writes a network of convolutions, gates, splits and joins, layer by layer.

    Args:
        seed: Of the weights.
        batch: First extent of everything.
        opset: Of ONNX's own operators.
    """

    def __init__(self, *, seed: int = 0, batch: int = 1, opset: int = 13) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._batch = batch
        self._opset = opset
        self._count = 0

    def constant(self, value: Array) -> str:
        """Add a constant and return its name."""
        self._count += 1
        name = f"c{self._count}"
        self._constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node with one result and return that."""
        return self.nodes(op_type, inputs, 1, **attributes)[0]

    def nodes(
        self, op_type: str, inputs: Sequence[str], results: int, **attributes: Any
    ) -> list[str]:
        """Add a node and return its results."""
        self._count += 1
        name = f"{op_type}_{self._count}"
        made = [f"{name}_{number}" for number in range(results)]
        self._nodes.append(helper.make_node(op_type, list(inputs), made, name, **attributes))
        return made

    def conv(self, x: str, before: int, after: int, size: int = 3) -> str:
        """Add a convolution that keeps the extents."""
        scale = np.sqrt(2 / (before * size * size))
        weights = self._rng.standard_normal((after, before, size, size)) * scale
        bias = self._rng.standard_normal(after) / 10
        operands = [self.constant(array.astype(np.float32)) for array in (weights, bias)]
        return self.node("Conv", [x, *operands], kernel_shape=[size] * 2, pads=[size // 2] * 4)

    def weights(self, *shape: int) -> str:
        """Add small random weights."""
        scale = np.sqrt(2 / np.prod(shape[1:]))
        return self.constant((self._rng.standard_normal(shape) * scale).astype(np.float32))

    def scales(self, channels: int) -> list[str]:
        """Add what a normalization reads: scale and bias."""
        made = (self._rng.uniform(0.5, 1.5, channels), self._rng.standard_normal(channels))
        return [self.constant(array.astype(np.float32)) for array in made]

    def silu(self, x: str) -> str:
        """Add x * sigmoid(x)."""
        return self.node("Mul", [x, self.node("Sigmoid", [x])])

    def c2f(self, x: str, channels: int) -> str:
        """Add the block of YOLO: a convolution that is split, a branch, all put together."""
        whole = self.silu(self.conv(x, channels, channels, 1))
        half = channels // 2
        sizes = self.constant(np.array([half, half], np.int64))
        left, right = self.nodes("Split", [whole, sizes], 2, axis=1)
        branch = self.silu(self.conv(right, half, half))
        joined = self.node("Concat", [left, right, branch], axis=1)
        return self.silu(self.conv(joined, channels + half, channels, 1))

    def residual(self, x: str, channels: int) -> str:
        """Add two convolutions around which the input is added, and Relu."""
        inner = self.node("Relu", [self.conv(x, channels, channels)])
        return self.node("Relu", [self.node("Add", [x, self.conv(inner, channels, channels)])])

    def mean(self, x: str) -> str:
        """Add the mean over height and width, as exporters write it."""
        return self.node("ReduceMean", [x], axes=[2, 3], keepdims=1)

    def model(self, x: str, channels: int, extent: int, results: Sequence[str]) -> onnx.ModelProto:
        """Return the model from input `x` to `results`."""
        return self.model_of(x, [self._batch, channels, extent, extent], results)

    def model_of(self, x: str, shape: Sequence[int], results: Sequence[str]) -> onnx.ModelProto:
        """Return the model from input `x` of any shape to `results`."""
        graph = helper.make_graph(
            self._nodes,
            "net",
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
            self._constants,
        )
        opset = [helper.make_opsetid("", self._opset)]
        model = helper.make_model(graph, opset_imports=opset, ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def c2f_network(blocks: int = 2, *, batch: int = 1, extent: int = 8) -> onnx.ModelProto:
    """Return a network with equal blocks the rule `convolution-split` matches, and a mean."""
    net = NetworkBuilder(batch=batch)
    x = net.silu(net.conv("x", 4, 16))
    for _ in range(blocks):
        x = net.c2f(x, 16)
    return net.model("x", 4, extent, [net.mean(x)])


def vocoder_network(*, stages: int = 2, branches: int = 2, units: int = 3) -> onnx.ModelProto:
    """Return a network over time as HiFi-GAN is: upsampling, then residual branches in parallel."""
    net = NetworkBuilder()
    x = net.node("Conv", ["x", net.weights(8, 4, 3)], pads=[1, 1])
    for _ in range(stages):
        leaky = net.node("LeakyRelu", [x])
        up = net.node("ConvTranspose", [leaky, net.weights(8, 8, 4)], strides=[2], pads=[1, 1])
        first, ends = net.node("LeakyRelu", [up]), []
        for _ in range(branches):
            inner, whole = first, up
            for unit in range(units):
                if unit:
                    inner = net.node("LeakyRelu", [whole])
                inner = net.node("Conv", [inner, net.weights(8, 8, 3)], pads=[1, 1])
                inner = net.node("LeakyRelu", [inner])
                inner = net.node("Conv", [inner, net.weights(8, 8, 3)], pads=[1, 1])
                whole = net.node("Add", [whole, inner])
            ends.append(whole)
        x = ends[0]
        for end in ends[1:]:
            x = net.node("Add", [x, end])
    last = net.node("Conv", [net.node("LeakyRelu", [x]), net.weights(4, 8, 3)], pads=[1, 1])
    return net.model_of("x", [1, 4, 12], [net.node("Tanh", [last])])


_LAYERS = (
    *("c2f", "residual", "silu", "skip", "gate", "pow", "join"),
    *("dense", "bottleneck", "pixels", "turned", "padded", "gelu", "normalized"),
)


def random_network(seed: int) -> onnx.ModelProto:
    """Return a network of random layers, splits, joins and skips; one in five is over time."""
    rng = random.Random(seed)
    if seed % 5 == 4:
        return vocoder_network(
            stages=rng.randint(1, 2), branches=rng.randint(1, 3), units=rng.randint(1, 3)
        )
    net = NetworkBuilder(seed=seed, batch=rng.choice([1, 2, 3, 4]))
    channels = rng.choice([8, 16, 24])
    x = net.conv("x", 4, channels)
    skips = []
    for _ in range(rng.randint(2, 6)):
        layer = rng.choice(_LAYERS)
        if layer == "skip":
            skips.append(x)
            x = net.conv(x, channels, channels)
        else:
            x = _layer(net, rng, layer, x, channels)
    for skip in skips:
        x = net.node("Add", [x, skip])
    results = [net.mean(x)] if rng.random() < 0.5 else [x, net.mean(x)]
    return net.model("x", 4, rng.choice([6, 8]), results)


def _layer(net: NetworkBuilder, rng: random.Random, layer: str, x: str, channels: int) -> str:
    """Add a layer that keeps the shape, and return its result."""
    match layer:
        case "c2f":
            return net.c2f(x, channels)
        case "residual":
            return net.residual(x, channels)
        case "silu":
            return net.silu(net.conv(x, channels, channels, rng.choice([1, 3])))
        case "gate":
            gate = net.node("Sigmoid", [net.conv(net.mean(x), channels, channels, 1)])
            return net.node("Mul", [x, gate])
        case "pow":
            x = net.node("Pow", [x, net.constant(np.array(2, np.float32))])
            return net.node("Tanh", [x])
        case "dense":
            more = net.conv(net.node("Relu", [x]), channels, 8)
            both = net.node("Relu", [net.node("Concat", [x, more], axis=1)])
            return net.conv(both, channels + 8, channels, 1)
        case "bottleneck":
            wide = net.node("Relu", [net.conv(x, channels, 2 * channels, 1)])
            return net.conv(wide, 2 * channels, channels, 1)
        case "pixels":
            x = net.node(
                "ConvTranspose", [x, net.weights(channels, channels, 2, 2)], strides=[2, 2]
            )
            return net.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
        case "turned":
            turned = net.node("Tanh", [net.node("Transpose", [x], perm=[0, 2, 3, 1])])
            return net.node("Transpose", [turned], perm=[0, 3, 1, 2])
        case "padded":
            pads = net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
            wide = net.node("Pad", [x, pads], mode=rng.choice(["reflect", "constant"]))
            return net.node("Conv", [wide, net.weights(channels, channels, 3, 3)])
        case "gelu":
            half, one, root = (
                net.constant(np.array(value, np.float32)) for value in (0.5, 1.0, 2**0.5)
            )
            share = net.node("Add", [net.node("Erf", [net.node("Div", [x, root])]), one])
            return net.node("Mul", [net.node("Mul", [x, share]), half])
        case "normalized":
            made = net.conv(x, channels, channels)
            return net.node("InstanceNormalization", [made, *net.scales(channels)])
        case _:
            both = net.node("Concat", [x, net.node("Relu", [x])], axis=1)
            return net.conv(both, 2 * channels, channels, 1)


def graph_of(proto: onnx.ModelProto) -> ModelGraph:
    """Return a model in the form rules read."""
    model = prepared(proto)
    return ModelGraph(model, infer_tensors(model, Cpu().open_session), block=0)


def segment_of(proto: onnx.ModelProto) -> Segment:
    """Return a whole model as one subgraph."""
    graph = graph_of(proto)
    found = cut_out(graph, range(len(graph.nodes)))
    assert not isinstance(found, str), found
    return found


def results_of(proto: onnx.ModelProto, *, seed: int = 1, optimize: bool = True) -> list[Array]:
    """Return what ONNX Runtime computes for seeded inputs."""
    options = session_options(threads=1, optimize=optimize)
    session = Cpu().open_session(proto.SerializeToString(), options)
    rng = np.random.default_rng(seed)
    feed = {
        value.name: rng.standard_normal(value.shape).astype(np.float32)
        for value in session.get_inputs()
    }
    return run_session(session, feed)


def by_splits(rate: float) -> Callable[[ModelPart, ModelPart], float]:
    """Return a script: every Split that is gone saves time; other forms change nothing."""

    def speedup(baseline: ModelPart, tuned: ModelPart) -> float:
        return float(rate ** (splits(baseline.model) - splits(tuned.model)))

    return speedup


def chains_network(chains: Sequence[Sequence[str]]) -> onnx.ModelProto:
    """Chains of element-wise operators over 1 x 256 x 64, a matrix product behind each."""
    nodes, last = [], "x"
    for block, chain in enumerate(chains):
        for number, op_type in enumerate(chain):
            name = f"{op_type}_{block}_{number}"
            nodes.append(helper.make_node(op_type, [last], [name], name))
            last = name
        result = "y" if block + 1 == len(chains) else "between"
        nodes.append(helper.make_node("MatMul", [last, "w"], [result], f"MatMul_{block}"))
        last = result
    weights = {"w": np.eye(64, dtype=np.float32)}
    return make_model(nodes, {"x": (1, 256, 64)}, ["y"], weights=weights)


def by_kernels(rate: float) -> Callable[[ModelPart, ModelPart], float]:
    """Return a script: every kernel saves time."""

    def speedup(baseline: ModelPart, tuned: ModelPart) -> float:
        return float(rate ** (kernels(tuned.model) - kernels(baseline.model)))

    return speedup


def kernels(file: Path) -> int:
    """Return how many places of a model are computed by kernels."""
    nodes = onnx.load(file, load_external_data=False).graph.node
    return sum(node.domain == KERNEL_DOMAIN for node in nodes)


def splits(file: Path) -> int:
    """Return how many Splits a model has."""
    nodes = onnx.load(file, load_external_data=False).graph.node
    return sum(node.op_type == "Split" for node in nodes)
