"""What stands in front of a dense operator, is read by nothing else, and may become one with it.

The chain in front of a blocked convolution is computed where the kernel copies the image anyway.
Only nodes of the image's own size join, but for the padding of its last block of channels: what is
smaller, a gate for each channel, would be computed again for every pixel. Nothing joins that could
stand behind a product, where a chain costs less.

In front of a matrix product it is a softmax of what another one makes: an attention, which takes
the moves that split its heads and join them. In front of a
convolution in groups it is a pointwise one, and the chain behind that: an expansion.
Behind a blocked convolution stands a pooling of squares of its results.
"""

from __future__ import annotations

from collections.abc import Collection, Container
from heapq import heapify, heappop, heappush

import onnx

from aoe.graph.extraction import converts
from aoe.graph.model_graph import ModelGraph, attributes_of
from aoe.graph.moving import is_move, is_read_through
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    OPERATORS,
    REORDER_INPUT,
    REORDER_OUTPUT,
    OperatorKey,
    OperatorKind,
    Shape,
    is_reorder,
    op_key,
)
from aoe.operators.movement import RESHAPING
from aoe.workload import NCHWC_DOMAIN

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
        graph: The model.
        convolution: Index of its node.
        fusible: Operators that chain freely.
        free: Indices of nodes that belong to no region yet.
    """
    image = graph.find_info(graph.nodes[convolution].input[0])
    front: set[int] = set()
    outside: set[int] = set()
    waiting = [-at for at in _producers(graph, graph.nodes[convolution].input[:1])]
    heapify(waiting)  # what is read by a node is looked at behind all that read it
    while waiting and image is not None:
        index = -heappop(waiting)
        node = graph.nodes[index]
        is_alone = _readers(graph, index) <= front | {convolution}
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
            for producer in _producers(graph, node.input):
                heappush(waiting, -producer)
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
        graph: The model.
        convolution: Index of the node of the one in groups.
        fusible: Operators that chain freely.
        free: Indices of nodes that belong to no region yet.

    Returns:
        The nodes in front of `convolution`; () if they are none, or something else reads them.
    """
    image = graph.find_info(graph.nodes[convolution].input[0])
    if attributes_of(graph.nodes[convolution]).get("group", 1) == 1 or image is None:
        return ()
    front, products = {convolution}, set[int]()
    waiting = [-at for at in _producers(graph, graph.nodes[convolution].input[:1])]
    while waiting:
        index = -heappop(waiting)  # behind all that read it
        node = graph.nodes[index]
        made = graph.find_info(node.output[0])
        if index in front:
            continue
        if index not in free or not _readers(graph, index) <= front or _is_result(graph, node):
            return ()
        if made is None or made.shape != image.shape:
            return ()
        if _is_pointwise(node):
            products.add(index)
        elif _joins_expansion(node, fusible):
            for producer in _producers(graph, node.input):
                heappush(waiting, -producer)
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
        graph: The model.
        sink: Index of the pooling.
        free: Indices of nodes that belong to no region yet.

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
    if op_key(node) != BLOCKED_CONVOLUTION or _is_result(graph, node):
        return ()
    return (made_by, sink) if _readers(graph, made_by) == {sink} else ()


def grow_attention(
    graph: ModelGraph,
    sink: int,
    *,
    fusible: Container[OperatorKey],
    free: Collection[int],
) -> tuple[int, ...]:
    """Return the nodes of the attention whose last product is `sink`, () if there is none.

    Args:
        graph: The model.
        sink: Index of the product with the values.
        fusible: Operators that chain freely.
        free: Indices of nodes that belong to no region yet.
    """
    softmax = graph.producer.get(graph.nodes[sink].input[0]) if graph.nodes[sink].input else None
    if softmax is None or not _is_product(graph.nodes[sink]):
        return ()
    guard = _guard(graph, softmax)
    if guard:
        softmax = graph.producer[graph.nodes[guard[0]].input[0]]
    if any(at not in free or _is_result(graph, graph.nodes[at]) for at in guard):
        return ()
    if any(not _readers(graph, at) <= {sink, *guard} for at in guard):
        return ()
    scores = graph.find_info(graph.nodes[softmax].input[0])
    members, products = {sink, *guard}, set[int]()
    waiting = [-softmax]
    while waiting and scores is not None and op_key(graph.nodes[softmax]) == _SOFTMAX:
        index = -heappop(waiting)  # behind all that read it
        node = graph.nodes[index]
        made = graph.find_info(node.output[0])
        if index not in free or index in members or not _readers(graph, index) <= members:
            continue
        if made is None or made.shape != scores.shape or _is_result(graph, node):
            continue  # a mask that is smaller would be computed again for every score
        if _is_product(node):
            products.add(index)
        elif index == softmax or (
            op_key(node) in fusible and len(node.output) == 1 and not converts(node)
        ):
            members.add(index)
            for producer in _producers(graph, node.input):
                heappush(waiting, -producer)
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
        graph: The model.
        sink: Index of its last product, or of the Transpose that alone reads that.
        fusible: Operators that chain freely.
        free: Indices of nodes that belong to no region yet.
    """
    last = sink
    if op_key(graph.nodes[sink]) == _TRANSPOSE:
        last = graph.producer.get(graph.nodes[sink].input[0], -1)
        is_alone = last in free and _readers(graph, last) == {sink}
        if not is_alone or _is_result(graph, graph.nodes[last]):
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
        graph: The model.
        name: Of the tensor.
        members: Indices of the nodes that alone may read what is moved.
        free: Indices of nodes that belong to no region yet.
    """
    found: list[int] = []
    while (index := graph.producer.get(name)) is not None and index in free:
        node = graph.nodes[index]
        is_alone = _readers(graph, index) <= {*members, *found} and not _is_result(graph, node)
        if not is_move(node) or not (is_alone or is_read_through(node)):
            break
        found.append(index)
        name = node.input[0]
    while found and op_key(graph.nodes[found[-1]]) in RESHAPING:
        found.pop()
    return set(found)


def _guard(graph: ModelGraph, last: int) -> tuple[int, ...]:
    """Return the IsNaN and the Where that make zeros of weights that are no numbers, () if none.

    Args:
        graph: The model.
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


def _is_result(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    return any(name in graph.output_names for name in node.output)


def _fills(made: Shape, image: Shape, block: int) -> bool:
    """Return True for the shape of an image, or that without the padding of its last block."""
    if len(made) != len(image) or len(image) < 2:
        return False
    padded = -(-made[1] // block) * block if block else made[1]
    return image in (made, (made[0], padded, *made[2:]))


def _chains(graph: ModelGraph, node: onnx.NodeProto, fusible: Container[OperatorKey]) -> bool:
    """Return True for nodes with one result that a chain may hold in the blocked layout."""
    if _is_result(graph, node) or len(node.output) > 1:
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


def _producers(graph: ModelGraph, names: Collection[str]) -> set[int]:
    made_by = (graph.producer.get(name) for name in names)
    return {at for at in made_by if at is not None}


def _readers(graph: ModelGraph, index: int) -> set[int]:
    return {at for name in graph.nodes[index].output for at in graph.consumers.get(name, ())}
