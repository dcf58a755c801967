"""Attention over images: ViT, Swin, MobileViT."""

from __future__ import annotations

import torch
from networks.layers import ConvNorm, EncoderLayer, SelfAttention
from networks.mobile import InvertedResidual
from torch import Tensor, nn
from torch.nn import functional


class VisionTransformer(nn.Module):
    """Patches of 16x16, a class token, learned positions, layers, the class token's scores."""

    def __init__(self, width: int = 384, depth: int = 12, heads: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 197, width))
        self.layers = nn.Sequential(
            *(
                EncoderLayer(width, SelfAttention(width, heads), 4 * width, eps=1e-6)
                for _ in range(depth)
            )
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, 224, 224) to (n, 1000)."""
        patches = self.patches(image).flatten(2).transpose(1, 2)
        token = self.token.expand(len(image), -1, -1)
        x = self.layers(torch.cat([token, patches], 1) + self.positions)
        return self.head(self.norm(x)[:, 0])


class WindowAttention(nn.Module):
    """Attention inside windows of 7x7, with a bias for each relative position, perhaps shifted."""

    def __init__(self, width: int, heads: int, side: int, *, shift: int) -> None:
        super().__init__()
        self.heads, self.shift = heads, shift
        self.joint = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.relative = nn.Parameter(torch.zeros(13 * 13, heads))
        place = torch.stack(torch.meshgrid(torch.arange(7), torch.arange(7), indexing="ij"))
        apart = place.flatten(1)[:, :, None] - place.flatten(1)[:, None, :] + 6
        self.register_buffer("index", (13 * apart[0] + apart[1]).flatten())
        self.register_buffer("mask", _shifted_mask(side, shift) if shift else None)

    def forward(self, x: Tensor) -> Tensor:
        """(n, side, side, width) to the same."""
        n, side, _, width = x.shape
        count = side // 7
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        windows = x.reshape(n, count, 7, count, 7, width).transpose(2, 3)
        x = self._attend(windows.reshape(n * count**2, 49, width))
        x = x.reshape(n, count, count, 7, 7, width).transpose(2, 3).reshape(n, side, side, width)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x

    def _attend(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        joint = self.joint(x).reshape(n, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4).unbind(0)
        scores = (query * (width // self.heads) ** -0.5) @ key.transpose(-2, -1)
        bias = self.relative[self.index].reshape(length, length, self.heads)
        scores = scores + bias.permute(2, 0, 1).unsqueeze(0)
        if self.mask is not None:
            count = len(self.mask)
            grouped = scores.reshape(n // count, count, self.heads, length, length)
            scores = (grouped + self.mask[:, None]).reshape(n, self.heads, length, length)
        mixed = functional.softmax(scores, -1) @ value
        return self.out(mixed.transpose(1, 2).reshape(n, length, width))


class PatchMerging(nn.Module):
    """Four neighbours side by side, LayerNorm, half of the channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduce = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(n, side, side, width) to (n, side/2, side/2, 2 width)."""
        corners = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.reduce(self.norm(torch.cat(corners, -1)))


class SwinTransformer(nn.Module):
    """Swin-T: windows of 7x7, every other layer shifted by 3."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.norm_in = nn.LayerNorm(width)
        layers: list[nn.Module] = []
        side = 56
        for stage, depth in enumerate((2, 2, 6, 2)):
            if stage:
                layers.append(PatchMerging(width))
                width, side = 2 * width, side // 2
            for index in range(depth):
                shift = 3 if index % 2 and side > 7 else 0
                window = WindowAttention(width, width // 32, side, shift=shift)
                layers.append(EncoderLayer(width, window, 4 * width))
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, 224, 224) to (n, 1000)."""
        x = self.layers(self.norm_in(self.patches(image).permute(0, 2, 3, 1)))
        return self.head(self.norm(x).mean((1, 2)))


class MobileVitBlock(nn.Module):
    """Convolutions, attention among pixels of equal place in patches of 2x2, convolutions."""

    def __init__(self, channels: int, width: int, depth: int) -> None:
        super().__init__()
        self.enter = nn.Sequential(
            ConvNorm(channels, channels, 3, act=nn.SiLU),
            nn.Conv2d(channels, width, 1, bias=False),
        )
        self.layers = nn.Sequential(
            *(
                EncoderLayer(width, SelfAttention(width, 4), 2 * width, act=nn.SiLU)
                for _ in range(depth)
            ),
            nn.LayerNorm(width),
        )
        self.leave = ConvNorm(width, channels, act=nn.SiLU)
        self.join = ConvNorm(2 * channels, channels, 3, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        """(n, channels, h, w) to the same."""
        inside = self.enter(x)
        n, width, height, length = inside.shape
        rows, columns = height // 2, length // 2
        patches = inside.reshape(n * width * rows, 2, columns, 2).transpose(1, 2)
        patches = patches.reshape(n, width, rows * columns, 4).transpose(1, 3)
        mixed = self.layers(patches.reshape(n * 4, rows * columns, width))
        mixed = mixed.reshape(n, 4, rows * columns, width).transpose(1, 3)
        mixed = mixed.reshape(n * width * rows, columns, 2, 2).transpose(1, 2)
        outside = self.leave(mixed.reshape(n, width, height, length))
        return self.join(torch.cat([x, outside], 1))


class MobileVit(nn.Module):
    """MobileViT-S: inverted residuals, three attention blocks, 1,000 classes."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvNorm(3, 16, 3, 2, act=nn.SiLU),
            _wide(16, 32),
            *(_wide(32, 64, 2), _wide(64, 64), _wide(64, 64)),
            *(_wide(64, 96, 2), MobileVitBlock(96, 144, 2)),
            *(_wide(96, 128, 2), MobileVitBlock(128, 192, 4)),
            *(_wide(128, 160, 2), MobileVitBlock(160, 240, 3)),
            ConvNorm(160, 640, act=nn.SiLU),
        )
        self.head = nn.Linear(640, 1000)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, 256, 256) to (n, 1000)."""
        return self.head(self.features(image).mean((2, 3)))


def vit_small() -> nn.Module:
    """ViT-S/16 for 1,000 classes."""
    return VisionTransformer()


def swin_tiny() -> nn.Module:
    """Swin-T for 1,000 classes."""
    return SwinTransformer()


def mobilevit_s() -> nn.Module:
    """MobileViT-S for 1,000 classes."""
    return MobileVit()


def _wide(inputs: int, outputs: int, stride: int = 1) -> InvertedResidual:
    return InvertedResidual(inputs, 4 * inputs, outputs, stride=stride, act=nn.SiLU)


def _shifted_mask(side: int, shift: int) -> Tensor:
    """Return what is added where pixels of a shifted window are no neighbours: (windows, 49, 49).

    Source: Z. Liu et al., "Swin transformer", 2021, section 3.2.
    """
    region = torch.zeros(side, dtype=torch.int64)
    region[side - 7 : side - shift] = 1
    region[side - shift :] = 2
    regions = 3 * region[:, None] + region[None, :]
    windows = regions.reshape(side // 7, 7, side // 7, 7).transpose(1, 2).reshape(-1, 49)
    return (windows[:, :, None] != windows[:, None, :]).to(torch.float32) * -100.0
