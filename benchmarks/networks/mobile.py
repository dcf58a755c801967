"""Networks for phones: MobileNetV2, V3-Large and V4-S, EfficientNet-B0 and V2-S, GhostNet."""

from __future__ import annotations

import math

import torch
from networks.layers import (
    BRANCH_GAIN,
    Activation,
    ConvNorm,
    ImageClassifier,
    SqueezeExcite,
    rounded_channels,
)
from torch import Tensor, nn


class InvertedResidual(nn.Module):
    """1x1 to more channels, depthwise, squeeze-excite, 1x1 to fewer; a shortcut where it fits."""

    def __init__(
        self,
        inputs: int,
        wide: int,
        outputs: int,
        *,
        kernel: int = 3,
        stride: int = 1,
        act: Activation = nn.ReLU6,
        excite: nn.Module | None = None,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if wide != inputs:
            layers.append(ConvNorm(inputs, wide, act=act, eps=eps))
        layers.append(ConvNorm(wide, wide, kernel, stride, groups=wide, act=act, eps=eps))
        if excite is not None:
            layers.append(excite)
        self.has_shortcut = stride == 1 and inputs == outputs
        gain = BRANCH_GAIN if self.has_shortcut else 1.0
        layers.append(ConvNorm(wide, outputs, act=None, eps=eps, gain=gain))
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h/stride, w/stride)."""
        return x + self.path(x) if self.has_shortcut else self.path(x)


class GhostConv(nn.Module):
    """Half of the channels by a 1x1 convolution, the other half by a cheap one of those."""

    def __init__(self, inputs: int, outputs: int, *, act: Activation | None) -> None:
        super().__init__()
        half = math.ceil(outputs / 2)
        self.primary = ConvNorm(inputs, half, act=act)
        self.cheap = ConvNorm(half, half, 3, groups=half, act=act)
        self.outputs = outputs

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h, w)."""
        primary = self.primary(x)
        return torch.cat([primary, self.cheap(primary)], 1)[:, : self.outputs]


