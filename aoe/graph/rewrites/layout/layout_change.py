"""Transposes: through a Reshape, behind what comes next, into the product that reads them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import (
    UNARY,
    attribute,
    is_op,
    maker,
    nodes_of,
    only_reader,
    shape_of,
    value_of,
)

_THROUGH = "transpose-through-reshape"
_SUNK = "transpose-behind-elementwise"
_INTO = "transpose-into-product"


def find_between_reshapes(graph: ModelGraph) -> Iterator[Finding]:
    """Yield a swap of the last axes that is done in three dimensions for no reason."""
    for index, node in nodes_of(graph, "Transpose"):
        first = graph.producer.get(node.input[0])
        last = only_reader(graph, node.output[0])
        if attribute(node, "perm", ()) != (0, 2, 1) or first is None or last is None:
            continue
        before, after = graph.nodes[first], graph.nodes[last]
        if not (is_op(before, "Reshape") and is_op(after, "Reshape")):
            continue
        whole, rows = shape_of(graph, before.input[0]), shape_of(graph, before.output[0])
        result = shape_of(graph, after.output[0])
        if whole is None or rows is None or result is None or len(whole) < 4:
            continue
        if rows[1:] != whole[-2:] or result != (*whole[:-2], whole[-1], whole[-2]):
            why = f"{whole}, {rows} and {result} are more than a swap of the last axes"
            yield refuse(graph, _THROUGH, [first, index, last], why)
            continue
        rewriting = Rewriting(graph, _THROUGH, [index, last])
        order = [*range(len(whole) - 2), len(whole) - 1, len(whole) - 2]
        rewriting.add("Transpose", [before.input[0]], after.output[0], perm=order)
        yield rewriting.finish()


def find_sinkable(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Transposes that one element-wise operator reads."""
    for index, node in nodes_of(graph, "Transpose"):
        reader = only_reader(graph, node.output[0])
        source = shape_of(graph, node.input[0])
        if reader is None or source is None:
            continue
        behind = graph.nodes[reader]
        order = attribute(node, "perm", tuple(range(len(source)))[::-1])
        if len(behind.output) != 1 or not is_op(behind, *UNARY, "Add", "Mul", "Sub", "Div"):
            continue
        if only_reader(graph, behind.output[0]) is None:
            continue
        if not _leads_to_transpose(graph, behind.output[0]):
            continue
        rewriting = Rewriting(graph, _SUNK, [index, reader])
        inputs = [
            _turned_back(graph, rewriting, name, node.output[0], node.input[0], order)
            for name in behind.input
        ]
        if None in inputs:
            why = f"{behind.name} reads something else that is as large"
            yield refuse(graph, _SUNK, [index, reader], why)
            continue
        made = rewriting.copy(behind, [name for name in inputs if name is not None])
        rewriting.add("Transpose", [made], behind.output[0], perm=order)
        yield rewriting.finish()


def _leads_to_transpose(graph: ModelGraph, name: str) -> bool:
    """Return True if a chain of single readers ends in a Transpose that this one may meet."""
    for _ in range(8):
        reader = only_reader(graph, name)
        if reader is None:
            return False
        node = graph.nodes[reader]
        if is_op(node, "Transpose"):
            return True
        if not is_op(node, *UNARY, "Add", "Mul", "Sub", "Div"):
            return False
        name = node.output[0]
    return False


def _turned_back(
    graph: ModelGraph,
    rewriting: Rewriting,
    name: str,
    turned: str,
    source: str,
    order: tuple[int, ...],
) -> str | None:
    """Return an input as it is read in front of the Transpose, None if it cannot be."""
    if name == turned:
        return source
    value = value_of(graph, name)
    if value is None or value.ndim > len(order):
        return None
    if value.size == 1:
        return name if value.ndim <= 1 else None
    wide = value.reshape((1,) * (len(order) - value.ndim) + value.shape)
    return rewriting.constant(wide.transpose(np.argsort(order)), "turned")


def find_before_products(graph: ModelGraph) -> Iterator[Finding]:
    """Yield matrix products that read a Transpose of the last two axes."""
    for index, node in nodes_of(graph, "MatMul"):
        turned = [_swaps(graph, name) for name in node.input]
        if not any(turned) or shape_of(graph, node.output[0]) is None:
            continue
        rewriting = Rewriting(graph, _INTO, [index])
        inputs = [before or name for before, name in zip(turned, node.input, strict=True)]
        flags = {"transA": int(bool(turned[0])), "transB": int(bool(turned[1]))}
        rewriting.add(
            "FusedMatMul", inputs, node.output[0], domain="com.microsoft", alpha=1.0, **flags
        )
        yield rewriting.finish()


def _swaps(graph: ModelGraph, name: str) -> str:
    """Return the input of a Transpose of the last two axes, empty for another node."""
    node, shape = maker(graph, name), shape_of(graph, name)
    if node is None or shape is None or not is_op(node, "Transpose") or len(shape) < 2:
        return ""
    rank = len(shape)
    order = attribute(node, "perm", tuple(range(rank))[::-1])
    return str(node.input[0]) if order == (*range(rank - 2), rank - 1, rank - 2) else ""


THROUGH_RULE = RewriteRule(
    name=_THROUGH,
    what="Reshape, Transpose, Reshape that swap the last two axes become one Transpose",
    needs="known shapes; nobody else reads the Transpose",
    find=find_between_reshapes,
)
SUNK_RULE = RewriteRule(
    name=_SUNK,
    what="Transpose in front of element-wise operators moves behind them, up to the next one",
    needs="one reader each; other inputs are constants; a Transpose follows, to be joined with it",
    find=find_sinkable,
)
INTO_RULE = RewriteRule(
    name=_INTO,
    what="Transposes of the last two axes go into the MatMul that reads them (FusedMatMul)",
    needs="float32, known shapes",
    tolerance=1e-5,
    find=find_before_products,
)
