"""Blocks of networks for images: MobileNet to ConvNeXt, YOLO, DeepLab, U-Nets, diffusion, Swin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from support.network_fuzz.layers import ACTIVATIONS, Image, LayerWriter

_WIDTHS = (8, 16, 17, 24, 32, 48, 60, 64)
_OF_MOBILE = ("ReLU6", "HardSwish", "SiLU", "Relu", "HardSigmoid")
_WINDOW = 4
_LEAST_EXTENT = 6
"""Of an image that is made smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBlocks:
    """Writes blocks one after another."""

    net: LayerWriter  # Where to

    def inverted_residual(self, x: Image) -> Image:
        """Expand, filter each channel, gate, project; ONNX Runtime's blocked layout fills up."""
        net, rng = self.net, self.net.rng
        act = rng.choice(_OF_MOBILE)
        wide = x.channels * rng.choice([1, 2, 3, 4, 6])
        stride = self._stride(x)
        made = x
        if wide > x.channels or rng.random() < 0.3:
            made = net.filtered(made, wide, 1, activation=act)
        size = rng.choice([3, 3, 5, 7, (1, 3), (2, 2)])
        made = net.filtered(
            made, made.channels, size, stride=stride, groups=made.channels, activation=act
        )
        if rng.random() < 0.5:
            made = self._gated(made, act)
        made = net.filtered(made, rng.choice([x.channels, 16, 24, 40]), 1)
        return self._added(x, made)

    def bottleneck(self, x: Image) -> Image:
        """Fewer channels, a filter in groups, as many again."""
        net, rng = self.net, self.net.rng
        groups = rng.choice([1, 1, 2, 4, 8])
        inner = groups * rng.choice([4, 8, 16])
        act = rng.choice(["Relu", "SiLU", "LeakyRelu", "Mish"])
        made = net.filtered(x, inner, 1, activation=act)
        if rng.random() < 0.4:
            made = net.normed(made)
        dilation = rng.choice([1, 1, 1, 2, 5])
        made = net.filtered(
            made, inner, 3, stride=self._stride(x), groups=groups, dilation=dilation, activation=act
        )
        made = net.filtered(made, rng.choice([x.channels, 32, 64]), 1)
        made = self._added(x, made)
        return net.named(net.activated(made.name, act, made.channels), made)

    def convnext(self, x: Image) -> Image:
        """A large filter for each channel, then products of the channels of each pixel."""
        net, rng = self.net, self.net.rng
        made = net.filtered(x, x.channels, 7, groups=x.channels)
        turned = net.transpose(made.name, 0, 2, 3, 1)
        turned = net.layer_norm(turned, x.channels)
        wide = x.channels * rng.choice([2, 4])
        hidden = net.node("MatMul", [turned, net.weights(x.channels, wide)])
        hidden = net.gelu(net.node("Add", [hidden, net.scales(wide)[1]]))
        turned = net.node("MatMul", [hidden, net.weights(wide, x.channels)])
        turned = net.node("Mul", [turned, net.scales(x.channels)[0]])
        back = net.transpose(turned, 0, 3, 1, 2)
        return self._added(x, net.named(back, made))

    def split_stages(self, x: Image) -> Image:
        """YOLO's C2f: parts of a convolution, a branch of some units, all put together."""
        net, rng = self.net, self.net.rng
        act, half = rng.choice(["SiLU", "Mish", "Relu"]), rng.choice([8, 12, 16])
        whole = net.filtered(x, 2 * half, 1, activation=act)
        left, right = net.split(whole.name, (half, half), 1)
        parts = [net.named(left, whole, half), net.named(right, whole, half)]
        for _ in range(rng.randint(1, 2)):
            unit = net.filtered(parts[-1], half, 3, activation=act)
            unit = self._sized(net.filtered(unit, half, 3, activation=act), whole)
            parts.append(self._added(parts[-1], unit) if rng.random() < 0.6 else unit)
        return net.filtered(net.joined(*parts), x.channels, 1, activation=act)

    def pooled_pyramid(self, x: Image) -> Image:
        """YOLO's SPPF: the largest of windows, of windows of these, and so on."""
        net, rng = self.net, self.net.rng
        act, size = rng.choice(["SiLU", "Relu"]), rng.choice([3, 5])
        first = net.filtered(x, 16, 1, activation=act)
        parts = [first]
        for _ in range(3):
            pooled = net.node(
                "MaxPool", [parts[-1].name], kernel_shape=[size] * 2, pads=[size // 2] * 4
            )
            parts.append(net.named(pooled, first))
        return net.filtered(net.joined(*parts), x.channels, 1, activation=act)

    def dilated_pyramid(self, x: Image) -> Image:
        """DeepLab's ASPP: filters dilated by more than the image has rows, and its mean."""
        net, rng = self.net, self.net.rng
        parts = [net.filtered(x, 16, 1, activation="Relu")]
        for _ in range(rng.randint(1, 3)):
            apart = rng.choice([2, 4, 6, 12, 18, 36])
            made = net.filtered(x, 16, 3, dilation=apart, activation="Relu")
            parts.append(self._sized(made, x))
        mean = net.mean_over(x.name, 2, 3)
        small = Image(name=mean, channels=x.channels, height=1, width=1)
        pixel = net.filtered(small, 16, 1, activation="Relu")
        parts.append(net.as_large(self._sized(pixel, small), x))
        parts = [self._sized(one, x) for one in parts]
        return net.filtered(net.joined(*parts), x.channels, 1, activation="Relu")

    def decoder(self, x: Image) -> Image:
        """Half of a U-Net: smaller, larger again, what was there before beside it."""
        net, rng = self.net, self.net.rng
        act = rng.choice(["Relu", "LeakyRelu", "SiLU"])
        down = net.filtered(x, 2 * x.channels, 3, stride=2, activation=act)
        down = net.filtered(down, down.channels, 3, activation=act)
        if rng.random() < 0.5:
            weights = net.weights(down.channels, x.channels, 2, 2)
            up = net.node("ConvTranspose", [down.name, weights], strides=[2, 2])
            high, wide = 2 * down.height, 2 * down.width
            up_image = Image(name=up, channels=x.channels, height=high, width=wide)
        else:
            up_image = net.as_large(net.filtered(down, x.channels, 1), x)
        both = net.joined(x, self._sized(up_image, x))
        return net.filtered(both, x.channels, 3, activation=act)

    def feature_pyramid(self, x: Image) -> Image:
        """What is coarse is enlarged and added to what is fine."""
        net, rng = self.net, self.net.rng
        coarse = net.filtered(x, 2 * x.channels, 3, stride=2, activation="Relu")
        top = net.filtered(coarse, 16, 1)
        fine = self._sized(net.filtered(x, 16, 1), x)
        merged = net.node("Add", [fine.name, net.as_large(top, x).name])
        return net.filtered(net.named(merged, x, 16), rng.choice(_WIDTHS), 3)

    def group_norm(self, x: Image) -> Image:
        """A block of diffusion: groups normalised, SiLU, a filter, twice; a number per channel."""
        net, rng = self.net, self.net.rng
        made = x
        for _ in range(2):
            normal = self._groups(made)
            made = net.filtered(net.named(net.silu(normal), made), made.channels, 3)
            if rng.random() < 0.5:
                shift = net.node("Add", [made.name, net.per_channel(made.channels)])
                made = net.named(shift, made)
        return self._added(x, made)

    def shuffled(self, x: Image) -> Image:
        """ShuffleNet: filters in groups, channels of the groups mixed."""
        net, rng = self.net, self.net.rng
        groups = rng.choice([2, 4])
        wide = groups * rng.choice([8, 16])
        made = net.filtered(net.filtered(x, wide, 1), wide, 1, groups=groups, activation="Relu")
        size = (made.height, made.width)
        apart = net.reshape(made.name, net.batch, groups, wide // groups, *size)
        mixed = net.reshape(net.transpose(apart, 0, 2, 1, 3, 4), net.batch, wide, *size)
        made = net.filtered(net.named(mixed, made), wide, 3, groups=wide)
        return net.filtered(made, x.channels, 1, activation="Relu")

    def ghost(self, x: Image) -> Image:
        """GhostNet: a convolution, and a cheap one of what it makes beside it."""
        net = self.net
        first = net.filtered(x, net.rng.choice([8, 12, 16]), 1, activation="Relu")
        cheap = net.filtered(first, first.channels, 3, groups=first.channels, activation="Relu")
        return net.joined(self._sized(first, cheap), cheap)

    def dense(self, x: Image) -> Image:
        """DenseNet: all that was made before is read again."""
        net = self.net
        for _ in range(2):
            more = net.named(net.node("Relu", [net.normed(x).name]), x)
            more = net.filtered(net.filtered(more, 32, 1, activation="Relu"), 8, 3)
            x = net.joined(x, self._sized(more, x))
        return x

    def windows(self, x: Image) -> Image:
        """Swin: attention in windows, of which every other layer moves the image first."""
        net, rng = self.net, self.net.rng
        width, high, wide = x.channels, *(-(-n // _WINDOW) * _WINDOW for n in (x.height, x.width))
        turned = net.layer_norm(net.transpose(x.name, 0, 2, 3, 1), width)
        pads = net.integers(0, 0, 0, 0, 0, high - x.height, wide - x.width, 0)
        turned = net.node("Pad", [turned, pads])
        shift = rng.choice([0, 2])
        if shift:
            turned = self._rolled(self._rolled(turned, shift, high, 1), shift, wide, 2)
        count = (high // _WINDOW, wide // _WINDOW)
        apart = net.reshape(turned, net.batch, count[0], _WINDOW, count[1], _WINDOW, width)
        pixels = net.reshape(net.transpose(apart, 0, 1, 3, 2, 4, 5), -1, _WINDOW**2, width)
        heads = rng.choice([n for n in (1, 2, 3, 4) if width % n == 0])
        made = self._attention(pixels, _WINDOW**2, width, heads, masked=shift > 0)
        apart = net.reshape(made, net.batch, *count, _WINDOW, _WINDOW, width)
        turned = net.reshape(net.transpose(apart, 0, 1, 3, 2, 4, 5), net.batch, high, wide, width)
        if shift:
            back = (high - shift, wide - shift)
            turned = self._rolled(self._rolled(turned, back[0], high, 1), back[1], wide, 2)
        turned = net.part(net.part(turned, 0, x.height, 1), 0, x.width, 2)
        return self._added(x, net.named(net.transpose(turned, 0, 3, 1, 2), x))

    def squeezed(self, x: Image) -> Image:
        """Channels that fill no block, filters of any shape, any activation."""
        net, rng = self.net, self.net.rng
        size = rng.choice([1, 2, 3, 4, 5, (1, 7), (7, 1), (3, 1), (1, 2)])
        apart = rng.choice([1, 1, 1, 2, 9])
        act = rng.choice(ACTIVATIONS)
        made = net.filtered(x, rng.choice([1, 3, 17, 60]), size, dilation=apart, activation=act)
        made = net.filtered(made, rng.choice(_WIDTHS), 3, activation=rng.choice(ACTIVATIONS))
        return self._added(x, made)

    def halves(self, x: Image) -> Image:
        """Operators on float16 in between."""
        return self.net.named(self.net.in_half(x.name), x)

    # ---- parts of blocks ----

    def _stride(self, x: Image) -> int:
        may_shrink = min(x.height, x.width) >= 2 * _LEAST_EXTENT
        return self.net.rng.choice([1, 1, 2]) if may_shrink else 1

    def _gated(self, x: Image, act: str) -> Image:
        """Add a gate for each channel, made of their means."""
        net = self.net
        mean = net.mean_over(x.name, 2, 3)
        if net.rng.random() < 0.5:
            mean = net.node("GlobalAveragePool", [x.name])
        small = Image(name=mean, channels=x.channels, height=1, width=1)
        fewer = net.weights(max(1, x.channels // 4), x.channels, 1, 1)
        inner = net.node("Conv", [small.name, fewer], kernel_shape=[1, 1])
        inner = net.activated(inner, act, max(1, x.channels // 4))
        more = net.weights(x.channels, max(1, x.channels // 4), 1, 1)
        kind = net.rng.choice(["Sigmoid", "HardSigmoid"])
        gate = net.node("Conv", [inner, more], kernel_shape=[1, 1])
        gate = net.activated(gate, kind, x.channels)
        order = [x.name, gate] if net.rng.random() < 0.5 else [gate, x.name]
        return net.named(net.node("Mul", order), x)

    def _added(self, x: Image, made: Image) -> Image:
        """Add the input of a block where it is as large as what it makes."""
        alike = (x.channels, x.height, x.width) == (made.channels, made.height, made.width)
        if alike and self.net.rng.random() < 0.8:
            order = [x.name, made.name] if self.net.rng.random() < 0.5 else [made.name, x.name]
            return self.net.named(self.net.node("Add", order), made)
        return made

    def _sized(self, x: Image, like: Image) -> Image:
        """Cut or enlarge an image that another has to stand beside."""
        if (x.height, x.width) == (like.height, like.width):
            return x
        if x.height >= like.height and x.width >= like.width:
            cut = self.net.part(self.net.part(x.name, 0, like.height, 2), 0, like.width, 3)
            return self.net.named(cut, like, x.channels)
        return self.net.as_large(x, like)

    def _groups(self, x: Image) -> str:
        net = self.net
        groups = net.rng.choice([n for n in (1, 2, 3, 4, 8) if x.channels % n == 0])
        inner = net.reshape(x.name, 0, groups, -1)
        ones = [net.constant(np.full(groups, value, np.float32)) for value in (1, 0)]
        inner = net.node("InstanceNormalization", [inner, *ones], epsilon=1e-5)
        whole = net.reshape(inner, net.batch, x.channels, x.height, x.width)
        scaled = net.node("Mul", [whole, net.per_channel(x.channels)])
        return net.node("Add", [scaled, net.per_channel(x.channels)])

    def _rolled(self, x: str, shift: int, extent: int, axis: int) -> str:
        parts = [self.net.part(x, shift, extent, axis), self.net.part(x, 0, shift, axis)]
        return self.net.node("Concat", parts, axis=axis)

    def _attention(self, x: str, count: int, width: int, heads: int, *, masked: bool) -> str:
        """Add an attention of rows of (windows, count, width)."""
        net, each = self.net, width // heads
        whole = net.node("MatMul", [x, net.weights(width, 3 * width)])
        whole = net.node("Add", [whole, net.scales(3 * width)[1]])
        whole = net.transpose(net.reshape(whole, -1, count, 3, heads, each), 2, 0, 3, 1, 4)
        query, key, value = (
            net.node("Squeeze", [net.part(whole, at, at + 1, 0), net.integers(0)])
            for at in range(3)
        )
        query = net.node("Mul", [query, net.number(each**-0.5)])
        scores = net.node("MatMul", [query, net.transpose(key, 0, 1, 3, 2)])
        bias = net.weights(1, heads, count, count)
        scores = net.node("Add", [scores, bias])
        if masked:
            mask = net.weights(1, 1, count, count)
            hidden = net.node("Greater", [mask, net.number(0.05)])
            scores = net.node("Where", [hidden, net.number(-100.0), scores])
        mixed = net.node("MatMul", [net.node("Softmax", [scores], axis=-1), value])
        rows = net.reshape(net.transpose(mixed, 0, 2, 1, 3), -1, count, width)
        return net.node("MatMul", [rows, net.weights(width, width)])


Block = Callable[[ImageBlocks, Image], Image]
IMAGE_BLOCKS: Mapping[str, Block] = {
    "inverted_residual": ImageBlocks.inverted_residual,
    "bottleneck": ImageBlocks.bottleneck,
    "convnext": ImageBlocks.convnext,
    "split_stages": ImageBlocks.split_stages,
    "pooled_pyramid": ImageBlocks.pooled_pyramid,
    "dilated_pyramid": ImageBlocks.dilated_pyramid,
    "decoder": ImageBlocks.decoder,
    "feature_pyramid": ImageBlocks.feature_pyramid,
    "group_norm": ImageBlocks.group_norm,
    "shuffled": ImageBlocks.shuffled,
    "ghost": ImageBlocks.ghost,
    "dense": ImageBlocks.dense,
    "windows": ImageBlocks.windows,
    "squeezed": ImageBlocks.squeezed,
    "halves": ImageBlocks.halves,
}
