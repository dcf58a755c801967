"""Whole random networks: a few blocks, a head, and what makes models odd.

Some leave the batch open, give back values from the midst of what becomes one kernel, or have a
weight that a caller may replace.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from support.network_fuzz.images import IMAGE_BLOCKS, ImageBlocks
from support.network_fuzz.layers import Image, LayerWriter
from support.network_fuzz.sequences import SEQUENCE_BLOCKS, SequenceBlocks

_OPSETS = (13, 17, 17, 18, 21)
_EXTENTS = (7, 7, 13, 13, 14, 33, 57)
_CHANNELS = (1, 3, 3, 3, 4, 16, 17)
_WIDTHS = (16, 24, 33, 48)
_NEWEST, _OFTEN = ("inverted_residual", "dilated_pyramid", "decoder", "recurrent"), 3
"""What comes up more often: the newest kernels are for it."""
_LARGE = 20
"""Images from these extents on are made smaller first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnNetwork:
    """A network and how it is run."""

    proto: onnx.ModelProto  # The model
    shapes: Mapping[str, tuple[int, ...]]  # Of its inputs, by name
    is_open: bool = False  # True if it leaves its batch open
    replaceable: str = ""  # A weight that may be given in place of the one it has; nothing for none
    has_halves: bool = False  # True if a part of it is computed in float16
    blocks: tuple[str, ...] = ()  # What it was built of

    @property
    def input_shape(self) -> str | None:
        """What `--input_shape` has to say; None where the model says it."""
        if not self.is_open:
            return None
        texts = (f"{name}:{','.join(map(str, shape))}" for name, shape in self.shapes.items())
        return ";".join(texts)


def draw_network(number: int) -> DrawnNetwork:
    """Return the network of a number."""
    rng = random.Random(f"network {number}")
    batch = rng.choices([1, 2, 3], [6, 2, 1])[0]
    net = LayerWriter(seed=number, batch=batch, opset=rng.choice(_OPSETS))
    is_image = rng.random() < 0.65
    names = [*(IMAGE_BLOCKS if is_image else SEQUENCE_BLOCKS)]
    weights = [_OFTEN if name in _NEWEST else 1 for name in names]
    blocks = rng.choices(names, weights, k=rng.randint(1, 3))
    draw = _images if is_image else _sequences
    proto, shapes = draw(net, rng, blocks)
    if rng.random() < 0.3:
        _give_back_an_inner_value(proto, rng)
    is_open = rng.random() < 0.25
    if is_open:
        for value in proto.graph.input:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    return DrawnNetwork(
        proto=proto,
        shapes=shapes,
        is_open=is_open,
        replaceable=_make_replaceable(proto, rng) if rng.random() < 0.15 else "",
        has_halves="halves" in blocks,
        blocks=tuple(blocks),
    )


_Shapes = dict[str, tuple[int, ...]]


def _images(
    net: LayerWriter, rng: random.Random, blocks: list[str]
) -> tuple[onnx.ModelProto, _Shapes]:
    high, wide = rng.choice(_EXTENTS), rng.choice(_EXTENTS)
    given = Image(name="x", channels=rng.choice(_CHANNELS), height=high, width=wide)
    stride = 2 if max(high, wide) >= _LARGE else 1
    act = rng.choice(["Relu", "SiLU", "HardSwish", ""])
    x = net.filtered(
        given, rng.choice([8, 16, 24, 32]), rng.choice([3, 5, 7]), stride=stride, activation=act
    )
    results = []
    writer = ImageBlocks(net=net)
    for name in blocks:
        x = IMAGE_BLOCKS[name](writer, x)
        if rng.random() < 0.2:
            results.append(x.name)
    kind = rng.choice(["classes", "classes", "filtered", "chances", "as it is"])
    if kind == "classes":
        mean = net.node("GlobalAveragePool", [x.name])
        flat = net.node("Flatten", [mean])
        weights, bias = net.weights(x.channels, 10), net.scales(10)[1]
        results.append(net.node("Gemm", [flat, weights, bias]))
    elif kind == "as it is":
        results.append(x.name)
    else:
        last = net.filtered(x, 5, 1).name
        results.append(last if kind == "filtered" else net.node("Softmax", [last], axis=1))
    shape = (net.batch, given.channels, high, wide)
    return net.model_of("x", shape, [*dict.fromkeys(results)]), {"x": shape}


def _sequences(
    net: LayerWriter, rng: random.Random, blocks: list[str]
) -> tuple[onnx.ModelProto, _Shapes]:
    cached = rng.choice([0, 0, 5, 17, 40])
    steps = rng.choice([1, 1, 2, 3]) if cached else rng.choice([2, 5, 16, 17, 33])
    writer = SequenceBlocks(net=net, steps=steps, width=rng.choice(_WIDTHS), cached=cached)
    x = "x"
    results = []
    for name in blocks:
        x = SEQUENCE_BLOCKS[name](writer, x)
        if rng.random() < 0.2:
            results.append(x)
    if rng.random() < 0.5:
        words = net.weights(writer.width, rng.choice([11, 64, 100]))
        x = net.node("MatMul", [net.rms_norm(x, writer.width), words])
    shape = (net.batch, steps, writer.width)
    proto = net.model_of("x", shape, [*dict.fromkeys([*results, x, *writer.kept])])
    for name, extents in writer.caches.items():
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, extents)
        proto.graph.input.append(value)
    return proto, {"x": shape, **writer.caches}


def _give_back_an_inner_value(proto: onnx.ModelProto, rng: random.Random) -> None:
    """Make a value from the midst of the network a result, too."""
    given = {value.name for value in proto.graph.output}
    known = [
        value.name
        for value in proto.graph.value_info
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name not in given
    ]
    if known:
        value = helper.make_tensor_value_info(rng.choice(known), TensorProto.FLOAT, None)
        proto.graph.output.append(value)


def _make_replaceable(proto: onnx.ModelProto, rng: random.Random) -> str:
    """Make a weight an input that has a value of its own; return its name."""
    known = [
        tensor
        for tensor in proto.graph.initializer
        if tensor.data_type == TensorProto.FLOAT and tensor.dims
    ]
    if not known:
        return ""
    tensor = rng.choice(known)
    value = helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tuple(tensor.dims))
    proto.graph.input.append(value)
    return str(tensor.name)
