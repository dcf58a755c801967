"""The networks which the onnx package ships, with weights that make their results mean something.

The shipped files hold one constant for each weight, so that every class comes out equally
likely and a wrong kernel could hide. Here each tensor gets seeded random values on a scale that
keeps activations of every layer around one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from aoe.entry.onnx_file import make_initializers_constant
from aoe.graph.protos import copied, refill

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

NETWORKS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)


def shipped_network(name: str, *, seed: int = 0) -> onnx.ModelProto:
    """Return one of `NETWORKS` with seeded random weights; input (1, 3, 224, 224) float32.

    Source: `onnx/backend/test/data/light` of the installed onnx package.
    """
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return with_random_weights(onnx.load(folder / f"light_{name}.onnx"), seed=seed)


def with_random_weights(proto: onnx.ModelProto, *, seed: int) -> onnx.ModelProto:
    """Return a copy whose float weights are drawn by what reads them; shapes stay as they are."""
    model = copied(proto)
    rng = np.random.default_rng(seed)
    draws = _draws(model)
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            shape = tuple(int(extent) for extent in numpy_helper.to_array(known[node.input[0]]))
            values = draws.get(node.output[0], _small)(rng, shape).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        else:
            nodes.append(node)
    for tensor in model.graph.initializer:
        if tensor.name in draws and tensor.name in known:
            values = draws[tensor.name](rng, tuple(tensor.dims)).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    refill(model.graph.node, nodes)
    make_initializers_constant(model)
    return model


def _draws(model: onnx.ModelProto) -> dict[str, Draw]:
    """Return the random draw of each weight, seen through an Unsqueeze in front of its reader."""
    behind = {n.output[0]: n.input[0] for n in model.graph.node if n.op_type == "Unsqueeze"}
    found: dict[str, Draw] = {}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            draw = _ROLES.get((node.op_type, position))
            if draw is not None:
                found[behind.get(name, name)] = draw
    return found


def _filter(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    fan_in = math.prod(shape[1:]) or 1
    return rng.standard_normal(shape) * math.sqrt(2 / fan_in)


def _small(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * 0.1


def _scale(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.5, 1.5, shape)


_ROLES: dict[tuple[str, int], Draw] = {
    ("Conv", 1): _filter,
    ("Conv", 2): _small,
    ("Gemm", 1): _filter,
    ("Gemm", 2): _small,
    ("BatchNormalization", 1): _scale,
    ("BatchNormalization", 2): _small,
    ("BatchNormalization", 3): _small,
    ("BatchNormalization", 4): _scale,
    ("Mul", 1): _scale,
    ("Add", 1): _small,
}
