"""Convolutions whose weights are waves: Fourier transforms exporters have no operator for.

Speech networks write a short-time transform as a Conv along time by windowed cosines and sines, and
its inverse, the sum of overlapping frames, as a ConvTranspose by them. What such weights are is
found in their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import Array, nodes_of, shape_of, value_of
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.spectra import ShortTime, Stages, add_frames, in_stages, sliced, stages_of

_FORWARD, _INVERSE = "wave-convolution-in-stages", "wave-synthesis-in-stages"
_SINCE = 13
"""Opset in which Split and Pad read what they are told."""
_OFF = 2e-5
"""Largest difference of weights from waves, relative to the largest weight."""
_NOTHING = 1e-12
"""Share of the energy of the strongest wave below which a wave is none: the sine of bin 0."""
_BINS_AT_ONCE = 64
_MOST_OVERLAPPING = 16
"""Frames over a sample, each of which is a tensor on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waves:
    """Weights (bins of each kind, samples) that are gains times window times waves."""

    window: Array  # (samples) float64
    gains: Array  # (bins, kinds) float64, of cosines and of sines
    has_cosine: bool  # True if there are cosines
    has_sine: bool  # True if there are sines; behind the cosines

    @property
    def kinds(self) -> tuple[int, ...]:
        """0 for cosines, 1 for sines, in the order of the weights."""
        return tuple(kind for kind, has in ((0, self.has_cosine), (1, self.has_sine)) if has)


def _read_waves(weights: Array) -> _Waves | str:
    """Read windowed waves in weights (channels, samples), or the reason why they are none."""
    channels, samples = weights.shape
    bins = samples // 2 + 1
    if channels not in (bins, 2 * bins) or not np.isfinite(weights).all():
        return f"{channels} channels of {samples} samples are no transform"
    given = weights.reshape(-1, bins, samples)
    has_sine = len(given) == 2 or not given[0, 0].any()
    has_cosine = len(given) == 2 or not has_sine
    # the cosine of bin 0 is 1; of sines, the energy at each sample tells the window
    window = given[0, 0].astype(np.float64) if has_cosine else _window_of_sines(given[0])
    kinds = [np.cos] * has_cosine + [np.sin] * has_sine
    most = _OFF * float(np.abs(given).max())
    gains = [_gains(rows, kind, window, most) for rows, kind in zip(given, kinds, strict=True)]
    found = [one for one in gains if one is not None]
    if len(found) < len(gains):
        return "its weights are no waves under one window"
    return _Waves(
        window=window, gains=np.stack(found, -1), has_cosine=has_cosine, has_sine=has_sine
    )


def _window_of_sines(rows: Array) -> Array:
    """Return the window under which sines of equal gain are rows (bins, samples)."""
    samples, energy, waves = rows.shape[1], np.zeros(rows.shape[1]), np.zeros(rows.shape[1])
    for at, turns in _turns(*rows.shape):
        energy += (rows[at].astype(np.float64) ** 2).sum(axis=0)
        waves += (np.sin(turns) ** 2).sum(axis=0)
    window: Array = np.sqrt(energy / np.maximum(waves, _NOTHING * samples))
    return window


def _gains(rows: Array, wave: Callable[[Array], Array], window: Array, most: float) -> Array | None:
    """Return by what (bins) waves under a window are rows (bins, samples); None if they are not.

    Args:
        rows: The weights.
        wave: Of an angle.
        window: (samples).
        most: Largest difference that is none.
    """
    found = np.zeros(len(rows))
    least = _NOTHING * float((window**2).sum())
    for at, turns in _turns(*rows.shape):
        basis, given = wave(turns) * window, rows[at].astype(np.float64)
        energy = (basis**2).sum(axis=1)
        usable = energy > least
        found[at] = np.where(usable, (given * basis).sum(axis=1) / np.where(usable, energy, 1), 0)
        if np.abs(given - found[at, None] * basis).max() > most:
            return None
    return found


def _turns(bins: int, samples: int) -> Iterator[tuple[slice, Array]]:
    """Yield the angles of some bins at a time: all of them are a gigabyte for long frames."""
    for start in range(0, bins, _BINS_AT_ONCE):
        at = slice(start, min(start + _BINS_AT_ONCE, bins))
        turns = np.outer(np.arange(at.start, at.stop), np.arange(samples)) % samples
        yield at, turns * (2 * np.pi / samples)


