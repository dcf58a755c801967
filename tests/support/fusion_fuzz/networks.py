"""Small random networks with what kernels are made for, and what gets in their way.

Tensors have several readers, some are results of the model, shapes are computed, values are read
inside an If. Extents are few, so that networks share kernels, and odd.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.engine.subgraphs import NetworkBuilder

_CHANNELS = (8, 12, 16, 32)
_EXTENTS = ((5, 7), (6, 6), (9, 4))
_STEPS = (5, 8, 17)
_WIDTHS = (16, 20, 32)
_UNARY = (
    "Relu",
    "Tanh",
    "Sigmoid",
    "Abs",
    "Neg",
    "Erf",
    "Softplus",
    "Elu",
    "LeakyRelu",
    "HardSwish",
)
_OPSET = 17

Shape = tuple[int, ...]


class RandomNetwork:
    """Writes one network; every layer keeps the shape.

    Args:
        number: Decides on all of it.

    Attributes:
        rng: For more decisions about it.
    """

    def __init__(self, number: int) -> None:
        self.rng = random.Random(f"network {number}")
        self._is_image = self.rng.random() < 0.6
        batch = self.rng.choice([1, 2])
        self._net = NetworkBuilder(seed=number, batch=batch, opset=_OPSET)
        if self._is_image:
            self.shape: Shape = (batch, self.rng.choice(_CHANNELS), *self.rng.choice(_EXTENTS))
        else:
            self.shape = (batch, self.rng.choice(_STEPS), self.rng.choice(_WIDTHS))
        self._made = ["x"]

    def build(self) -> onnx.ModelProto:
        """Return the network: some layers, and some of what they make as results."""
        layers = _IMAGE_LAYERS if self._is_image else _SEQUENCE_LAYERS
        names = self.rng.choices(list(layers), k=self.rng.randint(3, 8))
        for name in names:
            self._made.append(layers[name](self, self._made[-1]))
        results = [self._made[-1]]
        inner = [name for name in self._made[1:-1] if self.rng.random() < 0.2]
        return self._net.model_of("x", self.shape, [*results, *inner])

    # ---- layers of both kinds ----

    def _chain(self, x: str) -> str:
        for _ in range(self.rng.randint(1, 7)):
            kind = self.rng.choice(["unary", "unary", "constant", "scalar", "earlier"])
            if kind == "unary":
                x = self._net.node(self.rng.choice(_UNARY), [x])
            elif kind == "earlier":
                x = self._net.node(
                    self.rng.choice(["Add", "Sub", "Max", "Min"]), [x, self._earlier()]
                )
            else:
                other = self._number() if kind == "scalar" else self._per_channel()
                x = self._net.node(self.rng.choice(["Add", "Mul", "Sub", "Div"]), [x, other])
        return x

    def _bounded(self, x: str) -> str:
        """Return numbers from 0 to 1, by operators that need them small and positive."""
        inner = self._net.node("Exp", [self._net.node("Tanh", [x])])
        inner = self._net.node("Sqrt", [inner])
        return self._net.node("Log", [self._net.node("Reciprocal", [inner])])

    def _several_readers(self, x: str) -> str:
        shared = self._net.node(self.rng.choice(_UNARY), [x])
        left = self._net.node("Mul", [shared, self._net.node("Sigmoid", [shared])])
        right = self._net.node("Tanh", [self._net.node("Add", [shared, self._earlier()])])
        self._made.append(shared)
        return self._net.node("Sub", [left, right])

    def _condition(self, x: str) -> str:
        """Read a tensor inside an If, whose condition is computed."""
        axes = list(range(len(self.shape)))
        mean = self._net.node("ReduceMean", [x], axes=axes, keepdims=0)
        above = self._net.node("Greater", [mean, self._number(-100.0)])
        branches = {
            name: self._branch(op_type, x, name)
            for name, op_type in (("then_branch", "Tanh"), ("else_branch", "Neg"))
        }
        return self._net.node("If", [above], **branches)

    def _branch(self, op_type: str, read: str, name: str) -> onnx.GraphProto:
        result = f"{read}_{name}"
        value = helper.make_tensor_value_info(result, TensorProto.FLOAT, self.shape)
        node = helper.make_node(op_type, [read], [result], f"{result}_node")
        return helper.make_graph([node], result, [], [value])

    def _computed_shape(self, x: str) -> str:
        """Reshape to what is read from the tensor itself, and back."""
        whole = self._net.node("Shape", [x])
        first = self._net.node("Gather", [whole, self._integers(0)])
        flat = self._net.node("Concat", [first, self._integers(-1)], axis=0)
        inner = self._net.node("Tanh", [self._net.node("Reshape", [x, flat])])
        return self._net.node("Reshape", [inner, whole])

    def _softmax(self, x: str) -> str:
        axis = self.rng.choice([-1, 1])
        return self._net.node("Softmax", [self._chain(x)], axis=axis)

    def _reduction(self, x: str) -> str:
        op_type = self.rng.choice(["ReduceMean", "ReduceMax", "ReduceL2"])
        axes = self.rng.choice([[-1], [1], list(range(1, len(self.shape)))])
        inner = self._net.node(op_type, [x], axes=axes, keepdims=1)
        return self._net.node("Sub", [x, self._net.node("Tanh", [inner])])

    def _turned(self, x: str) -> str:
        order = [0, *self.rng.sample(range(1, len(self.shape)), len(self.shape) - 1)]
        turned = self._net.node("Tanh", [self._net.node("Transpose", [x], perm=order)])
        back = [order.index(axis) for axis in range(len(order))]
        return self._net.node("Transpose", [turned], perm=back)

    def _sliced(self, x: str) -> str:
        axis, extent = len(self.shape) - 1, self.shape[-1]
        at = self.rng.randrange(1, extent)
        parts = [
            self._net.node("Slice", [x, *map(self._integers, (begin, end, axis))])
            for begin, end in ((at, extent), (0, at))
        ]
        parts[0] = self._net.node("Neg", [parts[0]])
        return self._net.node("Concat", parts, axis=axis)

    # ---- images ----

    def _conv(self, x: str) -> str:
        channels, size = self.shape[1], self.rng.choice([1, 3])
        made = self._net.conv(x, channels, channels, size)
        return self._chain(made) if self.rng.random() < 0.7 else made

    def _depthwise(self, x: str) -> str:
        weights = self._net.weights(self.shape[1], 1, 3, 3)
        made = self._net.node(
            "Conv", [x, weights], group=self.shape[1], kernel_shape=[3, 3], pads=[1] * 4
        )
        return self._chain(made)

    def _residual(self, x: str) -> str:
        return self._net.residual(x, self.shape[1])

    def _gate(self, x: str) -> str:
        channels = self.shape[1]
        gate = self._net.node("Sigmoid", [self._net.conv(self._net.mean(x), channels, channels, 1)])
        return self._net.node("Mul", [x, gate])

    def _joined(self, x: str) -> str:
        channels = self.shape[1]
        both = self._net.node("Concat", [x, self._net.node("Relu", [self._earlier()])], axis=1)
        return self._net.conv(self._chain_of(both), 2 * channels, channels, 1)

    def _chain_of(self, x: str) -> str:
        """Add operators that take any shape."""
        for _ in range(self.rng.randint(0, 3)):
            x = self._net.node(self.rng.choice(_UNARY), [x])
        return x

    def _batch_norm(self, x: str) -> str:
        scale, shift = self._net.scales(self.shape[1])
        mean, _ = self._net.scales(self.shape[1])
        made = self._net.node("BatchNormalization", [self._chain(x), scale, shift, mean, scale])
        return self._net.node("Relu", [made])

    def _instance_norm(self, x: str) -> str:
        inner = self._net.node("InstanceNormalization", [x, *self._net.scales(self.shape[1])])
        return self._chain(inner)

    def _pool(self, x: str) -> str:
        op_type = self.rng.choice(["MaxPool", "AveragePool"])
        return self._net.node(op_type, [x], kernel_shape=[3, 3], pads=[1] * 4)

    def _resized(self, x: str) -> str:
        scales = self._net.constant(np.array([1, 1, 2, 2], np.float32))
        mode = self.rng.choice(["nearest", "linear"])
        wide = self._net.node("Resize", [x, "", scales], mode=mode)
        wide = self._net.node(self.rng.choice(_UNARY), [wide])
        return self._net.node("AveragePool", [wide], kernel_shape=[2, 2], strides=[2, 2])

    def _padded(self, x: str) -> str:
        pads = self._integers(0, 0, 1, 1, 0, 0, 1, 1)
        wide = self._net.node(
            "Pad", [x, pads], mode=self.rng.choice(["reflect", "constant", "edge"])
        )
        weights = self._net.weights(self.shape[1], self.shape[1], 3, 3)
        return self._net.node("Conv", [self._chain_of(wide), weights])

    def _lrn(self, x: str) -> str:
        return self._chain(self._net.node("LRN", [x], size=3))

    def _grouped(self, x: str) -> str:
        batch, channels, *extents = self.shape
        groups = 4
        inner = self._net.node("Reshape", [x, self._integers(batch, groups, -1)])
        inner = self._net.node("InstanceNormalization", [inner, *self._net.scales(groups)])
        inner = self._net.node("Reshape", [inner, self._integers(batch, channels, *extents)])
        return self._chain(self._net.node("Mul", [inner, self._per_channel()]))

    # ---- sequences ----

    def _product(self, x: str) -> str:
        width = self.shape[-1]
        weights = self._net.weights(width, width)
        made = self._net.node("MatMul", [x, weights])
        made = (
            self._net.node("Add", [made, self._per_channel()]) if self.rng.random() < 0.7 else made
        )
        return self._chain(made) if self.rng.random() < 0.7 else made

    def _feed_forward(self, x: str) -> str:
        width = self.shape[-1]
        wide = self._net.node("MatMul", [x, self._net.weights(width, 2 * width)])
        half, one, root = (self._number(value) for value in (0.5, 1.0, 2**0.5))
        share = self._net.node("Erf", [self._net.node("Div", [wide, root])])
        share = self._net.node("Add", [share, one])
        wide = self._net.node("Mul", [self._net.node("Mul", [wide, share]), half])
        made = self._net.node("MatMul", [wide, self._net.weights(2 * width, width)])
        return self._net.node("Add", [x, made])

    def _layer_norm(self, x: str) -> str:
        inner = self._net.node("Add", [x, self._earlier()])
        made = self._net.node(
            "LayerNormalization", [inner, *self._net.scales(self.shape[-1])], axis=-1
        )
        return self._chain(made) if self.rng.random() < 0.5 else made

    def _rms_norm(self, x: str) -> str:
        square = self._net.node("Mul", [x, x])
        mean = self._net.node("ReduceMean", [square], axes=[-1], keepdims=1)
        root = self._net.node("Sqrt", [self._net.node("Add", [mean, self._number(1e-5)])])
        scale, _ = self._net.scales(self.shape[-1])
        return self._net.node("Mul", [self._net.node("Div", [x, root]), scale])

    def _attention(self, x: str) -> str:
        width = self.shape[-1]
        query, key, value = (
            self._net.node("MatMul", [x, self._net.weights(width, width)]) for _ in range(3)
        )
        scores = self._net.node(
            "MatMul", [query, self._net.node("Transpose", [key], perm=[0, 2, 1])]
        )
        scores = self._net.node("Mul", [scores, self._number(width**-0.5)])
        mixed = self._net.node("MatMul", [self._net.node("Softmax", [scores], axis=-1), value])
        return self._net.node("Add", [x, mixed])

    # ---- values ----

    def _earlier(self) -> str:
        return self.rng.choice(self._made)

    def _number(self, value: float | None = None) -> str:
        value = self.rng.uniform(0.5, 1.5) if value is None else value
        return self._net.constant(np.array(value, np.float32))

    def _integers(self, *values: int) -> str:
        return self._net.constant(np.array(values, np.int64))

    def _per_channel(self) -> str:
        """Add numbers that differ from channel to channel."""
        if not self._is_image:
            return self._net.scales(self.shape[-1])[0]
        scale = np.array([self.rng.uniform(0.5, 1.5) for _ in range(self.shape[1])], np.float32)
        return self._net.constant(scale.reshape(-1, 1, 1))


_Layer = Callable[[RandomNetwork, str], str]
_LAYERS: Sequence[str] = (
    *("chain", "bounded", "several_readers", "condition", "computed_shape", "softmax"),
    *("reduction", "turned", "sliced"),
)
_OF_IMAGES: Sequence[str] = (
    *("conv", "depthwise", "residual", "gate", "joined", "batch_norm", "instance_norm"),
    *("pool", "resized", "padded", "lrn", "grouped"),
)
_OF_SEQUENCES: Sequence[str] = (
    *("product", "feed_forward", "layer_norm", "rms_norm", "attention"),
)


def _layers(names: Sequence[str]) -> Mapping[str, _Layer]:
    return {name: getattr(RandomNetwork, f"_{name}") for name in names}


_IMAGE_LAYERS = _layers([*_LAYERS, *_OF_IMAGES, *_OF_IMAGES])
_SEQUENCE_LAYERS = _layers([*_LAYERS, *_OF_SEQUENCES, *_OF_SEQUENCES])