class GhostBlock(nn.Module):
    """Two ghost convolutions around an optional depthwise and squeeze-excite."""

    def __init__(
        self, inputs: int, wide: int, outputs: int, kernel: int, stride: int, *, excite: bool
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [GhostConv(inputs, wide, act=nn.ReLU)]
        if stride > 1:
            layers.append(ConvNorm(wide, wide, kernel, stride, groups=wide, act=None))
        if excite:
            layers.append(SqueezeExcite(wide, rounded_channels(wide / 4, 4), gate=nn.Hardsigmoid))
        layers.append(GhostConv(wide, outputs, act=None))
        self.path = nn.Sequential(*layers)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                ConvNorm(inputs, inputs, kernel, stride, groups=inputs, act=None),
                ConvNorm(inputs, outputs, act=None),
            )

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h/stride, w/stride)."""
        return self.path(x) + self.shortcut(x)


class WideHead(nn.Module):
    """Mean over the image, a wide layer, the classes."""

    def __init__(self, features: nn.Module, inputs: int, wide: int, *, act: Activation) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.wide = nn.Sequential(nn.Linear(inputs, wide), act())
        self.head = nn.Linear(wide, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, 1000)."""
        return self.head(self.wide(self.pool(self.features(image)).flatten(1)))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 for 1,000 classes."""
    return _mobilenet_v2(1.0)


def mobilenet_v2_140() -> nn.Module:
    """MobileNetV2 of width 1.4 for 1,000 classes."""
    return _mobilenet_v2(1.4)


def _mobilenet_v2(width: float) -> nn.Module:
    inputs = rounded_channels(32 * width)
    layers: list[nn.Module] = [ConvNorm(3, inputs, 3, 2, act=nn.ReLU6)]
    for factor, channels, depth, stride in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        outputs = rounded_channels(channels * width)
        for index in range(depth):
            step = 1 if index else stride
            layers.append(InvertedResidual(inputs, factor * inputs, outputs, stride=step))
            inputs = outputs
    features = rounded_channels(1280 * max(1.0, width))
    layers.append(ConvNorm(inputs, features, act=nn.ReLU6))
    return ImageClassifier(nn.Sequential(*layers), features)


def mobilenet_v3_large() -> nn.Module:
    """MobileNetV3-Large for 1,000 classes: Relu in the first blocks, then HardSwish."""
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2, act=nn.Hardswish, eps=1e-3)]
    inputs = 16
    for kernel, wide, outputs, excites, act, stride in (
        (3, 16, 16, False, nn.ReLU, 1),
        (3, 64, 24, False, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 1),
        (5, 72, 40, True, nn.ReLU, 2),
        (5, 120, 40, True, nn.ReLU, 1),
        (5, 120, 40, True, nn.ReLU, 1),
        (3, 240, 80, False, nn.Hardswish, 2),
        (3, 200, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1),
        (3, 184, 80, False, nn.Hardswish, 1),
        (3, 480, 112, True, nn.Hardswish, 1),
        (3, 672, 112, True, nn.Hardswish, 1),
        (5, 672, 160, True, nn.Hardswish, 2),
        (5, 960, 160, True, nn.Hardswish, 1),
        (5, 960, 160, True, nn.Hardswish, 1),
    ):
        squeezed = rounded_channels(wide / 4)
        excite = SqueezeExcite(wide, squeezed, gate=nn.Hardsigmoid) if excites else None
        layers.append(
            InvertedResidual(
                inputs,
                wide,
                outputs,
                kernel=kernel,
                stride=stride,
                act=act,
                excite=excite,
                eps=1e-3,
            )
        )
        inputs = outputs
    layers.append(ConvNorm(160, 960, act=nn.Hardswish, eps=1e-3))
    return WideHead(nn.Sequential(*layers), 960, 1280, act=nn.Hardswish)


class UniversalBottleneck(nn.Module):
    """MobileNetV4's block: depthwise where there is a kernel size, 1x1, depthwise, 1x1.

    Args:
        inputs: Channels.
        outputs: Channels.
        factor: Channels between the 1x1 convolutions, as a multiple of `inputs`.
        first: Kernel size of the depthwise convolution in front, 0 for none.
        middle: Of the one between, 0 for none.
        stride: Of the last depthwise convolution.
    """

    def __init__(
        self, inputs: int, outputs: int, factor: int, first: int, middle: int, stride: int
    ) -> None:
        super().__init__()
        wide = factor * inputs
        layers: list[nn.Module] = []
        if first:
            step = 1 if middle else stride
            layers.append(ConvNorm(inputs, inputs, first, step, groups=inputs, act=None))
        layers.append(ConvNorm(inputs, wide))
        if middle:
            layers.append(ConvNorm(wide, wide, middle, stride, groups=wide))
        self.has_shortcut = stride == 1 and inputs == outputs
        gain = BRANCH_GAIN if self.has_shortcut else 1.0
        layers.append(ConvNorm(wide, outputs, act=None, gain=gain))
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h/stride, w/stride)."""
        return x + self.path(x) if self.has_shortcut else self.path(x)


def mobilenet_v4_conv_small() -> nn.Module:
    """MobileNetV4-Conv-S for 1,000 classes: the rows of the paper's table of this network."""
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2), ConvNorm(32, 32, 3, 2), ConvNorm(32, 32)]
    layers += [ConvNorm(32, 96, 3, 2), ConvNorm(96, 64)]
    inputs = 64
    for first, middle, stride, factor, outputs, depth in (
        *((5, 5, 2, 3, 96, 1), (0, 3, 1, 2, 96, 4), (3, 0, 1, 4, 96, 1)),
        *((3, 3, 2, 6, 128, 1), (5, 5, 1, 4, 128, 1), (0, 5, 1, 4, 128, 1)),
        *((0, 5, 1, 3, 128, 1), (0, 3, 1, 4, 128, 2)),
    ):
        for _ in range(depth):
            layers.append(UniversalBottleneck(inputs, outputs, factor, first, middle, stride))
            inputs = outputs
    layers.append(ConvNorm(128, 960))
    return ImageClassifierWithWideHead(nn.Sequential(*layers))


