"""Attention as one operator or in parts, and the projections in front of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx

from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.editing import Rewriting, refuse
from aoe.graph.rewrites.matching import (
    Array,
    Shape,
    attribute,
    integers_of,
    is_op,
    maker,
    nodes_of,
    number_of,
    only_reader,
    opset_lacks,
    shape_of,
    value_of,
)
from aoe.graph.rewrites.protocol import Finding, RewriteRule

# ---- Scaled dot-product attention as exporters spell it out, found in a graph ----

_TO_HEADS = (0, 2, 1, 3)
_LOWEST = np.array(np.finfo(np.float32).min, np.float32)
_KERNEL_UNTIL = 24
"""Opset until which every ONNX Runtime has a kernel of Attention, which treats masks as its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpelledAttention:
    """Softmax(scale Q K^T + mask) V."""

    nodes: tuple[int, ...]  # Indices of the operators, from the scaling to the second product
    # (batch, heads, rows, size), as key (batch, heads, columns, size) and value (batch, heads,
    # columns, value size) float32.
    query: str
    key: str  # See `query`; empty if only its transposed form is there
    value: str  # See `query`
    mask: str  # Added to the scaled products; empty if there is none
    scale: float  # Of the products
    shape: Shape  # (batch, heads, rows, columns)
    result: str  # (batch, heads, rows, value size)


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
    if not scale > 0:
        return "its scale is not above zero, which the operators take for none, or refuse"
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
    """Return the input of an Add that is a product, and the other one; empty if none is."""
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


# ---- Attention as one operator, or apart: which is faster depends on its size and on the mask ----

_MULTI_HEAD = "attention-multi-head"
_OPERATOR = "attention-operator"
_APART = "attention-apart"
_SINCE = 23


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
        mask = _without_lowest(graph, rewriting, mask)
        inputs = [found.query, found.key, found.value, *([mask] if mask else [])]
        rewriting.add("Attention", inputs, found.result, scale=found.scale)
        yield rewriting.finish()


# ---- Rows that are masked whole ----
# A sum of scores and the lowest float32 is that number for each key, so a chain gives the mean of
# the values. ONNX Runtime's kernel of Attention takes this one number, and minus infinity, for "not
# allowed", and gives zeros. Exporters write the number as the mask of padded rows.


def _without_lowest(graph: ModelGraph, rewriting: Rewriting, mask: str) -> str:
    """Return a mask that Attention adds as a chain does: the number above the lowest for that."""
    if not mask or not _may_mask_rows(graph, mask):
        return mask
    is_lowest = rewriting.add("Equal", [mask, rewriting.constant(_LOWEST, "lowest")])
    second = np.array(np.nextafter(_LOWEST, np.float32(0)), np.float32)
    second_lowest = rewriting.constant(second, "second_lowest")
    return rewriting.add("Where", [is_lowest, second_lowest, mask])


def _may_mask_rows(graph: ModelGraph, mask: str) -> bool:
    """True unless a mask is a constant that leaves every row a key."""
    value = value_of(graph, mask)
    return value is None or bool((value <= _LOWEST).all(axis=-1).any())


def _zeros_where_masked(
    graph: ModelGraph, rewriting: Rewriting, mask: str, made: str, output: str
) -> None:
    """Write zeros to rows that are masked whole, as ONNX Runtime's kernel of Attention does."""
    highest = rewriting.add("ReduceMax", [mask, rewriting.integers((-1,), "keys")], keepdims=1)
    lowest = rewriting.constant(_LOWEST, "lowest")
    zero = rewriting.constant(np.array(0, np.float32), "zero")
    is_masked = rewriting.add("LessOrEqual", [highest, lowest])
    rewriting.add("Where", [is_masked, zero, made], output)


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
        if mask and graph.opset("") > _KERNEL_UNTIL:
            yield refuse(graph, _APART, [index], "ONNX Runtime computes masks of its function")
            continue
        rewriting = Rewriting(graph, _APART, [index])
        scale = attribute(node, "scale", 0.0) or 1 / math.sqrt(known[0][3])
        factor = rewriting.constant(np.array(scale, np.float32), "scale")
        query = rewriting.add("Mul", [node.input[0], factor])
        key = rewriting.add("Transpose", [node.input[1]], perm=[0, 1, 3, 2])
        made = rewriting.add("MatMul", [query, key])
        made = rewriting.add("Add", [made, mask]) if mask else made
        made = rewriting.add("Softmax", [made], axis=-1)
        if mask and _may_mask_rows(graph, mask):
            made = rewriting.add("MatMul", [made, node.input[2]])
            _zeros_where_masked(graph, rewriting, mask, made, node.output[0])
        else:
            rewriting.add("MatMul", [made, node.input[2]], node.output[0])
        yield rewriting.finish()


_NEEDS = "four dimensions, as many heads of all three; nobody else reads what lies between"
MULTI_HEAD_RULE = RewriteRule(
    name=_MULTI_HEAD,
    what="MatMul, scale, mask, Softmax, MatMul become MultiHeadAttention without Transposes",
    needs=f"{_NEEDS}",
    tolerance=1e-4,
    find=find_multi_head,
)
OPERATOR_RULE = RewriteRule(
    name=_OPERATOR,
    what="MatMul, scale, mask, Softmax, MatMul become ONNX's Attention",
    needs=f"{_NEEDS}; opset 23; rows of minus infinity alone become 0, not NaN",
    tolerance=1e-4,
    find=find_operator,
)
APART_RULE = RewriteRule(
    name=_APART,
    what="ONNX's Attention becomes MatMul, scale, mask, Softmax, MatMul",
    needs="four dimensions, as many heads of all three, no cache, not causal, one result; with a "
    "mask, opset 23 or 24",
    tolerance=1e-4,
    find=find_fused,
)


# ---- Projections of one tensor: one product instead of three, and three pieces instead of one ----

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
