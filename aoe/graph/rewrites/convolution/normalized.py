"""Batch normalisation taken into the weights of the convolutions around it.

ONNX Runtime does so where a BatchNormalization stands right behind a Conv. Here it goes on into
the convolution behind it, and back through sums, joins and means to those in front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.convolution.weights import KnownConv, known_conv
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import (
    Array,
    attribute,
    is_op,
    maker,
    nodes_of,
    only_reader,
    shape_of,
    value_of,
)

_INTO_NEXT = "batch-norm-into-next"
_INTO_MAKERS = "batch-norm-into-makers"
_TRANSPARENT = ("Add", "Concat", "AveragePool", "GlobalAveragePool", "Identity", "Dropout")


def find_before(graph: ModelGraph) -> Iterator[Finding]:
    """Yield batch normalisations in front of a Conv that does not pad."""
    for index, node in nodes_of(graph, "BatchNormalization"):
        if is_op(maker(graph, node.input[0]), "Conv") and only_reader(graph, node.input[0]):
            continue  # ONNX Runtime takes it into that one
        reader = only_reader(graph, node.output[0])
        conv = None if reader is None else known_conv(graph, graph.nodes[reader])
        if reader is None or conv is None or isinstance(conv, str):
            continue
        factors = _factors(graph, node)
        auto_pad = attribute(conv.node, "auto_pad", "NOTSET")
        if isinstance(factors, str):
            yield refuse(graph, _INTO_NEXT, [index, reader], factors)
        elif auto_pad not in ("NOTSET", "VALID") or any(attribute(conv.node, "pads", ())):
            why = f"{conv.node.name} pads with zeros that are not normalised"
            yield refuse(graph, _INTO_NEXT, [index, reader], why)
        else:
            rewriting = Rewriting(graph, _INTO_NEXT, [index, reader])
            _take_in(rewriting, node.input[0], conv, *factors)
            yield rewriting.finish()


def _take_in(
    rewriting: Rewriting, source: str, conv: KnownConv, scale: Array, shift: Array
) -> None:
    """Add the Conv that scales and shifts its input channels itself."""
    outputs, width = conv.weight.shape[:2]
    first = np.repeat(np.arange(conv.groups) * width, outputs // conv.groups)
    channels = first[:, None] + np.arange(width)[None, :]  # (outputs, width): what each one reads
    spatial = (1,) * (conv.weight.ndim - 2)
    weight = conv.weight.astype(np.float64)
    summed = weight.sum(axis=tuple(range(2, weight.ndim)))
    bias = conv.bias_or_zero() + (summed * shift[channels]).sum(axis=1)
    scaled = weight * scale[channels].reshape(outputs, width, *spatial)
    conv.add_to(rewriting, source, scaled, bias, conv.node.output[0])


def find_behind(graph: ModelGraph) -> Iterator[Finding]:
    """Yield batch normalisations behind sums, joins and means of convolutions."""
    for index, node in nodes_of(graph, "BatchNormalization"):
        if not is_op(maker(graph, node.input[0]), *_TRANSPARENT):
            continue
        factors = _factors(graph, node)
        if isinstance(factors, str):
            yield refuse(graph, _INTO_MAKERS, [index], factors)
            continue
        walk = _Walk(graph=graph, nodes=[index])
        why = walk.up(node.input[0])
        if why:
            yield refuse(graph, _INTO_MAKERS, walk.nodes, why)
            continue
        rewriting = Rewriting(graph, _INTO_MAKERS, walk.nodes)
        made = _Pushing(graph, rewriting).push(node.input[0], *factors)
        rewriting.rename(made, node.output[0])
        yield rewriting.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """What lies between a batch normalisation and the convolutions that feed it."""

    graph: ModelGraph
    nodes: list[int]

    def up(self, name: str) -> str:
        """Walk to the convolutions; return why that ends elsewhere, empty if it does not."""
        index, node = self.graph.producer.get(name), maker(self.graph, name)
        if index is None or node is None:
            return f"{name} is made by no node"
        if only_reader(self.graph, name) is None:
            return f"{name} is read by others too"
        self.nodes.append(index)
        if is_op(node, "Conv"):
            conv = known_conv(self.graph, node)
            return conv if isinstance(conv, str) else ""
        if not is_op(node, *_TRANSPARENT) or len(node.output) > 1:
            return f"{node.op_type} {node.name} does not let a scale through"
        if is_op(node, "Concat") and attribute(node, "axis", 0) not in (1, -3):
            return f"{node.name} joins no channels"
        if is_op(node, "AveragePool") and attribute(node, "count_include_pad", 0):
            return f"{node.name} counts zeros that are not normalised"
        shapes = {shape_of(self.graph, read) for read in node.input}
        if is_op(node, "Add") and (len(shapes) != 1 or node.input[0] == node.input[1]):
            return f"{node.name} broadcasts"
        if None in shapes or any(len(shape) != 4 for shape in shapes if shape):
            return f"{node.name} reads what has no known shape"
        reads = node.input if is_op(node, "Add", "Concat") else node.input[:1]
        return next(filter(None, map(self.up, reads)), "")


class _Pushing:
    """Writes the nodes of a walk again, scaled and shifted."""

    def __init__(self, graph: ModelGraph, rewriting: Rewriting) -> None:
        self._graph = graph
        self._rewriting = rewriting

    def push(self, name: str, scale: Array, shift: Array) -> str:
        """Add what makes `scale * name + shift` and return its name."""
        node = maker(self._graph, name)
        assert node is not None
        conv = known_conv(self._graph, node)
        if isinstance(conv, KnownConv):
            weight = conv.weight * scale.reshape(-1, *(1,) * (conv.weight.ndim - 1))
            bias = conv.bias_or_zero() * scale + shift
            return conv.add_to(self._rewriting, node.input[0], weight, bias)
        if is_op(node, "Add"):
            parts = [
                self.push(node.input[0], scale, shift),
                self.push(node.input[1], scale, np.zeros_like(shift)),
            ]
        elif is_op(node, "Concat"):
            shapes = [shape_of(self._graph, read) for read in node.input]
            ends = np.cumsum([shape[1] for shape in shapes if shape is not None])[:-1]
            slices = zip(node.input, np.split(scale, ends), np.split(shift, ends), strict=True)
            parts = [self.push(*part) for part in slices]
        else:
            parts = [self.push(node.input[0], scale, shift)]
        return self._rewriting.copy(node, parts)


def _factors(graph: ModelGraph, node: onnx.NodeProto) -> tuple[Array, Array] | str:
    """Return scale and shift per channel, float64, or why they are not known."""
    values = [value_of(graph, name) for name in node.input[1:]]
    known = [value.astype(np.float64) for value in values if value is not None]
    if len(known) < 4 or len(node.output) > 1 or attribute(node, "training_mode", 0):
        return "its parameters are not constant"
    scale, bias, mean, variance = known
    factor = scale / np.sqrt(variance + attribute(node, "epsilon", 1e-5))
    if not (np.isfinite(factor).all() and np.isfinite(bias - mean * factor).all()):
        return "its parameters are not finite"
    return factor, bias - mean * factor


BEFORE_RULE = RewriteRule(
    name=_INTO_NEXT,
    what="BatchNormalization in front of a Conv goes into that Conv's weights",
    needs="constant parameters, a Conv without padding as the only reader, no Conv in front",
    tolerance=1e-4,
    find=find_before,
)
BEHIND_RULE = RewriteRule(
    name=_INTO_MAKERS,
    what="BatchNormalization behind sums, joins and means of Convs goes into their weights",
    needs="constant parameters; every value in between is read once",
    tolerance=1e-4,
    find=find_behind,
)
