"""Channels of convolutions and of the chains between them: split, joined, filled up, shuffled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from math import gcd, lcm
from operator import itemgetter

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.protos import copied, set_attribute
from aoe.graph.rewrites.convolution import KnownConv, known_conv
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    UNARY,
    Array,
    any_shape_of,
    attribute,
    is_op,
    maker,
    nodes_of,
    only_reader,
    shape_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

# ---- Chains of element-wise operators, which may be computed channel by channel ----

_OF_TWO = ("Add", "Sub", "Mul", "Div", "PRelu", "Max", "Min", "Pow")
_MOST_NODES = 12
_MOST_BEFORE = 4

Pick = Callable[[Array], Array]
"""Returns constants of other channels, given those of all: both (C,) float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChain:
    """Operators between one tensor and another one of the same shape."""

    source: str  # The tensor they read
    nodes: tuple[int, ...]  # Their indices in topological order; () if there are none
    end: str  # The tensor they make

    def replay(
        self, graph: ModelGraph, rewriting: Rewriting, source: str, pick: Pick, output: str = ""
    ) -> str:
        """Add copies of the operators on other channels and return what they make.

        Args:
            graph: The model.
            rewriting: Where they are added.
            source: What they read.
            pick: Makes constants per channel those of the other channels.
            output: Name of the result; made up if empty.
        """
        made = {self.source: source}
        for index in self.nodes:
            node = graph.nodes[index]
            inputs = [
                made[name] if name in made else _picked(graph, rewriting, node, name, pick)
                for name in node.input
            ]
            wanted = output if node.output[0] == self.end else ""
            made[node.output[0]] = rewriting.copy(node, inputs, wanted)
        return made[self.end]


def chain_behind(
    graph: ModelGraph, end: str, is_source: Callable[[onnx.NodeProto], bool]
) -> ChannelChain | str:
    """Return the chain that makes `end` of the result of a node, or why there is none.

    Args:
        graph: The model.
        end: Its result, float32 of at least 3 dimensions, channels second.
        is_source: Tells the node the chain begins behind.
    """
    shape = shape_of(graph, end)
    if shape is None or len(shape) < 3:
        return f"{end} is no float32 tensor of channels with a known shape"
    found: set[int] = set()
    sources: set[str] = set()
    waiting = [end]
    while waiting:
        name = waiting.pop()
        index = graph.producer.get(name)
        node = maker(graph, name)
        if node is None or index is None:
            return f"{name} is made by no node"
        if is_source(node):
            sources.add(name)
            continue
        why = _unfit(graph, node, shape)
        if why or len(found) >= _MOST_NODES:
            return why or f"more than {_MOST_NODES} operators stand before {end}"
        found.add(index)
        waiting += [read for read in node.input if read and value_of(graph, read) is None]
    if len(sources) != 1:
        return f"{end} comes from {len(sources)} tensors"
    return ChannelChain(source=sources.pop(), nodes=tuple(sorted(found)), end=end)


def chain_before(
    graph: ModelGraph, start: str, *, stop: Collection[str]
) -> tuple[ChannelChain, int] | str:
    """Return the operators of one reader each from `start` to a node of a type, and that node.

    Args:
        graph: The model.
        start: float32 of at least 3 dimensions, channels second.
        stop: Types the reader at the end may have.
    """
    shape = shape_of(graph, start)
    if shape is None or len(shape) < 3:
        return f"{start} is no float32 tensor of channels with a known shape"
    nodes: list[int] = []
    name = start
    while True:
        readers = graph.consumers.get(name, ())
        if len(readers) != 1:
            return f"{name} has {len(readers)} readers"
        node = graph.nodes[readers[0]]
        if is_op(node, *stop):
            return ChannelChain(source=start, nodes=tuple(nodes), end=name), readers[0]
        why = _unfit(graph, node, shape)
        dense = [read for read in node.input if read and value_of(graph, read) is None]
        if why or len(nodes) == _MOST_BEFORE or dense != [name]:
            return why or f"{node.name} is not element-wise in {name} alone"
        nodes.append(readers[0])
        name = node.output[0]


