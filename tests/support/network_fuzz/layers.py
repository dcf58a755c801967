"""What blocks of random networks are written with: any opset, any activation, odd extents."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.engine.subgraphs import NetworkBuilder

NEW_NORM, NEW_SWISH, AXES_ARE_INPUTS, NEW_GELU = 17, 14, 18, 20
"""Opsets from which on there are LayerNormalization, HardSwish, axes of means as inputs, Gelu."""
ACTIVATIONS = (
    *("Relu", "SiLU", "HardSwish", "ReLU6", "LeakyRelu", "Gelu", "HardSigmoid", "Mish", "PRelu"),
    *("Sigmoid", "Tanh", "Elu", ""),
)
"""Of convolutions; nothing for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A value of a network: a batch of images, and how large they are."""

    name: str
    channels: int
    height: int
    width: int


class LayerWriter(NetworkBuilder):
    """Writes single layers; what an opset has no operator for is written out.

    Args:
        seed: Of the weights and of what is drawn.
        batch: First extent of everything.
        opset: Of ONNX's own operators.

    Attributes:
        rng: Draws what layers look like.
        batch: As given.
        opset: As given.
    """

    def __init__(self, *, seed: int, batch: int, opset: int) -> None:
        super().__init__(seed=seed, batch=batch, opset=opset)
        self.rng = random.Random(f"layers {seed}")
        self.batch = batch
        self.opset = opset

    # ---- constants ----

    def number(self, value: float) -> str:
        """Add a constant of no dimension."""
        return self.constant(np.array(value, np.float32))

    def integers(self, *values: int) -> str:
        """Add a constant list."""
        return self.constant(np.array(values, np.int64))

    def per_channel(self, channels: int, dimensions: int = 2) -> str:
        """Add positive numbers that differ from channel to channel, extents behind them of 1."""
        values = [self.rng.uniform(0.5, 1.5) for _ in range(channels)]
        return self.constant(np.array(values, np.float32).reshape(-1, *[1] * dimensions))

    # ---- any shape ----

    def reshape(self, x: str, *shape: int) -> str:
        """Add a Reshape to a constant shape."""
        return self.node("Reshape", [x, self.integers(*shape)])

    def transpose(self, x: str, *order: int) -> str:
        """Add a Transpose."""
        return self.node("Transpose", [x], perm=list(order))

    def mean_over(self, x: str, *axes: int) -> str:
        """Add a mean that keeps its dimensions."""
        if self.opset >= AXES_ARE_INPUTS:
            return self.node("ReduceMean", [x, self.integers(*axes)], keepdims=1)
        return self.node("ReduceMean", [x], axes=list(axes), keepdims=1)

    def split(self, x: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Add a Split into parts of these sizes."""
        return self.nodes("Split", [x, self.integers(*sizes)], len(sizes), axis=axis)

    def part(self, x: str, begin: int, end: int, axis: int) -> str:
        """Add a Slice of one axis."""
        return self.node("Slice", [x, *map(self.integers, (begin, end, axis))])

    def layer_norm(self, x: str, width: int) -> str:
        """Add a normalisation of the last axis."""
        scale, bias = self.scales(width)
        if self.opset >= NEW_NORM and self.rng.random() < 0.6:
            return self.node("LayerNormalization", [x, scale, bias], axis=-1)
        centred = self.node("Sub", [x, self.mean_over(x, -1)])
        square = self.node("Pow", [centred, self.number(2)])
        variance = self.node("Add", [self.mean_over(square, -1), self.number(1e-5)])
        scaled = self.node("Div", [centred, self.node("Sqrt", [variance])])
        return self.node("Add", [self.node("Mul", [scaled, scale]), bias])

    def rms_norm(self, x: str, width: int) -> str:
        """Add a normalisation of the last axis that takes no mean off."""
        mean = self.mean_over(self.node("Mul", [x, x]), -1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.number(1e-6)])])
        if self.rng.random() < 0.5:
            scaled = self.node("Div", [x, root])
        else:
            scaled = self.node("Mul", [x, self.node("Reciprocal", [root])])
        return self.node("Mul", [self.scales(width)[0], scaled])

    def gelu(self, x: str) -> str:
        """Add GELU as one of the ways exporters write it."""
        way = self.rng.choice(["erf", "tanh", "operator"])
        if way == "operator" and self.opset >= NEW_GELU:
            return self.node("Gelu", [x], approximate=self.rng.choice(["none", "tanh"]))
        half, one = self.number(0.5), self.number(1.0)
        if way == "tanh":
            cube = self.node("Mul", [self.node("Pow", [x, self.number(3)]), self.number(0.044715)])
            inner = self.node("Mul", [self.node("Add", [x, cube]), self.number((2 / np.pi) ** 0.5)])
            share = self.node("Add", [self.node("Tanh", [inner]), one])
            return self.node("Mul", [self.node("Mul", [x, half]), share])
        share = self.node("Erf", [self.node("Div", [x, self.number(2**0.5)])])
        share = self.node("Add", [share, one])
        return self.node("Mul", [self.node("Mul", [x, share]), half])

    def activated(self, x: str, kind: str, channels: int, dimensions: int = 2) -> str:
        """Add an activation of `ACTIVATIONS`."""
        match kind:
            case "":
                return x
            case "SiLU":
                return self.silu(x)
            case "Gelu":
                return self.gelu(x)
            case "ReLU6":
                return self.node("Clip", [x, self.number(0), self.number(6)])
            case "HardSigmoid":
                return self.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
            case "HardSwish":
                if self.opset >= NEW_SWISH and self.rng.random() < 0.5:
                    return self.node("HardSwish", [x])
                gate = self.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)
                return self.node("Mul", [x, gate])
            case "Mish":
                return self.node("Mul", [x, self.node("Tanh", [self.node("Softplus", [x])])])
            case "PRelu":
                return self.node("PRelu", [x, self.per_channel(channels, dimensions)])
            case _:
                return self.node(kind, [x])

    def in_half(self, x: str) -> str:
        """Add operators on float16, between casts."""
        half = self.node("Cast", [x], to=10)
        for _ in range(self.rng.randint(1, 3)):
            other = self.constant(np.array(self.rng.uniform(0.5, 1.5), np.float16))
            half = self.node(self.rng.choice(["Mul", "Add", "Sub"]), [half, other])
            half = self.node(self.rng.choice(["Relu", "Tanh", "Sigmoid", "Abs"]), [half])
        return self.node("Cast", [half], to=1)

    # ---- images ----

    def filtered(
        self,
        x: Image,
        channels: int,
        size: int | tuple[int, int] = 3,
        *,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
        activation: str = "",
        with_bias: bool | None = None,
    ) -> Image:
        """Add a convolution, its padding written in one of the ways there are.

        Images keep their size but for the stride, or get a little larger or smaller.
        """
        rows, columns = (size, size) if isinstance(size, int) else size
        reach = [dilation * (extent - 1) for extent in (rows, columns)]
        pads, more = self._pads(reach, (x.height, x.width), may_be_rule=dilation == 1)
        inputs = [x.name, self.weights(channels, x.channels // groups, rows, columns)]
        if self.rng.random() < 0.7 if with_bias is None else with_bias:
            inputs.append(self.scales(channels)[1])
        made = self.node(
            "Conv",
            inputs,
            kernel_shape=[rows, columns],
            strides=[stride] * 2,
            group=groups,
            dilations=[dilation] * 2,
            **more,
        )
        extents = [
            (extent + pads[at] + pads[at + 2] - reach[at] - 1) // stride + 1
            if pads
            else -(-extent // stride)
            for at, extent in enumerate((x.height, x.width))
        ]
        made = self.activated(made, activation, channels)
        return Image(name=made, channels=channels, height=extents[0], width=extents[1])

    def _pads(
        self, reach: Sequence[int], extents: Sequence[int], *, may_be_rule: bool
    ) -> tuple[list[int], dict[str, Any]]:
        """Return zeros above, left, below and right, and how they are written; none by rule."""
        kind = self.rng.choices(["same", "rule", "end", "wide", "none"], [12, 1, 1, 1, 1])[0]
        if kind == "rule" and may_be_rule:
            return [], {"auto_pad": self.rng.choice(["SAME_UPPER", "SAME_LOWER"])}
        before = [one // 2 for one in reach]
        after = [one - first for one, first in zip(reach, before, strict=True)]
        if kind == "end":
            before, after = [0, 0], [*reach]
        elif kind == "wide":
            before = [one + self.rng.randint(0, 2) for one in before]
        elif kind == "none" and all(
            extent > one for extent, one in zip(extents, reach, strict=True)
        ):
            before = after = [0, 0]
        return [*before, *after], {"pads": [*before, *after]}

    def normed(self, x: Image) -> Image:
        """Add a BatchNormalization, of which ONNX Runtime may leave nothing."""
        scale, bias = self.scales(x.channels)
        mean, variance = self.scales(x.channels)[1], self.scales(x.channels)[0]
        made = self.node("BatchNormalization", [x.name, scale, bias, mean, variance])
        return Image(name=made, channels=x.channels, height=x.height, width=x.width)

    def as_large(self, x: Image, other: Image) -> Image:
        """Add a Resize to the size of another image, by scales or sizes."""
        mode = self.rng.choice(["nearest", "linear"])
        rule = self.rng.choice(["asymmetric", "half_pixel", "align_corners"])
        if mode == "nearest" and rule == "align_corners":
            rule = "asymmetric"
        rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
        sizes = self.integers(self.batch, x.channels, other.height, other.width)
        made = self.node(
            "Resize",
            [x.name, "", "", sizes],
            mode=mode,
            coordinate_transformation_mode=rule,
            **rounding,
        )
        return Image(name=made, channels=x.channels, height=other.height, width=other.width)

    def joined(self, *images: Image) -> Image:
        """Add a Concat of channels."""
        first = images[0]
        made = self.node("Concat", [one.name for one in images], axis=1)
        channels = sum(one.channels for one in images)
        return Image(name=made, channels=channels, height=first.height, width=first.width)

    def named(self, name: str, like: Image, channels: int | None = None) -> Image:
        """Return a value as large as another image."""
        return Image(
            name=name,
            channels=like.channels if channels is None else channels,
            height=like.height,
            width=like.width,
        )
