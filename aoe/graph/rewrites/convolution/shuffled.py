"""A channel shuffle in front of a convolution: the weights are put in another order instead."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.chains import ChannelChain, chain_before
from aoe.graph.rewrites.convolution.weights import KnownConv, known_conv
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, attribute, is_op, nodes_of, only_reader, shape_of

_NAME = "shuffle-into-weights"


def find_shuffles(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Reshape, Transpose, Reshape that put channels in another order."""
    for index, transpose in nodes_of(graph, "Transpose"):
        made_by = graph.producer.get(transpose.input[0])
        reader = only_reader(graph, transpose.output[0])
        if made_by is None or reader is None:
            continue
        first, last = graph.nodes[made_by], graph.nodes[reader]
        if not (is_op(first, "Reshape") and is_op(last, "Reshape")):
            continue
        order = _order(graph, first.input[0], transpose.input[0], last.output[0], transpose)
        if order is not None:
            yield _unshuffled(graph, [made_by, index, reader], order)


def _order(
    graph: ModelGraph, source: str, apart: str, result: str, transpose: onnx.NodeProto
) -> Array | None:
    """Return which channel of the source each channel of the result is."""
    shapes = [shape_of(graph, name) for name in (source, apart, result)]
    if shapes[0] is None or shapes[1] is None or shapes[0] != shapes[2]:
        return None
    whole, split = shapes[0], shapes[1]
    rank = len(split)
    if len(whole) != 4 or rank != 5 or (split[0], *split[3:]) != (whole[0], *whole[2:]):
        return None
    order = attribute(transpose, "perm", tuple(range(rank))[::-1])
    if order != (0, 2, 1, 3, 4):
        return None
    return np.arange(whole[1]).reshape(split[1], split[2]).T.reshape(-1)


def _unshuffled(graph: ModelGraph, nodes: list[int], order: Array) -> Finding:
    shuffled = graph.nodes[nodes[-1]].output[0]
    found = chain_before(graph, shuffled, stop=("Conv",))
    if isinstance(found, str):
        return refuse(graph, _NAME, nodes, found)
    chain, reader = found
    conv = known_conv(graph, graph.nodes[reader])
    source = graph.nodes[nodes[0]].input[0]
    if isinstance(conv, str):
        return refuse(graph, _NAME, [*nodes, reader], conv)
    if conv.groups == 1:
        members = [*nodes, *chain.nodes, reader]
        return _reordered(graph, members, chain, conv, order, source)
    if conv.groups != conv.weight.shape[0] or conv.weight.shape[1] != 1:
        why = f"{conv.node.name} has {conv.groups} groups, whose channels stand together"
        return refuse(graph, _NAME, [*nodes, reader], why)
    return _through_depthwise(graph, [*nodes, *chain.nodes, reader], (chain, conv), order, source)


def _reordered(
    graph: ModelGraph,
    nodes: list[int],
    chain: ChannelChain,
    conv: KnownConv,
    order: Array,
    source: str,
) -> Finding:
    rewriting = Rewriting(graph, _NAME, nodes)
    back = np.argsort(order)
    if chain.nodes:
        source = chain.replay(graph, rewriting, source, itemgetter(back))
    conv.add_to(rewriting, source, conv.weight[:, back], conv.bias, conv.node.output[0])
    return rewriting.finish()


def _through_depthwise(
    graph: ModelGraph,
    nodes: list[int],
    first: tuple[ChannelChain, KnownConv],
    order: Array,
    source: str,
) -> Finding:
    """Go on behind a depthwise Conv, which keeps channels apart."""
    before, depthwise = first
    found = chain_before(graph, depthwise.node.output[0], stop=("Conv",))
    if isinstance(found, str):
        return refuse(graph, _NAME, nodes, found)
    behind, reader = found
    conv = known_conv(graph, graph.nodes[reader])
    members = [*nodes, *behind.nodes, reader]
    if isinstance(conv, str):
        return refuse(graph, _NAME, members, conv)
    if conv.groups != 1:
        why = f"{conv.node.name} has {conv.groups} groups, whose channels stand together"
        return refuse(graph, _NAME, members, why)
    rewriting = Rewriting(graph, _NAME, members)
    pick = itemgetter(np.argsort(order))
    if before.nodes:
        source = before.replay(graph, rewriting, source, pick)
    bias = None if depthwise.bias is None else pick(depthwise.bias)
    made = depthwise.add_to(rewriting, source, pick(depthwise.weight), bias)
    if behind.nodes:
        made = behind.replay(graph, rewriting, made, pick)
    weight = conv.weight[:, np.argsort(order)]
    conv.add_to(rewriting, made, weight, conv.bias, conv.node.output[0])
    return rewriting.finish()


SHUFFLE_RULE = RewriteRule(
    name=_NAME,
    what="Channel shuffle in front of a Conv becomes another order of that Conv's weights",
    needs="constant weights, one group; only element-wise operators and a depthwise Conv between",
    tolerance=1e-4,
    find=find_shuffles,
)
