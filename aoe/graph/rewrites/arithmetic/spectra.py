"""Fourier transforms as products with a constant matrix.

ONNX Runtime computes DFT and STFT in a plain loop; short ones are faster as matrix products, which
it computes at the roof of the machine. Source: onnxruntime issue 32403 (100 to 700 times slower
than PyTorch).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, attribute, nodes_of, shape_of, value_of

_DFT = "dft-as-product"
_STFT = "stft-as-convolution"
_LONGEST = 4096


def find_transforms(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Fourier transforms of known length."""
    for index, node in nodes_of(graph, "DFT"):
        shape, result = shape_of(graph, node.input[0]), shape_of(graph, node.output[0])
        axis: int | None = attribute(node, "axis", 1)
        if graph.opset("") >= 20:
            given = value_of(graph, node.input[2]) if len(node.input) > 2 and node.input[2] else -2
            axis = None if given is None else int(np.asarray(given).reshape(-1)[0])
        if shape is None or result is None or axis is None:
            yield refuse(graph, _DFT, [index], "its shape or its axis is not known")
            continue
        at = axis % len(shape)
        length, bins = shape[at], result[at]
        inverse, onesided = attribute(node, "inverse", 0), attribute(node, "onesided", 0)
        full = length if not onesided else length // 2 + 1
        if bins != full or length > _LONGEST or shape[-1] not in (1, 2) or at == len(shape) - 1:
            why = f"{shape} to {result} is cut, filled up, or longer than {_LONGEST}"
            yield refuse(graph, _DFT, [index], why)
            continue
        rewriting = Rewriting(graph, _DFT, [index])
        matrix = _matrix(length, bins, shape[-1], inverse=bool(inverse))
        order = [*(axes for axes in range(len(shape) - 1) if axes != at), at, len(shape) - 1]
        turned = rewriting.add("Transpose", [node.input[0]], perm=order)
        outer = tuple(shape[axes] for axes in order[:-2])
        flat = rewriting.constant(np.array((*outer, length * shape[-1]), np.int64), "flat")
        rows = rewriting.add("Reshape", [turned, flat])
        made = rewriting.add("MatMul", [rows, rewriting.constant(matrix, "matrix")])
        apart = rewriting.constant(np.array((*outer, bins, 2), np.int64), "apart")
        spectrum = rewriting.add("Reshape", [made, apart])
        back = [int(axes) for axes in np.argsort(order)]
        rewriting.add("Transpose", [spectrum], node.output[0], perm=back)
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
        shape, result = shape_of(graph, node.input[0]), shape_of(graph, node.output[0])
        step = value_of(graph, node.input[1])
        window = value_of(graph, node.input[2]) if len(node.input) > 2 and node.input[2] else None
        has_window = len(node.input) > 2 and bool(node.input[2])
        length = value_of(graph, node.input[3]) if len(node.input) > 3 and node.input[3] else None
        if shape is None or result is None or step is None or (has_window and window is None):
            yield refuse(graph, _STFT, [index], "its shape, its step or its window is not known")
            continue
        size = int(length.reshape(-1)[0]) if length is not None else 0
        size = size or (0 if window is None else window.size)
        if (len(shape) == 3 and shape[2] != 1) or not 0 < size <= _LONGEST:
            why = f"the signal {shape} is complex, or a frame of {size} too long"
            yield refuse(graph, _STFT, [index], why)
            continue
        if window is not None and window.size != size:
            yield refuse(graph, _STFT, [index], f"a window of {window.size} for {size}")
            continue
        frames, bins = result[1:3]
        expected = size // 2 + 1 if attribute(node, "onesided", 1) else size
        stride = int(step.reshape(-1)[0])
        if bins != expected or frames != (shape[1] - size) // stride + 1:
            yield refuse(graph, _STFT, [index], f"{bins} bins in {frames} frames are not all")
            continue
        rewriting = Rewriting(graph, _STFT, [index])
        matrix = _matrix(size, bins, 1, inverse=False).reshape(size, bins, 2)
        if window is not None:
            matrix = matrix * window.reshape(-1, 1, 1)
        weight = matrix.transpose(2, 1, 0).reshape(2 * bins, 1, size).astype(np.float32)
        target = rewriting.constant(np.array((shape[0], 1, shape[1]), np.int64), "signal")
        signal = rewriting.add("Reshape", [node.input[0], target])
        inputs = [signal, rewriting.constant(weight, "weight")]
        made = rewriting.add("Conv", inputs, strides=[stride], kernel_shape=[size])
        apart = rewriting.constant(np.array((shape[0], 2, bins, frames), np.int64), "apart")
        spectrum = rewriting.add("Reshape", [made, apart])
        rewriting.add("Transpose", [spectrum], node.output[0], perm=[0, 3, 2, 1])
        yield rewriting.finish()


DFT_RULE = RewriteRule(
    name=_DFT,
    what="DFT becomes a MatMul with the matrix of the transform",
    needs=f"known shape, a constant axis, all its elements, at most {_LONGEST} of them",
    exact=False,
    tolerance=1e-4,
    version=1,
    find=find_transforms,
)
STFT_RULE = RewriteRule(
    name=_STFT,
    what="STFT becomes a Conv whose weights are window times wave",
    needs=f"a real signal of known shape, constant step and window, frames of at most {_LONGEST}",
    exact=False,
    tolerance=1e-4,
    version=1,
    find=find_short_time,
)
