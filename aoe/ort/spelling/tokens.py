"""Depthwise convolutions between matrix products of tokens, as three convolutions of images.

PVT-v2 and SegFormer widen tokens by a matrix product, filter every channel of the image they are,
and narrow them by another product. As written, the wide tensor is turned in front of the filters
and behind them, and ONNX Runtime brings it into the blocked layout and back besides. The products
are pointwise convolutions: written so, the narrow tensors are turned, and what lies between stays
in the blocked layout, where a kernel makes and filters wide channels while they are in the caches.

ONNX Runtime alone, 3136 tokens of 64 widened to 512: 10.1 ms as written, 6.8 so; 196 of 320 to
1280: 4.0 and 3.7 (one thread of a loaded Zen 4, CPU time, 2026-11-27).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import onnx
from onnx import helper, numpy_helper

from aoe.graph.model_graph import attributes_of
from aoe.graph.protos import copied, free_name, refill, rename_tensors
from aoe.operators import OPERATORS, OperatorKind, op_key
from aoe.ort.spelling.extents import write_known_extents
from aoe.ort.spelling.reading import PartsReading, known_tensors

_BLOCK = 16
"""Channels of the blocked layout; of others ONNX Runtime fills the last block up."""
_SWAP, _CHANNELS_LAST, _CHANNELS_FIRST = (0, 2, 1), (0, 2, 3, 1), (0, 3, 1, 2)
_TOKENS, _IMAGE = 3, 4
"""Ranks: (images, tokens, channels) and (images, channels, height, width)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Product:
    """A product of tokens with a constant matrix, and its bias.

    Attributes:
        matmul: Index of its MatMul.
        last: Index of the node that makes its result: the Add of the bias, or the MatMul.
        weights: Name of the matrix, (channels read, channels made).
        channels: Extents of the matrix.
        bias: Name of the summands, "" if there are none.
    """

    matmul: int
    last: int
    weights: str
    channels: tuple[int, int]
    bias: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _FeedForward:
    """A product, a depthwise convolution, a chain and another product.

    Attributes:
        widening: The product in front of the convolution.
        convolution: Index of the convolution.
        chain: Indices of the element-wise nodes behind it, in order; they read tokens.
        tokens: Name of what the chain reads.
        narrowing: The product behind the chain.
        given: Extents of the image in front of the convolution.
        made: Extents of the image behind it.
        nodes: Indices of all nodes, ascending; the last one makes the result.
    """

    widening: _Product
    convolution: int
    chain: tuple[int, ...]
    tokens: str
    narrowing: _Product
    given: tuple[int, ...]
    made: tuple[int, ...]
    nodes: tuple[int, ...]


