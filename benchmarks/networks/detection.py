"""Object detection: YOLO with cross-stage-partial blocks, with SiLU and with Mish."""

from __future__ import annotations

import torch
from networks.layers import Activation, ConvNorm
from torch import Tensor, nn

_ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
_STRIDES = (8, 16, 32)
_CLASSES = 80


class DarknetBlock(nn.Module):
    """1x1 and 3x3, beside a shortcut where asked for."""

    def __init__(self, width: int, act: Activation, *, has_shortcut: bool) -> None:
        super().__init__()
        self.path = nn.Sequential(_conv(width, width, act=act), _conv(width, width, 3, act=act))
        self.has_shortcut = has_shortcut

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        return x + self.path(x) if self.has_shortcut else self.path(x)


class CrossStage(nn.Module):
    """Half of the channels go through blocks, half past them; a 1x1 joins them (YOLOv5's C3)."""

    def __init__(
        self, inputs: int, outputs: int, depth: int, act: Activation, *, has_shortcut: bool = True
    ) -> None:
        super().__init__()
        half = outputs // 2
        self.through = nn.Sequential(
            _conv(inputs, half, act=act),
            *(DarknetBlock(half, act, has_shortcut=has_shortcut) for _ in range(depth)),
        )
        self.past = _conv(inputs, half, act=act)
        self.join = _conv(outputs, outputs, act=act)

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, outputs, h, w)."""
        return self.join(torch.cat([self.through(x), self.past(x)], 1))


class PooledPyramid(nn.Module):
    """Maxima over growing windows, one after the other (YOLOv5's SPPF)."""

    def __init__(self, width: int, act: Activation) -> None:
        super().__init__()
        self.reduce = _conv(width, width // 2, act=act)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.join = _conv(2 * width, width, act=act)

    def forward(self, x: Tensor) -> Tensor:
        """(n, width, h, w) to the same."""
        maps = [self.reduce(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.join(torch.cat(maps, 1))


class BoxHead(nn.Module):
    """One scale of the head: boxes and scores of every anchor in every cell, decoded."""

    def __init__(self, inputs: int, scale: int) -> None:
        super().__init__()
        self.predict = nn.Conv2d(inputs, 3 * (_CLASSES + 5), 1)
        self.stride = _STRIDES[scale]
        anchors = torch.tensor(_ANCHORS[scale], dtype=torch.float32)
        self.register_buffer("anchors", anchors.reshape(1, 3, 1, 1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """(n, inputs, h, w) to (n, 3 h w, 85): centre, size, objectness, classes."""
        n, _, height, width = x.shape
        raw = self.predict(x).reshape(n, 3, _CLASSES + 5, height, width)
        scores = raw.permute(0, 1, 3, 4, 2).sigmoid()
        rows, columns = torch.arange(height), torch.arange(width)
        grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), -1).to(x.dtype) - 0.5
        centre = (scores[..., :2] * 2 + grid) * self.stride
        size = (scores[..., 2:4] * 2) ** 2 * self.anchors
        return torch.cat([centre, size, scores[..., 4:]], -1).reshape(n, -1, _CLASSES + 5)


class Yolo(nn.Module):
    """YOLOv5s: backbone, path aggregation, three scales; any activation."""

    def __init__(self, act: Activation) -> None:
        super().__init__()
        self.stage3 = nn.Sequential(
            ConvNorm6x6(act),
            _conv(32, 64, 3, 2, act=act),
            CrossStage(64, 64, 1, act),
            _conv(64, 128, 3, 2, act=act),
            CrossStage(128, 128, 2, act),
        )
        self.stage4 = nn.Sequential(_conv(128, 256, 3, 2, act=act), CrossStage(256, 256, 3, act))
        self.stage5 = nn.Sequential(
            _conv(256, 512, 3, 2, act=act), CrossStage(512, 512, 1, act), PooledPyramid(512, act)
        )
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.lateral5 = _conv(512, 256, act=act)
        self.merge4 = CrossStage(512, 256, 1, act, has_shortcut=False)
        self.lateral4 = _conv(256, 128, act=act)
        self.merge3 = CrossStage(256, 128, 1, act, has_shortcut=False)
        self.down3 = _conv(128, 128, 3, 2, act=act)
        self.out4 = CrossStage(256, 256, 1, act, has_shortcut=False)
        self.down4 = _conv(256, 256, 3, 2, act=act)
        self.out5 = CrossStage(512, 512, 1, act, has_shortcut=False)
        self.heads = nn.ModuleList(BoxHead(128 << scale, scale) for scale in range(3))

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, boxes, 85)."""
        map3 = self.stage3(image)
        map4 = self.stage4(map3)
        top5 = self.lateral5(self.stage5(map4))
        top4 = self.lateral4(self.merge4(torch.cat([self.up(top5), map4], 1)))
        out3 = self.merge3(torch.cat([self.up(top4), map3], 1))
        out4 = self.out4(torch.cat([self.down3(out3), top4], 1))
        out5 = self.out5(torch.cat([self.down4(out4), top5], 1))
        scales = zip(self.heads, (out3, out4, out5), strict=True)
        return torch.cat([head(features) for head, features in scales], 1)


class ConvNorm6x6(nn.Sequential):
    """The stem: 6x6 with stride 2 and padding 2."""

    def __init__(self, act: Activation) -> None:
        norm = nn.BatchNorm2d(32, eps=1e-3)
        super().__init__(nn.Conv2d(3, 32, 6, 2, 2, bias=False), norm, act())


def yolo_silu() -> nn.Module:
    """YOLOv5s as published."""
    return Yolo(nn.SiLU)


def yolo_mish() -> nn.Module:
    """The same layers with Mish, the activation of YOLOv4."""
    return Yolo(nn.Mish)


def _conv(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, *, act: Activation
) -> ConvNorm:
    return ConvNorm(inputs, outputs, kernel, stride, act=act, eps=1e-3)
