"""Ways to compute a convolution and its gradients beside PyTorch's own, for images in planes.

Weights change at each step, so what depends on them is part of each call. Extents are arguments of
all ways: a step waits for no compiler.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from aoe.device.toolchain import Toolchain
from aoe.torch.modules.training.loops import Loops

Compute = Callable[..., torch.Tensor]
Extents = tuple[int, int]
_ATEN = torch.ops.aten
_FLAGS = (
    *("-std=gnu11", "-O3", "-march=native", "-fPIC", "-fvisibility=hidden", "-shared", "-s"),
    *("-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,--build-id=none"),
)
_TILE, _TRANSFORMED = 4, 36  # M and E of `kernels/glue/convolutions.c`
_MOST_COLUMNS = 7  # MOST_SIDE there
_MOST_TOGETHER = 16
"""Channels of a group up to which padded lines are offered: 8 already lose to oneDNN's."""
_MOST_UNFOLDED = 1 << 24
"""Elements of an unfolded image up to which products are offered: beyond they are read from
memory, and nine times as many as the image has."""


class Part(StrEnum):
    """What is computed of a convolution."""

    RESULT = "result"
    IMAGE = "image"
    """The gradient of the image."""
    WEIGHTS = "weights"
    """The gradient of the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attributes:
    """What a convolution is beside its tensors."""

    strides: Extents
    pads: Extents
    dilations: Extents
    groups: int

    def result(self, image: Any, weights: Any, bias: Any = None) -> torch.Tensor:
        """Return the result as PyTorch computes it."""
        fixed = (self.strides, self.pads, self.dilations, False, (0, 0), self.groups)
        found: torch.Tensor = _ATEN.convolution(image, weights, bias, *fixed)
        return found

    def gradients(
        self, gradient: Any, image: Any, weights: Any, mask: tuple[bool, bool, bool]
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Return the gradients of image, weights and bias as PyTorch computes them."""
        sizes = [weights.shape[0]] if mask[2] else None
        fixed = (sizes, self.strides, self.pads, self.dilations, False, (0, 0), self.groups)
        image_slope, weight_slope, bias_slope = _ATEN.convolution_backward(
            gradient, image, weights, *fixed, mask
        )
        return image_slope, weight_slope, bias_slope


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """A convolution of given extents, all tensors float32."""

    attributes: Attributes
    image: tuple[int, ...]  # Images, channels, rows, columns
    weights: tuple[int, ...]  # Channels written, channels read of a group, rows, columns
    # True for images whose channels are innermost in memory, of which oneDNN makes gradients of
    # weights that are, too; all tensors lie in the order of their shapes else.
    is_last: bool = False

    @property
    def kernel(self) -> Extents:
        """Rows and columns of a filter."""
        return self.weights[2], self.weights[3]

    @property
    def result(self) -> tuple[int, int, int, int]:
        """Extents of the result."""
        one = self.attributes
        rows, columns = (
            (self.image[2 + at] + 2 * one.pads[at] - one.dilations[at] * (self.kernel[at] - 1) - 1)
            // one.strides[at]
            + 1
            for at in (0, 1)
        )
        return self.image[0], self.weights[0], rows, columns

    @property
    def products(self) -> int:
        """Products that are summed up."""
        return math.prod(self.result) * math.prod(self.weights[1:])

    @property
    def is_dense(self) -> bool:
        """True if neighbours of the image are met by neighbours of a filter."""
        return self.attributes.strides == self.attributes.dilations == (1, 1)

    @property
    def is_pointwise(self) -> bool:
        """True for a product with each pixel."""
        return self.is_dense and self.kernel == (1, 1) and self.attributes.pads == (0, 0)

    def eager(self, part: Part) -> Compute:
        """Return what PyTorch computes a part with.

        It takes image, weights and bias for the result, gradient and weights for that of the image,
        image and gradient for that of the weights.
        """
        if part is Part.RESULT:
            return self.attributes.result
        empty = partial(torch.empty, device="cpu")
        if part is Part.IMAGE:

            def image_slope(gradient: Any, weights: Any) -> Any:
                image = empty(self.image, dtype=gradient.dtype)
                return self.attributes.gradients(gradient, image, weights, (True, False, False))[0]

            return image_slope

        def weight_slope(image: Any, gradient: Any) -> Any:
            weights = empty(self.weights, dtype=image.dtype)
            return self.attributes.gradients(gradient, image, weights, (False, True, False))[1]

        return weight_slope


