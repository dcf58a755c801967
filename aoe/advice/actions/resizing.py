"""Resizing by almost an integer, as resizing by that integer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import numpy_helper

from aoe.advice.actions.protocol import AdviceAction, Proposal, copied
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.reading import Array, nodes_of, shape_of, value_of
from aoe.target import Target

_NAME = "integer-resize"
_NEAR = 0.1
"""So far from an integer the result would be of another size altogether."""
_SCALES, _SIZES = 2, 3


def propose_integer_resizes(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model whose Resize nodes have integer ratios where they nearly had."""
    model = copied(graph.proto)
    changed = []
    for index, node in nodes_of(graph, "Resize"):
        for position in range(_SCALES, min(len(node.input), _SIZES + 1)):
            value = value_of(graph, node.input[position]) if node.input[position] else None
            wanted = None if value is None else _rounded(graph, node.input[0], value, position)
            if wanted is not None:
                name = f"{node.input[position]}/{_NAME}/{index}"
                model.graph.initializer.append(numpy_helper.from_array(wanted, name))
                model.graph.node[index].input[position] = name
                changed.append(node.name)
    if changed:
        yield Proposal(
            action=_NAME,
            what="Resize by almost an integer becomes Resize by that integer",
            op_names=tuple(changed),
            edited=model,
            needs_retraining=True,
        )


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


INTEGER_RESIZE = AdviceAction(name=_NAME, propose=propose_integer_resizes)
