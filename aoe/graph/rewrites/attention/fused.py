"""Attention as one operator, or apart: which is faster depends on its size and on the mask."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.attention.products import (
    SpelledAttention,
    find_spelled,
    joined_rows,
    rows_of,
)
from aoe.graph.rewrites.building import Rewriting, refuse
from aoe.graph.rewrites.protocol import Finding, RewriteRule
from aoe.graph.rewrites.reading import attribute, nodes_of, opset_lacks, shape_of

_MULTI_HEAD = "attention-multi-head"
_OPERATOR = "attention-operator"
_APART = "attention-apart"
_SINCE = 23
_TO_HEADS = [0, 2, 1, 3]


def find_multi_head(graph: ModelGraph) -> Iterator[Finding]:
    """Yield attentions that MultiHeadAttention computes on (batch, rows, heads * size)."""
    for found in find_spelled(graph):
        if isinstance(found, tuple):
            yield refuse(graph, _MULTI_HEAD, [found[0]], found[1])
            continue
        joined = joined_rows(graph, found.result)
        nodes = [*found.nodes, *(joined[1] if joined else ())]
        rewriting = Rewriting(graph, _MULTI_HEAD, nodes)
        mask = _mask(graph, rewriting, found)
        if mask is None:
            why = f"the mask {found.mask} is no (batch, heads, rows, columns)"
            yield refuse(graph, _MULTI_HEAD, nodes, why)
            continue
        inputs = [_rows(graph, rewriting, name) for name in (found.query, found.key, found.value)]
        inputs += ["", "", mask] if mask else []
        made = rewriting.add(
            "MultiHeadAttention",
            inputs,
            joined[0] if joined else "",
            domain="com.microsoft",
            num_heads=found.shape[1],
            scale=found.scale,
        )
        if not joined:
            _to_heads(graph, rewriting, made, found.result)
        yield rewriting.finish()


def _rows(graph: ModelGraph, rewriting: Rewriting, name: str) -> str:
    """Return heads side by side: (batch, rows, heads * size)."""
    rows = rows_of(graph, name)
    if rows is not None:
        return rows
    shape = shape_of(graph, name)
    assert shape is not None
    turned = rewriting.add("Transpose", [name], perm=_TO_HEADS)
    return rewriting.reshape(turned, (shape[0], shape[2], shape[1] * shape[3]), what="rows")


def _to_heads(graph: ModelGraph, rewriting: Rewriting, made: str, output: str) -> None:
    shape = shape_of(graph, output)
    assert shape is not None
    heads = (shape[0], shape[2], shape[1], shape[3])
    apart = rewriting.reshape(made, heads, what="heads")
    rewriting.add("Transpose", [apart], output, perm=_TO_HEADS)


def _mask(graph: ModelGraph, rewriting: Rewriting, found: SpelledAttention) -> str | None:
    """Return the mask for every row, in four dimensions; empty if there is none, None if unfit."""
    if not found.mask:
        return ""
    shape = shape_of(graph, found.mask)
    if shape is None or len(shape) > 4:
        return None
    wide = (1,) * (4 - len(shape)) + shape
    fits = [mine in (1, whole) for mine, whole in zip(wide, found.shape, strict=True)]
    if not all(fits) or wide[3] != found.shape[3]:
        return None
    full = (*wide[:2], *found.shape[2:])
    if shape == full:
        return found.mask
    return rewriting.add("Expand", [found.mask, rewriting.integers(full, "mask_shape")])


def find_operator(graph: ModelGraph) -> Iterator[Finding]:
    """Yield attentions that ONNX's own Attention computes."""
    for found in find_spelled(graph):
        if isinstance(found, tuple):
            yield refuse(graph, _OPERATOR, [found[0]], found[1])
            continue
        if why := opset_lacks(graph, "Attention", _SINCE):
            yield refuse(graph, _OPERATOR, found.nodes, why)
            continue
        rewriting = Rewriting(graph, _OPERATOR, found.nodes)
        mask = _mask(graph, rewriting, found)
        if mask is None:
            why = f"the mask {found.mask} is no (batch, heads, rows, columns)"
            yield refuse(graph, _OPERATOR, found.nodes, why)
            continue
        inputs = [found.query, found.key, found.value, *([mask] if mask else [])]
        rewriting.add("Attention", inputs, found.result, scale=found.scale)
        yield rewriting.finish()


def find_fused(graph: ModelGraph) -> Iterator[Finding]:
    """Yield ONNX's Attention in its plain form."""
    for index, node in nodes_of(graph, "Attention"):
        shapes = [shape_of(graph, name) for name in node.input[:3]]
        known = [shape for shape in shapes if shape is not None and len(shape) == 4]
        if len(known) < 3 or len({shape[:2] for shape in known}) > 1:
            why = "query, key and value are not of as many heads, in four dimensions"
            yield refuse(graph, _APART, [index], why)
            continue
        changed = [name for name in ("is_causal", "softcap") if attribute(node, name, 0)]
        if changed or len(node.output) > 1 or any(node.input[4:]):
            why = f"it has {', '.join(changed) or 'a cache, or more than one result'}"
            yield refuse(graph, _APART, [index], why)
            continue
        mask = node.input[3] if len(node.input) > 3 else ""
        if mask and shape_of(graph, mask) is None:
            yield refuse(graph, _APART, [index], "its mask is no float32 tensor")
            continue
        rewriting = Rewriting(graph, _APART, [index])
        scale = attribute(node, "scale", 0.0) or 1 / math.sqrt(known[0][3])
        factor = rewriting.constant(np.array(scale, np.float32), "scale")
        query = rewriting.add("Mul", [node.input[0], factor])
        key = rewriting.add("Transpose", [node.input[1]], perm=[0, 1, 3, 2])
        made = rewriting.add("MatMul", [query, key])
        made = rewriting.add("Add", [made, mask]) if mask else made
        made = rewriting.add("Softmax", [made], axis=-1)
        rewriting.add("MatMul", [made, node.input[2]], node.output[0])
        yield rewriting.finish()


_FORM = "four dimensions, as many heads of all three; nobody else reads what lies between"
MULTI_HEAD_RULE = RewriteRule(
    name=_MULTI_HEAD,
    what="MatMul, scale, mask, Softmax, MatMul become MultiHeadAttention without Transposes",
    needs=f"{_FORM}; rows that are masked whole may change",
    tolerance=1e-4,
    find=find_multi_head,
)
OPERATOR_RULE = RewriteRule(
    name=_OPERATOR,
    what="MatMul, scale, mask, Softmax, MatMul become ONNX's Attention",
    needs=f"{_FORM}; opset 23; rows that are masked whole may change",
    tolerance=1e-4,
    find=find_operator,
)
APART_RULE = RewriteRule(
    name=_APART,
    what="ONNX's Attention becomes MatMul, scale, mask, Softmax, MatMul",
    needs="four dimensions, as many heads of all three, no cache, not causal, one result",
    tolerance=1e-4,
    find=find_fused,
)
