"""Growth of regions: nodes that join the one that makes the result.

A region grows backwards from the node that makes its result. A node joins when every reader of
its result already belongs to the region, so nothing else needs it and the region is convex.
Reorder nodes join only where the whole region can stay in the blocked layout. A sum of products
(a dense convolution, a matrix product) takes the chain behind it in; where no kernel for both
gains, `regions.unfuse` cuts them again, each for itself. An operator that walks an axis before
it makes any result takes the chain in front of it, too (`OperatorFacts.takes_prologue`), and so may
a blocked convolution; two matrix products with a softmax between them are one, and so are a
pointwise convolution and one in groups behind it, and a normalisation of channels with what puts
them last.

Functions that grow take indices of nodes. `fusible` are the operators that chain freely, `free` the
nodes that belong to no region yet.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from enum import Enum, auto
from itertools import product

import onnx

from aoe.graph.extraction import converts, has_kernel_types, is_folded, is_move, result_of
from aoe.graph.looked_up import grow_looked_up
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.walking import Backwards, is_result, readers_of
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    KERNEL_DTYPES,
    MOVED_DTYPES,
    OPERATORS,
    REORDER_INPUT,
    REORDER_OUTPUT,
    STORED_DTYPES,
    OperatorKey,
    OperatorKind,
    Shape,
    is_reorder,
    op_key,
)
from aoe.operators.element_types import LEVELS
from aoe.operators.movement import RESHAPE, RESHAPING, SPLIT, interpolates
from aoe.operators.quantised import (
    INTEGER_CONVOLUTION,
    MEASURED_LEVELS,
    QUANTISED_CONVOLUTIONS,
)
from aoe.workload import NCHWC_DOMAIN

# ---- Moves, and the chain that reads them ----
# A move costs nothing inside a kernel, it is only where the kernel reads. So moves join one another
# in any number; element-wise operators join behind them only, since a move may read one element
# many times. A Split and a reorder also join where others read them: they are read through. A chain
# takes the Split in front of it where it alone reads the parts, as in gated linear units. In front
# of a normalisation of the channels joins what puts them last, alone or with what puts them back.

_READ_THROUGH = (SPLIT, REORDER_OUTPUT, MEASURED_LEVELS)
_NORMALISATIONS = frozenset(
    {("", "LayerNormalization"), ("", "RMSNormalization"), ("", "SimplifiedLayerNormalization")}
)


def is_read_through(node: onnx.NodeProto) -> bool:
    """Return True for nodes a region may share with others."""
    return op_key(node) in _READ_THROUGH


def grow_moves(
    graph: ModelGraph, sink: int, *, fusible: Container[OperatorKey], free: Collection[int]
) -> tuple[int, ...]:
    """Return the moves, and the chain behind them, that end in `sink`; () if none is moved.

    Args:
        sink: Index of the node that makes the result.
    """
    node = graph.nodes[sink]
    key = op_key(node)
    chains = key in fusible and has_kernel_types(graph, node)
    ends = chains or is_reorder(node) or (is_move(node) and key not in (*RESHAPING, SPLIT))
    result = graph.find_info(node.output[0])
    dtypes = KERNEL_DTYPES | (MOVED_DTYPES if is_move(node) else STORED_DTYPES)
    if not ends or len(node.output) > 1 or (result and result.dtype not in dtypes):
        return ()  # moves of wide integers compute shapes
    members, moved = {sink}, set() if key in fusible else {sink}
    before = Backwards(graph, node.input)
    for index in before:
        if index not in free or index in members:
            continue
        readers, found = readers_of(graph, index), graph.nodes[index]
        is_shared = is_read_through(found)
        if not is_shared and (readers - members or is_result(graph, found)):
            continue
        if is_move(found) or is_reorder(found):
            moved.add(index)
        elif (
            op_key(found) not in fusible
            or readers & moved
            or len(found.output) > 1
            or not has_kernel_types(graph, found)
        ):
            continue
        members.add(index)
        before.add(found.input)
    return _trimmed(graph, members)


def grow_resized(graph: ModelGraph, sink: int, *, free: Collection[int]) -> tuple[int, ...]:
    """Return a blocked interpolation and the reorder that alone reads it; () if `sink` is none."""
    node = graph.nodes[sink]
    made_by = graph.producer.get(node.input[0]) if op_key(node) == REORDER_OUTPUT else None
    if made_by is None or made_by not in free or is_result(graph, graph.nodes[made_by]):
        return ()
    is_read_once = readers_of(graph, made_by) == {sink}
    return (made_by, sink) if _interpolates(graph, made_by) and is_read_once else ()


def grow_turned(
    graph: ModelGraph, nodes: Collection[int], *, free: Collection[int]
) -> tuple[int, ...]:
    """Return a region with what is read once in front of its anchor; () if nothing is.

    What puts the channels last that it normalises, or dequantises the levels it interpolates.

    Args:
        nodes: Indices of the nodes of the region.
    """
    found = [at for at in nodes if _normalises(graph, at) or _interpolates(graph, at)]
    front = graph.producer.get(graph.nodes[found[0]].input[0]) if found else None
    if front is None or front in nodes or front not in free or len(found) > 1:
        return ()
    node = graph.nodes[front]
    if _normalises(graph, found[0]):
        to_rows = op_key(node) == REORDER_OUTPUT and attributes_of(node).get("channels_last")
        is_meant = op_key(node) == _TRANSPOSE or to_rows
    else:
        is_meant = op_key(node) == ("", "DequantizeLinear") and has_kernel_types(graph, node)
    is_read_once = readers_of(graph, front) == {found[0]} and not is_result(graph, node)
    return tuple(sorted({front, *nodes})) if is_meant and is_read_once else ()


def _normalises(graph: ModelGraph, at: int) -> bool:
    return op_key(graph.nodes[at]) in _NORMALISATIONS


def _interpolates(graph: ModelGraph, at: int) -> bool:
    return interpolates(op_key(graph.nodes[at]), attributes_of(graph.nodes[at]))


def grow_turned_back(graph: ModelGraph, sink: int, *, free: Collection[int]) -> tuple[int, ...]:
    """Return a normalisation, what puts its channels last, and the Transpose behind it.

    Args:
        sink: Index of that Transpose.

    Returns:
        The three nodes; () if `sink` is something else, or others read what is between them.
    """
    if op_key(graph.nodes[sink]) != _TRANSPOSE:
        return ()
    made_by = graph.producer.get(graph.nodes[sink].input[0])
    if made_by is None or made_by not in free:
        return ()
    node = graph.nodes[made_by]
    if op_key(node) not in _NORMALISATIONS or is_result(graph, node):
        return ()
    is_read_once = readers_of(graph, made_by) == {sink}
    return grow_turned(graph, (made_by, sink), free=free) if is_read_once else ()


def _trimmed(graph: ModelGraph, members: set[int]) -> tuple[int, ...]:
    """Return the members without the reshapes in front, () if they spare no move."""
    kept: list[int] = []
    for index in sorted(members):
        node = graph.nodes[index]
        made = {graph.producer.get(name) for name in node.input}
        if op_key(node) not in RESHAPING or made & set(kept):
            kept.append(index)
    moves = any(_saves_copy(graph, index, kept) for index in kept)
    return tuple(kept) if moves else ()


def _saves_copy(graph: ModelGraph, index: int, members: Collection[int]) -> bool:
    """Return True if a kernel of these nodes, the last of which is its result, spares a move."""
    node, last = graph.nodes[index], graph.nodes[max(members)]
    if op_key(node) == SPLIT:  # which stays where others read its parts
        is_gone = readers_of(graph, index) <= set(members) and not is_result(graph, node)
        return is_gone and not is_move(last) and not is_reorder(last)
    return is_move(node) and op_key(node) not in RESHAPING


# ---- In front of a dense operator, and behind it ----
# The chain in front of a blocked convolution is computed where the kernel copies the image anyway.
# Only nodes of the image's own size join, but for the padding of its last block of channels: a gate
# for each channel, which is smaller, would be computed again for every pixel. Nothing joins that
# could stand behind a product, where a chain costs less.

_SOFTMAX: OperatorKey = ("", "Softmax")
_TRANSPOSE: OperatorKey = ("", "Transpose")
_POOLING: OperatorKey = (NCHWC_DOMAIN, "MaxPool")
_COSTLY = frozenset(
    {"Sigmoid", "QuickGelu", "Gelu", "FastGelu", "Tanh", "Exp", "Erf", "Softplus", "Mish"}
)
"""What between two convolutions takes longer than they do: the pairs of EfficientNet-B0, with SiLU,
were slower than their parts, and the time for them was missing for these."""


def grow_front(
    graph: ModelGraph,
    convolution: int,
    *,
    fusible: Container[OperatorKey],
    free: Collection[int],
) -> tuple[int, ...]:
    """Return the nodes that make the image of a blocked convolution, () if none of them computes.

    Args:
        convolution: Index of its node.
    """
    image = graph.find_info(graph.nodes[convolution].input[0])
    front: set[int] = set()
    outside: set[int] = set()
    if image is None:
        return ()
    before = Backwards(graph, graph.nodes[convolution].input[:1])
    for index in before:
        node = graph.nodes[index]
        is_alone = readers_of(graph, index) <= front | {convolution}
        if index not in free or index in front:
            continue
        if op_key(node) != REORDER_OUTPUT:
            made = graph.find_info(node.output[0])
            is_whole = (
                made is not None and _fills(made.shape, image.shape, graph.block) and is_alone
            )
            if not is_whole or not _chains(graph, node, fusible):
                outside.update({index} if is_alone else ())
                continue
        elif attributes_of(node).get("channels_last", 0):
            continue
        front.add(index)
        if is_alone:  # else it is read through
            before.add(node.input)
    computes = any(not is_reorder(graph.nodes[index]) for index in front)
    follows = any(_is_large_product(graph, index, convolution) for index in outside)
    return tuple(sorted(front)) if computes and not follows else ()


def grow_expansion(
    graph: ModelGraph,
    convolution: int,
    *,
    fusible: Container[OperatorKey],
    free: Collection[int],
) -> tuple[int, ...]:
    """Return the pointwise convolution whose results one in groups reads, and what lies between.

    Args:
        convolution: Index of the node of the one in groups.

    Returns:
        The nodes in front of `convolution`; () if they are none, or something else reads them.
    """
    image = graph.find_info(graph.nodes[convolution].input[0])
    if attributes_of(graph.nodes[convolution]).get("group", 1) == 1 or image is None:
        return ()
    front, products = {convolution}, set[int]()
    before = Backwards(graph, graph.nodes[convolution].input[:1])
    for index in before:
        node = graph.nodes[index]
        made = graph.find_info(node.output[0])
        if index in front:
            continue
        if index not in free or not readers_of(graph, index) <= front or is_result(graph, node):
            return ()
        if made is None or made.shape != image.shape:
            return ()
        if _is_pointwise(node):
            products.add(index)
        elif _joins_expansion(node, fusible):
            before.add(node.input)
        else:
            return ()
        front.add(index)
    return tuple(sorted(front - {convolution})) if len(products) == 1 else ()


def _is_pointwise(node: onnx.NodeProto) -> bool:
    """Return True for a blocked convolution of single pixels that sums all channels."""
    attributes = attributes_of(node)
    return (
        op_key(node) == BLOCKED_CONVOLUTION
        and attributes.get("group", 1) == 1
        and all(extent == 1 for extent in attributes.get("kernel_shape", (0,)))
        and all(step == 1 for step in attributes.get("strides", ()))
        and not any(attributes.get("pads", ()))
    )


def _joins_expansion(node: onnx.NodeProto, fusible: Container[OperatorKey]) -> bool:
    """Return True for what a chain between two convolutions may hold."""
    chains = op_key(node) in fusible and op_key(node) != BLOCKED_CONVOLUTION
    is_plain = len(node.output) == 1 and not is_reorder(node) and not converts(node)
    return chains and is_plain and node.op_type not in _COSTLY


def grow_pooled(graph: ModelGraph, sink: int, *, free: Collection[int]) -> tuple[int, ...]:
    """Return a blocked convolution and the pooling that alone reads it.

    Args:
        sink: Index of the pooling.

    Returns:
        Both nodes; () if `sink` is none, or pools something else than squares side by side.
    """
    pooling = graph.nodes[sink]
    sides = [attributes_of(pooling).get(name) for name in ("kernel_shape", "strides")]
    if op_key(pooling) != _POOLING or sides != [(2, 2), (2, 2)]:
        return ()
    made_by = graph.producer.get(pooling.input[0])
    if made_by is None or made_by not in free:
        return ()
    node = graph.nodes[made_by]
    if op_key(node) != BLOCKED_CONVOLUTION or is_result(graph, node):
        return ()
    return (made_by, sink) if readers_of(graph, made_by) == {sink} else ()


def grow_attention(
    graph: ModelGraph,
    sink: int,
    *,
    fusible: Container[OperatorKey],
    free: Collection[int],
) -> tuple[int, ...]:
    """Return the nodes of the attention whose last product is `sink`, () if there is none.

    Args:
        sink: Index of the product with the values.
    """
    softmax = graph.producer.get(graph.nodes[sink].input[0]) if graph.nodes[sink].input else None
    if softmax is None or not _is_product(graph.nodes[sink]):
        return ()
    guard = _guard(graph, softmax)
    if guard:
        softmax = graph.producer[graph.nodes[guard[0]].input[0]]
    if any(at not in free or is_result(graph, graph.nodes[at]) for at in guard):
        return ()
    if any(not readers_of(graph, at) <= {sink, *guard} for at in guard):
        return ()
    scores = graph.find_info(graph.nodes[softmax].input[0])
    if scores is None or op_key(graph.nodes[softmax]) != _SOFTMAX:
        return ()
    members, products = {sink, *guard}, set[int]()
    before = Backwards(graph, graph.nodes[softmax].output[:1])
    for index in before:
        node = graph.nodes[index]
        made = graph.find_info(node.output[0])
        if index not in free or index in members or not readers_of(graph, index) <= members:
            continue
        if made is None or made.shape != scores.shape or is_result(graph, node):
            continue  # a mask that is smaller would be computed again for every score
        if _is_product(node):
            products.add(index)
        elif index == softmax or (
            op_key(node) in fusible and len(node.output) == 1 and not converts(node)
        ):
            members.add(index)
            before.add(node.input)
    return tuple(sorted(members | products)) if len(products) == 1 else ()


def grow_moved_attention(
    graph: ModelGraph,
    sink: int,
    *,
    fusible: Container[OperatorKey],
    free: Collection[int],
) -> tuple[int, ...]:
    """Return an attention with the moves that split its heads and join them; () if there are none.

    Args:
        sink: Index of its last product, or of the Transpose that alone reads that.
    """
    last = sink
    if op_key(graph.nodes[sink]) == _TRANSPOSE:
        last = graph.producer.get(graph.nodes[sink].input[0], -1)
        is_alone = last in free and readers_of(graph, last) == {sink}
        if not is_alone or is_result(graph, graph.nodes[last]):
            return ()
    attention = grow_attention(graph, last, fusible=fusible, free=free)
    if not attention:
        return ()
    first = next(at for at in attention if _is_product(graph.nodes[at]))
    moves = set[int]()
    for name in (*graph.nodes[first].input[:2], graph.nodes[last].input[1]):
        moves |= _moves_to(graph, name, {*attention, *moves}, free)
    found = {*attention, *moves, sink}
    return tuple(sorted(found)) if len(found) > len(attention) else ()


def _moves_to(
    graph: ModelGraph, name: str, members: Collection[int], free: Collection[int]
) -> set[int]:
    """Return the moves a tensor is made by, without the reshapes in front, which move nothing.

    Args:
        name: Of the tensor.
        members: Indices of the nodes that alone may read what is moved.
    """
    found: list[int] = []
    while (index := graph.producer.get(name)) is not None and index in free:
        node = graph.nodes[index]
        is_alone = readers_of(graph, index) <= {*members, *found} and not is_result(graph, node)
        if not is_move(node) or not (is_alone or is_read_through(node)):
            break
        found.append(index)
        name = node.input[0]
    while found and op_key(graph.nodes[found[-1]]) in RESHAPING:
        found.pop()
    return set(found)


def grow_integers(
    graph: ModelGraph, sink: int, *, fusible: Container[OperatorKey], free: Collection[int]
) -> tuple[int, ...]:
    """Return a convolution in integers, what quantises its image and the chain that ends in `sink`.

    Of two convolutions that are added, the one that is computed last. What quantises an image may
    serve other convolutions, too: each kernel quantises for itself.
    """
    if op_key(graph.nodes[sink]) not in fusible:
        return ()
    chain, convolutions = {sink}, set[int]()
    before = Backwards(graph, graph.nodes[sink].input)
    for index in before:
        node = graph.nodes[index]
        if index not in free or not readers_of(graph, index) <= chain or is_result(graph, node):
            continue
        if op_key(node) == INTEGER_CONVOLUTION:
            convolutions.add(index)
        elif _joins_integers(graph, node, fusible):
            chain.add(index)
            before.add(node.input)
    if not convolutions:
        return ()
    behind = {max(convolutions)}
    measured = graph.producer.get(graph.nodes[max(convolutions)].input[0], -1)
    is_measured = measured in free and op_key(graph.nodes[measured]) == MEASURED_LEVELS
    made_by = {at: {graph.producer.get(name) for name in graph.nodes[at].input} for at in chain}
    for at in sorted(chain):
        behind |= {at} if made_by[at] & behind else set()
    scales = {at for at in chain - behind if made_by[at] == {measured, None}}
    members = {*behind, *scales, *([measured] if is_measured else [])}
    return tuple(sorted(members)) if sink in behind else ()


def _joins_integers(
    graph: ModelGraph, node: onnx.NodeProto, fusible: Container[OperatorKey]
) -> bool:
    """Return True for what the chain of a convolution in integers may hold."""
    if op_key(node) not in fusible or len(node.output) > 1 or is_reorder(node):
        return False
    if not converts(node):
        return True
    made_by = graph.producer.get(node.input[0])
    return made_by is not None and op_key(graph.nodes[made_by]) == INTEGER_CONVOLUTION


def _guard(graph: ModelGraph, last: int) -> tuple[int, ...]:
    """Return the IsNaN and the Where that make zeros of weights that are no numbers, () if none.

    Args:
        last: Index of what makes the weights a product reads.
    """
    if op_key(graph.nodes[last]) != ("", "Where"):
        return ()
    condition, _, weights = graph.nodes[last].input
    asked = graph.producer.get(condition)
    if asked is None or op_key(graph.nodes[asked]) != ("", "IsNaN"):
        return ()
    is_of_weights = graph.nodes[asked].input[0] == weights and weights in graph.producer
    return (asked, last) if is_of_weights else ()


def _is_product(node: onnx.NodeProto) -> bool:
    facts = OPERATORS.get(op_key(node))
    return facts is not None and facts.kind is OperatorKind.PRODUCT


def _fills(made: Shape, image: Shape, block: int) -> bool:
    """Return True for the shape of an image, or that without the padding of its last block."""
    if len(made) != len(image) or len(image) < 2:
        return False
    padded = -(-made[1] // block) * block if block else made[1]
    return image in (made, (made[0], padded, *made[2:]))


def _chains(graph: ModelGraph, node: onnx.NodeProto, fusible: Container[OperatorKey]) -> bool:
    """Return True for nodes with one result that a chain may hold in the blocked layout."""
    if is_result(graph, node) or len(node.output) > 1:
        return False
    if op_key(node) == REORDER_INPUT:
        return not attributes_of(node).get("channels_last", 0)
    if op_key(node) == BLOCKED_CONVOLUTION:
        weights = graph.find_info(node.input[1])
        group = attributes_of(node).get("group", 1)
        scales = weights is not None and weights.shape == (group, 1, 1, 1)
        return scales and len(node.input) < 4 and not any(attributes_of(node).get("pads", ()))
    return op_key(node) in fusible and not converts(node)


def _is_large_product(graph: ModelGraph, index: int, convolution: int) -> bool:
    """Return True for a sum of products that makes a tensor as large as the image."""
    node = graph.nodes[index]
    made = graph.find_info(node.output[0])
    image = graph.find_info(graph.nodes[convolution].input[0])
    is_dense = _is_product(node) or op_key(node) == BLOCKED_CONVOLUTION
    if made is None or image is None or not is_dense:
        return False
    return made.shape == image.shape


# ---- All of them, in the order in which they are tried ----


MAX_INPUTS = 32
"""Tensors one kernel may read; keeps the argument list and the registers in bounds."""
_OF_GROUPS: OperatorKey = ("", "InstanceNormalization")
"""What networks write between two Reshapes where they normalise groups of channels."""


class _Takes(Enum):
    """Behind what the chain of a region may stand, tried in this order."""

    CONVOLVED_LEVELS = auto()
    """Quantised convolutions: their chain may convert levels, and makes levels again."""
    PRODUCTS = auto()
    """Sums of products, and all other anchors; nothing in the chain converts."""
    ANCHORS = auto()
    """Anchors but for sums of products."""
    NEITHER = auto()
    """Nothing, because no family computes it behind its anchor: a mean is taken off, say."""


class Growth:
    """Grows regions; blocked mode takes reorder nodes in, plain mode stops at them."""

    def __init__(
        self,
        graph: ModelGraph,
        fusible: Container[OperatorKey],
        anchors: Container[OperatorKey],
        *,
        expands: bool = True,
    ) -> None:
        self._graph = graph
        self._fusible = fusible
        self._anchors = anchors
        self._expands = expands
        self._free: set[int] = set()
        self._first = 0
        self._read_by = [
            frozenset(at for name in node.output for at in graph.consumers.get(name, ()))
            for node in graph.nodes
        ]

    def among(self, nodes: Collection[int]) -> None:
        """Grow regions of these nodes from now on."""
        self._free, self._first = set(nodes), min(nodes, default=0)

    def take(self, nodes: Sequence[int]) -> None:
        """Leave out the nodes of a region; reorders others read too stay free."""
        members = set(nodes)
        self._free -= {
            index
            for index in nodes
            if not is_read_through(self._graph.nodes[index]) or self._readers(index) <= members
        }

    def is_free(self, index: int) -> bool:
        """Return True for a node that belongs to no region yet."""
        return index in self._free

    def grown(self, sink: int, fuse_products: bool) -> Iterator[tuple[int, ...]]:
        """Yield the regions that may end in `sink`, the largest first."""
        takes = [_Takes.PRODUCTS, _Takes.ANCHORS, _Takes.NEITHER][0 if fuse_products else 1 :]
        found = [
            nodes
            for behind, prologues, blocked in product(takes, (True, False), (True, False))
            for nodes in [self.grow(sink, blocked=blocked, takes=behind, prologues=prologues)]
            if behind is not _Takes.PRODUCTS or self._holds_product(nodes)
        ]
        of_levels = self._convolved_levels(sink) if fuse_products else ()
        behind_product = any(map(self._holds_product, found))
        if fuse_products and behind_product and converts(self._graph.nodes[sink]):
            found = [(sink,)]  # kernels of products make float32: the chain is left to them
        anchored = [nodes for nodes in found if any(map(self._is_anchor, nodes))]
        moving = grow_moves(self._graph, sink, fusible=self._fusible, free=self._free)
        alone = (sink,) if is_move(self._graph.nodes[sink]) and moving else ()
        resized = grow_resized(self._graph, sink, free=self._free)
        fed = [
            grow(nodes) for grow in (self._expanded, self._fed) for nodes in found if fuse_products
        ]
        if fuse_products:
            fed += [grow_turned(self._graph, nodes, free=self._free) for nodes in found]
            fed.append(grow_turned_back(self._graph, sink, free=self._free))
            grown = [grow_moved_attention] if self._expands else []
            fed += [
                grow(self._graph, sink, fusible=self._fusible, free=self._free)
                for grow in (*grown, grow_attention)
            ]
            fed.append(grow_pooled(self._graph, sink, free=self._free))
            fed.append(grow_integers(self._graph, sink, fusible=self._fusible, free=self._free))
        looked_up = grow_looked_up(self._graph, sink, free=self._free)
        every = [of_levels, *fed, *anchored, looked_up, resized, moving, alone, *found]
        yield from filter(None, dict.fromkeys(every))

    def grow(self, sink: int, *, blocked: bool, takes: _Takes, prologues: bool) -> tuple[int, ...]:
        """Return the nodes of the region that ends in `sink`, or () if there is none."""
        if self._is_dense(self._graph.nodes[sink]):
            return (sink,) if blocked else ()
        if not self._may_end(sink, blocked):
            return ()
        members = {sink}
        closed = {sink} if self._is_closed(sink, prologues) else set()
        for index in reversed(range(self._first, sink)):
            readers = self._readers(index) & members
            if not readers or index not in self._free:
                continue
            if not self._may_join(index, blocked, takes):
                continue
            before_anchor = bool(readers & closed)
            reorder = op_key(self._graph.nodes[index]) == REORDER_OUTPUT
            if reorder:  # may also serve readers outside: it is then read through
                members.add(index)
                if before_anchor or not self._readers(index) <= members:
                    closed.add(index)
            elif not before_anchor and self._readers(index) <= members and self._is_inner(index):
                if self._is_anchor(index) and any(map(self._is_anchor, members)):
                    continue
                if self._reads({*members, index}) > MAX_INPUTS:
                    continue
                if self._is_closed(index, prologues) or self._joins_groups(index):
                    closed.add(index)
                members.add(index)
        nodes = tuple(sorted(members))
        return nodes if self._worthwhile(nodes, blocked) else ()

    def _convolved_levels(self, sink: int) -> tuple[int, ...]:
        """Return a quantised convolution and its chain, which makes levels; () if there is none."""
        made = self._graph.find_info(self._graph.nodes[sink].output[0])
        if made is None or made.dtype not in LEVELS:
            return ()
        nodes = self.grow(sink, blocked=False, takes=_Takes.CONVOLVED_LEVELS, prologues=False)
        return nodes if self._holds_product(nodes) else ()

    def _holds_product(self, nodes: Iterable[int]) -> bool:
        return any(self._is_product(self._graph.nodes[at]) for at in nodes)

    def _expanded(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return a region with the convolution whose results its own reads; () if there is none."""
        at = next((index for index in nodes if self._is_dense(self._graph.nodes[index])), None)
        if at is None or not self._expands:
            return ()
        front = grow_expansion(self._graph, at, fusible=self._fusible, free=self._free)
        return tuple(sorted({*front, *nodes})) if front else ()

    def _fed(self, nodes: tuple[int, ...]) -> tuple[int, ...]:
        """Return a region with what makes the image of its blocked convolution; () if nothing."""
        at = next((index for index in nodes if self._is_dense(self._graph.nodes[index])), None)
        if at is None:
            return ()
        front = grow_front(self._graph, at, fusible=self._fusible, free=self._free)
        return tuple(sorted({*front, *nodes})) if front else ()

    def _may_end(self, index: int, blocked: bool) -> bool:
        node = self._graph.nodes[index]
        key = op_key(node)
        if not blocked:
            return self._is_compute(node) and key != BLOCKED_CONVOLUTION
        if key == REORDER_INPUT:
            return not attributes_of(node).get("channels_last", 0)
        return self._is_compute(node) and node.output[0] in self._graph.blocked

    def _may_join(self, index: int, blocked: bool, takes: _Takes) -> bool:
        node = self._graph.nodes[index]
        key = op_key(node)
        if key == REORDER_OUTPUT:
            return blocked and not attributes_of(node).get("channels_last", 0)
        if is_move(node):
            groups = self._joins_groups(index) or self._parts_groups(index)
            return groups and not blocked and takes is not _Takes.NEITHER
        if self._is_product(node) and takes is not _Takes.PRODUCTS:
            return takes is _Takes.CONVOLVED_LEVELS and key in QUANTISED_CONVOLUTIONS
        if takes is _Takes.PRODUCTS and converts(node):
            return False
        if self._is_anchor(index) and takes is _Takes.NEITHER:
            return False
        if key == BLOCKED_CONVOLUTION and not blocked:
            return False
        return self._is_compute(node)

    def _is_compute(self, node: onnx.NodeProto) -> bool:
        key = op_key(node)
        made = result_of(self._graph, node)
        if any(self._graph.is_read(name) for name in node.output if name != made):
            return False  # a kernel has one result
        if is_move(node) or not has_kernel_types(self._graph, node):
            return False  # of regions of their own, or of none
        return key in self._fusible or key in self._anchors

    def _is_dense(self, node: onnx.NodeProto) -> bool:
        """Return True for blocked convolutions that sum over channels."""
        return op_key(node) == BLOCKED_CONVOLUTION and not _is_depthwise_1x1(node, self._graph)

    def _is_product(self, node: onnx.NodeProto) -> bool:
        facts = OPERATORS.get(op_key(node))
        is_product = facts is not None and facts.kind is OperatorKind.PRODUCT
        return is_product or self._is_dense(node)

    def _is_anchor(self, index: int) -> bool:
        node = self._graph.nodes[index]
        return (op_key(node) in self._anchors and not is_move(node)) or self._is_dense(node)

    def _joins_groups(self, index: int) -> bool:
        """Return True for a Reshape in front of a normalisation: channels of a group become one."""
        readers = [self._graph.nodes[reader] for reader in self._readers(index)]
        is_reshape = op_key(self._graph.nodes[index]) == RESHAPE
        return is_reshape and bool(readers) and all(op_key(r) == _OF_GROUPS for r in readers)

    def _parts_groups(self, index: int) -> bool:
        """Return True for a Reshape behind a normalisation, which takes groups apart again."""
        node = self._graph.nodes[index]
        made_by = self._graph.producer.get(node.input[0]) if node.input else None
        if made_by is None or op_key(node) != RESHAPE:
            return False
        return op_key(self._graph.nodes[made_by]) == _OF_GROUPS

    def _is_closed(self, index: int, prologues: bool) -> bool:
        """Return True for anchors nothing is fused in front of."""
        facts = OPERATORS.get(op_key(self._graph.nodes[index]))
        takes_prologue = prologues and facts is not None and facts.takes_prologue
        return self._is_anchor(index) and not takes_prologue

    def _is_inner(self, index: int) -> bool:
        node = self._graph.nodes[index]
        return not any(name in self._graph.output_names for name in node.output)

    def _reads(self, members: Collection[int]) -> int:
        """Return the number of tensors some nodes read, without scalars and folded constants."""
        nodes = [self._graph.nodes[index] for index in members]
        read = {
            name
            for node in nodes
            for at, name in enumerate(node.input)
            if name and not is_folded(node, at) and self._graph.find_scalar(name) is None
        }
        return len(read.difference(*(node.output for node in nodes)))

    def _readers(self, index: int) -> frozenset[int]:
        return self._read_by[index]

    def _worthwhile(self, nodes: tuple[int, ...], blocked: bool) -> bool:
        """Return True if there is something to compute and the layout choice means anything."""
        found = [self._graph.nodes[index] for index in nodes]
        computes = not all(is_reorder(node) for node in found)
        layout_bound = any(
            is_reorder(node) or op_key(node) == BLOCKED_CONVOLUTION for node in found
        )
        return computes and layout_bound == blocked


def _is_depthwise_1x1(node: onnx.NodeProto, graph: ModelGraph) -> bool:
    """Return True for the form in which ONNX Runtime leaves a BatchNormalization or a scale."""
    attributes = attributes_of(node)
    weights = graph.find_info(node.input[1])
    if weights is None or node.input[1] not in graph.initializers:
        return False
    return (
        len(weights.shape) == 4
        and weights.shape[1:] == (1, 1, 1)
        and attributes.get("group", 1) == weights.shape[0]
        and all(stride == 1 for stride in attributes.get("strides", ()))
        and all(pad == 0 for pad in attributes.get("pads", ()))
    )
