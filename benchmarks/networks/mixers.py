"""Image networks that mix places without attention: ConvMixer, MLP-Mixer, PoolFormer."""

from __future__ import annotations

from networks.layers import BRANCH_GAIN, FeedForward, ImageClassifier
from torch import Tensor, nn


class ConvMixerLayer(nn.Module):
    """Depthwise convolution beside a shortcut, then a pointwise one; GELU before each BatchNorm."""

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.depthwise = nn.Sequential(
            nn.Conv2d(width, width, kernel, groups=width, padding="same"),
            nn.GELU(),
            nn.BatchNorm2d(width),
        )
        self.depthwise[2].gain = BRANCH_GAIN
        self.pointwise = nn.Sequential(nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        return self.pointwise(x + self.depthwise(x))


class MixerLayer(nn.Module):
    """Matrix products over the patches of each channel, then over the channels of each patch."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.places = FeedForward(patches, width // 2)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.channels = FeedForward(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, patches, width) to the same."""
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm2(x))


class MlpMixer(nn.Module):
    """Patches of 16x16, mixer layers, the mean over the patches."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.layers = nn.Sequential(*(MixerLayer(196, width) for _ in range(depth)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, 224, 224) to (n, 1000)."""
        x = self.layers(self.patches(image).flatten(2).transpose(1, 2))
        return self.head(self.norm(x).mean(1))


class ScaledBranch(nn.Module):
    """GroupNorm of one group, an operation, a scale of each channel, beside a shortcut."""

    def __init__(self, width: int, operation: nn.Module) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(1, width)
        self.operation = operation
        self.scale = nn.Conv2d(width, width, 1, groups=width, bias=False)
        self.scale.gain = BRANCH_GAIN

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        return x + self.operation(self.norm(x)) * self.scale.weight.reshape(1, -1, 1, 1)


class PoolingMinusIdentity(nn.Module):
    """What the mean of 3x3 adds to each pixel; PoolFormer's stand-in for attention."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        return self.pool(x) - x


def _pool_former_block(width: int) -> nn.Module:
    feed = nn.Sequential(nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1))
    return nn.Sequential(ScaledBranch(width, PoolingMinusIdentity()), ScaledBranch(width, feed))


def convmixer_1024() -> nn.Module:
    """ConvMixer-1024/20: depthwise 9x9 on patches of 14x14, 1,000 classes."""
    width = 1024
    layers = [nn.Conv2d(3, width, 14, 14), nn.GELU(), nn.BatchNorm2d(width)]
    layers += [ConvMixerLayer(width, 9) for _ in range(20)]
    return ImageClassifier(nn.Sequential(*layers), width)


def mixer_small() -> nn.Module:
    """MLP-Mixer S/16 for 1,000 classes."""
    return MlpMixer(512, 8)


def poolformer_s12() -> nn.Module:
    """PoolFormer-S12 for 1,000 classes."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 4, 2)]
    inputs = 64
    for width, depth in ((64, 2), (128, 2), (320, 6), (512, 2)):
        if width != inputs:
            layers.append(nn.Conv2d(inputs, width, 3, 2, 1))
        layers += [_pool_former_block(width) for _ in range(depth)]
        inputs = width
    layers.append(nn.GroupNorm(1, inputs))
    return ImageClassifier(nn.Sequential(*layers), inputs)
