"""Scaled dot-product attention as exporters spell it out, found in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.reading import (
    Shape,
    attribute,
    is_op,
    maker,
    nodes_of,
    number_of,
    only_reader,
    shape_of,
)

_TO_HEADS = (0, 2, 1, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpelledAttention:
    """Softmax(scale Q K^T + mask) V.

    Attributes:
        nodes: Indices of the operators, from the scaling to the second product.
        query: (batch, heads, rows, size), as key (batch, heads, columns, size) and value
            (batch, heads, columns, value size) float32.
        key: See `query`; empty if only its transposed form is there.
        value: See `query`.
        mask: Added to the scaled products; empty if there is none.
        scale: Of the products.
        shape: (batch, heads, rows, columns).
        result: (batch, heads, rows, value size).
    """

    nodes: tuple[int, ...]
    query: str
    key: str
    value: str
    mask: str
    scale: float
    shape: Shape
    result: str


def find_spelled(graph: ModelGraph) -> Iterator[SpelledAttention | tuple[int, str]]:
    """Yield attentions, and for each Softmax that is part of none its index and why."""
    for index, node in nodes_of(graph, "Softmax"):
        shape = shape_of(graph, node.input[0])
        if shape is None or len(shape) != 4 or attribute(node, "axis", -1) not in (-1, 3):
            continue
        reader = only_reader(graph, node.output[0])
        if reader is None or not is_op(graph.nodes[reader], "MatMul"):
            continue
        if graph.nodes[reader].input[0] != node.output[0]:
            continue
        found = _around(graph, index, reader, shape)
        yield (index, found) if isinstance(found, str) else found


def _around(graph: ModelGraph, softmax: int, last: int, shape: Shape) -> SpelledAttention | str:
    nodes = [softmax, last]
    name, mask, scale = graph.nodes[softmax].input[0], "", 1.0
    node = maker(graph, name)
    if node is not None and is_op(node, "Add"):
        nodes.append(graph.producer[name])
        name, mask = _product_and_mask(graph, node)
        if not name:
            return f"{node.name} adds no product of matrices"
    name, factor = _unscaled(graph, name, nodes)
    scale *= factor
    product = maker(graph, name)
    if product is None or not is_op(product, "MatMul"):
        return f"{name} is no product of matrices"
    nodes.append(graph.producer[name])
    query, factor = _unscaled(graph, product.input[0], nodes)
    scale *= factor
    turned, factor = _unscaled(graph, product.input[1], nodes)
    scale *= factor
    key = _unturned(graph, turned, nodes)
    if key is None:
        return f"{turned} is no transposed key"
    value = graph.nodes[last].input[1]
    shapes = [shape_of(graph, read) for read in (query, key, value)]
    if None in shapes or any(s[:2] != shape[:2] for s in shapes if s):
        return "query, key and value differ in batch or heads"
    return SpelledAttention(
        nodes=tuple(nodes),
        query=query,
        key=key,
        value=value,
        mask=mask,
        scale=scale,
        shape=shape,
        result=graph.nodes[last].output[0],
    )


def _product_and_mask(graph: ModelGraph, node: onnx.NodeProto) -> tuple[str, str]:
    """Return which input of an Add is the product, and the other one; empty if none is."""
    for name, other in (node.input, reversed(node.input)):
        found, _ = _unscaled(graph, name, [])
        if is_op(maker(graph, found), "MatMul"):
            return name, other
    return "", ""


def _unscaled(graph: ModelGraph, name: str, nodes: list[int]) -> tuple[str, float]:
    """Return the tensor before a scale, and the scale; add the node to `nodes`."""
    node = maker(graph, name)
    if node is None or not is_op(node, "Mul", "Div"):
        return name, 1.0
    for at, read in enumerate(node.input):
        number = number_of(graph, read)
        if number is not None and (is_op(node, "Mul") or (at == 1 and number)):
            nodes.append(graph.producer[name])
            return node.input[1 - at], number if is_op(node, "Mul") else 1 / number
    return name, 1.0


def _unturned(graph: ModelGraph, name: str, nodes: list[int]) -> str | None:
    """Return the tensor before a swap of the last two axes in 4-D; add the nodes to `nodes`."""
    node = maker(graph, name)
    if node is None:
        return None
    if is_op(node, "Transpose") and attribute(node, "perm", ()) == (0, 1, 3, 2):
        nodes.append(graph.producer[name])
        return str(node.input[0])
    if not is_op(node, "Reshape"):
        return None
    turn = maker(graph, node.input[0])
    flat = maker(graph, turn.input[0]) if turn is not None else None
    if turn is None or flat is None or not (is_op(turn, "Transpose") and is_op(flat, "Reshape")):
        return None
    before, after = shape_of(graph, flat.input[0]), shape_of(graph, name)
    if attribute(turn, "perm", ()) != (0, 2, 1) or before is None or after is None:
        return None
    rows = shape_of(graph, flat.output[0])
    if len(before) != 4 or rows is None or rows[1:] != before[2:]:
        return None
    if after != (*before[:2], before[3], before[2]):
        return None
    nodes += [graph.producer[read] for read in (name, node.input[0], turn.input[0])]
    return str(flat.input[0])


def rows_of(graph: ModelGraph, name: str) -> str | None:
    """Return the (batch, rows, heads * size) a tensor of heads is taken from, None if from none."""
    turn = maker(graph, name)
    if turn is None or not is_op(turn, "Transpose") or attribute(turn, "perm", ()) != _TO_HEADS:
        return None
    apart = maker(graph, turn.input[0])
    if apart is None or not is_op(apart, "Reshape"):
        return None
    whole, split = shape_of(graph, apart.input[0]), shape_of(graph, apart.output[0])
    if whole is None or split is None or whole != (*split[:2], split[2] * split[3]):
        return None
    return str(apart.input[0])


def joined_rows(graph: ModelGraph, name: str) -> tuple[str, tuple[int, int]] | None:
    """Return the tensor with joined heads, and the nodes that join them; None if there is none."""
    reader = only_reader(graph, name)
    if reader is None:
        return None
    turn = graph.nodes[reader]
    last = only_reader(graph, turn.output[0])
    if last is None or not is_op(turn, "Transpose") or attribute(turn, "perm", ()) != _TO_HEADS:
        return None
    split, whole = shape_of(graph, turn.output[0]), shape_of(graph, graph.nodes[last].output[0])
    if not is_op(graph.nodes[last], "Reshape") or split is None or whole is None:
        return None
    if whole != (*split[:2], split[2] * split[3]):
        return None
    return str(graph.nodes[last].output[0]), (reader, last)
