"""Padding: as part of the window that reads it, or as a choice of rows and columns."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied, refill
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import (
    attribute,
    integers_of,
    is_op,
    nodes_of,
    number_of,
    only_reader,
    shape_of,
)

_INTO_WINDOW = "pad-into-window"
_AS_GATHER = "mirrored-pad-as-gather"
_MODES = {"reflect": "reflect", "edge": "edge"}


def find_zeros(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Pads with zeros that one Conv reads."""
    for index, node in nodes_of(graph, "Pad"):
        reader = only_reader(graph, node.output[0])
        if reader is None or not is_op(graph.nodes[reader], "Conv"):
            continue
        conv = graph.nodes[reader]
        pads = _pads(graph, node)
        if isinstance(pads, str):
            yield refuse(graph, _INTO_WINDOW, [index, reader], pads)
            continue
        before, behind = pads
        value = _value(graph, node)
        if attribute(node, "mode", "constant") != "constant" or value != 0:
            yield refuse(graph, _INTO_WINDOW, [index, reader], "it does not pad with zeros")
        elif any(before[:2] + behind[:2]) or min(before + behind) < 0:
            yield refuse(graph, _INTO_WINDOW, [index, reader], "it pads other axes, or cuts off")
        elif attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
            yield refuse(graph, _INTO_WINDOW, [index, reader], "the Conv pads by a rule of its own")
        else:
            own = attribute(conv, "pads", (0,) * (len(before) - 2) * 2)
            total = [one + other for one, other in zip(own, before[2:] + behind[2:], strict=True)]
            wide = copied(conv)
            kept = [item for item in conv.attribute if item.name not in ("pads", "auto_pad")]
            refill(wide.attribute, [*kept, helper.make_attribute("pads", total)])
            rewriting = Rewriting(graph, _INTO_WINDOW, [index, reader])
            rewriting.copy(wide, [node.input[0], *conv.input[1:]], conv.output[0])
            yield rewriting.finish()


def find_mirrored(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Pads that repeat rows and columns of their input."""
    for index, node in nodes_of(graph, "Pad"):
        mode = attribute(node, "mode", "constant")
        shape = shape_of(graph, node.input[0])
        if mode not in _MODES:
            continue
        pads = _pads(graph, node)
        if shape is None or isinstance(pads, str):
            why = pads if isinstance(pads, str) else "its shape is not known"
            yield refuse(graph, _AS_GATHER, [index], why)
            continue
        before, behind = pads
        axes = [at for at in range(len(shape)) if before[at] or behind[at]]
        if not axes or min(before + behind) < 0:
            yield refuse(graph, _AS_GATHER, [index], "it pads nothing, or cuts off")
            continue
        rewriting = Rewriting(graph, _AS_GATHER, [index])
        made = node.input[0]
        for axis in reversed(axes):
            extents = (before[axis], behind[axis])
            rows = np.pad(np.arange(shape[axis]), extents, mode=_MODES[mode])  # type: ignore[call-overload]
            output = node.output[0] if axis == axes[0] else ""
            indices = rewriting.constant(rows.astype(np.int64), "rows")
            made = rewriting.add("Gather", [made, indices], output, axis=axis)
        yield rewriting.finish()


def _pads(graph: ModelGraph, node: onnx.NodeProto) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
    """Return the padding before and behind each axis, or the reason why it is unknown."""
    pads = integers_of(graph, node, "pads", 1)
    shape = shape_of(graph, node.input[0])
    if len(node.input) > 3 and node.input[3]:
        return "it names its axes"
    if shape is None or not pads or len(pads) != 2 * len(shape):
        return "how much it pads is not constant"
    return pads[: len(shape)], pads[len(shape) :]


def _value(graph: ModelGraph, node: onnx.NodeProto) -> float | None:
    if len(node.input) > 2 and node.input[2]:
        return number_of(graph, node.input[2])
    return float(attribute(node, "value", 0.0))


ZERO_PAD_RULE = RewriteRule(
    name=_INTO_WINDOW,
    what="Pad with zeros in front of a Conv becomes padding of the Conv",
    needs="constant pads of height and width, none negative; the Conv alone reads it",
    tolerance=1e-5,
    find=find_zeros,
)
MIRRORED_PAD_RULE = RewriteRule(
    name=_AS_GATHER,
    what="Pad by reflection or by the edge becomes a Gather for each padded axis",
    needs="constant pads, none negative; known shapes",
    find=find_mirrored,
)
