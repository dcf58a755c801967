"""Image networks with attention made cheap: PVT-v2, EdgeNeXt, EfficientViT."""

from __future__ import annotations

import math

import torch
from networks.layers import BRANCH_GAIN, ChannelNorm, ConvNorm
from networks.mobile import InvertedResidual
from torch import Tensor, nn
from torch.nn import functional


class ReducedAttention(nn.Module):
    """Attention whose keys and values are of an image reduced `ratio` times along both sides."""

    def __init__(self, width: int, heads: int, ratio: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.joint = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.reduce = nn.Conv2d(width, width, ratio, ratio) if ratio > 1 else None
        self.norm = nn.LayerNorm(width) if ratio > 1 else None

    def forward(self, x: Tensor, side: int) -> Tensor:
        """(n, side * side, width) to the same."""
        n, length, width = x.shape
        query = self.query(x).reshape(n, length, self.heads, -1).transpose(1, 2)
        if self.reduce is not None and self.norm is not None:
            image = x.transpose(1, 2).reshape(n, width, side, side)
            x = self.norm(self.reduce(image).flatten(2).transpose(1, 2))
        joint = self.joint(x).reshape(n, -1, 2, self.heads, width // self.heads)
        key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(n, length, width))


class PvtLayer(nn.Module):
    """Reduced attention, and matrix products around a depthwise 3x3; both beside a shortcut."""

    def __init__(self, width: int, heads: int, ratio: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = ReducedAttention(width, heads, ratio)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.enter = nn.Linear(width, hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, padding=1, groups=hidden)
        self.leave = nn.Linear(hidden, width)

    def forward(self, x: Tensor, side: int) -> Tensor:
        """(n, side * side, width) to the same."""
        x = x + self.attention(self.norm1(x), side)
        inside = self.enter(self.norm2(x))
        n, _, hidden = inside.shape
        image = self.depthwise(inside.transpose(1, 2).reshape(n, hidden, side, side))
        return x + self.leave(functional.gelu(image.flatten(2).transpose(1, 2)))


class PvtStage(nn.Module):
    """Overlapping patches, layers, LayerNorm."""

    def __init__(
        self, inputs: int, width: int, *, kernel: int, stride: int, layers: list[PvtLayer]
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(inputs, width, kernel, stride, kernel // 2)
        self.norm_in = nn.LayerNorm(width)
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, image: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, width, h/stride, w/stride)."""
        image = self.patches(image)
        n, width, side, _ = image.shape
        x = self.norm_in(image.flatten(2).transpose(1, 2))
        for layer in self.layers:
            x = layer(x, side)
        return self.norm(x).reshape(n, side, side, width).permute(0, 3, 1, 2)


class PvtHead(nn.Module):
    """Stages, mean over the image, the classes."""

    def __init__(self, stages: nn.Module, width: int) -> None:
        super().__init__()
        self.stages = stages
        self.head = nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, 224, 224) to (n, 1000)."""
        return self.head(self.stages(image).flatten(2).mean(2))


def pvt_v2_b1() -> nn.Module:
    """PVT-v2-B1 for 1,000 classes."""
    stages: list[nn.Module] = []
    inputs = 3
    for width, heads, ratio, factor in (
        (64, 1, 8, 8),
        (128, 2, 4, 8),
        (320, 5, 2, 4),
        (512, 8, 1, 4),
    ):
        kernel, stride = (3, 2) if stages else (7, 4)
        layers = [PvtLayer(width, heads, ratio, factor * width) for _ in range(2)]
        stages.append(PvtStage(inputs, width, kernel=kernel, stride=stride, layers=layers))
        inputs = width
    return PvtHead(nn.Sequential(*stages), inputs)


class PixelFeed(nn.Module):
    """LayerNorm over channels, two matrix products, a scale of each channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.enter, self.leave = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.gain = BRANCH_GAIN

    def forward(self, x: Tensor) -> Tensor:
        """(n, h, w, width) to the same."""
        return self.leave(functional.gelu(self.enter(self.norm(x)))) * self.scale


class EdgeBlock(nn.Module):
    """EdgeNeXt's convolutional block: a large depthwise filter, then matrix products."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width)
        self.feed = PixelFeed(width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        return x + self.feed(self.depthwise(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class FourierPositions(nn.Module):
    """Sines and cosines of both coordinates, 32 each, by a 1x1 convolution to the width."""

    def __init__(self, width: int, side: int) -> None:
        super().__init__()
        steps = torch.arange(1, side + 1) / side * 2 * math.pi
        angles = steps[:, None] / 10000 ** (2 * (torch.arange(32) // 2) / 32)
        waves = torch.stack((angles[:, 0::2].sin(), angles[:, 1::2].cos()), 2).flatten(1)
        down = waves[:, None].expand(-1, side, -1)
        both = torch.cat((down, down.transpose(0, 1)), 2).permute(2, 0, 1)
        self.register_buffer("waves", both[None].contiguous())
        self.project = nn.Conv2d(64, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, side, side) to the same."""
        return x + self.project(self.waves)


class ChannelAttention(nn.Module):
    """Attention among channels: scores are products over all pixels, so the cost is linear."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.joint = nn.Linear(width, 3 * width)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        n, length, width = x.shape
        joint = self.joint(x).reshape(n, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 4, 1).unbind(0)
        query, key = functional.normalize(query, dim=-1), functional.normalize(key, dim=-1)
        scores = (query @ key.transpose(-2, -1)) * self.temperature
        mixed = scores.softmax(-1) @ value
        return self.out(mixed.permute(0, 3, 1, 2).reshape(n, length, width))


class SplitDepthwiseAttention(nn.Module):
    """EdgeNeXt's other block: a chain of depthwise filters over slices, attention of channels."""

    def __init__(self, width: int, slices: int, *, side: int = 0) -> None:
        super().__init__()
        self.slice = math.ceil(width / slices)
        self.filters = nn.ModuleList(
            nn.Conv2d(self.slice, self.slice, 3, padding=1, groups=self.slice)
            for _ in range(slices - 1)
        )
        self.positions = FourierPositions(width, side) if side else nn.Identity()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.scale = nn.Parameter(torch.ones(width))
        self.gain = BRANCH_GAIN
        self.attention = ChannelAttention(width, 8)
        self.feed = PixelFeed(width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, side, side) to the same."""
        slices = torch.split(x, self.slice, 1)
        made: list[Tensor] = []
        for index, one in enumerate(self.filters):
            made.append(one(slices[index] + made[-1] if made else slices[index]))
        inside = self.positions(torch.cat((*made, slices[-1]), 1))
        n, width, rows, columns = inside.shape
        inside = inside.flatten(2).transpose(1, 2)
        inside = inside + self.attention(self.norm(inside)) * self.scale
        fed = self.feed(inside.reshape(n, rows, columns, width))
        return x + fed.permute(0, 3, 1, 2)


def edgenext_small() -> nn.Module:
    """EdgeNeXt-S for 1,000 classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 48, 4, 4), ChannelNorm(48)]
    inputs = 48
    for width, depth, kernel, slices in (
        (48, 3, 3, 0),
        (96, 3, 5, 2),
        (160, 9, 7, 3),
        (304, 3, 9, 4),
    ):
        if width != inputs:
            layers += [ChannelNorm(inputs), nn.Conv2d(inputs, width, 2, 2)]
        layers += [EdgeBlock(width, kernel) for _ in range(depth - bool(slices))]
        if slices:
            layers.append(SplitDepthwiseAttention(width, slices, side=28 if slices == 2 else 0))
        inputs = width
    layers += [nn.AdaptiveAvgPool2d(1), ChannelNorm(inputs), nn.Flatten(), nn.Linear(inputs, 1000)]
    return nn.Sequential(*layers)


class LinearAttention(nn.Module):
    """Attention with ReLU for softmax, of two scales, so that its cost is linear in the pixels."""

    def __init__(self, width: int, head: int = 16) -> None:
        super().__init__()
        self.head = head
        self.joint = nn.Conv2d(width, 3 * width, 1, bias=False)
        groups = 3 * width // head
        self.nearby = nn.Sequential(
            nn.Conv2d(3 * width, 3 * width, 5, padding=2, groups=3 * width, bias=False),
            nn.Conv2d(3 * width, 3 * width, 1, groups=groups, bias=False),
        )
        self.out = ConvNorm(2 * width, width, act=None, gain=BRANCH_GAIN)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        n, _, rows, columns = x.shape
        joint = self.joint(x)
        both = torch.cat((joint, self.nearby(joint)), 1)
        query, key, value = both.reshape(n, -1, 3 * self.head, rows * columns).chunk(3, 2)
        query, key = query.relu(), key.relu()
        value = functional.pad(value, (0, 0, 0, 1), value=1.0)
        mixed = (value @ key.transpose(-2, -1)) @ query
        mixed = mixed[:, :, :-1] / (mixed[:, :, -1:] + 1e-15)
        return x + self.out(mixed.reshape(n, -1, rows, columns))


class BiasedInvertedResidual(nn.Sequential):
    """EfficientViT's block: biases where a BatchNorm is missing, HardSwish between."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, factor: int, has_norms: bool
    ) -> None:
        wide = factor * inputs
        if has_norms:
            enter: list[nn.Module] = [ConvNorm(inputs, wide, act=nn.Hardswish)]
            middle: list[nn.Module] = [
                ConvNorm(wide, wide, 3, stride, groups=wide, act=nn.Hardswish)
            ]
        else:
            enter = [nn.Conv2d(inputs, wide, 1), nn.Hardswish()]
            middle = [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide), nn.Hardswish()]
        super().__init__(*enter, *middle, ConvNorm(wide, outputs, act=None, gain=BRANCH_GAIN))
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h/stride, w/stride)."""
        made = super().forward(x)
        return x + made if self.has_shortcut else made


def efficientvit_b1() -> nn.Module:
    """EfficientViT-B1 (linear attention) for 1,000 classes."""
    layers: list[nn.Module] = [
        ConvNorm(3, 16, 3, 2, act=nn.Hardswish),
        InvertedResidual(16, 16, 16, act=nn.Hardswish),
    ]
    inputs = 16
    for width, depth in ((32, 2), (64, 3)):
        for index in range(depth):
            stride = 1 if index else 2
            layers.append(BiasedInvertedResidual(inputs, width, stride, factor=4, has_norms=True))
            inputs = width
    for width, depth in ((128, 3), (256, 4)):
        layers.append(BiasedInvertedResidual(inputs, width, 2, factor=4, has_norms=False))
        for _ in range(depth):
            layers.append(LinearAttention(width))
            layers.append(BiasedInvertedResidual(width, width, 1, factor=4, has_norms=False))
        inputs = width
    layers.append(ConvNorm(inputs, 1536, act=nn.Hardswish))
    return EfficientVitHead(nn.Sequential(*layers))


class EfficientVitHead(nn.Module):
    """Mean over the image, a wide layer with LayerNorm, the classes."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.wide = nn.Sequential(
            nn.Linear(1536, 1600, bias=False), nn.LayerNorm(1600), nn.Hardswish()
        )
        self.head = nn.Linear(1600, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, 224, 224) to (n, 1000)."""
        return self.head(self.wide(self.features(image).mean((2, 3))))
