"""Channels filled up to whole vectors, so that a Concat of them stays in the blocked layout.

ONNX Runtime joins tensors in its blocked layout only if each has a multiple of the block's
channels. Convolutions that make a few channels more (zeros, which the readers give no weight) keep
it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.chains import ChannelChain, chain_before, chain_behind
from aoe.graph.rewrites.convolution.weights import KnownConv, known_conv
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import Array, attribute, is_op, nodes_of, only_reader, shape_of

_NAME = "channels-to-whole-blocks"
_BLOCK = 16
"""Channels of a block with AVX-512, and two of them with AVX2."""
_MOST_GROWTH = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """An input of the Concat: a Conv and its chain, and how many channels it makes."""

    chain: ChannelChain
    conv: KnownConv
    index: int
    channels: int

    @property
    def wide(self) -> int:
        """Channels in whole blocks."""
        return -(-self.channels // _BLOCK) * _BLOCK


def find_narrow(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Concats of Convs that leave a block unfilled."""
    for index, node in nodes_of(graph, "Concat"):
        shapes = [shape_of(graph, name) for name in node.input]
        known = [shape for shape in shapes if shape is not None and len(shape) == 4]
        if len(known) < len(shapes) or attribute(node, "axis", 0) not in (1, -3):
            continue
        if all(shape[1] % _BLOCK == 0 for shape in known):
            continue
        parts = [_part(graph, name) for name in node.input]
        wrong = next((part for part in parts if isinstance(part, str)), None)
        if wrong is not None or len(set(node.input)) < len(parts):
            yield refuse(graph, _NAME, [index], wrong or "a part is joined twice")
        else:
            yield _widened(graph, index, [part for part in parts if isinstance(part, _Part)])


def _part(graph: ModelGraph, name: str) -> _Part | str:
    if only_reader(graph, name) is None:
        return f"{name} is read by others too"
    chain = chain_behind(graph, name, lambda node: is_op(node, "Conv"))
    if isinstance(chain, str):
        return chain
    index = graph.producer[chain.source]
    conv = known_conv(graph, graph.nodes[index])
    if isinstance(conv, str):
        return conv
    if conv.groups != 1:
        return f"{conv.node.name} has {conv.groups} groups"
    return _Part(chain=chain, conv=conv, index=index, channels=conv.weight.shape[0])


def _widened(graph: ModelGraph, index: int, parts: list[_Part]) -> Finding:
    nodes = [index, *(at for part in parts for at in (part.index, *part.chain.nodes))]
    total, wide = sum(p.channels for p in parts), sum(p.wide for p in parts)
    found = chain_before(graph, graph.nodes[index].output[0], stop=("Conv",))
    if isinstance(found, str):
        return refuse(graph, _NAME, nodes, found)
    behind, reader = found
    conv = known_conv(graph, graph.nodes[reader])
    if isinstance(conv, str) or conv.groups != 1:
        why = conv if isinstance(conv, str) else f"{conv.node.name} has {conv.groups} groups"
        return refuse(graph, _NAME, [*nodes, reader], why)
    if wide > _MOST_GROWTH * total:
        return refuse(graph, _NAME, nodes, f"{total} channels would become {wide}")
    rewriting = Rewriting(graph, _NAME, [*nodes, *behind.nodes, reader])
    made = [_wide_part(graph, rewriting, part) for part in parts]
    joined = rewriting.copy(graph.nodes[index], made)
    bounds = [0, *np.cumsum([part.channels for part in parts]).tolist()]

    def filled(values: Array, value: float = 0) -> Array:
        pieces = [
            _fill(values[start:end], part.wide, value)
            for part, (start, end) in zip(parts, pairwise(bounds), strict=True)
        ]
        return np.concatenate(pieces)

    if behind.nodes:
        joined = behind.replay(graph, rewriting, joined, partial(filled, value=1))
    weight = filled(conv.weight.swapaxes(0, 1)).swapaxes(0, 1)
    conv.add_to(rewriting, joined, weight, conv.bias, conv.node.output[0])
    return rewriting.finish()


def _wide_part(graph: ModelGraph, rewriting: Rewriting, part: _Part) -> str:
    bias = None if part.conv.bias is None else _fill(part.conv.bias, part.wide)
    weight = _fill(part.conv.weight, part.wide)
    made = part.conv.add_to(rewriting, part.conv.node.input[0], weight, bias)
    if not part.chain.nodes:
        return made
    pick = partial(_fill, extent=part.wide, value=1)  # any number will do, but a division by 0
    return part.chain.replay(graph, rewriting, made, pick)


def _fill(values: Array, extent: int, value: float = 0) -> Array:
    """Return `values` with `value` behind them, `extent` along the first axis."""
    missing = np.full((extent - len(values), *values.shape[1:]), value, values.dtype)
    return np.concatenate([values, missing])


WIDEN_RULE = RewriteRule(
    name=_NAME,
    what="Convs that a Concat joins make whole blocks of channels, the Conv behind skips the rest",
    needs="constant weights, one group; one reader each; finite inputs (a zero weight of infinity"
    " is not a number)",
    tolerance=1e-4,
    find=find_narrow,
)
