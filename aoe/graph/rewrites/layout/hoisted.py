"""One-dimensional convolutions as two-dimensional ones of height 1, over whole chains.

ONNX Runtime has its blocked layout, and the fusions that go with it, for two dimensions only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from aoe.graph.model_graph import ModelGraph, attributes_of, subgraphs
from aoe.graph.protos import copied, refill
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import UNARY, attribute, is_op, nodes_of, shape_of, value_of

_NAME = "convolution-1d-as-2d"
_WINDOWED = ("Conv", "ConvTranspose")
_POOLS = ("MaxPool", "AveragePool")
_BROADCASTING = ("Add", "Sub", "Mul", "Div", "PRelu", "Max", "Min", "Clip")
_PER_CHANNEL = ("BatchNormalization", "InstanceNormalization")
_PER_AXIS = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0}


def find_flat(graph: ModelGraph) -> Iterator[Finding]:
    """Yield the connected pieces of a graph that compute on (batch, channels, time)."""
    members = {index for index, node in enumerate(graph.nodes) if _fits(graph, node)}
    for index, node in nodes_of(graph, "Conv"):
        shape = shape_of(graph, node.input[0])
        if index not in members and shape is not None and len(shape) == 3:
            yield refuse(graph, _NAME, [index], "its weights are not constant")
    while members:
        piece = _connected(graph, members)
        members -= piece
        if any(is_op(graph.nodes[index], "Conv") for index in piece):
            yield _lifted(graph, sorted(piece))


def _fits(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    shape = shape_of(graph, node.output[0]) if len(node.output) == 1 else None
    if shape is None or len(shape) != 3 or any(True for _ in subgraphs(node)):
        return False
    if is_op(node, *_BROADCASTING):
        return all(_is_readable(graph, name) for name in node.input if name)
    if is_op(node, "Concat"):
        return all(_is_flat(graph, name) for name in node.input)
    if not node.input or not _is_flat(graph, node.input[0]):
        return False
    if is_op(node, *_WINDOWED):
        return value_of(graph, node.input[1]) is not None and not _lacks_window(node)
    if is_op(node, *_PER_CHANNEL):
        return not attribute(node, "training_mode", 0)
    return is_op(node, *_POOLS, *UNARY)


def _is_flat(graph: ModelGraph, name: str) -> bool:
    """Return True for a tensor over (batch, channels, time)."""
    return len(shape_of(graph, name) or ()) == 3


def _lacks_window(node: onnx.NodeProto) -> bool:
    return is_op(node, "ConvTranspose") and bool(attribute(node, "output_shape", ()))


def _is_readable(graph: ModelGraph, name: str) -> bool:
    if value_of(graph, name) is not None:
        return True
    shape = shape_of(graph, name)
    return shape is not None and len(shape) in (0, 3)


def _connected(graph: ModelGraph, members: set[int]) -> set[int]:
    found, waiting = set(), [min(members)]
    while waiting:
        index = waiting.pop()
        if index in found:
            continue
        found.add(index)
        node = graph.nodes[index]
        near = [graph.producer.get(name) for name in node.input if name]
        near += [at for name in node.output for at in graph.consumers.get(name, ())]
        waiting += [at for at in near if at is not None and at in members]
    return found


def _lifted(graph: ModelGraph, piece: list[int]) -> Finding:
    rewriting = Rewriting(graph, _NAME, piece)
    lifting = _Lifting(graph, rewriting, set(piece))
    for index in piece:
        lifting.lift(graph.nodes[index])
    return rewriting.finish()


class _Lifting:
    """The piece while it is written again."""

    def __init__(self, graph: ModelGraph, rewriting: Rewriting, piece: set[int]) -> None:
        self._graph = graph
        self._rewriting = rewriting
        self._piece = piece
        self._lifted: dict[str, str] = {}

    def lift(self, node: onnx.NodeProto) -> None:
        """Add a node in four dimensions, and what brings its result back if others read it."""
        wide = copied(node)
        if is_op(node, *_WINDOWED, *_POOLS):
            self._widen_window(wide)
        if is_op(node, "Concat") and attribute(node, "axis", 0) == 2:
            _set(wide, "axis", 3)
        inputs = [self._read(node, at) for at in range(len(node.input))]
        made = self._rewriting.copy(wide, inputs)
        name = node.output[0]
        self._lifted[name] = made
        outside = set(self._graph.consumers.get(name, ())) - self._piece
        if outside or name in self._graph.output_names:
            shape = shape_of(self._graph, name)
            assert shape is not None  # known of everything that is lifted
            self._rewriting.reshape(made, shape, name)

    def _read(self, node: onnx.NodeProto, at: int) -> str:
        name = str(node.input[at])
        if not name or (at and _is_parameter(node, at)):
            return name
        if name in self._lifted:
            return self._lifted[name]
        value = value_of(self._graph, name)
        if value is not None:
            if value.ndim < 2:
                return name
            return self._rewriting.constant(np.expand_dims(value, -2), "lifted")
        shape = shape_of(self._graph, name)
        if not shape:
            return name
        made = self._rewriting.reshape(name, (*shape[:2], 1, shape[2]))
        self._lifted[name] = made
        return made

    def _widen_window(self, wide: onnx.NodeProto) -> None:
        given = attributes_of(wide)
        for name, neutral in _PER_AXIS.items():
            if name in given:
                _set(wide, name, [neutral, *given[name]])
        if "pads" in given:
            before, behind = given["pads"]
            _set(wide, "pads", [0, before, 0, behind])


def _is_parameter(node: onnx.NodeProto, at: int) -> bool:
    """Return True for an input that is the same in any number of dimensions.

    Numbers of each channel, such as a bias somebody computes, and bounds are not lifted.
    """
    is_bias = at == 2 and is_op(node, *_WINDOWED)
    return is_bias or is_op(node, *_PER_CHANNEL, "Clip")


def _set(node: onnx.NodeProto, name: str, value: int | list[int]) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    refill(node.attribute, [*kept, helper.make_attribute(name, value)])


LIFT_RULE = RewriteRule(
    name=_NAME,
    what="Chains of Convs over (batch, channels, time) are computed as images of height 1",
    needs="constant weights; known shapes; what a MaxPool makes of NaN may change",
    tolerance=1e-4,
    find=find_flat,
    is_divisible=True,
)
