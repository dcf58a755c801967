"""Fourier transforms as products with matrices: one of the whole length, or two small ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import Array, Shape, attribute, nodes_of, shape_of, value_of
from aoe.graph.rewrites.protocol import Finding, RewriteRule

# ---- Fourier transforms as products with a constant matrix ----
# ONNX Runtime computes DFT and STFT in a plain loop; short ones are faster as matrix products,
# which it computes at the roof of the machine. Source: onnxruntime issue 32403 (100 to 700 times
# slower than PyTorch).

_DFT = "dft-as-product"
_STFT = "stft-as-convolution"
_LONGEST = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Transform:
    """A DFT of known shape."""

    shape: Shape  # Of what is transformed; its last axis holds 1 or 2 parts of a number
    axis: int  # Transformed, not negative
    length: int  # Of the transform: fewer elements are filled up with zeros, more are cut off
    bins: int  # Of the result
    inverse: bool  # True for the inverse transform

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
    """An STFT of a real signal of known shape."""

    shape: Shape  # Of the signal, (batch, samples) or (batch, samples, 1)
    frames: int  # Of the result
    bins: int  # Of the result
    size: int  # Samples of a frame
    step: int  # From frame to frame
    window: Array | None  # (size) float32, None for none


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


def find_dfts(graph: ModelGraph) -> Iterator[Finding]:
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


def find_stfts(graph: ModelGraph) -> Iterator[Finding]:
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
    find=find_dfts,
)
STFT_RULE = RewriteRule(
    name=_STFT,
    what="STFT becomes a Conv whose weights are window times wave",
    needs=f"a real signal of known shape, constant step and window, frames of at most {_LONGEST}",
    tolerance=1e-4,
    find=find_stfts,
)


# ---- Fourier transforms in two stages of products with small matrices ----
# A transform of N = N1 * N2 elements is N2 transforms of N1, a rotation, and N1 transforms of N2:
# 4 N (N1 + N2) products instead of 2 N N. Source: J. Cooley, J. Tukey, An algorithm for the machine
# calculation of complex Fourier series, Mathematics of Computation 19, 1965.
#
#     element n = N2 n1 + n2, bin k = k1 + N1 k2; the rotation is part of the second matrix

_DFT_STAGES = "dft-in-stages"
_STFT_STAGES = "stft-in-stages"
LONGEST = 8192
"""Elements; the matrices of the second stage have 8 MiB then, and 16 where all bins are asked for.
A single transform of 16,384 was slower than ONNX Runtime's radix 2."""
_LEAST_SPARED = 2
"""By how much fewer products two stages have to take than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A transform in two stages."""

    first: int  # Length of the transforms of the first stage, N1
    second: int  # Of the second one, N2
    parts: int  # 1 for real elements, 2 for complex ones
    bins: int  # Of the result, from the first on
    inverse: bool  # True for the inverse transform

    @property
    def length(self) -> int:
        return self.first * self.second

    @property
    def kept(self) -> int:
        """Bins of each transform of the second stage that are asked for."""
        return -(-self.bins // self.first)

    @property
    def products(self) -> int:
        """Products for each element, in pairs."""
        return self.parts * self.first + 2 * self.kept

    def first_matrix(self) -> Array:
        """Return (2 * N1, parts * N1) float32: each part of each bin by each part of an element."""
        cosine, sine = self._waves(
            np.outer(np.arange(self.first), np.arange(self.first)), self.first
        )
        rows = [[cosine, -sine], [sine, cosine]]
        return np.block([row[: self.parts] for row in rows]).astype(np.float32)

    def second_matrices(self) -> Array:
        """Return (N1, 2, N2, kept, 2) float64, the rotation among them."""
        k1, n2, k2 = np.ogrid[: self.first, : self.second, : self.kept]
        cosine, sine = self._waves(n2 * (k1 + self.first * k2), self.length)
        matrix = np.stack([np.stack([cosine, sine], -1), np.stack([-sine, cosine], -1)], 1)
        return matrix / self.length if self.inverse else matrix

    def _waves(self, turns: Array, length: int) -> tuple[Array, Array]:
        angles = (2 if self.inverse else -2) * np.pi * (turns % length) / length
        return np.cos(angles), np.sin(angles)


def stages_of(length: int, *, parts: int, bins: int, inverse: bool) -> Stages | str:
    """Return the stages of a transform with the fewest products, or why it has none."""
    offered = [
        Stages(first=first, second=length // first, parts=parts, bins=bins, inverse=inverse)
        for first in range(2, length // 2 + 1)
        if length % first == 0
    ]
    if not offered or length > LONGEST:
        return f"its length {length} is a prime, or more than {LONGEST}"
    # of as many products, the larger first stage: the matrices of the second one are smaller
    best = min(offered, key=lambda one: (one.products, -one.first))
    if _LEAST_SPARED * best.products > parts * bins:
        return f"its length {length} is short, or has no factors near its root"
    return best


def find_staged_dfts(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Fourier transforms whose length has factors."""
    for index, node in nodes_of(graph, "DFT"):
        found = read_transform(graph, node)
        if isinstance(found, str):
            yield refuse(graph, _DFT_STAGES, [index], found)
            continue
        stages = stages_of(found.length, parts=found.parts, bins=found.bins, inverse=found.inverse)
        if isinstance(stages, str):
            yield refuse(graph, _DFT_STAGES, [index], stages)
            continue
        rewriting = Rewriting(graph, _DFT_STAGES, [index])
        rows = rewriting.add("Transpose", [node.input[0]], perm=found.axes_to_rows)
        outer = [found.shape[axis] for axis in found.axes_to_rows[:-2]]
        rows = of_length(rewriting, rows, found.shape[found.axis], found.length, len(outer))
        spectrum = in_stages(rewriting, rows, math.prod(outer), stages)
        turned = rewriting.reshape(spectrum, (*outer, found.bins, 2))
        rewriting.add("Transpose", [turned], node.output[0], perm=found.axes_back)
        yield rewriting.finish()


def find_staged_stfts(graph: ModelGraph) -> Iterator[Finding]:
    """Yield short-time Fourier transforms of real signals whose frames have factors."""
    for index, node in nodes_of(graph, "STFT"):
        found = read_short_time(graph, node)
        if isinstance(found, str):
            yield refuse(graph, _STFT_STAGES, [index], found)
            continue
        stages = stages_of(found.size, parts=1, bins=found.bins, inverse=False)
        if isinstance(stages, str):
            yield refuse(graph, _STFT_STAGES, [index], stages)
            continue
        rewriting = Rewriting(graph, _STFT_STAGES, [index])
        batch = found.shape[0]
        frames = add_frames(rewriting, node.input[0], found)
        spectrum = in_stages(rewriting, frames, batch * found.frames, stages)
        rewriting.reshape(spectrum, (batch, found.frames, found.bins, 2), node.output[0])
        yield rewriting.finish()


def add_frames(rewriting: Rewriting, name: str, asked: ShortTime) -> str:
    """Add what cuts a signal into frames, times their window: (batch, frames, ...) in memory.

    They are gathered in rows of what divides both step and size: as few copies as can be.
    """
    batch, samples = asked.shape[0], math.prod(asked.shape[1:])
    part = math.gcd(asked.size, asked.step)
    parts = samples // part
    signal = rewriting.reshape(name, (batch, samples))
    signal = of_length(rewriting, signal, samples, parts * part, 1)
    rows = rewriting.reshape(signal, (batch, parts, part))
    starts = np.arange(asked.frames)[:, None] * (asked.step // part)
    places = starts + np.arange(asked.size // part)
    frames = rewriting.add("Gather", [rows, rewriting.constant(places, "places")], axis=1)
    if asked.window is None:
        return frames
    window = asked.window.reshape(asked.size // part, part)
    return rewriting.add("Mul", [frames, rewriting.constant(window, "window")])


def of_length(rewriting: Rewriting, name: str, length: int, wanted: int, axis: int) -> str:
    """Add what cuts a tensor off along an axis, or fills it up with zeros.

    Args:
        rewriting: Where nodes are added.
        name: Of the tensor.
        length: Of its last axis but one.
        wanted: What that becomes.
        axis: Its number.
    """
    if wanted < length:
        return sliced(rewriting, name, 0, wanted, axis)
    if wanted == length:
        return name
    pads = np.zeros(2 * (axis + 2), np.int64)
    pads[-2] = wanted - length
    return rewriting.add("Pad", [name, rewriting.constant(pads, "pads")])


def sliced(rewriting: Rewriting, name: str, start: int, end: int, axis: int) -> str:
    """Add a Slice of `start` to `end` along one axis."""
    bounds = (("start", start), ("end", end), ("axis", axis))
    return rewriting.add("Slice", [name, *(rewriting.integers([v], what) for what, v in bounds)])


def in_stages(
    rewriting: Rewriting, rows: str, count: int, stages: Stages, matrices: Array | None = None
) -> str:
    """Add both stages of `count` transforms and return their bins, (count, bins, parts).

    Args:
        rewriting: Where nodes are added.
        rows: The elements, (..., length, parts) or (..., length) in memory.
        count: Transforms.
        stages: The stages.
        matrices: Of the second stage, with 1 or 2 parts of a bin; None for those of the transform.
    """
    n1, n2, kept = stages.first, stages.second, stages.kept
    matrices = stages.second_matrices() if matrices is None else matrices
    parts = matrices.shape[-1]
    if stages.parts == 2:
        apart = rewriting.reshape(rows, (count, n1, n2, 2))
        rows = rewriting.add("Transpose", [apart], perm=[0, 3, 1, 2])
    columns = rewriting.reshape(rows, (count, stages.parts * n1, n2))
    first = rewriting.constant(stages.first_matrix(), "first")
    made = rewriting.add("MatMul", [first, columns])
    made = rewriting.reshape(made, (count, 2, n1, n2))
    made = rewriting.add("Transpose", [made], perm=[2, 0, 1, 3])
    made = rewriting.reshape(made, (n1, count, 2 * n2))
    flat = matrices.reshape(n1, 2 * n2, kept * parts).astype(np.float32)
    made = rewriting.add("MatMul", [made, rewriting.constant(flat, "second")])
    made = rewriting.reshape(made, (n1, count, kept, parts))
    made = rewriting.add("Transpose", [made], perm=[1, 2, 0, 3])
    made = rewriting.reshape(made, (count, kept * n1, parts))
    return of_length(rewriting, made, kept * n1, stages.bins, 1)


DFT_STAGES_RULE = RewriteRule(
    name=_DFT_STAGES,
    what="DFT becomes two products with small matrices, one for each factor of its length",
    needs=f"known shape, constant axis and length; two factors, at most {LONGEST}",
    tolerance=1e-4,
    find=find_staged_dfts,
)
STFT_STAGES_RULE = RewriteRule(
    name=_STFT_STAGES,
    what="STFT becomes a Gather of frames, window, and two products with small matrices",
    needs="a real signal of known shape, constant step and window, frames whose size has factors, "
    f"at most {LONGEST}",
    tolerance=1e-4,
    find=find_staged_stfts,
)
