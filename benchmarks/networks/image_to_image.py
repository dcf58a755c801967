"""Networks whose result is an image: segmentation in 2-D and 3-D, larger pictures."""

from __future__ import annotations

import torch
from networks.layers import ConvNorm
from torch import Tensor, nn
from torch.nn import functional

_CONV = {2: nn.Conv2d, 3: nn.Conv3d}
_UP = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_NORM = {2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}


class UNet(nn.Module):
    """nnU-Net's plain U-Net: two convolutions with InstanceNorm and leaky Relu at every level."""

    def __init__(self, dimensions: int, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            _level(dimensions, widths[max(i - 1, 0)] if i else 1, width, 2 if i else 1)
            for i, width in enumerate(widths)
        )
        pairs = list(zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.up = nn.ModuleList(_UP[dimensions](deep, flat, 2, 2) for flat, deep in pairs)
        self.join = nn.ModuleList(_level(dimensions, 2 * flat, flat, 1) for flat, _ in pairs)
        self.head = _CONV[dimensions](widths[0], classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(n, 1, side, ...) to (n, classes, side, ...)."""
        maps = [image]
        for level in self.down:
            maps.append(level(maps[-1]))
        x = maps.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), maps.pop()], 1))
        return self.head(x)


class DilatedPyramid(nn.Module):
    """DeepLabV3's head on the features of MobileNetV3: dilated convolutions side by side."""

    def __init__(self, inputs: int = 960, width: int = 256, classes: int = 21) -> None:
        super().__init__()
        self.branches = nn.ModuleList([ConvNorm(inputs, width)])
        for rate in (12, 24, 36):
            conv = nn.Conv2d(inputs, width, 3, padding=rate, dilation=rate, bias=False)
            self.branches.append(nn.Sequential(conv, nn.BatchNorm2d(width), nn.ReLU()))
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), ConvNorm(inputs, width))
        self.project = ConvNorm(5 * width, width)
        self.head = nn.Sequential(ConvNorm(width, width, 3), nn.Conv2d(width, classes, 1))

    def forward(self, features: Tensor) -> Tensor:
        """(n, 960, h, w) to (n, classes, 16 h, 16 w)."""
        size = features.shape[-2:]
        pooled = functional.interpolate(self.pooled(features), size=size, mode="nearest")
        maps = [*(branch(features) for branch in self.branches), pooled]
        scores = self.head(self.project(torch.cat(maps, 1)))
        return functional.interpolate(
            scores, size=(16 * size[0], 16 * size[1]), mode="bilinear", align_corners=False
        )


class CompactGenerator(nn.Module):
    """Real-ESRGAN's small generator: 3x3 convolutions with PRelu, then pixels out of channels."""

    def __init__(self, width: int = 64, depth: int = 16, factor: int = 4) -> None:
        super().__init__()
        body: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.PReLU(width)]
        for _ in range(depth):
            body += [nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width)]
        body += [nn.Conv2d(width, 3 * factor**2, 3, padding=1), nn.PixelShuffle(factor)]
        self.body = nn.Sequential(*body)
        self.factor = factor

    def forward(self, image: Tensor) -> Tensor:
        """(n, 3, h, w) to (n, 3, factor h, factor w)."""
        enlarged = functional.interpolate(image, scale_factor=self.factor, mode="nearest")
        return self.body(image) + enlarged


def unet2d() -> nn.Module:
    """A slice of 256x256 in four classes."""
    return UNet(2, (32, 64, 128, 256, 512), 4)


def unet3d() -> nn.Module:
    """A volume of 64x64x64 in four classes."""
    return UNet(3, (16, 32, 64, 128, 256), 4)


def deeplab_head() -> nn.Module:
    """The head of DeepLabV3 on MobileNetV3-L for a picture of about 520x520."""
    return DilatedPyramid()


def espcn() -> nn.Module:
    """Efficient sub-pixel convolution, three times as large, with Relu as in PyTorch's example."""
    sizes = ((1, 64, 5), (64, 64, 3), (64, 32, 3))
    layers: list[nn.Module] = []
    for inputs, outputs, kernel in sizes:
        layers += [nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(32, 9, 3, padding=1), nn.PixelShuffle(3))


def srvgg() -> nn.Module:
    """`realesr-animevideov3`: 16 layers of 64 channels, four times as large."""
    return CompactGenerator()


def _level(dimensions: int, inputs: int, width: int, stride: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for index, channels in enumerate((inputs, width)):
        layers += [
            _CONV[dimensions](channels, width, 3, 1 if index else stride, 1),
            _NORM[dimensions](width, affine=True),
            nn.LeakyReLU(0.01),
        ]
    return nn.Sequential(*layers)
