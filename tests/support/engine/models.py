"""Small ONNX models for tests: real enough to be optimised, cut, tuned and run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]
Shape = Sequence[int | str | None]

_OPSET = 17
_IR_VERSION = 9


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Shape | None],
    outputs: Sequence[str] | Mapping[str, Shape | None],
    *,
    weights: Mapping[str, Array] | None = None,
    opset: int = _OPSET,
    ir_version: int = _IR_VERSION,
    types: Mapping[str, int] | None = None,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """Return a model of `nodes`.

    Args:
        nodes: In topological order.
        inputs: Shape by name; an extent may be a symbol or None, and the whole shape may be None.
        outputs: Names of the results, their shapes left open, or shape by name.
        weights: Initializers by name.
        opset: Version of ONNX's own operators.
        ir_version: Of the file format.
        types: Element types of inputs and outputs that are not float32.
        domains: Version of every other operator domain in use.
    """
    kinds = types or {}
    results = outputs if isinstance(outputs, Mapping) else dict.fromkeys(outputs)
    graph = helper.make_graph(
        list(nodes),
        "test",
        [_value(name, kinds, shape) for name, shape in inputs.items()],
        [_value(name, kinds, shape) for name, shape in results.items()],
        [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(name, version) for name, version in (domains or {}).items()]
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    return model


def chain_model(
    op_types: Sequence[str], shape: Shape = (1, 8, 16, 16), *, opset: int = _OPSET
) -> onnx.ModelProto:
    """Return unary operators one after another, from `x` to `y`; nodes are named `n0`, `n1`..."""
    last = len(op_types) - 1
    names = ["x", *(f"t{i}" for i in range(last)), "y"]
    nodes = [
        helper.make_node(op_type, [names[i]], [names[i + 1]], name=f"n{i}")
        for i, op_type in enumerate(op_types)
    ]
    return make_model(nodes, {"x": shape}, ["y"], opset=opset)


def conv_net(
    *, channels: int = 32, extent: int = 12, batch: int | str = 1, seed: int = 0
) -> onnx.ModelProto:
    """Return a small image network with what ONNX Runtime leaves slow or apart.

    Convolutions with PRelu, LRN and Mish between them, a BatchNormalization behind an addition,
    Softmax over the channels, a classifier.

    Args:
        channels: Of every convolution; a multiple of 16 lets ONNX Runtime block them.
        extent: Height and width of the image.
        batch: Images, or the name of an open dimension.
        seed: Of the weights.
    """
    rng = np.random.default_rng(seed)
    weights = {
        "w0": _normal(rng, channels, 3, 3, 3),
        "w1": _normal(rng, channels, channels, 3, 3),
        "w2": _normal(rng, channels, channels, 3, 3),
        "slope": np.abs(_normal(rng, channels, 1, 1)),
        "scale": 1 + np.abs(_normal(rng, channels)),
        "shift": _normal(rng, channels),
        "mean": _normal(rng, channels),
        "variance": 1 + np.abs(_normal(rng, channels)),
        "fc": _normal(rng, channels, 10),
    }
    pads = [1, 1, 1, 1]
    statistics = ["scale", "shift", "mean", "variance"]
    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["c0"], name="conv0", pads=pads),
        helper.make_node("PRelu", ["c0", "slope"], ["p0"], name="prelu0"),
        helper.make_node("Conv", ["p0", "w1"], ["c1"], name="conv1", pads=pads),
        helper.make_node("LRN", ["c1"], ["l1"], name="lrn1", size=5, alpha=1e-4, beta=0.75),
        helper.make_node("Conv", ["l1", "w2"], ["c2"], name="conv2", pads=pads),
        helper.make_node("Softplus", ["c2"], ["sp"], name="softplus2"),
        helper.make_node("Tanh", ["sp"], ["th"], name="tanh2"),
        helper.make_node("Mul", ["c2", "th"], ["m2"], name="mul2"),
        helper.make_node("Add", ["m2", "l1"], ["a2"], name="add2"),
        helper.make_node("BatchNormalization", ["a2", *statistics], ["b2"], name="bn2"),
        helper.make_node("Elu", ["b2"], ["e2"], name="elu2"),
        helper.make_node("Softmax", ["e2"], ["s2"], name="softmax2", axis=1),
        helper.make_node("GlobalAveragePool", ["s2"], ["g"], name="pool"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "fc"], ["scores"], name="fc"),
    ]
    return make_model(nodes, {"image": [batch, 3, extent, extent]}, ["scores"], weights=weights)


def excited_net(*, channels: int = 32, extent: int = 14, seed: int = 0) -> onnx.ModelProto:
    """Return a squeeze-excite block: a convolution, its channels gated, and another one."""
    rng = np.random.default_rng(seed)
    weights = {
        "w0": _normal(rng, channels, 3, 3, 3),
        "w1": _normal(rng, channels, channels, 1, 1),
        "w2": _normal(rng, channels, channels, 1, 1),
    }
    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["c0"], name="conv0", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c0"], ["g0"], name="pool"),
        helper.make_node("Conv", ["g0", "w1"], ["g1"], name="gate"),
        helper.make_node("Sigmoid", ["g1"], ["g2"], name="sigmoid"),
        helper.make_node("Mul", ["c0", "g2"], ["m"], name="mul"),
        helper.make_node("Conv", ["m", "w2"], ["y"], name="conv2"),
    ]
    return make_model(nodes, {"image": [1, 3, extent, extent]}, ["y"], weights=weights)


def slow_chain_net(
    *, channels: int = 8, extent: int = 64, repeat: int = 1, seed: int = 0
) -> onnx.ModelProto:
    """Return a network of little but a chain ONNX Runtime runs one operator at a time.

    Args:
        channels: Of the tensor.
        extent: Its height and width.
        repeat: Equal chains one after another, the upper triangle taken between them.
        seed: Of the weights.
    """
    rng = np.random.default_rng(seed)
    weights = {"slope": np.abs(_normal(rng, channels, 1, 1))}
    nodes = []
    source = "x"
    for i in range(repeat):
        nodes += [
            helper.make_node("Softplus", [source], [f"s{i}"], name=f"softplus{i}"),
            helper.make_node("Tanh", [f"s{i}"], [f"t{i}"], name=f"tanh{i}"),
            helper.make_node("Mul", [source, f"t{i}"], [f"m{i}"], name=f"mul{i}"),
            helper.make_node("PRelu", [f"m{i}", "slope"], [f"p{i}"], name=f"prelu{i}"),
            # no kernel computes it
            helper.make_node("Trilu", [f"p{i}"], [f"q{i}"], name=f"upper{i}"),
        ]
        source = f"q{i}"
    return make_model(nodes, {"x": [1, channels, extent, extent]}, [source], weights=weights)


def two_chains_net() -> onnx.ModelProto:
    """Return a network of two different chains, slow enough that both are worth a kernel.

    They end in an operator that no kernel family takes.
    """
    model = slow_chain_net(channels=16, extent=96)
    (last,) = (value.name for value in model.graph.output)
    weights: dict[str, Array] = {"four": np.array([4])}
    nodes = [
        helper.make_node("Elu", [last], ["elu"], "elu"),
        helper.make_node("Pow", ["elu", "three"], ["cube"], "cube"),
        helper.make_node("TopK", ["cube", "four"], ["y", "places"], "largest"),
    ]
    weights["three"] = np.full((), 3, np.float32)
    return make_model(
        [*model.graph.node, *nodes],
        {"x": ("batch", 16, 96, 96)},
        ["y"],
        weights=weights | {t.name: numpy_helper.to_array(t) for t in model.graph.initializer},
    )


def matmul_net(*, width: int = 16, seed: int = 0) -> onnx.ModelProto:
    """Return a network with nothing to generate kernels for: two matrix products."""
    rng = np.random.default_rng(seed)
    weights = {"w0": _normal(rng, width, width), "w1": _normal(rng, width, width)}
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["h"], name="first"),
        helper.make_node("MatMul", ["h", "w1"], ["y"], name="second"),
    ]
    return make_model(nodes, {"x": [4, width]}, ["y"], weights=weights)


def if_net() -> onnx.ModelProto:
    """Return a model whose If branches read `t0`, made by the first of two chained operators."""
    branches = {
        branch: helper.make_graph(
            [helper.make_node(op_type, ["t0"], [f"{branch}_y"], name=f"{branch}_op")],
            branch,
            [],
            [_value(f"{branch}_y", {}, None)],
        )
        for branch, op_type in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    nodes = [
        helper.make_node("Softplus", ["x"], ["t0"], name="n0"),
        helper.make_node("Tanh", ["t0"], ["t1"], name="n1"),
        helper.make_node("If", ["flag"], ["chosen"], name="choice", **branches),
        helper.make_node("MatMul", ["t1", "chosen"], ["y"], name="product"),
    ]
    types = {"flag": TensorProto.BOOL}
    return make_model(nodes, {"x": [16, 16], "flag": []}, ["y"], types=types)


def compress_net(*, extent: int = 16) -> onnx.ModelProto:
    """Return a chain, a choice of rows by the input `keep`, and the same chain again.

    Rows behind the choice are as many as `keep` says: their shape is known in a run only.
    """
    nodes = []
    for source, result in (("x", "first"), ("chosen", "y")):
        nodes += [
            helper.make_node("Softplus", [source], [f"s_{result}"], name=f"softplus_{result}"),
            helper.make_node("Tanh", [f"s_{result}"], [f"t_{result}"], name=f"tanh_{result}"),
            helper.make_node("Mul", [source, f"t_{result}"], [result], name=f"mul_{result}"),
        ]
    nodes.insert(3, helper.make_node("Compress", ["first", "keep"], ["chosen"], "choice", axis=2))
    inputs: dict[str, Shape | None] = {"x": [1, 8, extent, extent], "keep": [extent]}
    return make_model(nodes, inputs, ["y"], types={"keep": TensorProto.BOOL})


def results_net() -> onnx.ModelProto:
    """Return a model with results of every kind: tensor, sequence of two shapes, optional, text."""
    nodes = [
        helper.make_node("Neg", ["x"], ["tensor"]),
        helper.make_node("ReduceMax", ["x"], ["row"], axes=[0]),
        helper.make_node("SequenceConstruct", ["tensor", "row"], ["sequence"]),
        helper.make_node("Optional", ["row"], ["optional"]),
        helper.make_node("Cast", ["row"], ["text"], to=TensorProto.STRING),
    ]
    types = {"text": TensorProto.STRING}
    model = make_model(nodes, {"x": (4, 8)}, ["tensor", "text"], types=types)
    element = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    sequence = helper.make_sequence_type_proto(element)
    row = helper.make_tensor_type_proto(TensorProto.FLOAT, [1, 8])
    optional = helper.make_optional_type_proto(row)
    model.graph.output.append(helper.make_value_info("sequence", sequence))
    model.graph.output.append(helper.make_value_info("optional", optional))
    return model


def old_format_net(seed: int = 0) -> onnx.ModelProto:
    """Return a model of IR version 3: its initializers are listed as inputs too."""
    weights = {"w": _normal(np.random.default_rng(seed), 8, 3, 3, 3)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    inputs: dict[str, Shape | None] = {"x": [1, 3, 8, 8], "w": list(weights["w"].shape)}
    return make_model(nodes, inputs, ["y"], weights=weights, opset=8, ir_version=3)


def save_model(model: onnx.ModelProto, file: Path, *, external_data: bool = False) -> Path:
    """Write a model, its weights in a file beside it if `external_data`; return `file`."""
    onnx.save(
        model,
        str(file),
        save_as_external_data=external_data,
        location=f"{file.stem}.weights",
        size_threshold=0,
        convert_attribute=False,
    )
    return file


def onnx_shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the static extents of a graph input or output."""
    return tuple(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim)


