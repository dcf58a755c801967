"""Group normalisation, spelled out in operators ONNX Runtime has kernels for.

Without a kernel of its own on the CPU, it is inlined as the function ONNX defines it by: two dozen
nodes, most of which walk the tensor. As an InstanceNormalization between two Reshapes it is one
walk, with a scale and a bias of channels behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import attributes_of
from aoe.graph.protos import copied, free_name, refill
from aoe.graph.weights import array_of
from aoe.ort.spelling.reading import known_tensors

_SINCE = 21
"""Opset with scale and bias per channel; the older operator is deprecated."""
_NORMALIZED = ("float32", "float16")
"""Element types ONNX Runtime normalises, the second one between casts."""


def spell_out_groups(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which group normalisations of known shape are spelled out.

    The model itself, if there is none.
    """
    opset = max((e.version for e in proto.opset_import if e.domain in ("", "ai.onnx")), default=1)
    if opset < _SINCE or not any(_is_group_normalization(node) for node in proto.graph.node):
        return proto
    spelled = copied(proto)
    spelling = _Spelling(spelled)
    nodes = [made for node in proto.graph.node for made in spelling.nodes_of(node)]
    refill(spelled.graph.node, nodes)
    return spelled


def _is_group_normalization(node: onnx.NodeProto) -> bool:
    return node.op_type == "GroupNormalization" and node.domain in ("", "ai.onnx")


class _Spelling:
    """The model while it is changed."""

    def __init__(self, proto: onnx.ModelProto) -> None:
        self._graph = proto.graph
        self._tensors = {
            name: info
            for name, info in known_tensors(proto).items()
            if info.dtype in _NORMALIZED and all(info.shape)
        }
        inputs = {value.name for value in proto.graph.input}  # a default may be overridden
        self._constants = {
            tensor.name: tensor for tensor in proto.graph.initializer if tensor.name not in inputs
        }
        self._taken = {name for node in proto.graph.node for name in (*node.input, *node.output)}
        self._taken |= inputs | set(self._constants)

    def nodes_of(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """Yield a node, or what stands for it."""
        info = self._tensors.get(node.input[0]) if node.input else None
        groups = int(attributes_of(node).get("num_groups", 0))
        constant = all(name in self._constants for name in node.input[1:])
        known = info is not None and len(info.shape) > 2 and groups > 0
        if info is None or not (_is_group_normalization(node) and known and constant):
            yield node
            return
        ones, zeros = np.ones(groups, info.dtype), np.zeros(groups, info.dtype)
        neutral = [self._constant(node, "one", ones), self._constant(node, "zero", zeros)]
        made = self._name(node, "normalized")
        yield from self._normalized(node, info.shape, groups, neutral, made)
        yield from self._scaled(node, len(info.shape), made)

    def _normalized(
        self,
        node: onnx.NodeProto,
        shape: tuple[int, ...],
        groups: int,
        parameters: list[str],
        result: str,
    ) -> Iterator[onnx.NodeProto]:
        """Yield the normalisation of `groups` between two Reshapes."""
        wide, apart = (
            self._constant(node, what, np.array(extents, np.int64))
            for what, extents in (("joined_shape", (shape[0], groups, -1)), ("shape", shape))
        )
        joined, made = self._name(node, "joined"), self._name(node, "groups")
        epsilon = float(attributes_of(node).get("epsilon", 1e-5))
        yield helper.make_node("Reshape", [node.input[0], wide], [joined], joined)
        yield helper.make_node(
            "InstanceNormalization", [joined, *parameters], [made], made, epsilon=epsilon
        )
        yield helper.make_node("Reshape", [made, apart], [result], result)

    def _scaled(self, node: onnx.NodeProto, rank: int, source: str) -> Iterator[onnx.NodeProto]:
        """Yield the scale and the bias of channels; the last node has the name of `node`."""
        scale, bias = (
            self._constant(
                node,
                what,
                array_of(self._constants[name]).reshape(-1, *(1,) * (rank - 2)),
            )
            for what, name in zip(("scale", "bias"), node.input[1:], strict=True)
        )
        made = self._name(node, "scaled")
        yield helper.make_node("Mul", [source, scale], [made], made)
        yield helper.make_node("Add", [made, bias], [node.output[0]], node.name)

    def _constant(
        self,
        node: onnx.NodeProto,
        what: str,
        value: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    ) -> str:
        name = self._name(node, what)
        self._graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def _name(self, node: onnx.NodeProto, what: str) -> str:
        name = free_name(f"{node.output[0]}_{what}", self._taken)
        self._taken.add(name)
        return name
