"""Projections of one tensor: one product instead of three, and three pieces instead of one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import (
    Array,
    attribute,
    integers_of,
    is_op,
    nodes_of,
    only_reader,
    shape_of,
    value_of,
)

_MERGED = "projections-merged"
_TAKEN = "joined-projection-split"
_SPLIT_SINCE = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class _Projection:
    """A product with constant weights (inputs, outputs) float32 and its bias (outputs), if any."""

    nodes: tuple[int, ...]
    weight: Array
    bias: Array | None
    output: str


def find_projections(graph: ModelGraph) -> Iterator[Finding]:
    """Yield two or more products of one tensor with constant weights."""
    for name, readers in graph.consumers.items():
        products = [index for index in readers if _is_product(graph, graph.nodes[index], name)]
        if len(products) < 2:
            continue
        found = [_projection(graph, index) for index in products]
        if len({item.weight.shape[0] for item in found}) > 1:
            continue
        if graph.opset("") < _SPLIT_SINCE:
            why = f"opset {graph.opset('')} has no Split by an input, {_SPLIT_SINCE} does"
            yield refuse(graph, _MERGED, products, why)
            continue
        rewriting = Rewriting(graph, _MERGED, [at for item in found for at in item.nodes])
        weight = np.concatenate([item.weight for item in found], axis=1)
        made = rewriting.add("MatMul", [name, rewriting.constant(weight, "weight")])
        if any(item.bias is not None for item in found):
            rows = [item.bias if item.bias is not None else _zeros(item) for item in found]
            bias = rewriting.constant(np.concatenate(rows), "bias")
            made = rewriting.add("Add", [made, bias])
        extents = np.array([item.weight.shape[1] for item in found], np.int64)
        inputs = [made, rewriting.constant(extents, "extents")]
        rewriting.add_many("Split", inputs, [item.output for item in found], axis=-1)
        yield rewriting.finish()


def _is_product(graph: ModelGraph, node: onnx.NodeProto, name: str) -> bool:
    if is_op(node, "Gemm"):
        given = [attribute(node, key, default) for key, default in _GEMM.items()]
        if given != list(_GEMM.values()) or not _is_row(graph, node):
            return False
    elif not is_op(node, "MatMul"):
        return False
    weight = value_of(graph, node.input[1])
    shape = shape_of(graph, name)
    is_matrix = weight is not None and weight.ndim == 2 and weight.dtype == np.float32
    return is_matrix and node.input[0] == name and shape is not None and len(shape) > 1


_GEMM = {"alpha": 1.0, "beta": 1.0, "transA": 0}


def _is_row(graph: ModelGraph, node: onnx.NodeProto) -> bool:
    if len(node.input) < 3 or not node.input[2]:
        return True
    value = value_of(graph, node.input[2])
    return value is not None and value.ndim == 1 and value.size > 1


def _projection(graph: ModelGraph, index: int) -> _Projection:
    node = graph.nodes[index]
    weight = value_of(graph, node.input[1])
    assert weight is not None
    if is_op(node, "Gemm"):
        weight = weight.T if attribute(node, "transB", 0) else weight
        bias = value_of(graph, node.input[2]) if len(node.input) > 2 and node.input[2] else None
        return _Projection(nodes=(index,), weight=weight, bias=bias, output=node.output[0])
    reader = only_reader(graph, node.output[0])
    following = None if reader is None else graph.nodes[reader]
    if reader is not None and following is not None and is_op(following, "Add"):
        other = next((read for read in following.input if read != node.output[0]), "")
        bias = value_of(graph, other) if other else None
        if bias is not None and bias.shape == weight.shape[1:]:
            output = following.output[0]
            return _Projection(nodes=(index, reader), weight=weight, bias=bias, output=output)
    return _Projection(nodes=(index,), weight=weight, bias=None, output=node.output[0])


def _zeros(item: _Projection) -> Array:
    return np.zeros(item.weight.shape[1], np.float32)


def find_joined_projections(graph: ModelGraph) -> Iterator[Finding]:
    """Yield Reshape to (batch, rows, n, heads, size), Transpose to the n in front, one of them."""
    for index, node in nodes_of(graph, "Transpose"):
        made_by = graph.producer.get(node.input[0])
        if attribute(node, "perm", ()) != (2, 0, 3, 1, 4) or made_by is None:
            continue
        apart = graph.nodes[made_by]
        split, whole = shape_of(graph, node.input[0]), shape_of(graph, apart.input[0])
        if not is_op(apart, "Reshape") or split is None or whole is None:
            continue
        batch, rows, count, heads, size = split
        if whole != (batch, rows, count * heads * size):
            continue
        parts = _parts(graph, node.output[0])
        if isinstance(parts, str) or graph.opset("") < _SPLIT_SINCE:
            why = parts if isinstance(parts, str) else f"opset {graph.opset('')} is too old"
            yield refuse(graph, _TAKEN, [made_by, index], why)
            continue
        taken = [at for nodes, _, _ in parts for at in nodes]
        rewriting = Rewriting(graph, _TAKEN, [made_by, index, *taken])
        extents = rewriting.constant(np.array([heads * size] * count, np.int64), "extents")
        pieces = rewriting.add_many("Split", [apart.input[0], extents], [""] * count, axis=-1)
        target = rewriting.constant(np.array([batch, rows, heads, size], np.int64), "heads")
        for _, number, output in parts:
            heads_apart = rewriting.add("Reshape", [pieces[number], target])
            rewriting.add("Transpose", [heads_apart], output, perm=[0, 2, 1, 3])
        yield rewriting.finish()


def _parts(graph: ModelGraph, name: str) -> list[tuple[tuple[int, ...], int, str]] | str:
    """Return the nodes that take one along the first axis, which one, and what they make."""
    found: list[tuple[tuple[int, ...], int, str]] = []
    for index in graph.consumers.get(name, ()):
        node = graph.nodes[index]
        if is_op(node, "Gather") and attribute(node, "axis", 0) == 0:
            value = value_of(graph, node.input[1])
            if value is None or value.ndim:
                return f"{node.name} takes what is no constant number"
            found.append(((index,), int(value), node.output[0]))
            continue
        reader = only_reader(graph, node.output[0]) if is_op(node, "Slice") else None
        bounds = [integers_of(graph, node, key, at) for at, key in enumerate(_BOUNDS, 1)]
        if reader is None or len(node.input) < 4 or None in bounds:
            return f"{node.name} does not take one of them"
        squeezed, start = graph.nodes[reader], (bounds[0] or (-1,))[0]
        if bounds[1:3] != [(start + 1,), (0,)] or bounds[3] not in ((), (1,)) or start < 0:
            return f"{node.name} does not take one of them"
        if not is_op(squeezed, "Squeeze") or integers_of(graph, squeezed, "axes", 1) != (0,):
            return f"{node.name} keeps the axis"
        found.append(((index, reader), start, squeezed.output[0]))
    return found


_BOUNDS = ("starts", "ends", "axes", "steps")

MERGED_RULE = RewriteRule(
    name=_MERGED,
    what="MatMuls or Gemms of one tensor, with their biases, become one and a Split",
    needs="constant float32 weights of as many rows; opset 13",
    tolerance=1e-5,
    find=find_projections,
)
TAKEN_RULE = RewriteRule(
    name=_TAKEN,
    what="Query, key and value are split from their joined projection before it is transposed",
    needs="Reshape, Transpose and one Slice or Gather for each as PyTorch exports them; opset 13",
    find=find_joined_projections,
)
