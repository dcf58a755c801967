"""Sums of products: convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from aoe.operators.facts import (
    MICROSOFT_DOMAIN,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    Shape,
    Specials,
    broadcast,
    integers,
    number,
)
from aoe.workload import NCHWC_DOMAIN, Operation

BLOCKED_CONVOLUTION: OperatorKey = (NCHWC_DOMAIN, "Conv")
TRANSPOSED_CONVOLUTION: OperatorKey = ("", "ConvTranspose")
PLAIN_CONVOLUTIONS: frozenset[OperatorKey] = frozenset(
    {("", "Conv"), (MICROSOFT_DOMAIN, "FusedConv"), TRANSPOSED_CONVOLUTION}
)


def convolved(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (N, O, rows, columns, ...) of a convolution with explicit padding."""
    data, weights = shapes[0], shapes[1]
    kernel = weights[2:]
    rank = len(kernel)
    if len(data) != rank + 2:
        return None
    strides, dilations = (integers(operation, name, rank, 1) for name in ("strides", "dilations"))
    pads = integers(operation, "pads", 2 * rank, 0)
    extents = tuple(
        (data[2 + at] + pads[at] + pads[rank + at] - dilations[at] * (kernel[at] - 1) - 1)
        // strides[at]
        + 1
        for at in range(rank)
    )
    return (data[0], weights[0], *extents)


def _multiplied(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (..., M, N) of a matrix product, either matrix transposed where attributes say so."""
    left, right = (
        turned(shape, operation.attributes.get(name, 0))
        for shape, name in zip(shapes, ("transA", "transB"), strict=False)
    )
    if not left or not right:
        return None
    depth = right[-2] if len(right) > 1 else right[-1]
    batch = broadcast([left[:-2], right[:-2]])
    if batch is None or left[-1] != depth:
        return None
    rows = left[-2:-1] if len(left) > 1 else ()
    columns = right[-1:] if len(right) > 1 else ()
    return (*batch, *rows, *columns)


def turned(shape: Shape, transposed: object) -> Shape:
    """Return the shape of a matrix, or of a batch of them, its last two axes swapped if asked."""
    return (*shape[:-2], shape[-1], shape[-2]) if transposed and len(shape) > 1 else shape


def _depth(operation: Operation, shape: Shape) -> int:
    return turned(shape, operation.attributes.get("transA", 0))[-1]


def _filter_size(operation: Operation, shape: Shape) -> int:
    kernel = operation.attributes.get("kernel_shape", ())
    assert isinstance(kernel, tuple)
    groups = int(number(operation.attributes, "group", 1))
    return shape[1] // groups * prod(int(extent) for extent in kernel)


DENSE_CONVOLUTION = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(2, 4),
    shape=convolved,
    specials=Specials.MODERATE,
    rounding=Rounding.SCALE,
    summed=_filter_size,
)
"""ONNX Runtime's blocked convolution, but for the one that scales channels."""


def _transposed(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (N, O, rows, columns, ...) of a transposed convolution with explicit padding."""
    data, weights = shapes[0], shapes[1]
    kernel = weights[2:]
    rank = len(kernel)
    if len(data) != rank + 2 or len(weights) < 2:
        return None
    strides, dilations = (integers(operation, name, rank, 1) for name in ("strides", "dilations"))
    pads = integers(operation, "pads", 2 * rank, 0)
    more = integers(operation, "output_padding", rank, 0)
    extents = tuple(
        (data[2 + at] - 1) * strides[at]
        + dilations[at] * (kernel[at] - 1)
        + 1
        + more[at]
        - pads[at]
        - pads[rank + at]
        for at in range(rank)
    )
    return (data[0], weights[1] * int(number(operation.attributes, "group", 1)), *extents)


def _met_filter_size(operation: Operation, shape: Shape) -> int:
    """Return the number of inputs that a result of a transposed convolution sums up."""
    kernel = operation.attributes.get("kernel_shape", ())
    assert isinstance(kernel, tuple)
    strides = integers(operation, "strides", len(kernel), 1)
    groups = int(number(operation.attributes, "group", 1))
    met = (-(-int(extent) // step) for extent, step in zip(kernel, strides, strict=True))
    return shape[1] // groups * prod(met)


PLAIN_CONVOLUTION = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(2, 3),
    shape=convolved,
    per_channel=range(1, 3),
    specials=Specials.MODERATE,
    rounding=Rounding.SCALE,
    summed=_filter_size,
)
"""Convolutions that ONNX Runtime leaves outside its blocked layout."""

MATRIX_PRODUCT = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(2, 2),
    shape=_multiplied,
    specials=Specials.SUMMED,
    summed=_depth,
)
_GENERAL_PRODUCT = replace(MATRIX_PRODUCT, inputs=(2, 3), since=7)

PRODUCT_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "Conv"): PLAIN_CONVOLUTION,
    ("", "Gemm"): _GENERAL_PRODUCT,
    ("", "MatMul"): MATRIX_PRODUCT,
    (MICROSOFT_DOMAIN, "FusedConv"): replace(PLAIN_CONVOLUTION, inputs=(2, 4)),
    (MICROSOFT_DOMAIN, "FusedGemm"): _GENERAL_PRODUCT,
    (MICROSOFT_DOMAIN, "FusedMatMul"): MATRIX_PRODUCT,
    TRANSPOSED_CONVOLUTION: replace(
        PLAIN_CONVOLUTION,
        shape=_transposed,
        per_channel=range(0),
        rounding=Rounding.STEPS,
        summed=_met_filter_size,
    ),
}