def _along_time(graph: ModelGraph, op_type: str) -> Iterator[tuple[int, onnx.NodeProto]]:
    """Yield nodes with constant weights of one signal along one axis."""
    for index, node in nodes_of(graph, op_type):
        weights = value_of(graph, node.input[1])
        if weights is not None and weights.ndim == 3 and weights.shape[1] == 1:
            yield index, node


def _read(
    graph: ModelGraph, node: onnx.NodeProto
) -> tuple[_Waves, Stages, ShortTime, tuple[int, int]] | str:
    """Return waves, stages, frames and padding of a Conv or ConvTranspose, or why it is none."""
    weights = value_of(graph, node.input[1])
    assert weights is not None
    of_many = [shape_of(graph, name) for name in (node.input[0], node.output[0])]
    shapes = [shape for shape in of_many if shape is not None]
    if len(shapes) < 2:
        return "its shape is not known"
    why = _unfit(node, graph.opset(""))
    if why or (len(node.input) > 2 and node.input[2]):
        return why or "it has a bias"
    size = weights.shape[2]
    stages = stages_of(size, parts=1, bins=size // 2 + 1, inverse=False)
    if isinstance(stages, str):
        return stages
    waves = _read_waves(weights[:, 0])
    if isinstance(waves, str):
        return waves
    given = attributes_of(node)
    pads = given.get("pads", (0, 0))
    step = given.get("strides", (1,))[0]
    signal, spectrum = shapes if node.op_type == "Conv" else shapes[::-1]
    samples = signal[2] + sum(pads)
    asked = ShortTime(
        shape=(signal[0], samples),
        frames=spectrum[2],
        bins=size // 2 + 1,
        size=size,
        step=step,
        window=waves.window.astype(np.float32),
    )
    return waves, stages, asked, (pads[0], pads[1])


def _unfit(node: onnx.NodeProto, opset: int) -> str:
    given = attributes_of(node)
    if opset < _SINCE:
        return f"opset {opset} has no Pad and Split by inputs, {_SINCE} does"
    if given.get("group", 1) != 1 or any(step != 1 for step in given.get("dilations", ())):
        return "it has groups, or is dilated"
    if given.get("auto_pad", "NOTSET") != "NOTSET":
        return f"it pads as {given['auto_pad']}"
    named = (name for name in ("output_padding", "output_shape") if any(given.get(name, ())))
    return next((f"its {name} is {given[name]}" for name in named), "")


def find_convolutions(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Convs along time by waves."""
    for index, node in _along_time(graph, "Conv"):
        read = _read(graph, node)
        if isinstance(read, str):
            yield refuse(graph, _FORWARD, [index], read)
            continue
        waves, stages, asked, pads = read
        rewriting = Rewriting(graph, _FORWARD, [index])
        signal, batch, kinds = node.input[0], asked.shape[0], len(waves.kinds)
        if any(pads):
            around = rewriting.integers([0, 0, pads[0], 0, 0, pads[1]], "pads")
            signal = rewriting.add("Pad", [signal, around])
        frames = add_frames(rewriting, signal, asked)
        # bins are sums by cosines, and by sines with a minus
        gains = _by_stage(waves.gains * np.array([1, -1])[list(waves.kinds)], stages)
        matrices = stages.second_matrices()[..., list(waves.kinds)] * gains[:, None, None]
        made = in_stages(rewriting, frames, batch * asked.frames, stages, matrices)
        made = rewriting.reshape(made, (batch, asked.frames, asked.bins, kinds))
        made = rewriting.add("Transpose", [made], perm=[0, 3, 2, 1])
        rewriting.reshape(made, (batch, kinds * asked.bins, asked.frames), node.output[0])
        yield rewriting.finish()


def find_syntheses(graph: ModelGraph) -> Iterator[Finding]:
    """Yield ConvTransposes along time by waves."""
    for index, node in _along_time(graph, "ConvTranspose"):
        read = _read(graph, node)
        if isinstance(read, str):
            yield refuse(graph, _INVERSE, [index], read)
            continue
        waves, stages, asked, pads = read
        if asked.size % asked.step or asked.size // asked.step > _MOST_OVERLAPPING:
            why = f"frames of {asked.size} are no few whole steps of {asked.step}"
            yield refuse(graph, _INVERSE, [index], why)
            continue
        rewriting = Rewriting(graph, _INVERSE, [index])
        frames = _synthesised(rewriting, node.input[0], waves, stages, asked)
        made = _overlapped(rewriting, frames, asked)
        if any(pads):
            made = sliced(rewriting, made, pads[0], asked.shape[1] - pads[1], 1)
        rewriting.reshape(made, (asked.shape[0], 1, asked.shape[1] - sum(pads)), node.output[0])
        yield rewriting.finish()


def _by_stage(gains: Array, stages: Stages) -> Array:
    """Return gains (bins, kinds) as (N1, kept, kinds), zeros behind the last bin."""
    filled = np.zeros((stages.first * stages.kept, gains.shape[1]))
    filled[: len(gains)] = gains
    return filled.reshape(stages.kept, stages.first, -1).transpose(1, 0, 2)


def _synthesised(
    rewriting: Rewriting, spectrum: str, waves: _Waves, stages: Stages, asked: ShortTime
) -> str:
    """Add the frames of a spectrum, without their window: (batch * frames, N1, N2).

    The stages of a transform from the last to the first, each with its matrix transposed.
    """
    batch, frames, bins, kinds = asked.shape[0], asked.frames, asked.bins, len(waves.kinds)
    n1, n2, kept, count = stages.first, stages.second, stages.kept, batch * frames
    made = rewriting.reshape(spectrum, (batch, kinds, bins, frames))
    made = rewriting.add("Transpose", [made], perm=[0, 3, 1, 2])
    if n1 * kept != bins:
        behind = rewriting.integers([0] * 7 + [n1 * kept - bins], "pads")
        made = rewriting.add("Pad", [made, behind])
    made = rewriting.reshape(made, (count, kinds, kept, n1))
    made = rewriting.add("Transpose", [made], perm=[3, 0, 1, 2])
    made = rewriting.reshape(made, (n1, count, kinds * kept))
    gains = _by_stage(waves.gains * np.array([1, -1])[list(waves.kinds)], stages)
    matrices = stages.second_matrices()[..., list(waves.kinds)] * gains[:, None, None]
    turned = matrices.transpose(0, 4, 3, 1, 2).reshape(n1, kinds * kept, 2 * n2)
    made = rewriting.add("MatMul", [made, rewriting.constant(turned.astype(np.float32), "second")])
    made = rewriting.reshape(made, (n1, count, 2, n2))
    made = rewriting.add("Transpose", [made], perm=[1, 2, 0, 3])
    made = rewriting.reshape(made, (count, 2 * n1, n2))
    first = rewriting.constant(np.ascontiguousarray(stages.first_matrix().T), "first")
    return rewriting.add("MatMul", [first, made])


def _overlapped(rewriting: Rewriting, frames: str, asked: ShortTime) -> str:
    """Add the sum of overlapping frames under their window: (batch, samples)."""
    batch, over = asked.shape[0], asked.size // asked.step
    assert asked.window is not None
    window = asked.window.reshape(over, asked.step)
    made = rewriting.reshape(frames, (batch, asked.frames, over, asked.step))
    made = rewriting.add("Mul", [made, rewriting.constant(window, "window")])
    sizes = rewriting.integers([1] * over, "sizes")
    steps = rewriting.add_many("Split", [made, sizes], [""] * over, axis=2)
    pads = ((0, at, 0, 0, 0, over - 1 - at, 0, 0) for at in range(over))
    moved = [
        rewriting.add("Pad", [step, rewriting.integers(around, "pads")])
        for step, around in zip(steps, pads, strict=True)
    ]
    total = rewriting.add("Sum", moved)
    return rewriting.reshape(total, (batch, asked.shape[1]))


_NEEDS = (
    "constant weights, windowed cosines, sines or both behind one another, one signal; known "
    "shape, no bias, size of frames with factors; opset 13"
)
WAVE_CONVOLUTION_RULE = RewriteRule(
    name=_FORWARD,
    what="Conv along time by windowed waves becomes frames and two products with small matrices",
    needs=_NEEDS,
    tolerance=1e-4,
    find=find_convolutions,
)
WAVE_SYNTHESIS_RULE = RewriteRule(
    name=_INVERSE,
    what="ConvTranspose along time by windowed waves becomes two products and a sum of frames",
    needs=f"{_NEEDS}; frames of whole steps",
    tolerance=1e-4,
    find=find_syntheses,
)