# ---- products by PyTorch's matrix product ----


def products_of(convolution: Convolution, part: Part, library: Library | None) -> Compute | None:
    """Return a part as one matrix product of an unfolded image; None where that is no use.

    It gains for small images of many channels: oneDNN reorders the weights, of which there is more
    than of the image, before and behind.
    """
    if convolution.is_last or convolution.attributes.groups > 1:
        return None
    unfolded = math.prod((*convolution.kernel, *convolution.result)) // convolution.weights[0]
    if unfolded * convolution.weights[1] > _MOST_UNFOLDED:
        return None
    ways = _POINTWISE if convolution.is_pointwise else _UNFOLDED
    return partial(ways[part], convolution)


def _pointwise(c: Convolution, image: Any, weights: Any, bias: Any = None) -> torch.Tensor:
    made = torch.matmul(weights.view(c.weights[:2]), image.view(*c.image[:2], -1)).view(c.result)
    return made if bias is None else made.add_(bias.view(-1, 1, 1))


def _pointwise_image(c: Convolution, gradient: Any, weights: Any) -> torch.Tensor:
    turned = weights.view(c.weights[:2]).t()
    return torch.matmul(turned, gradient.view(*c.result[:2], -1)).view(c.image)


def _pointwise_weights(c: Convolution, image: Any, gradient: Any) -> torch.Tensor:
    slopes, read = gradient.view(*c.result[:2], -1), image.view(*c.image[:2], -1)
    total = torch.mm(slopes[0], read[0].t())
    for slope, one in zip(slopes[1:], read[1:], strict=True):
        total.addmm_(slope, one.t())
    return total.view(c.weights)


def _unfolded(c: Convolution, image: Any) -> torch.Tensor:
    """Return what each result reads: (channels * filter, images * pixels)."""
    one, (top, left) = c.attributes, c.attributes.pads
    is_padded = top > 0 or left > 0
    padded = torch.nn.functional.pad(image, (left, left, top, top)) if is_padded else image
    n, ch, h, w = padded.stride()
    shape = (c.weights[1], *c.kernel, c.result[0], *c.result[2:])
    (down, across), (further, along) = one.strides, one.dilations
    strides = (ch, h * further, w * along, n, h * down, w * across)
    return padded.as_strided(shape, strides).reshape(math.prod(c.weights[1:]), -1)


def _folded(c: Convolution, image: Any, weights: Any, bias: Any = None) -> torch.Tensor:
    made = torch.mm(weights.view(c.weights[0], -1), _unfolded(c, image))
    if bias is not None:
        made.add_(bias.view(-1, 1))
    images, channels, rows, columns = c.result
    return _images_first(made.view(channels, images, rows, columns))


def _images_first(channels: torch.Tensor) -> torch.Tensor:
    """Return a copy in the order of its shape, of one image too."""
    images = channels.transpose(0, 1)
    return images.new_empty(images.shape).copy_(images)


def _channels_first(gradient: torch.Tensor) -> torch.Tensor:
    return gradient.transpose(0, 1).reshape(gradient.shape[1], -1)


