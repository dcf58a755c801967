"""Fourier transforms in two stages of products with small matrices.

A transform of N = N1 * N2 elements is N2 transforms of N1, a rotation, and N1 transforms of N2:
4 N (N1 + N2) products instead of 2 N N. Source: J. Cooley, J. Tukey, An algorithm for the machine
calculation of complex Fourier series, Mathematics of Computation 19, 1965.

    element n = N2 n1 + n2, bin k = k1 + N1 k2; the rotation is part of the second matrix
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.arithmetic.spectra import ShortTime, read_short_time, read_transform
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, nodes_of

_DFT = "dft-in-stages"
_STFT = "stft-in-stages"
LONGEST = 8192
"""Elements; the matrices of the second stage have 8 MiB then, and 16 where all bins are asked for.
A single transform of 16,384 was slower than ONNX Runtime's radix 2."""
_LEAST_SPARED = 2
"""By how much fewer products two stages have to take than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A transform in two stages.

    Attributes:
        first: Length of the transforms of the first stage, N1.
        second: Of the second one, N2.
        parts: 1 for real elements, 2 for complex ones.
        bins: Of the result, from the first on.
        inverse: True for the inverse transform.
    """

    first: int
    second: int
    parts: int
    bins: int
    inverse: bool

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


def find_transforms(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Fourier transforms whose length has factors."""
    for index, node in nodes_of(graph, "DFT"):
        found = read_transform(graph, node)
        if isinstance(found, str):
            yield refuse(graph, _DFT, [index], found)
            continue
        stages = stages_of(found.length, parts=found.parts, bins=found.bins, inverse=found.inverse)
        if isinstance(stages, str):
            yield refuse(graph, _DFT, [index], stages)
            continue
        rewriting = Rewriting(graph, _DFT, [index])
        rows = rewriting.add("Transpose", [node.input[0]], perm=found.axes_to_rows)
        outer = [found.shape[axis] for axis in found.axes_to_rows[:-2]]
        rows = of_length(rewriting, rows, found.shape[found.axis], found.length, len(outer))
        spectrum = in_stages(rewriting, rows, math.prod(outer), stages)
        turned = rewriting.reshape(spectrum, (*outer, found.bins, 2))
        rewriting.add("Transpose", [turned], node.output[0], perm=found.axes_back)
        yield rewriting.finish()


def find_short_time(graph: ModelGraph) -> Iterator[Finding]:
    """Yield short-time Fourier transforms of real signals whose frames have factors."""
    for index, node in nodes_of(graph, "STFT"):
        found = read_short_time(graph, node)
        if isinstance(found, str):
            yield refuse(graph, _STFT, [index], found)
            continue
        stages = stages_of(found.size, parts=1, bins=found.bins, inverse=False)
        if isinstance(stages, str):
            yield refuse(graph, _STFT, [index], stages)
            continue
        rewriting = Rewriting(graph, _STFT, [index])
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
    name=_DFT,
    what="DFT becomes two products with small matrices, one for each factor of its length",
    needs=f"known shape, constant axis and length; two factors, at most {LONGEST}",
    tolerance=1e-4,
    find=find_transforms,
)
STFT_STAGES_RULE = RewriteRule(
    name=_STFT,
    what="STFT becomes a Gather of frames, window, and two products with small matrices",
    needs="a real signal of known shape, constant step and window, frames whose size has factors, "
    f"at most {LONGEST}",
    tolerance=1e-4,
    find=find_short_time,
)
