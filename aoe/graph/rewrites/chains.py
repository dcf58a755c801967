"""Element-wise operators behind a tensor of channels, which may be computed channel by channel."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting
from aoe.graph.rewrites.reading import UNARY, Array, is_op, maker, shape_of, value_of

_OF_TWO = ("Add", "Sub", "Mul", "Div", "PRelu", "Max", "Min", "Pow")
_MOST_NODES = 12
_MOST_BEFORE = 4

Pick = Callable[[Array], Array]
"""Returns constants of other channels, given those of all: both (C,) float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChain:
    """Operators between one tensor and another one of the same shape.

    Attributes:
        source: The tensor they read.
        nodes: Their indices in topological order; () if there are none.
        end: The tensor they make.
    """

    source: str
    nodes: tuple[int, ...]
    end: str

    def replay(
        self, graph: ModelGraph, rewriting: Rewriting, source: str, pick: Pick, output: str = ""
    ) -> str:
        """Add copies of the operators on other channels and return what they make.

        Args:
            graph: The model.
            rewriting: Where they are added.
            source: What they read.
            pick: Makes constants per channel those of the other channels.
            output: Name of the result; made up if empty.
        """
        made = {self.source: source}
        for index in self.nodes:
            node = graph.nodes[index]
            inputs = [
                made[name] if name in made else _picked(graph, rewriting, node, name, pick)
                for name in node.input
            ]
            wanted = output if node.output[0] == self.end else ""
            made[node.output[0]] = rewriting.copy(node, inputs, wanted)
        return made[self.end]


def chain_behind(
    graph: ModelGraph, end: str, is_source: Callable[[onnx.NodeProto], bool]
) -> ChannelChain | str:
    """Return the chain that makes `end` of the result of a node, or why there is none.

    Args:
        graph: The model.
        end: Its result, float32 of at least 3 dimensions, channels second.
        is_source: Tells the node the chain begins behind.
    """
    shape = shape_of(graph, end)
    if shape is None or len(shape) < 3:
        return f"{end} is no float32 tensor of channels with a known shape"
    found: set[int] = set()
    sources: set[str] = set()
    waiting = [end]
    while waiting:
        name = waiting.pop()
        index = graph.producer.get(name)
        node = maker(graph, name)
        if node is None or index is None:
            return f"{name} is made by no node"
        if is_source(node):
            sources.add(name)
            continue
        why = _unfit(graph, node, shape)
        if why or len(found) >= _MOST_NODES:
            return why or f"more than {_MOST_NODES} operators stand before {end}"
        found.add(index)
        waiting += [read for read in node.input if read and value_of(graph, read) is None]
    if len(sources) != 1:
        return f"{end} comes from {len(sources)} tensors"
    return ChannelChain(source=sources.pop(), nodes=tuple(sorted(found)), end=end)


def chain_before(
    graph: ModelGraph, start: str, *, stop: Collection[str]
) -> tuple[ChannelChain, int] | str:
    """Return the operators of one reader each from `start` to a node of a type, and that node.

    Args:
        graph: The model.
        start: float32 of at least 3 dimensions, channels second.
        stop: Types the reader at the end may have.
    """
    shape = shape_of(graph, start)
    if shape is None or len(shape) < 3:
        return f"{start} is no float32 tensor of channels with a known shape"
    nodes: list[int] = []
    name = start
    while True:
        readers = graph.consumers.get(name, ())
        if len(readers) != 1:
            return f"{name} has {len(readers)} readers"
        node = graph.nodes[readers[0]]
        if is_op(node, *stop):
            return ChannelChain(source=start, nodes=tuple(nodes), end=name), readers[0]
        why = _unfit(graph, node, shape)
        dense = [read for read in node.input if read and value_of(graph, read) is None]
        if why or len(nodes) == _MOST_BEFORE or dense != [name]:
            return why or f"{node.name} is not element-wise in {name} alone"
        nodes.append(readers[0])
        name = node.output[0]


def _unfit(graph: ModelGraph, node: onnx.NodeProto, shape: tuple[int, ...]) -> str:
    """Return the reason why a node does not belong to a chain; empty if it does."""
    if shape_of(graph, node.output[0]) != shape:
        return f"{node.name} changes the shape"
    if is_op(node, *UNARY):
        return ""
    if is_op(node, "Clip") and all(_is_number(graph, name) for name in node.input[1:]):
        return ""
    if is_op(node, "BatchNormalization") and len(node.output) == 1:
        known = all(value_of(graph, name) is not None for name in node.input[1:])
        return "" if known else f"{node.name} has parameters that are not constant"
    if not is_op(node, *_OF_TWO) or len(node.input) != 2:
        return f"{node.op_type} {node.name} is not element-wise"
    for name in node.input:
        value = value_of(graph, name)
        if value is None and shape_of(graph, name) != shape:
            return f"{node.name} broadcasts {name}"
        if value is not None and value.size != 1 and _channel_axis(value, shape) is None:
            return f"{node.name} reads {name}, neither one number nor one per channel"
    return ""


def _is_number(graph: ModelGraph, name: str) -> bool:
    value = value_of(graph, name) if name else None
    return not name or (value is not None and value.size == 1)


def _channel_axis(value: Array, shape: tuple[int, ...]) -> int | None:
    """Return the axis of the channels in a constant that is one number per channel."""
    axis = value.ndim - (len(shape) - 1)
    if value.dtype != np.float32 or axis < 0 or value.size != shape[1]:
        return None
    return axis if value.shape[axis] == shape[1] else None


def _picked(
    graph: ModelGraph, rewriting: Rewriting, node: onnx.NodeProto, name: str, pick: Pick
) -> str:
    value = value_of(graph, name) if name else None
    per_channel = is_op(node, "BatchNormalization") or (value is not None and value.size > 1)
    if value is None or not per_channel:
        return name
    picked = pick(value.reshape(-1))
    rank = value.ndim
    if rank > 1:
        axis = next(at for at, extent in enumerate(value.shape) if extent == value.size)
        picked = picked.reshape(tuple(-1 if at == axis else 1 for at in range(rank)))
    return rewriting.constant(picked, "channels")
