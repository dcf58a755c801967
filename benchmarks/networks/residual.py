"""Convolutional networks with shortcuts: ResNet, RegNet, iResNet, DenseNet, ConvNeXt."""

from __future__ import annotations

import torch
from networks.layers import BRANCH_GAIN, ChannelNorm, ConvNorm, ImageClassifier, SqueezeExcite
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            ConvNorm(inputs, width, 3, stride),
            ConvNorm(width, width, 3, act=None, gain=BRANCH_GAIN),
        )
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, width, h/stride, w/stride)."""
        return torch.relu(self.path(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 beside a shortcut; the stride is in the 3x3, as everybody trains it."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.path = nn.Sequential(
            ConvNorm(inputs, width),
            ConvNorm(width, width, 3, stride),
            ConvNorm(width, outputs, act=None, gain=BRANCH_GAIN),
        )
        self.shortcut = _shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, 4 width, h/stride, w/stride)."""
        return torch.relu(self.path(x) + self.shortcut(x))


class GroupedBottleneck(nn.Module):
    """RegNetY's block: 1x1, grouped 3x3, squeeze-excite, 1x1."""

    def __init__(self, inputs: int, width: int, stride: int, *, group: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            ConvNorm(inputs, width),
            ConvNorm(width, width, 3, stride, groups=width // group),
            SqueezeExcite(width, round(inputs / 4)),
            ConvNorm(width, width, act=None, gain=BRANCH_GAIN),
        )
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, width, h/stride, w/stride)."""
        return torch.relu(self.path(x) + self.shortcut(x))


class FaceBlock(nn.Module):
    """iResNet's block: BatchNorm first, PRelu in the middle, nothing behind the sum."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(inputs),
            ConvNorm(inputs, width, 3, act=None),
            nn.PReLU(width),
            ConvNorm(width, width, 3, stride, act=None, gain=BRANCH_GAIN),
        )
        self.shortcut = _shortcut(inputs, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, width, h/stride, w/stride)."""
        return self.path(x) + self.shortcut(x)


class DenseLayer(nn.Module):
    """BatchNorm-Relu-1x1, BatchNorm-Relu-3x3; the result is put behind what came in."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(inputs),
            nn.ReLU(),
            ConvNorm(inputs, 4 * growth),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, inputs + growth, h, w)."""
        return torch.cat([x, self.path(x)], 1)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7, LayerNorm, two matrix products over channels, a scale, a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        path = self.scale * self.feed(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + path.permute(0, 3, 1, 2)


def resnet18() -> nn.Module:
    """ResNet-18 for 1,000 classes."""
    return _resnet(BasicBlock, (2, 2, 2, 2))


def resnet34() -> nn.Module:
    """ResNet-34 for 1,000 classes."""
    return _resnet(BasicBlock, (3, 4, 6, 3))


def resnet50() -> nn.Module:
    """ResNet-50 for 1,000 classes."""
    return _resnet(Bottleneck, (3, 4, 6, 3))


def _regnety(depths: dict[int, int], group: int) -> nn.Module:
    stages: list[nn.Module] = [ConvNorm(3, 32, 3, 2)]
    inputs = 32
    for width, depth in depths.items():
        for index in range(depth):
            stages.append(GroupedBottleneck(inputs, width, 2 if index == 0 else 1, group=group))
            inputs = width
    return ImageClassifier(nn.Sequential(*stages), inputs)


def regnety_008() -> nn.Module:
    """RegNetY-800MF: depths and widths of the paper's table, groups of 16 channels."""
    return _regnety({64: 1, 128: 3, 320: 8, 768: 2}, 16)


def regnety_016() -> nn.Module:
    """RegNetY-1.6GF: depths and widths of the paper's table, groups of 24 channels."""
    return _regnety({48: 2, 120: 6, 336: 17, 888: 2}, 24)


def iresnet50() -> nn.Module:
    """The face recognizer of ArcFace: an embedding of 512 values of a 112x112 image."""
    stages: list[nn.Module] = [ConvNorm(3, 64, 3, act=None), nn.PReLU(64)]
    inputs = 64
    for width, depth in ((64, 3), (128, 4), (256, 14), (512, 3)):
        for index in range(depth):
            stages.append(FaceBlock(inputs, width, 2 if index == 0 else 1))
            inputs = width
    return nn.Sequential(
        *stages,
        nn.BatchNorm2d(512),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 512),
        nn.BatchNorm1d(512),
    )


def densenet121() -> nn.Module:
    """DenseNet-121 for 1,000 classes."""
    width, growth = 64, 32
    stages: list[nn.Module] = [ConvNorm(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    for depth in (6, 12, 24, 16):
        for _ in range(depth):
            stages.append(DenseLayer(width, growth))
            width += growth
        stages += [nn.BatchNorm2d(width), nn.ReLU()]
        if depth != 16:
            stages += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    return ImageClassifier(nn.Sequential(*stages), width)


def convnext_tiny() -> nn.Module:
    """ConvNeXt-T for 1,000 classes."""
    widths = (96, 192, 384, 768)
    stages: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)]
    for number, (width, depth) in enumerate(zip(widths, (3, 3, 9, 3), strict=True)):
        if number:
            stages += [ChannelNorm(widths[number - 1]), nn.Conv2d(widths[number - 1], width, 2, 2)]
        stages += [ConvNextBlock(width) for _ in range(depth)]
    stages += [nn.AdaptiveAvgPool2d(1), ChannelNorm(768)]
    return ImageClassifier(nn.Sequential(*stages), 768)


def _resnet(block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, ...]) -> nn.Module:
    stages: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for index in range(depth):
            stages.append(block(inputs, width, 2 if stage and index == 0 else 1))
            inputs = width * block.expansion
    return ImageClassifier(nn.Sequential(*stages), inputs)


def _shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return ConvNorm(inputs, outputs, 1, stride, act=None)
