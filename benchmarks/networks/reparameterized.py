"""Networks whose parallel branches were folded into one convolution after training.

RepVGG and MobileOne are run in this form only; the branches they are trained with are not built.
"""

from __future__ import annotations

from networks.layers import ImageClassifier
from torch import nn


def _conv_relu(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1
) -> nn.Module:
    convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups)
    return nn.Sequential(convolution, nn.ReLU())


def repvgg_a0() -> nn.Module:
    """RepVGG-A0 for 1,000 classes: convolutions of 3x3 and ReLU, nothing else."""
    layers = [_conv_relu(3, 48, 3, 2)]
    inputs = 48
    for width, depth in ((48, 2), (96, 4), (192, 14), (1280, 1)):
        for index in range(depth):
            layers.append(_conv_relu(inputs, width, 3, 1 if index else 2))
            inputs = width
    return ImageClassifier(nn.Sequential(*layers), inputs)


def mobileone_s1() -> nn.Module:
    """MobileOne-S1 for 1,000 classes: depthwise 3x3 and pointwise in turn."""
    layers = [_conv_relu(3, 64, 3, 2)]
    inputs = 64
    for width, depth in ((96, 2), (192, 8), (512, 10), (1280, 1)):
        for index in range(depth):
            layers.append(_conv_relu(inputs, inputs, 3, 1 if index else 2, inputs))
            layers.append(_conv_relu(inputs, width, 1))
            inputs = width
    return ImageClassifier(nn.Sequential(*layers), inputs)
