"""Resizing by almost an integer, as resizing by that integer.

A Resize with aligned corners maps first and last elements onto each other, so its ratio is that of
the gaps between elements: 175 -> 350 is 349 / 174, almost 2, and 176 -> 351 is 2.

Source: Atlas documentation, performance of Interp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.advice.proposals import AdviceAction, Proposal, without_shapes
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.rewrites.matching import Array, nodes_of, shape_of, value_of
from aoe.target import Target

_NAME = "integer-resize"
_NEAR = 0.1
"""So far from an integer the result would be of another size altogether."""
_ROI, _SCALES, _SIZES = 1, 2, 3
_OPTIONAL_SCALES = 13
"""Opset from which on scales may be left out; before, they are an empty tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Extents:
    """Extents of the input and of the result of a Resize with aligned corners."""

    before: tuple[int, ...]
    after: tuple[int, ...]

    def __str__(self) -> str:
        pairs = zip(self.before, self.after, strict=True)
        return ", ".join(f"{a} -> {b}" for a, b in dict.fromkeys(pairs) if a != b)


def propose_integer_resizes(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model whose Resize nodes have integer ratios where they nearly had."""
    model = without_shapes(graph.proto)
    changed, pads, told = [], dict[int, onnx.NodeProto](), []
    for index, node in nodes_of(graph, "Resize"):
        wanted = _aligned(graph, node) if _is_aligned(node) else None
        if wanted is not None:
            now, better = wanted
            pads[index] = _align(model, index, now, better, graph.opset(""))
            told.append(f"{now} becomes {better}")
            changed.append(node.name)
        elif not _is_aligned(node) and _round(graph, model, index):
            changed.append(node.name)
    for index in sorted(pads, reverse=True):
        model.graph.node.insert(index, pads[index])
    if changed:
        aligned = f" (corners aligned: {'; '.join(dict.fromkeys(told))})" if told else ""
        yield Proposal(
            action=_NAME,
            what=f"Resize by almost an integer becomes Resize by that integer{aligned}",
            op_names=tuple(changed),
            edited=model,
            needs_retraining=True,
        )


def _is_aligned(node: onnx.NodeProto) -> bool:
    return attributes_of(node).get("coordinate_transformation_mode") == "align_corners"


# ---- ratios of sizes ----


def _round(graph: ModelGraph, model: onnx.ModelProto, index: int) -> bool:
    """Give a Resize of the model integer ratios; return False if it has them or nearly none."""
    node, is_changed = graph.nodes[index], False
    for position in range(_SCALES, min(len(node.input), _SIZES + 1)):
        value = value_of(graph, node.input[position]) if node.input[position] else None
        wanted = None if value is None else _rounded(graph, node.input[0], value, position)
        if wanted is not None:
            name = f"{node.input[position]}/{_NAME}/{index}"
            model.graph.initializer.append(numpy_helper.from_array(wanted, name))
            model.graph.node[index].input[position] = name
            is_changed = True
    return is_changed


def _rounded(graph: ModelGraph, x: str, value: Array, position: int) -> Array | None:
    """Return scales or sizes of integer ratios, None if they are already or not nearly so."""
    shape = shape_of(graph, x)
    if value.size == 0 or shape is None or len(shape) != value.size or 0 in shape:
        return None
    ratios = value / np.array(shape) if position == _SIZES else value.astype(np.float64)
    integers = np.maximum(1, np.rint(ratios))
    if np.array_equal(integers, ratios) or np.abs(ratios - integers).max() > _NEAR:
        return None
    return np.asarray(
        integers * np.array(shape) if position == _SIZES else integers, dtype=value.dtype
    )


# ---- ratios of gaps: aligned corners ----


def _aligned(graph: ModelGraph, node: onnx.NodeProto) -> tuple[_Extents, _Extents] | None:
    """Return the extents of a Resize and extents of integer ratios; None if there are none."""
    before = shape_of(graph, node.input[0])
    after = _sizes(graph, node, before) if before is not None else None
    if before is None or after is None:
        return None
    found = [_integer_gaps(a, b) for a, b in zip(before, after, strict=True)]
    kept = [pair for pair in found if pair is not None]
    now = _Extents(before=before, after=after)
    if len(kept) < len(found):
        return None
    better = _Extents(before=tuple(a for a, _ in kept), after=tuple(b for _, b in kept))
    return None if better == now else (now, better)


def _sizes(
    graph: ModelGraph, node: onnx.NodeProto, before: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return the shape of the result as far as scales or sizes are constants."""
    values = {
        position: value_of(graph, node.input[position])
        for position in (_SCALES, _SIZES)
        if position < len(node.input) and node.input[position]
    }
    scales, sizes = values.get(_SCALES), values.get(_SIZES)
    if sizes is not None and sizes.size == len(before):
        return tuple(int(size) for size in sizes)
    if scales is not None and scales.size == len(before):
        return tuple(int(a * float(b)) for a, b in zip(before, scales, strict=True))
    return None


def _integer_gaps(before: int, after: int) -> tuple[int, int] | None:
    """Return extents whose ratio of gaps is an integer, none smaller; None if it is not nearly one.

    >>> _integer_gaps(175, 350), _integer_gaps(175, 349), _integer_gaps(16, 16)
    ((176, 351), (175, 349), (16, 16))
    """
    if before == after:
        return before, after
    if before < 2:
        return None
    ratio = (after - 1) / (before - 1)
    whole = max(1, round(ratio))
    if abs(ratio - whole) > _NEAR:
        return None
    wanted = max(before, -(-(after - 1) // whole) + 1)
    return wanted, whole * (wanted - 1) + 1


def _align(
    model: onnx.ModelProto, index: int, now: _Extents, better: _Extents, opset: int
) -> onnx.NodeProto:
    """Give a Resize of the model other extents; return the Pad that is to stand before it."""
    node = model.graph.node[index]
    base = f"{node.name or node.output[0]}/{_NAME}"
    more = [b - a for a, b in zip(now.before, better.before, strict=True)]
    constants = {
        "pads": np.array([0] * len(more) + more, np.int64),
        "sizes": np.array(better.after, np.int64),
    }
    if opset < _OPTIONAL_SCALES:
        constants["scales"] = np.empty(0, np.float32)
    for name, value in constants.items():
        model.graph.initializer.append(numpy_helper.from_array(value, f"{base}/{name}"))
    roi = node.input[_ROI] if len(node.input) > _ROI else ""
    scales = f"{base}/scales" if "scales" in constants else ""
    pad = helper.make_node(
        "Pad", [node.input[0], f"{base}/pads"], [f"{base}/padded"], name=f"{base}/pad", mode="edge"
    )
    node.input[:] = [pad.output[0], roi, scales, f"{base}/sizes"]
    return pad


INTEGER_RESIZE = AdviceAction(name=_NAME, propose=propose_integer_resizes)