class ImageClassifierWithWideHead(nn.Module):
    """MobileNetV4's head: mean, a 1x1 convolution with normalization, the classes."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.wide = ConvNorm(960, 1280)
        self.head = nn.Linear(1280, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, 1000)."""
        return self.head(self.wide(self.pool(self.features(image))).flatten(1))


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0 for 1,000 classes: SiLU and squeeze-excite everywhere."""
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=nn.SiLU)]
    inputs = 32
    for factor, kernel, stride, outputs, depth in (
        *((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3)),
        *((6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)),
    ):
        for index in range(depth):
            wide = factor * inputs
            layers.append(
                InvertedResidual(
                    inputs,
                    wide,
                    outputs,
                    kernel=kernel,
                    stride=1 if index else stride,
                    act=nn.SiLU,
                    excite=SqueezeExcite(wide, inputs // 4, act=nn.SiLU),
                )
            )
            inputs = outputs
    layers.append(ConvNorm(320, 1280, act=nn.SiLU))
    return ImageClassifier(nn.Sequential(*layers), 1280)


def ghostnet() -> nn.Module:
    """GhostNet 1.0 for 1,000 classes."""
    layers: list[nn.Module] = [ConvNorm(3, 16, 3, 2)]
    inputs = 16
    for kernel, wide, outputs, excites, stride in (
        *((3, 16, 16, 0, 1), (3, 48, 24, 0, 2), (3, 72, 24, 0, 1), (5, 72, 40, 1, 2)),
        *((5, 120, 40, 1, 1), (3, 240, 80, 0, 2), (3, 200, 80, 0, 1), (3, 184, 80, 0, 1)),
        *((3, 184, 80, 0, 1), (3, 480, 112, 1, 1), (3, 672, 112, 1, 1), (5, 672, 160, 1, 2)),
        *((5, 960, 160, 0, 1), (5, 960, 160, 1, 1), (5, 960, 160, 0, 1), (5, 960, 160, 1, 1)),
    ):
        layers.append(GhostBlock(inputs, wide, outputs, kernel, stride, excite=bool(excites)))
        inputs = outputs
    layers.append(ConvNorm(160, 960))
    return WideHeadByConvolution(nn.Sequential(*layers))


class WideHeadByConvolution(nn.Module):
    """GhostNet's head: the wide layer is a 1x1 convolution of the mean."""

    def __init__(self, features: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.wide = nn.Sequential(nn.Conv2d(960, 1280, 1), nn.ReLU())
        self.head = nn.Linear(1280, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, 1000)."""
        return self.head(self.wide(self.pool(self.features(image))).flatten(1))


class FusedInvertedResidual(nn.Module):
    """EfficientNetV2's early block: one 3x3 to more channels in place of 1x1 and depthwise."""

    def __init__(self, inputs: int, factor: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.has_shortcut = stride == 1 and inputs == outputs
        wide, gain = factor * inputs, BRANCH_GAIN if self.has_shortcut else 1.0
        if factor == 1:
            layers = [ConvNorm(inputs, outputs, 3, stride, act=nn.SiLU, eps=1e-3, gain=gain)]
        else:
            layers = [
                ConvNorm(inputs, wide, 3, stride, act=nn.SiLU, eps=1e-3),
                ConvNorm(wide, outputs, act=None, eps=1e-3, gain=gain),
            ]
        self.path = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h/stride, w/stride)."""
        return x + self.path(x) if self.has_shortcut else self.path(x)


def efficientnet_v2_s() -> nn.Module:
    """EfficientNetV2-S for 1,000 classes."""
    layers: list[nn.Module] = [ConvNorm(3, 24, 3, 2, act=nn.SiLU, eps=1e-3)]
    inputs = 24
    for factor, outputs, depth, stride in ((1, 24, 2, 1), (4, 48, 4, 2), (4, 64, 4, 2)):
        for index in range(depth):
            layers.append(FusedInvertedResidual(inputs, factor, outputs, 1 if index else stride))
            inputs = outputs
    for factor, outputs, depth, stride in ((4, 128, 6, 2), (6, 160, 9, 1), (6, 256, 15, 2)):
        for index in range(depth):
            wide = factor * inputs
            layers.append(
                InvertedResidual(
                    inputs,
                    wide,
                    outputs,
                    stride=1 if index else stride,
                    act=nn.SiLU,
                    excite=SqueezeExcite(wide, inputs // 4, act=nn.SiLU),
                    eps=1e-3,
                )
            )
            inputs = outputs
    layers.append(ConvNorm(inputs, 1280, act=nn.SiLU, eps=1e-3))
    return ImageClassifier(nn.Sequential(*layers), 1280)
