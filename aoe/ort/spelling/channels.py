"""Layer normalisation of channels that is written in parts, as one operator between Transposes.

Networks in planes that have no operator for it take the mean over the channels off, divide by the
root of the mean square, scale and add (`LayerNorm2d` of Segment Anything, the first ConvNeXt). ONNX
Runtime joins such parts along the last axis alone, and walks the tensor for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.protos import copied, refill
from aoe.ort.spelling.reading import PartsReading, known_tensors

_SINCE = 17
"""Opset with LayerNormalization."""
_RANK_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A normalisation that is written in parts.

    Attributes:
        source: Name of what is normalised.
        rank: Of it.
        scale: Factor of each channel.
        bias: Summand of each channel.
        epsilon: Added to the mean square.
        nodes: Indices of its nodes, the last one makes the result.
    """

    source: str
    rank: int
    scale: np.ndarray[Any, Any]
    bias: np.ndarray[Any, Any]
    epsilon: float
    nodes: tuple[int, ...]


def join_channel_parts(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which float32 normalisations of channels are one operator each.

    The model itself, if there is none.
    """
    opset = max((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), default=1)
    roots = [at for at, node in enumerate(proto.graph.node) if node.op_type == "Sqrt"]
    if opset < _SINCE or not roots:
        return proto
    reading = _Reading(proto)
    found = [parts for at in roots if (parts := reading.parts_around(at)) is not None]
    if not found:
        return proto
    joined = copied(proto)
    gone = {at for parts in found for at in parts.nodes}
    ending = {parts.nodes[-1]: parts for parts in found}
    nodes: list[onnx.NodeProto] = []
    for at, node in enumerate(proto.graph.node):
        if at in ending:
            nodes += _operators(ending[at], node, joined.graph)
        elif at not in gone:
            nodes.append(node)
    refill(joined.graph.node, nodes)
    return joined


def _operators(
    parts: _Parts, last: onnx.NodeProto, graph: onnx.GraphProto
) -> Iterator[onnx.NodeProto]:
    """Yield the replacements of the parts; the last one has their name and result."""
    result, rank = last.output[0], parts.rank
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    prefix = f"{result}_channels"
    while any(name.startswith(prefix) for name in taken):
        prefix += "_"
    words = ("last", "normalized", "scale", "bias")
    rows, normalized, scale, bias = (f"{prefix}_{what}" for what in words)
    graph.initializer.append(numpy_helper.from_array(parts.scale, scale))
    graph.initializer.append(numpy_helper.from_array(parts.bias, bias))
    forth, back = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
    yield helper.make_node("Transpose", [parts.source], [rows], rows, perm=forth)
    yield helper.make_node(
        "LayerNormalization",
        [rows, scale, bias],
        [normalized],
        normalized,
        axis=-1,
        epsilon=parts.epsilon,
    )
    yield helper.make_node("Transpose", [normalized], [result], last.name, perm=back)


class _Reading(PartsReading):
    """A model while parts are looked for."""

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        known = known_tensors(self.proto).items()
        return {name: info.shape for name, info in known if info.dtype == "float32"}

    def parts_around(self, root: int) -> _Parts | None:
        """Return the normalisation a Sqrt is part of, None if there is none."""
        summed = self.maker(self.nodes[root].input[0], "Add")
        divided = self.reader(root, "Div")
        if summed is None or divided is None:
            return None
        if self.nodes[divided].input[1] != self.nodes[root].output[0]:
            return None
        squares, epsilon = self.with_constant(summed)
        deviation = self.maker(self.nodes[divided].input[0], "Sub")
        mean_square = self.mean_over(1, squares)
        if deviation is None or mean_square is None or epsilon is None or epsilon.size != 1:
            return None
        source, first = self._deviation(deviation)
        squared = self._squared(self.nodes[mean_square].input[0])
        if squared is None or first is None:
            return None
        inner, second = self._deviation(squared[1])
        shape = self._shapes.get(source, ()) if inner == source else ()
        if second is None or len(shape) < _RANK_MIN or shape[1] < 1:
            return None
        chain, scale, bias = self._behind(divided, len(shape), shape[1])
        nodes = {first, second, deviation, *squared, mean_square, summed, root, divided, *chain}
        ordered = tuple(sorted(nodes))
        if not self.is_closed(ordered):
            return None
        return _Parts(
            source=source,
            rank=len(shape),
            scale=scale,
            bias=bias,
            epsilon=float(epsilon.reshape(-1)[0]),
            nodes=ordered,
        )

    def _deviation(self, at: int) -> tuple[str, int | None]:
        """Return input and mean of a Sub that centres channels."""
        source, taken = self.nodes[at].input
        mean = self.mean_over(1, taken)
        is_own = mean is not None and self.nodes[mean].input[0] == source
        return source, mean if is_own else None

    def _squared(self, name: str) -> tuple[int, int] | None:
        """Return the node that squares a difference, and the Sub that makes it."""
        at = self.maker(name, "Pow", "Mul")
        if at is None:
            return None
        made = self.maker(self.nodes[at].input[0], "Sub")
        return (at, made) if self.is_square(at) and made is not None else None

    def _behind(
        self, divided: int, rank: int, channels: int
    ) -> tuple[tuple[int, ...], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the nodes behind another that scale channels, their factor and their summand."""
        scale, bias = np.ones(channels, np.float32), np.zeros(channels, np.float32)
        scaled = self.reader(divided, "Mul")
        factor = None if scaled is None else self._of_channels(scaled, rank, channels)
        if scaled is None or factor is None:
            return (), scale, bias
        added = self.reader(scaled, "Add")
        summand = None if added is None else self._of_channels(added, rank, channels)
        if added is None or summand is None:
            return (scaled,), factor, bias
        return (scaled, added), factor, summand

    def _of_channels(self, at: int, rank: int, channels: int) -> np.ndarray[Any, Any] | None:
        """Return the constant of one value per channel a node reads."""
        _, value = self.with_constant(at)
        if value is None or value.dtype != np.float32 or value.ndim > rank:
            return None
        shape = (1,) * (rank - value.ndim) + value.shape
        is_of_channels = shape == (1, channels, *(1,) * (rank - 2))
        return value.reshape(-1) if is_of_channels else None