def _value(name: str, types: Mapping[str, int], shape: Shape | None) -> onnx.ValueInfoProto:
    extents = None if shape is None else list(shape)
    value: onnx.ValueInfoProto = helper.make_tensor_value_info(
        name, types.get(name, TensorProto.FLOAT), extents
    )
    return value


def _normal(rng: np.random.Generator, *shape: int) -> Array:
    return (rng.standard_normal(shape) * 0.3).astype(np.float32)


def slow_chains_net(count: int) -> onnx.ModelProto:
    """Return chains beside each other that ONNX Runtime runs slowly, each of another shape."""
    rng, nodes, shapes = np.random.default_rng(0), [], dict[str, Shape]()
    weights: dict[str, Array] = {}
    for at in range(count):
        shapes[f"x{at}"], weights[f"w{at}"] = (1, 8 + at, 64, 64), _normal(rng, 8 + at, 1, 1)
        nodes += [
            helper.make_node("Softplus", [f"x{at}"], [f"s{at}"], f"softplus{at}"),
            helper.make_node("Tanh", [f"s{at}"], [f"t{at}"], f"tanh{at}"),
            helper.make_node("PRelu", [f"t{at}", f"w{at}"], [f"y{at}"], f"prelu{at}"),
        ]
    return make_model(nodes, shapes, [f"y{at}" for at in range(count)], weights=weights)


def separate_chains_net(count: int = 4) -> onnx.ModelProto:
    """Return chains of different shapes beside each other: as many workloads, in any order."""
    names = range(count)
    nodes = [
        helper.make_node(op_type, [source], [result], result)
        for at in names
        for op_type, source, result in (("Exp", f"x{at}", f"t{at}"), ("Tanh", f"t{at}", f"y{at}"))
    ]
    shapes: dict[str, Shape] = {f"x{at}": (1, 8 + at, 48, 48) for at in names}
    return make_model(nodes, shapes, [f"y{at}" for at in names])
