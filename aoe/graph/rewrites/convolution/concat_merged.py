"""A convolution of joined channels: a sum of convolutions, and nothing is joined.

A convolution is linear in its input channels, so what a Concat would copy is convolved where it
lies; ONNX Runtime adds up in the convolutions themselves (their `Sum` input).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.chains import ChannelChain, chain_behind
from aoe.graph.rewrites.convolution.weights import KnownConv, known_conv
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import attribute, is_op, nodes_of, shape_of

_NAME = "concat-convolution-sum"
_MOST_PARTS = 8


def find_joined(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Convs whose input is a Concat of channels, or a chain behind one."""
    for index, node in nodes_of(graph, "Conv"):
        chain = chain_behind(graph, node.input[0], lambda maker: is_op(maker, "Concat"))
        if isinstance(chain, str):
            continue
        conv = known_conv(graph, node)
        nodes = [graph.producer[chain.source], *chain.nodes, index]
        if isinstance(conv, str):
            yield refuse(graph, _NAME, nodes, conv)
        elif conv.groups != 1:
            yield refuse(graph, _NAME, nodes, f"the Conv has {conv.groups} groups")
        else:
            yield _summed(graph, nodes, chain, conv)


def _summed(graph: ModelGraph, nodes: list[int], chain: ChannelChain, conv: KnownConv) -> Finding:
    concat = graph.nodes[nodes[0]]
    shapes = [shape_of(graph, name) for name in concat.input]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or attribute(concat, "axis", 0) % len(known[0]) != 1:
        return refuse(graph, _NAME, nodes, "what is joined are no channels of known shape")
    if not 2 <= len(known) <= _MOST_PARTS:
        return refuse(graph, _NAME, nodes, f"{len(known)} parts, not 2 to {_MOST_PARTS}")
    rewriting = Rewriting(graph, _NAME, nodes)
    bounds = [0, *np.cumsum([shape[1] for shape in known]).tolist()]
    total = ""
    for number, (start, end) in enumerate(pairwise(bounds)):
        part = concat.input[number]
        if chain.nodes:
            part = chain.replay(graph, rewriting, part, itemgetter(slice(start, end)))
        bias = None if number else conv.bias
        made = conv.add_to(rewriting, part, conv.weight[:, start:end], bias)
        is_last = number == len(known) - 1
        output = conv.node.output[0] if is_last else ""
        total = rewriting.add("Add", [made, total], output) if total else made
    return rewriting.finish()


JOINED_RULE = RewriteRule(
    name=_NAME,
    what="Concat of channels, element-wise operators and a Conv become a sum of Convs",
    needs=f"constant weights, one group, at most {_MOST_PARTS} parts; nobody else reads the Concat",
    tolerance=1e-4,
    find=find_joined,
)
