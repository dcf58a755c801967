"""A transposed convolution whose windows do not overlap: a pointwise one and a pixel shuffle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, nodes_of, value_of

_NAME = "transposed-to-pixel-shuffle"
_SINCE = 11
"""Opset in which DepthToSpace has the order of channels of a weight."""


def find_apart(graph: ModelGraph) -> Iterator[Finding]:
    """Yield ConvTransposes whose stride is their kernel."""
    for index, node in nodes_of(graph, "ConvTranspose"):
        weight = value_of(graph, node.input[1])
        has_bias = len(node.input) > 2 and bool(node.input[2])
        bias = value_of(graph, node.input[2]) if has_bias else None
        if weight is None or (has_bias and bias is None):
            yield refuse(graph, _NAME, [index], "the weights are not constant")
            continue
        why = _unfit(node, weight)
        if not why and graph.opset("") < _SINCE:
            why = f"opset {graph.opset('')} has no DepthToSpace by columns, {_SINCE} does"
        if why:
            yield refuse(graph, _NAME, [index], why)
        else:
            yield _shuffled(graph, index, weight, bias)


def _unfit(node: onnx.NodeProto, weight: Array) -> str:
    given = attributes_of(node)
    window = weight.shape[2:]
    if len(window) != 2 or window[0] != window[1] or window[0] < 2:
        return f"its kernel is {window}"
    if given.get("strides", (1, 1)) != window:
        return f"its windows overlap: strides are {given.get('strides', (1, 1))}"
    if given.get("group", 1) != 1:
        return f"it has {given['group']} groups"
    if given.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return f"it pads as {given['auto_pad']}"
    for name in ("pads", "output_padding", "output_shape"):
        if any(given.get(name, ())):
            return f"its {name} are {given[name]}"
    return "" if all(step == 1 for step in given.get("dilations", ())) else "it is dilated"


def _shuffled(graph: ModelGraph, index: int, weight: Array, bias: Array | None) -> Finding:
    node = graph.nodes[index]
    channels, outputs, size = weight.shape[:3]
    rewriting = Rewriting(graph, _NAME, [index])
    rows = weight.transpose(1, 2, 3, 0).reshape(outputs * size * size, channels, 1, 1)
    inputs = [node.input[0], rewriting.constant(rows, "weight")]
    if bias is not None:
        inputs.append(rewriting.constant(np.repeat(bias, size * size), "bias"))
    made = rewriting.add("Conv", inputs, kernel_shape=[1, 1])
    rewriting.add("DepthToSpace", [made], node.output[0], blocksize=size, mode="CRD")
    return rewriting.finish()


TRANSPOSED_RULE = RewriteRule(
    name=_NAME,
    what="ConvTranspose whose stride is its kernel becomes a pointwise Conv and DepthToSpace",
    needs="constant weights, one group, a square kernel, no padding, opset 11",
    tolerance=1e-4,
    find=find_apart,
)
