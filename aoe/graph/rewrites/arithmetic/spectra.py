"""Fourier transforms as products with a constant matrix.

ONNX Runtime computes DFT and STFT in a plain loop; short ones are faster as matrix products, which
it computes at the roof of the machine. Source: onnxruntime issue 32403 (100 to 700 times slower
than PyTorch).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, Shape, attribute, nodes_of, shape_of, value_of

_DFT = "dft-as-product"
_STFT = "stft-as-convolution"
_LONGEST = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A DFT of known shape.

    Attributes:
        shape: Of what is transformed; its last axis holds 1 or 2 parts of a number.
        axis: Transformed, not negative.
        length: Of the transform: fewer elements are filled up with zeros, more are cut off.
        bins: Of the result.
        inverse: True for the inverse transform.
    """

    shape: Shape
    axis: int
    length: int
    bins: int
    inverse: bool

    @property
    def axes_to_rows(self) -> tuple[int, ...]:
        """Order of axes with the transformed one behind the others, in front of the parts."""
        last = len(self.shape) - 1
        return (*(axis for axis in range(last) if axis != self.axis), self.axis, last)

    @property
    def axes_back(self) -> list[int]:
        """Order of axes that undoes `axes_to_rows`."""
        return [int(axis) for axis in np.argsort(self.axes_to_rows)]

    @property
    def parts(self) -> int:
        """1 for real numbers, 2 for complex ones."""
        return self.shape[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortTime:
    """An STFT of a real signal of known shape.

    Attributes:
        shape: Of the signal, (batch, samples) or (batch, samples, 1).
        frames: Of the result.
        bins: Of the result.
        size: Samples of a frame.
        step: From frame to frame.
        window: (size) float32, None for none.
    """

    shape: Shape
    frames: int
    bins: int
    size: int
    step: int
    window: Array | None


def read_transform(graph: ModelGraph, node: onnx.NodeProto) -> Transform | str:
    """Read shape, axis and length of a DFT, or the reason why one of them is not known."""
    shape, result = shape_of(graph, node.input[0]), shape_of(graph, node.output[0])
    axis: int | None = attribute(node, "axis", 1)
    if graph.opset("") >= 20:
        given = value_of(graph, node.input[2]) if len(node.input) > 2 and node.input[2] else -2
        axis = None if given is None else int(np.asarray(given).reshape(-1)[0])
    if shape is None or result is None or axis is None:
        return "its shape or its axis is not known"
    at = axis % len(shape)
    if at == len(shape) - 1 or shape[-1] not in (1, 2):
        return f"{shape} holds no numbers of 1 or 2 parts along axis {axis}"
    length: int | None = shape[at]
    if len(node.input) > 1 and node.input[1]:
        asked = value_of(graph, node.input[1])
        length = None if asked is None else int(asked.reshape(-1)[0])
    if length is None or result[at] != (
        length // 2 + 1 if attribute(node, "onesided", 0) else length
    ):
        return "its length is not known"
    return Transform(
        shape=shape,
        axis=at,
        length=length,
        bins=result[at],
        inverse=bool(attribute(node, "inverse", 0)),
    )


def read_short_time(graph: ModelGraph, node: onnx.NodeProto) -> ShortTime | str:
    """Read frames, step and window of an STFT, or the reason why no rule takes it."""
    shape, result = shape_of(graph, node.input[0]), shape_of(graph, node.output[0])
    step = value_of(graph, node.input[1])
    window, length = (
        value_of(graph, node.input[at]) if len(node.input) > at and node.input[at] else None
        for at in (2, 3)
    )
    has_window = len(node.input) > 2 and bool(node.input[2])
    if shape is None or result is None or step is None or (has_window and window is None):
        return "its shape, its step or its window is not known"
    size = int(length.reshape(-1)[0]) if length is not None else 0
    size = size or (0 if window is None else window.size)
    if (len(shape) == 3 and shape[2] != 1) or size < 1:
        return f"the signal {shape} is complex, or the size of a frame not known"
    if window is not None and window.size != size:
        return f"a window of {window.size} for {size}"
    frames, bins = result[1:3]
    expected = size // 2 + 1 if attribute(node, "onesided", 1) else size
    stride = int(step.reshape(-1)[0])
    if bins != expected or frames != (shape[1] - size) // stride + 1:
        return f"{bins} bins in {frames} frames are not all"
    return ShortTime(shape=shape, frames=frames, bins=bins, size=size, step=stride, window=window)


def find_transforms(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Fourier transforms of known length."""
    for index, node in nodes_of(graph, "DFT"):
        found = read_transform(graph, node)
        if isinstance(found, str):
            yield refuse(graph, _DFT, [index], found)
            continue
        shape, at, bins = found.shape, found.axis, found.bins
        if found.length != shape[at] or found.length > _LONGEST:
            why = f"{shape} to {bins} is cut, filled up, or longer than {_LONGEST}"
            yield refuse(graph, _DFT, [index], why)
            continue
        rewriting = Rewriting(graph, _DFT, [index])
        matrix = _matrix(found.length, bins, found.parts, inverse=found.inverse)
        turned = rewriting.add("Transpose", [node.input[0]], perm=found.axes_to_rows)
        outer = tuple(shape[axis] for axis in found.axes_to_rows[:-2])
        rows = rewriting.reshape(turned, (*outer, matrix.shape[0]), what="flat")
        made = rewriting.add("MatMul", [rows, rewriting.constant(matrix, "matrix")])
        spectrum = rewriting.reshape(made, (*outer, bins, 2), what="apart")
        rewriting.add("Transpose", [spectrum], node.output[0], perm=found.axes_back)
        yield rewriting.finish()


def _matrix(length: int, bins: int, parts: int, *, inverse: bool) -> Array:
    """Return (length * parts, bins * 2) float32: what each number adds to each of the bins."""
    sign = 1 if inverse else -1
    turns = np.outer(np.arange(length), np.arange(bins)) % length / length
    cosine, sine = np.cos(2 * np.pi * turns), sign * np.sin(2 * np.pi * turns)
    matrix = np.zeros((length, parts, bins, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosine, sine
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = -sine, cosine
    if inverse:
        matrix /= length
    return matrix.reshape(length * parts, bins * 2).astype(np.float32)


def find_short_time(graph: ModelGraph) -> Iterator[Finding]:
    """Yield short-time Fourier transforms of real signals."""
    for index, node in nodes_of(graph, "STFT"):
        found = read_short_time(graph, node)
        if not isinstance(found, str) and found.size > _LONGEST:
            found = f"a frame of {found.size} is too long"
        if isinstance(found, str):
            yield refuse(graph, _STFT, [index], found)
            continue
        size, bins, batch = found.size, found.bins, found.shape[0]
        rewriting = Rewriting(graph, _STFT, [index])
        matrix = _matrix(size, bins, 1, inverse=False).reshape(size, bins, 2)
        if found.window is not None:
            matrix = matrix * found.window.reshape(-1, 1, 1)
        weight = matrix.transpose(2, 1, 0).reshape(2 * bins, 1, size).astype(np.float32)
        signal = rewriting.reshape(node.input[0], (batch, 1, found.shape[1]), what="signal")
        inputs = [signal, rewriting.constant(weight, "weight")]
        made = rewriting.add("Conv", inputs, strides=[found.step], kernel_shape=[size])
        spectrum = rewriting.reshape(made, (batch, 2, bins, found.frames), what="apart")
        rewriting.add("Transpose", [spectrum], node.output[0], perm=[0, 3, 2, 1])
        yield rewriting.finish()


DFT_RULE = RewriteRule(
    name=_DFT,
    what="DFT becomes a MatMul with the matrix of the transform",
    needs=f"known shape, a constant axis, all its elements, at most {_LONGEST} of them",
    tolerance=1e-4,
    find=find_transforms,
)
STFT_RULE = RewriteRule(
    name=_STFT,
    what="STFT becomes a Conv whose weights are window times wave",
    needs=f"a real signal of known shape, constant step and window, frames of at most {_LONGEST}",
    tolerance=1e-4,
    find=find_short_time,
)