def _folded_image(c: Convolution, gradient: Any, weights: Any) -> torch.Tensor:
    slopes = torch.mm(weights.view(c.weights[0], -1).t(), _channels_first(gradient))
    images, channels, high, wide = c.image
    (down, across), (further, along) = c.attributes.strides, c.attributes.dilations
    top, left = c.attributes.pads
    rows, columns = c.result[2:]
    slopes = slopes.view(channels, *c.kernel, images, rows, columns)
    whole = slopes.new_zeros((channels, images, high + 2 * top, wide + 2 * left))
    for i in range(c.kernel[0]):
        lines = whole[:, :, i * further : i * further + down * (rows - 1) + 1 : down]
        for j in range(c.kernel[1]):
            first = j * along
            lines[..., first : first + across * (columns - 1) + 1 : across] += slopes[:, i, j]
    return _images_first(whole[:, :, top : top + high, left : left + wide])


def _folded_weights(c: Convolution, image: Any, gradient: Any) -> torch.Tensor:
    return torch.mm(_channels_first(gradient), _unfolded(c, image).t()).view(c.weights)


_POINTWISE: Mapping[Part, Compute] = {
    Part.RESULT: _pointwise,
    Part.IMAGE: _pointwise_image,
    Part.WEIGHTS: _pointwise_weights,
}
_UNFOLDED: Mapping[Part, Compute] = {
    Part.RESULT: _folded,
    Part.IMAGE: _folded_image,
    Part.WEIGHTS: _folded_weights,
}


# ---- kernels of `kernels/glue/convolutions.c` ----


_IMAGES = ("images", "read", "written", "high", "wide", "rows", "columns", "top", "left", "group")
_PLANES = ("images", "groups", *_IMAGES[1:9], "down", "across")


class _Images(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _IMAGES]


class _Planes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in _PLANES]


_floats = partial(torch.empty, dtype=torch.float32, device="cpu")
"""What C writes to, whatever the defaults of the script are."""


class _Scratch(threading.local):
    """Memory of a thread that its calls share: fresh pages cost more than what is put there."""

    floats = _floats(0)

    def place(self, count: int) -> int:
        """Return the address of so many floats."""
        if self.floats.numel() < count:
            self.floats = _floats(count)
        return int(self.floats.data_ptr())


@dataclass(frozen=True, slots=True)
class Library:
    """The compiled kernels, and the cache they cut their work for."""

    code: ctypes.CDLL
    l2_bytes: int


_loaded: dict[str, ctypes.CDLL] = {}
"""The kernels by their digest: a process compiles them once, also where nothing is kept."""


@cache
def kernel_sources() -> str:
    """Return the kernels in C."""
    return (resources.files("aoe.kernels") / "glue" / "convolutions.c").read_text()


def load_library(kept: Loops, toolchain: Toolchain, l2_bytes: int) -> Library:
    """Return the kernels, compiled for this machine unless an earlier process has.

    Raises:
        BuildError: the compiler fails.
    """

    def build(file: Path) -> None:
        with resources.as_file(resources.files("aoe.kernels") / "glue") as source:
            toolchain.run(
                [*_FLAGS, "-o", str(file), str(source / "convolutions.c")],
                what="compiling convolutions",
            )

    digest = kept.digest("convolutions", kernel_sources(), *_FLAGS)
    code = _loaded.get(digest) or _loaded.setdefault(digest, kept.library(digest, build))
    for count in (code.aoe_winograd_floats, code.aoe_planes_floats, code.aoe_channels_floats):
        count.restype = ctypes.c_int64
    return Library(code, l2_bytes)


_scratch = _Scratch()


