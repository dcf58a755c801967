"""Layers that join and cut blobs, and products of them.

Source: Caffe, inner_product_layer.cpp, eltwise_layer.cpp, concat_layer.cpp, slice_layer.cpp.
"""

from __future__ import annotations

import math
from itertools import pairwise

from aoe.entry.caffe.scope import CaffeBlob, LayerScope
from aoe.entry.caffe.text import choice, flag, integer, number, positive, whole


def inner_product(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Multiply the axes from `axis` on, as one vector, with a trained matrix."""
    shape = layer.bottom.shape
    axis = layer.axis(layer.param.one("axis", integer, 1))
    outputs = layer.param.one("num_output", positive, 0)
    if not outputs:
        raise layer.error("no num_output")
    rows, depth = math.prod(shape[:axis]), math.prod(shape[axis:])
    transposed = layer.param.one("transpose", flag, False)
    weight_shape = (depth, outputs) if transposed else (outputs, depth)
    has_bias = layer.param.one("bias_term", flag, True)
    arrays = layer.weights(weight_shape, *([(outputs,)] if has_bias else []))
    named = zip(arrays, ("weight", "bias"), strict=False)
    constants = [layer.constant(array, name) for array, name in named]
    bottom = layer.bottom
    if bottom.shape != (rows, depth):
        extents = layer.integers((rows, depth), "extents")
        bottom = layer.add("Reshape", (bottom, extents), (rows, depth))
    value = layer.add("Gemm", (bottom, *constants), (rows, outputs), transB=int(not transposed))
    result = (*shape[:axis], outputs)
    if value.shape != result:
        value = layer.add("Reshape", (value, layer.integers(result, "result")), result)
    return (value,)


def eltwise(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Multiply, add (each with its `coeff`) or compare blobs of one shape."""
    shape = layer.same_shapes()
    how = layer.param.one("operation", choice("PROD", "SUM", "MAX", "MIN"), "SUM")
    factors = layer.param.every("coeff", number)
    if factors and (how != "SUM" or len(factors) != len(layer.bottoms)):
        raise layer.error(
            "coeff", got=f"{len(factors)} for {how}", expected=f"{len(layer.bottoms)} for SUM"
        )
    if how in ("MAX", "MIN"):
        return (layer.add("Max" if how == "MAX" else "Min", layer.bottoms, shape),)
    terms = list(layer.bottoms)
    for position, factor in enumerate(factors):
        if factor != 1:
            constant = layer.numbers(factor, "coeff")
            terms[position] = layer.add("Mul", (terms[position], constant), shape)
    value = terms[0]
    for term in terms[1:]:
        value = layer.add("Mul" if how == "PROD" else "Add", (value, term), shape)
    return (value,)


def axpy(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Compute `a * x + y`, with one `a` for each channel (a layer of SENet's forks)."""
    factor, x, y = layer.bottoms
    images, channels, *_ = x.shape if x.rank == 4 else (0, 0)
    if x.shape != y.shape or factor.shape not in ((images, channels), (images, channels, 1, 1)):
        raise layer.error(
            "shapes of its bottoms",
            got=", ".join(str(list(blob.shape)) for blob in layer.bottoms),
            expected="[n, c], [n, c, h, w] and again",
        )
    if factor.rank == 2:
        aligned = (images, channels, 1, 1)
        factor = layer.add("Reshape", (factor, layer.integers(aligned, "extents")), aligned)
    return (layer.add("Add", (layer.add("Mul", (x, factor), x.shape), y), x.shape),)


def concat(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Put blobs one behind the other along an axis."""
    axis = _axis(layer, "concat_dim")
    shapes = [blob.shape for blob in layer.bottoms]
    if (
        len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1
        or len({len(shape) for shape in shapes}) > 1
    ):
        raise layer.error(
            f"bottoms that differ in more than axis {axis}",
            got=", ".join(str(list(shape)) for shape in shapes[:8]),
        )
    extent = sum(shape[axis] for shape in shapes)
    result = (*shapes[0][:axis], extent, *shapes[0][axis + 1 :])
    return (layer.add("Concat", layer.bottoms, result, axis=axis),)


def cut(layer: LayerScope) -> tuple[CaffeBlob, ...]:
    """Cut a blob along an axis at `slice_point`, or into equal parts."""
    axis = _axis(layer, "slice_dim")
    shape, parts = layer.bottom.shape, len(layer.layer.tops)
    points = layer.param.every("slice_point", whole)
    if not points:
        if shape[axis] % parts:
            raise layer.error("not to be cut into equal parts", got=f"{shape[axis]} / {parts}")
        points = tuple(shape[axis] // parts * number for number in range(1, parts))
    bounds = (0, *points, shape[axis])
    pairs = [*pairwise(bounds)]
    if len(pairs) != parts or any(first >= last for first, last in pairs):
        raise layer.error(
            "slice_point",
            got=list(points[:8]),
            expected=f"{parts - 1} growing, below {shape[axis]}",
        )
    along = layer.integers((axis,), "axis")
    return tuple(
        layer.add(
            "Slice",
            (
                layer.bottom,
                layer.integers((first,), "first"),
                layer.integers((last,), "last"),
                along,
            ),
            (*shape[:axis], last - first, *shape[axis + 1 :]),
        )
        for first, last in pairs
    )


def _axis(layer: LayerScope, old: str) -> int:
    """Return the axis of a joint, which an old field may name."""
    if old in layer.param and "axis" in layer.param:
        raise layer.error(f"axis given together with {old}")
    if old in layer.param:
        return layer.axis(layer.param.one(old, whole, 1))
    return layer.axis(layer.param.one("axis", integer, 1))
