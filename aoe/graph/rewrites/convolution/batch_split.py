"""A convolution whose channels are divided: one convolution for each part.

What the C2f block of detectors does: a convolution, its activation and a Split. ONNX Runtime
copies both parts out of the blocked layout; convolutions over slices of the weights make the
parts where they are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from operator import itemgetter

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.chains import ChannelChain, chain_behind
from aoe.graph.rewrites.convolution.weights import known_conv
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import any_shape_of, attribute, is_op, nodes_of

_NAME = "convolution-split"


def find_divided(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Splits of channels behind a Conv and element-wise operators."""
    for index, split in nodes_of(graph, "Split"):
        shape = any_shape_of(graph, split.input[0])
        if shape is None or len(shape) < 3 or attribute(split, "axis", 0) % len(shape) != 1:
            continue
        chain = chain_behind(graph, split.input[0], lambda node: is_op(node, "Conv"))
        if isinstance(chain, str):
            yield refuse(graph, _NAME, [index], chain)
            continue
        yield _divided(graph, index, chain)


def _divided(graph: ModelGraph, index: int, chain: ChannelChain) -> Finding:
    split = graph.nodes[index]
    made_by = graph.producer[chain.source]
    nodes = [made_by, *chain.nodes, index]
    conv = known_conv(graph, graph.nodes[made_by])
    if isinstance(conv, str):
        return refuse(graph, _NAME, nodes, conv)
    shapes = [any_shape_of(graph, name) for name in split.output]
    extents = [shape[1] for shape in shapes if shape is not None]
    if len(extents) < len(shapes) or 0 in extents:
        return refuse(graph, _NAME, nodes, "the parts have no known shape")
    if conv.groups != 1:
        why = f"its {conv.groups} groups read parts of the input each"
        return refuse(graph, _NAME, nodes, why)
    rewriting = Rewriting(graph, _NAME, nodes)
    bounds = [0, *np.cumsum(extents).tolist()]
    for (start, end), output in zip(pairwise(bounds), split.output, strict=True):
        bias = None if conv.bias is None else conv.bias[start:end]
        name = "" if chain.nodes else output
        part = conv.add_to(rewriting, conv.node.input[0], conv.weight[start:end], bias, name)
        if chain.nodes:
            chain.replay(graph, rewriting, part, itemgetter(slice(start, end)), output)
    return rewriting.finish()


SPLIT_RULE = RewriteRule(
    name=_NAME,
    what="Conv, element-wise operators and a Split of channels become one Conv per part",
    needs="constant weights, one group; nobody else reads what is divided",
    tolerance=1e-5,  # few channels are summed in another order; parts of 16 keep their bits
    find=find_divided,
)