def _unfit(graph: ModelGraph, node: onnx.NodeProto, shape: tuple[int, ...]) -> str:
    """Return the reason why a node does not belong to a chain; empty if it does."""
    if shape_of(graph, node.output[0]) != shape:
        return f"{node.name} changes the shape"
    if is_op(node, *UNARY):
        return ""
    if is_op(node, "Clip") and all(_is_number(graph, name) for name in node.input[1:]):
        return ""
    if is_op(node, "BatchNormalization") and len(node.output) == 1:
        known = all(value_of(graph, name) is not None for name in node.input[1:])
        return "" if known else f"{node.name} has parameters that are not constant"
    if not is_op(node, *_OF_TWO) or len(node.input) != 2:
        return f"{node.op_type} {node.name} is not element-wise"
    for name in node.input:
        value = value_of(graph, name)
        if value is None and shape_of(graph, name) != shape:
            return f"{node.name} broadcasts {name}"
        if value is not None and value.size != 1 and _channel_axis(value, shape) is None:
            return f"{node.name} reads {name}, neither one number nor one per channel"
    return ""


def _is_number(graph: ModelGraph, name: str) -> bool:
    value = value_of(graph, name) if name else None
    return not name or (value is not None and value.size == 1)


def _channel_axis(value: Array, shape: tuple[int, ...]) -> int | None:
    """Return the axis of the channels in a constant that is one number per channel."""
    axis = value.ndim - (len(shape) - 1)
    if value.dtype != np.float32 or axis < 0 or value.size != shape[1]:
        return None
    return axis if value.shape[axis] == shape[1] else None


def _picked(
    graph: ModelGraph, rewriting: Rewriting, node: onnx.NodeProto, name: str, pick: Pick
) -> str:
    value = value_of(graph, name) if name else None
    per_channel = is_op(node, "BatchNormalization") or (value is not None and value.size > 1)
    if value is None or not per_channel:
        return name
    picked = pick(value.reshape(-1))
    rank = value.ndim
    if rank > 1:
        axis = next(at for at, extent in enumerate(value.shape) if extent == value.size)
        picked = picked.reshape(tuple(-1 if at == axis else 1 for at in range(rank)))
    return rewriting.constant(picked, "channels")


# ---- A convolution whose channels are divided: one convolution for each part ----
# What the C2f block of detectors does: a convolution, its activation and a Split. ONNX Runtime
# copies both parts out of the blocked layout; convolutions over slices of the weights make the
# parts where they are wanted.

_SPLIT = "convolution-split"


