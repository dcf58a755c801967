"""Convolutions whose weights are known, and may be made others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting
from aoe.graph.rewrites.reading import Array, attribute, is_op, value_of


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownConv:
    """A Conv with constant weights.

    Attributes:
        node: The node.
        weight: (output channels, input channels / groups, *window) float32.
        bias: (output channels) float32, None if it has none.
        groups: Number of groups.
    """

    node: onnx.NodeProto
    weight: Array
    bias: Array | None
    groups: int

    def bias_or_zero(self) -> Array:
        """Return the bias, zeros if there is none."""
        return np.zeros(self.weight.shape[0], np.float32) if self.bias is None else self.bias

    def add_to(
        self,
        rewriting: Rewriting,
        source: str,
        weight: Array,
        bias: Array | None,
        output: str = "",
    ) -> str:
        """Add a Conv with the same attributes, but the groups if those no longer fit."""
        inputs = [source, rewriting.constant(weight.astype(np.float32), "weight")]
        if bias is not None:
            inputs.append(rewriting.constant(bias.astype(np.float32), "bias"))
        return rewriting.copy(self.node, inputs, output)


def known_conv(graph: ModelGraph, node: onnx.NodeProto | None) -> KnownConv | str:
    """Return a Conv with its weights, or why they are not known."""
    if node is None or not is_op(node, "Conv"):
        return "no Conv stands there"
    weight = value_of(graph, node.input[1])
    has_bias = len(node.input) > 2 and bool(node.input[2])
    bias = value_of(graph, node.input[2]) if has_bias else None
    if weight is None or (has_bias and bias is None):
        return f"the weights of {node.name} are not constant"
    if weight.dtype != np.float32:
        return f"the weights of {node.name} are {weight.dtype}"
    return KnownConv(node=node, weight=weight, bias=bias, groups=attribute(node, "group", 1))
