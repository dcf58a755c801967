"""Channels of convolutions to the nearest multiple of the block: wider with zeros, or cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from aoe.advice.proposals import AdviceAction, Proposal, without_shapes
from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import set_attribute
from aoe.graph.rewrite import drop_unused_initializers
from aoe.graph.rewrites.matching import UNARY, Array, attribute, is_op, nodes_of, value_of
from aoe.target import Target

_NAME = "channels-to-a-block"
_THROUGH = UNARY | {
    *("Clip", "Dropout", "Identity", "PRelu", "MaxPool", "AveragePool", "GlobalAveragePool"),
    "GlobalMaxPool",
}
_JOINING = ("Add", "Mul", "Sub", "Div")
_PARAMETERS = (1, 2, 3, 4)
_VARIANCE = 4


def propose_channels(graph: ModelGraph, target: Target) -> Iterator[Proposal]:
    """Yield the model whose convolutions make a multiple of the block's channels.

    Between a convolution and the convolutions behind it there may be what treats each channel
    alone; where anything else reads the channels, or they are a result, they stay.
    """
    if graph.block < 2:
        return
    now, changed = graph, []
    for index, node in nodes_of(graph, "Conv"):
        width = _width(graph, node, graph.block)
        if width is None:
            continue
        edited = _resized(now, index, width)
        if edited is not None:
            now = ModelGraph(edited, {}, block=graph.block)
            changed.append(node.name)
    if changed:
        yield Proposal(
            action=_NAME,
            what=f"channels become the nearest multiple of {graph.block}",
            op_names=tuple(changed),
            edited=now.proto,
            needs_retraining=True,
        )


def _width(graph: ModelGraph, node: onnx.NodeProto, block: int) -> int | None:
    weights = graph.initializers.get(node.input[1])
    if weights is None or attribute(node, "group", 1) != 1 or not weights.dims:
        return None
    made = int(weights.dims[0])
    return None if made % block == 0 else max(block, (made + block // 2) // block * block)


def _resized(graph: ModelGraph, start: int, width: int) -> onnx.ModelProto | None:
    """Return the model with other channels from one convolution on, None if they must stay."""
    changes: list[tuple[int, int, int]] = [(start, 1, 0)]  # node, input, axis
    if any(graph.nodes[start].input[2:]):  # an empty name stands for no bias
        changes.append((start, 2, 0))
    groups: list[int] = []
    reached: set[str] = set()
    joined: set[int] = set()
    waiting = [graph.nodes[start].output[0]]
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        if name in graph.output_names:
            return None
        for index in graph.consumers.get(name, ()):
            node = graph.nodes[index]
            if is_op(node, "Conv") and node.input[0] == name and name not in node.input[1:]:
                group = attribute(node, "group", 1)
                if group == 1:
                    changes.append((index, 1, 1))
                    continue
                weights = value_of(graph, node.input[1])
                if weights is None or weights.shape[:2] != (group, 1):
                    return None
                groups.append(index)
                changes += [(index, at, 0) for at, one in enumerate(node.input) if at and one]
            elif is_op(node, "BatchNormalization"):
                changes += [(index, at, 0) for at in _PARAMETERS]
            elif is_op(node, *_JOINING):
                joined.add(index)
            elif not (is_op(node, *_THROUGH) and node.input[0] == name and _is_even(graph, node)):
                return None
            waiting.append(node.output[0])
    for index in joined:
        if not all(name in reached or _is_single(graph, name) for name in graph.nodes[index].input):
            return None
    return _applied(graph, changes, groups, width)


def _is_even(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    """True if constants it reads are the same for every channel."""
    return all(not name or _is_single(graph, name) for name in node.input[1:])


def _is_single(graph: ModelGraph, name: str) -> bool:
    value = graph.initializers.get(name)
    return value is not None and int(np.prod(value.dims, dtype=np.int64)) == 1


def _applied(
    graph: ModelGraph, changes: list[tuple[int, int, int]], groups: list[int], width: int
) -> onnx.ModelProto | None:
    model = without_shapes(graph.proto)
    for index, position, axis in changes:
        node = model.graph.node[index]
        name = graph.nodes[index].input[position]
        value = value_of(graph, name)
        if value is None:
            return None
        ones = is_op(node, "BatchNormalization") and position == _VARIANCE
        own = f"{name}/{_NAME}/{index}_{position}_{axis}"
        model.graph.initializer.append(
            numpy_helper.from_array(_filled(value, axis, width, float(ones)), own)
        )
        node.input[position] = own
    for index in groups:
        set_attribute(model.graph.node[index], "group", width)
    drop_unused_initializers(model.graph)
    return model


def _filled(value: Array, axis: int, width: int, fill: float) -> Array:
    cut = value[(slice(None),) * axis + (slice(width),)]
    pads = [(0, 0)] * value.ndim
    pads[axis] = (0, width - cut.shape[axis])
    return np.ascontiguousarray(np.pad(cut, pads, constant_values=fill))


CHANNELS = AdviceAction(name=_NAME, propose=propose_channels)