def find_divided(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Splits of channels behind a Conv and element-wise operators."""
    for index, split in nodes_of(graph, "Split"):
        shape = any_shape_of(graph, split.input[0])
        if shape is None or len(shape) < 3 or attribute(split, "axis", 0) % len(shape) != 1:
            continue
        chain = chain_behind(graph, split.input[0], lambda node: is_op(node, "Conv"))
        if isinstance(chain, str):
            yield refuse(graph, _SPLIT, [index], chain)
            continue
        yield _divided(graph, index, chain)


def _divided(graph: ModelGraph, index: int, chain: ChannelChain) -> Finding:
    split = graph.nodes[index]
    made_by = graph.producer[chain.source]
    nodes = [made_by, *chain.nodes, index]
    conv = known_conv(graph, graph.nodes[made_by])
    if isinstance(conv, str):
        return refuse(graph, _SPLIT, nodes, conv)
    shapes = [any_shape_of(graph, name) for name in split.output]
    extents = [shape[1] for shape in shapes if shape is not None]
    if len(extents) < len(shapes) or 0 in extents:
        return refuse(graph, _SPLIT, nodes, "the parts have no known shape")
    if conv.groups != 1:
        why = f"its {conv.groups} groups read parts of the input each"
        return refuse(graph, _SPLIT, nodes, why)
    rewriting = Rewriting(graph, _SPLIT, nodes)
    bounds = [0, *np.cumsum(extents).tolist()]
    for (start, end), output in zip(pairwise(bounds), split.output, strict=True):
        bias = None if conv.bias is None else conv.bias[start:end]
        name = "" if chain.nodes else output
        part = conv.add_to(rewriting, conv.node.input[0], conv.weight[start:end], bias, name)
        if chain.nodes:
            chain.replay(graph, rewriting, part, itemgetter(slice(start, end)), output)
    return rewriting.finish()


SPLIT_RULE = RewriteRule(
    name=_SPLIT,
    what="Conv, element-wise operators and a Split of channels become one Conv per part",
    needs="constant weights, one group; nobody else reads what is divided",
    tolerance=1e-5,  # few channels are summed in another order; parts of 16 keep their bits
    find=find_divided,
)


# ---- A convolution of joined channels: a sum of convolutions, and nothing is joined ----
# A convolution is linear in its input channels, so what a Concat would copy is convolved where it
# lies; ONNX Runtime adds up in the convolutions themselves (their `Sum` input).

_JOINED = "concat-convolution-sum"
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
            yield refuse(graph, _JOINED, nodes, conv)
        elif conv.groups != 1:
            yield refuse(graph, _JOINED, nodes, f"the Conv has {conv.groups} groups")
        else:
            yield _summed(graph, nodes, chain, conv)


def _summed(graph: ModelGraph, nodes: list[int], chain: ChannelChain, conv: KnownConv) -> Finding:
    concat = graph.nodes[nodes[0]]
    shapes = [shape_of(graph, name) for name in concat.input]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or attribute(concat, "axis", 0) % len(known[0]) != 1:
        return refuse(graph, _JOINED, nodes, "what is joined are no channels of known shape")
    if not 2 <= len(known) <= _MOST_PARTS:
        return refuse(graph, _JOINED, nodes, f"{len(known)} parts, not 2 to {_MOST_PARTS}")
    rewriting = Rewriting(graph, _JOINED, nodes)
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
    name=_JOINED,
    what="Concat of channels, element-wise operators and a Conv become a sum of Convs",
    needs=f"constant weights, one group, at most {_MOST_PARTS} parts; nobody else reads the Concat",
    tolerance=1e-4,
    find=find_joined,
)


# ---- Channels filled up to whole blocks ----
# ONNX Runtime joins tensors in its blocked layout only if each has a multiple of the block's
# channels. Convolutions that make a few channels more (zeros, which the readers give no weight)
# keep the Concat in that layout.

_WIDENED = "channels-to-whole-blocks"
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
            yield refuse(graph, _WIDENED, [index], wrong or "a part is joined twice")
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
        return refuse(graph, _WIDENED, nodes, found)
    behind, reader = found
    conv = known_conv(graph, graph.nodes[reader])
    if isinstance(conv, str) or conv.groups != 1:
        why = conv if isinstance(conv, str) else f"{conv.node.name} has {conv.groups} groups"
        return refuse(graph, _WIDENED, [*nodes, reader], why)
    if wide > _MOST_GROWTH * total:
        return refuse(graph, _WIDENED, nodes, f"{total} channels would become {wide}")
    rewriting = Rewriting(graph, _WIDENED, [*nodes, *behind.nodes, reader])
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
    name=_WIDENED,
    what="Convs that a Concat joins make whole blocks of channels, the Conv behind skips the rest",
    needs="constant weights, one group; one reader each; finite inputs (a zero weight of infinity"
    " is not a number)",
    tolerance=1e-4,
    find=find_narrow,
)


# ---- A channel shuffle in front of a convolution: another order of its weights ----

_SHUFFLED = "shuffle-into-weights"


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
    """Return the channel of the source for each channel of the result."""
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
        return refuse(graph, _SHUFFLED, nodes, found)
    chain, reader = found
    conv = known_conv(graph, graph.nodes[reader])
    source = graph.nodes[nodes[0]].input[0]
    if isinstance(conv, str):
        return refuse(graph, _SHUFFLED, [*nodes, reader], conv)
    if conv.groups == 1:
        members = [*nodes, *chain.nodes, reader]
        return _reordered(graph, members, chain, conv, order, source)
    if conv.groups != conv.weight.shape[0] or conv.weight.shape[1] != 1:
        why = f"{conv.node.name} has {conv.groups} groups, whose channels stand together"
        return refuse(graph, _SHUFFLED, [*nodes, reader], why)
    return _through_depthwise(graph, [*nodes, *chain.nodes, reader], (chain, conv), order, source)


def _reordered(
    graph: ModelGraph,
    nodes: list[int],
    chain: ChannelChain,
    conv: KnownConv,
    order: Array,
    source: str,
) -> Finding:
    rewriting = Rewriting(graph, _SHUFFLED, nodes)
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
        return refuse(graph, _SHUFFLED, nodes, found)
    behind, reader = found
    conv = known_conv(graph, graph.nodes[reader])
    members = [*nodes, *behind.nodes, reader]
    if isinstance(conv, str):
        return refuse(graph, _SHUFFLED, members, conv)
    if conv.groups != 1:
        why = f"{conv.node.name} has {conv.groups} groups, whose channels stand together"
        return refuse(graph, _SHUFFLED, members, why)
    rewriting = Rewriting(graph, _SHUFFLED, members)
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
    name=_SHUFFLED,
    what="Channel shuffle in front of a Conv becomes another order of that Conv's weights",
    needs="constant weights, one group; only element-wise operators and a depthwise Conv between",
    tolerance=1e-4,
    find=find_shuffles,
)


# ---- Several filters for each channel: one depthwise convolution after the other ----
# ONNX Runtime has blocked convolutions with one filter a channel. With two (FastViT, EEGNet) it
# leaves the blocked layout and gathers what each filter reads. The first filters of all channels
# are a depthwise convolution, the second ones another; the convolution behind reads their results
# joined, with its weights in that order.

_FILTERS = "channel-filters-apart"
_MOST_FILTERS = 4


def find_multiplied(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Convs with two to four filters for each channel that another Conv reads."""
    if not any(_filters_of(graph, node) > 1 for _, node in nodes_of(graph, "Conv")):
        return  # before anybody asks for shapes
    for index, node in nodes_of(graph, "Conv"):
        chain = chain_behind(graph, node.input[0], lambda maker: is_op(maker, "Conv"))
        if isinstance(chain, str):
            continue
        first = graph.producer[chain.source]
        count, nodes = _filters_of(graph, graph.nodes[first]), [first, *chain.nodes, index]
        conv, behind = known_conv(graph, graph.nodes[first]), known_conv(graph, node)
        if count < 2 or isinstance(conv, str):
            continue
        if isinstance(behind, str):
            yield refuse(graph, _FILTERS, nodes, behind)
        elif behind.groups != 1:
            why = f"{node.name} has {behind.groups} groups, whose channels stand together"
            yield refuse(graph, _FILTERS, nodes, why)
        elif count > _MOST_FILTERS:
            yield refuse(graph, _FILTERS, nodes, f"it has {count} filters a channel")
        else:
            yield _filters_apart(graph, nodes, (conv, chain, behind), count)


def _filters_of(graph: ModelGraph, node: onnx.NodeProto) -> int:
    """Return the filters of each channel of a Conv in groups of one channel, 0 for others."""
    weight, groups = graph.initializers.get(node.input[1]), attribute(node, "group", 1)
    if weight is None or groups == 1 or weight.dims[1] != 1:
        return 0
    return int(weight.dims[0]) // int(groups)


def _filters_apart(
    graph: ModelGraph,
    nodes: list[int],
    parts: tuple[KnownConv, ChannelChain, KnownConv],
    count: int,
) -> Finding:
    conv, chain, behind = parts
    rewriting = Rewriting(graph, _FILTERS, nodes)
    made = []
    for number in range(count):
        pick: Pick = itemgetter(slice(number, None, count))
        bias = None if conv.bias is None else pick(conv.bias)
        name = "" if number else conv.node.name
        part = conv.add_to(rewriting, conv.node.input[0], pick(conv.weight), bias, name=name)
        if chain.nodes:
            part = chain.replay(graph, rewriting, part, pick)
        made.append(part)
    joined = rewriting.add("Concat", made, axis=1)
    order = np.arange(len(conv.weight)).reshape(-1, count).T.reshape(-1)
    weight, result = behind.weight[:, order], behind.node.output[0]
    behind.add_to(rewriting, joined, weight, behind.bias, result, name=behind.node.name)
    return rewriting.finish()


FILTERS_RULE = RewriteRule(
    name=_FILTERS,
    what="Conv with several filters a channel becomes depthwise Convs, joined in the order in which"
    " the Conv behind reads them",
    needs=f"constant weights, at most {_MOST_FILTERS} filters a channel, a Conv of one group"
    " behind, only element-wise operators between",
    tolerance=1e-4,
    find=find_multiplied,
    op_types=("Conv",),
)


# ---- Groups of channels joined to whole blocks ----
# ONNX Runtime's blocked convolution in groups is for groups of whole blocks. Others leave the
# blocked layout and become a matrix product for each group: 64 channels of 56x56 in groups of 8
# take 1022 us so, in pairs of groups with zeros between them 453, and no reorders around them; 336
# of 14x14 in groups of 24 take 723 and 337 (one thread of a busy Xeon with AVX-512, 2026-11-29).

_GROUPS_JOINED = "groups-to-whole-blocks"
_MOST_JOINED = 2
"""Groups that become one, which multiplies the products: of groups of four channels four would be
joined, which kernels of the plain layout leave behind."""


def find_narrow_groups(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Convs in groups that two by two are whole blocks of channels."""
    for index, node in nodes_of(graph, "Conv"):
        conv = known_conv(graph, node) if attribute(node, "group", 1) > 1 else ""
        if isinstance(conv, str) or conv.weight.ndim != 4:
            continue
        made, read = len(conv.weight) // conv.groups, conv.weight.shape[1]
        joined = lcm(*(_BLOCK // gcd(_BLOCK, channels) for channels in (made, read)))
        if read == 1 or joined == 1:
            continue
        if joined > _MOST_JOINED:
            why = f"{joined} groups of {read} channels fill whole blocks, not {_MOST_JOINED}"
            yield refuse(graph, _GROUPS_JOINED, [index], why)
        elif conv.groups % joined:
            why = f"{conv.groups} groups are no multiple of {joined}"
            yield refuse(graph, _GROUPS_JOINED, [index], why)
        else:
            yield _groups_joined(graph, index, conv, joined)


def _groups_joined(graph: ModelGraph, index: int, conv: KnownConv, joined: int) -> Finding:
    outputs, read, *window = conv.weight.shape
    weight = np.zeros((outputs, joined, read, *window), np.float32)
    place = np.arange(outputs) // (outputs // conv.groups) % joined
    weight[np.arange(outputs), place] = conv.weight
    node = copied(conv.node)
    set_attribute(node, "group", conv.groups // joined)
    rewriting = Rewriting(graph, _GROUPS_JOINED, [index])
    wide = replace(conv, node=node)
    weight = weight.reshape(outputs, joined * read, *window)
    wide.add_to(rewriting, node.input[0], weight, conv.bias, node.output[0], name=node.name)
    return rewriting.finish()


GROUPS_RULE = RewriteRule(
    name=_GROUPS_JOINED,
    what="Conv in groups of 8 or 24 channels becomes one in half as many, with zeros between",
    needs="constant weights, an even number of groups, of which two are whole blocks; finite inputs"
    " (a zero weight of infinity is not a number)",
    tolerance=1e-5,
    find=find_narrow_groups,
    op_types=("Conv",),
)