def _at(tensor: torch.Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def winograd_of(convolution: Convolution, part: Part, library: Library | None) -> Compute | None:
    """Return a part by F(4x4, 3x3), four times fewer products; None for other filters."""
    c = convolution
    is_plain = not c.is_last and c.is_dense and c.attributes.groups == 1 and c.kernel == (3, 3)
    if library is None or not is_plain or max(c.attributes.pads) > 2:
        return None
    images, read, high, wide = c.image
    _, written, rows, columns = c.result
    top, left = c.attributes.pads
    if part is Part.IMAGE:  # the same of the gradient, filters turned around
        extents = (images, written, read, rows, columns, high, wide, 2 - top, 2 - left)
    else:
        extents = (images, read, written, high, wide, rows, columns, top, left)
    across, down = -(-extents[6] // _TILE), -(-extents[5] // _TILE)
    row_bytes = 4 * _TRANSFORMED * (read + written) * across
    group = max(1, min(images * down, library.l2_bytes // 2 // row_bytes))
    shape = _Images(*extents, group)
    floats = library.code.aoe_winograd_floats(ctypes.byref(shape))
    if part is Part.WEIGHTS:
        return partial(_weights, library.code.aoe_winograd_weights, shape, floats, c.weights)
    steps = (9, 9 * read) if part is Part.IMAGE else (9 * read, 9)
    return partial(
        _result,
        library.code.aoe_winograd,
        shape,
        floats,
        (*map(ctypes.c_int64, steps), ctypes.c_int(part is Part.IMAGE)),
        c.image if part is Part.IMAGE else c.result,
    )


def planes_of(convolution: Convolution, part: Part, library: Library | None) -> Compute | None:
    """Return a part on padded lines, for groups of few channels; None for others.

    Where channels are innermost it is the gradient of depthwise weights alone.
    """
    c = convolution
    groups, (down, across) = c.attributes.groups, c.kernel
    images, channels, high, wide = c.image
    _, written, rows, columns = c.result
    (top, left), read, made = c.attributes.pads, channels // groups, written // groups
    is_alike = c.is_dense and groups > 1 and top < down and left < across
    if library is None or not is_alike or across > _MOST_COLUMNS:
        return None
    if max(read, made) > (1 if c.is_last else _MOST_TOGETHER):
        return None
    if c.is_last and part is not Part.WEIGHTS:
        return None
    if part is Part.IMAGE:
        top, left = down - 1 - top, across - 1 - left
        extents = (made, read, rows, columns, high, wide, top, left)
    else:
        extents = (read, made, high, wide, rows, columns, top, left)
    shape = _Planes(images, groups, *extents, down, across)
    if c.is_last:
        floats = library.code.aoe_channels_floats(ctypes.byref(shape))
        return partial(_last_weights, library.code.aoe_channels_weights, shape, floats, c.weights)
    floats = library.code.aoe_planes_floats(ctypes.byref(shape))
    if part is Part.WEIGHTS:
        return partial(_weights, library.code.aoe_planes_weights, shape, floats, c.weights)
    taps = down * across
    steps = (taps, taps * read) if part is Part.IMAGE else (taps * read, taps)
    return partial(
        _result,
        library.code.aoe_planes_results,
        shape,
        floats,
        (
            *map(ctypes.c_int64, (taps * read * made, *steps)),
            ctypes.c_int(part is Part.IMAGE),
        ),
        c.image if part is Part.IMAGE else c.result,
    )


def _result(
    code: Any,
    shape: ctypes.Structure,
    floats: int,
    steps: tuple[Any, ...],
    extents: tuple[int, ...],
    image: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    made = _floats(extents)
    place = ctypes.c_void_p(_scratch.place(floats))
    code(ctypes.byref(shape), _at(image), _at(weights), *steps, _at(bias), _at(made), place)
    return made


def _weights(
    code: Any,
    shape: ctypes.Structure,
    floats: int,
    extents: tuple[int, ...],
    image: torch.Tensor,
    gradient: torch.Tensor,
) -> torch.Tensor:
    made = _floats(extents)
    place = ctypes.c_void_p(_scratch.place(floats))
    code(ctypes.byref(shape), _at(image), _at(gradient), _at(made), place)
    return made


def _last_weights(*given: Any) -> torch.Tensor:
    """Return weights as `_weights` does, with the strides of channels that are innermost.

    There is one channel: their memory is the same.
    """
    made = _weights(*given)
    rows, columns = made.shape[2:]
    return made.as_strided(made.shape, (rows * columns, 1, columns, 1))


Way = Callable[[Convolution, Part, Library | None], Compute | None]
WAYS: Mapping[str, Way] = {
    "products": products_of,
    "winograd_4x4": winograd_of,
    "planes": planes_of,
}
"""By the name a record has."""
