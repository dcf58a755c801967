"""Layers that networks of several kinds share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

BRANCH_GAIN = 0.3
"""Of the last normalization of a branch beside a shortcut, for `draw_weights`: training makes it
small. With 1, random layers enlarge differences, and rounding errors of ResNet-50 were twelve
times as large (1.6e-5 against 1.3e-6 of the largest score)."""

Activation = Callable[[], nn.Module]


def rounded_channels(value: float, divisor: int = 8) -> int:
    """Return the nearest multiple of `divisor`, never more than a tenth below `value`.

    Source: `_make_divisible` of the MobileNet papers' reference code.
    """
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * value else rounded


class ConvNorm(nn.Sequential):
    """Convolution without bias, BatchNorm and, where given, an activation; keeps the size."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        act: Activation | None = nn.ReLU,
        eps: float = 1e-5,
        gain: float = 1.0,
    ) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
            nn.BatchNorm2d(outputs, eps=eps),
            *([act()] if act is not None else []),
        )
        self[1].gain = gain


class SqueezeExcite(nn.Module):
    """Scales channels by a gate computed from their means.

    Source: J. Hu et al., "Squeeze-and-excitation networks", 2018.
    """

    def __init__(
        self,
        channels: int,
        squeezed: int,
        *,
        act: Activation = nn.ReLU,
        gate: Activation = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, squeezed, 1)
        self.act = act()
        self.expand = nn.Conv2d(squeezed, channels, 1)
        self.gate = gate()

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same."""
        means = x.mean((2, 3), keepdim=True)
        return x * self.gate(self.expand(self.act(self.reduce(means))))


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself, one product for queries, keys and values."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        n, length, width = x.shape
        joint = self.joint(x).reshape(n, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        return self.out(mixed.transpose(1, 2).reshape(n, length, width))


class SplitAttention(nn.Module):
    """The same with three products, as language models are written; Whisper's keys have no bias."""

    def __init__(self, width: int, heads: int, *, has_key_bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width, bias=has_key_bias)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, source: Tensor | None = None
    ) -> Tensor:
        """(n, length, width) to the same.

        Args:
            x: What asks.
            mask: Added to the scores.
            source: (n, other length, width), what is attended to; `x` by default.
        """
        n, length, width = x.shape
        given = x if source is None else source
        projections = (self.query(x), self.key(given), self.value(given))
        heads = [p.reshape(n, p.shape[1], self.heads, -1).transpose(1, 2) for p in projections]
        mixed = functional.scaled_dot_product_attention(*heads, mask)
        return self.out(mixed.transpose(1, 2).reshape(n, length, width))


class FeedForward(nn.Sequential):
    """Two matrix products with an activation between."""

    def __init__(self, width: int, hidden: int, act: Activation = nn.GELU) -> None:
        super().__init__(nn.Linear(width, hidden), act(), nn.Linear(hidden, width))


class EncoderLayer(nn.Module):
    """Transformer layer that normalizes in front of attention and of the matrix products."""

    def __init__(
        self,
        width: int,
        attention: nn.Module,
        hidden: int,
        *,
        act: Activation = nn.GELU,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attention = attention
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.feed = FeedForward(width, hidden, act)

    def forward(self, x: Tensor) -> Tensor:
        """(n, length, width) to the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.feed(self.norm2(x))


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image, written with the two transposes exporters keep."""

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same."""
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ImageClassifier(nn.Module):
    """Features, mean over the image, one matrix product."""

    def __init__(self, features: nn.Module, channels: int, classes: int = 1000) -> None:
        super().__init__()
        self.features = features
        self.head = nn.Linear(channels, classes)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, classes)."""
        return self.head(
            torch.flatten(nn.functional.adaptive_avg_pool2d(self.features(image), 1), 1)
        )