def write_tokens_as_images(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose depthwise convolutions between products stand between convolutions.

    The model itself, if there are none of tokens in float32 and of known shapes.
    """
    kinds = {node.op_type for node in proto.graph.node}
    if not {"MatMul", "Transpose"} <= kinds or not any(map(_is_grouped, proto.graph.node)):
        return proto  # spares most networks the inference of shapes
    written = write_known_extents(proto)
    reading = _Reading(written)
    found: list[_FeedForward] = []
    gone: set[int] = set()
    for at, node in enumerate(written.graph.node):
        one = reading.around(at) if _is_grouped(node) else None
        if one is not None and gone.isdisjoint(one.nodes):  # two can share a product
            found.append(one)
            gone.update(one.nodes)
    if not found:
        return proto
    spelled = copied(written)
    ending = {one.nodes[-1]: one for one in found}
    nodes: list[onnx.NodeProto] = []
    for at, node in enumerate(written.graph.node):
        if at in ending:
            nodes += _Images(ending[at], spelled.graph, reading).nodes()
        elif at not in gone:
            nodes.append(node)
    refill(spelled.graph.node, nodes)
    shaped = {name for at in gone for name in written.graph.node[at].output}
    declared = [value for value in spelled.graph.value_info if value.name not in shaped]
    refill(spelled.graph.value_info, declared)
    return spelled


def _is_grouped(node: onnx.NodeProto) -> bool:
    return op_key(node) == ("", "Conv") and attributes_of(node).get("group", 1) > 1


class _Images:
    """The replacement of a feed-forward part.

    Args:
        part: What is replaced.
        graph: Gets the constants.
        reading: The model as it is written.
    """

    def __init__(self, part: _FeedForward, graph: onnx.GraphProto, reading: _Reading) -> None:
        self._part = part
        self._graph = graph
        self._written = reading.nodes
        self._result = reading.nodes[part.nodes[-1]].output[0]
        self._taken = {
            name for node in graph.node for name in (node.name, *node.input, *node.output)
        }
        self._taken |= {tensor.name for tensor in (*graph.initializer, *graph.input)}

    def nodes(self) -> Iterator[onnx.NodeProto]:
        """Yield the nodes; those that compute, and what they make, keep the names they have."""
        part = self._part
        (images, _, *sides), (_, _, *made_sides) = part.given, part.made
        read, written = part.widening.channels[0], part.narrowing.channels[1]
        source = self._written[part.widening.matmul].input[0]
        pixels = self._name(f"{self._result}_pixels")
        yield self._reshape(source, pixels, (images, *sides, read))
        image = self._name(f"{self._result}_image")
        yield helper.make_node("Transpose", [pixels], [image], image, perm=_CHANNELS_FIRST)
        wide = self._written[part.widening.last].output[0]
        yield from self._convolution(part.widening, image, wide)
        filtered = copied(self._written[part.convolution])
        filtered.input[0] = wide
        yield filtered
        as_image = {part.tokens: filtered.output[0]}
        for at in part.chain:
            node = copied(self._written[at])
            rename_tensors(node, as_image)
            yield node
        activated = self._written[part.narrowing.matmul].input[0]
        activated = as_image.get(activated, activated)
        narrow = self._written[part.narrowing.matmul].output[0]
        if narrow == self._result:
            narrow = self._name(f"{self._result}_narrow")
        yield from self._convolution(part.narrowing, activated, narrow)
        last = self._name(f"{self._result}_last")
        yield helper.make_node("Transpose", [narrow], [last], last, perm=_CHANNELS_LAST)
        yield self._reshape(last, self._result, (images, prod(made_sides), written))

    def _convolution(self, product: _Product, image: str, made: str) -> Iterator[onnx.NodeProto]:
        """Yield a pointwise convolution; ONNX Runtime turns its weights once."""
        read, written = product.channels
        turned, weights = (self._name(f"{made}_{what}") for what in ("turned", "weights"))
        yield helper.make_node("Transpose", [product.weights], [turned], turned, perm=(1, 0))
        yield self._reshape(turned, weights, (written, read, 1, 1))
        yield helper.make_node(
            "Conv",
            [image, weights, *filter(None, [product.bias])],
            [made],
            self._written[product.matmul].name,
            kernel_shape=(1, 1),
        )

    def _reshape(self, x: str, made: str, extents: Sequence[int]) -> onnx.NodeProto:
        shape = self._name(f"{made}_extents")
        self._graph.initializer.append(numpy_helper.from_array(np.array(extents, np.int64), shape))
        return helper.make_node("Reshape", [x, shape], [made], self._name(f"{made}_reshaped"))

    def _name(self, wanted: str) -> str:
        name = free_name(wanted, self._taken)
        self._taken.add(name)
        return name


class _Reading(PartsReading):
    """A model while feed-forward parts are looked for."""

    @cached_property
    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        known = known_tensors(self.proto).items()
        return {
            name: info.shape for name, info in known if info.dtype == "float32" and all(info.shape)
        }

    def around(self, convolution: int) -> _FeedForward | None:
        """Return the part a convolution in groups belongs to, None if there is none."""
        node = self.nodes[convolution]
        weights = self.value(node.input[1])
        front, behind = self._front(node.input[0]), self._behind(convolution)
        if weights is None or weights.ndim != _IMAGE or front is None or behind is None:
            return None
        given, made = self._shapes[node.input[0]], self._shapes[node.output[0]]
        widening = self._product_in_front(front[1])
        tokens = self.nodes[behind[1]].output[0]
        chain, matmul = self._chain(tokens)
        narrowing = None if matmul is None else self._product(matmul)
        if widening is None or narrowing is None:
            return None
        channels = weights.shape[0]
        is_depthwise = weights.shape[1] == 1 and given[1] == channels
        narrow = widening.channels[0], narrowing.channels[1]
        if not is_depthwise or any(one % _BLOCK or one > channels for one in (*narrow, channels)):
            return None
        of_products = (widening.matmul, widening.last, narrowing.matmul, narrowing.last)
        nodes = tuple(sorted({*front, convolution, *behind, *chain, *of_products}))
        if not self.is_closed(nodes):
            return None
        return _FeedForward(
            widening=widening,
            convolution=convolution,
            chain=chain,
            tokens=tokens,
            narrowing=narrowing,
            given=given,
            made=made,
            nodes=nodes,
        )

    def _front(self, image: str) -> tuple[int, int] | None:
        """Return the Reshape and the Transpose that make an image of tokens."""
        reshape = self.maker(image, "Reshape")
        turn = None if reshape is None else self.maker(self.nodes[reshape].input[0], "Transpose")
        if reshape is None or turn is None or not self._is_swap(turn):
            return None
        is_image = self._is_image_of(image, self.nodes[turn].input[0])
        return (reshape, turn) if is_image else None

    def _behind(self, convolution: int) -> tuple[int, int] | None:
        """Return the Reshape and the Transpose that make tokens of an image."""
        reshape = self.reader(convolution, "Reshape")
        turn = None if reshape is None else self.reader(reshape, "Transpose")
        if reshape is None or turn is None or not self._is_swap(turn):
            return None
        image, tokens = self.nodes[convolution].output[0], self.nodes[turn].output[0]
        return (reshape, turn) if self._is_image_of(image, tokens) else None

    def _is_swap(self, at: int) -> bool:
        return attributes_of(self.nodes[at]).get("perm") == _SWAP

    def _is_image_of(self, image: str, tokens: str) -> bool:
        """True if two tensors of known shapes have the same channels of as many pixels."""
        whole, rows = self._shapes.get(image, ()), self._shapes.get(tokens, ())
        if len(whole) != _IMAGE or len(rows) != _TOKENS:
            return False
        return rows == (whole[0], prod(whole[2:]), whole[1])

    def _product_in_front(self, turn: int) -> _Product | None:
        """Return the product that makes what a Transpose reads."""
        tokens = self.nodes[turn].input[0]
        summed = self.maker(tokens, "Add")
        sources = [tokens] if summed is None else self.nodes[summed].input
        found = [at for name in sources if (at := self.maker(name, "MatMul")) is not None]
        product = self._product(found[0]) if len(found) == 1 else None
        makes = product is not None and self.nodes[product.last].output[0] == tokens
        return product if makes else None

    def _product(self, matmul: int) -> _Product | None:
        """Return a product of tokens with a constant matrix, with its bias if it has one."""
        node = self.nodes[matmul]
        matrix = self.value(node.input[1])
        if (
            matrix is None
            or matrix.ndim != 2
            or len(self._shapes.get(node.output[0], ())) != _TOKENS
        ):
            return None
        read, written = matrix.shape
        last, bias, summed = matmul, "", self.reader(matmul, "Add")
        if summed is not None:
            computed, added = self.with_constant(summed)
            if added is not None and added.shape == (written,):
                last = summed
                bias = next(name for name in self.nodes[summed].input if name != computed)
        return _Product(
            matmul=matmul,
            last=last,
            weights=node.input[1],
            channels=(read, written),
            bias=bias,
        )

    def _chain(self, tokens: str) -> tuple[tuple[int, ...], int | None]:
        """Return the element-wise nodes behind tokens, and the MatMul that reads their result.

        Others may read what is between: that is for the caller to find out.
        """
        known, chain, waiting = {tokens}, set[int](), self.readers(tokens)
        products: list[int] = []
        while waiting:
            at = min(waiting)  # behind all that it reads
            waiting = waiting - {at}
            node = self.nodes[at]
            others = [name for name in node.input if name and name not in known]
            if op_key(node) == ("", "MatMul") and node.input[0] in known and len(others) == 1:
                products.append(at)
            elif self._is_chained(at, tokens) and all(map(self._is_number, others)):
                chain.add(at)
                known.add(node.output[0])
                waiting = waiting | self.readers(node.output[0])
            else:
                return (), None
        return tuple(sorted(chain)), products[0] if len(products) == 1 else None

    def _is_chained(self, at: int, tokens: str) -> bool:
        """True for what computes every element of float32 tokens by itself."""
        node = self.nodes[at]
        facts = OPERATORS.get(op_key(node))
        is_known = facts is not None and facts.kind is OperatorKind.ELEMENTWISE
        if not is_known or facts is None or facts.per_channel or len(node.output) != 1:
            return False
        return self._shapes.get(node.output[0]) == self._shapes[tokens]

    def _is_number(self, name: str) -> bool:
        value = self.value(name)
        return value is not None and value.size == 1 and value.ndim <= _TOKENS
