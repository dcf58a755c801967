"""Operators of integers that stand for numbers: (level - zero point) * scale.

Each tensor of levels comes with its scale and its zero point as inputs of their own. Scales, zero
points and biases stay inputs of a workload, so that layers of one shape share a record; the record
names their types and extents (one for a tensor, or one for each channel). The zero point of the
weights is in the record by its value: symmetric weights need no sums of the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from math import prod

from aoe.operators.facts import (
    MICROSOFT_DOMAIN,
    RESULT_NUMBER,
    ConstantInput,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    QuantisedInputs,
    Shape,
    Signature,
    Specials,
    broadcast,
    first_shape,
    number,
)
from aoe.operators.movement import concatenated
from aoe.operators.products import MATRIX_PRODUCT, convolved
from aoe.workload import Operation


class Quantisation(StrEnum):
    """Numbers of a model that are integers."""

    WEIGHTS = "weights"
    """Constants, which are dequantised."""
    STATIC = "static"
    """Tensors with a scale that is known before the model runs."""
    DYNAMIC = "dynamic"
    """Tensors with a scale that is computed of each."""


_LINEAR = "QLinear"
"""Beginning of the names of operators from levels to levels."""
_QUANTISATIONS: Mapping[str, Quantisation] = {
    "DequantizeLinear": Quantisation.WEIGHTS,
    **dict.fromkeys(("QuantizeLinear", "QGemm"), Quantisation.STATIC),
    **dict.fromkeys(
        (
            *("DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"),
            *("DynamicQuantizeMatMul", "DynamicQuantizeLSTM", "QAttention", "QMoE"),
            "QEmbedLayerNormalization",
        ),
        Quantisation.DYNAMIC,
    ),
}
"""By operator type, those named QLinear... left out."""


ROWS_IN_INTEGERS = 4
"""Accuracy level of MatMulNBits from which on rows are rounded to 8 bits. Source: ONNX Runtime."""


def quantisations_of(op_types: Iterable[str]) -> frozenset[Quantisation]:
    """Return the kinds of quantisation in a model, by its operators; empty for a model of floats.

    >>> sorted(quantisations_of(["Conv", "QLinearConv", "DequantizeLinear"]))
    [<Quantisation.STATIC: 'static'>, <Quantisation.WEIGHTS: 'weights'>]
    """
    kinds = set(op_types)
    found = {_QUANTISATIONS[kind] for kind in kinds & _QUANTISATIONS.keys()}
    if any(kind.startswith(_LINEAR) for kind in kinds):
        found.add(Quantisation.STATIC)
    return frozenset(found)


_FUSED = (("", ""), (MICROSOFT_DOMAIN, "Fused"))
WEIGHT_ZERO_POINT = "w_zero_point"
"""Attribute of an operation in a workload: the zero point of all weights."""
LINEAR_PRODUCT: OperatorKey = ("", "QLinearMatMul")
GENERAL_PRODUCT: OperatorKey = (MICROSOFT_DOMAIN, "QGemm")
"""Both by levels with a scale and a zero point; QGemm without those of the result is float32."""
DYNAMIC_PRODUCT: OperatorKey = (MICROSOFT_DOMAIN, "DynamicQuantizeMatMul")
"""(float32 matrix, weights, their scale, their zero point, float32 bias)."""
SCALED_PRODUCT: OperatorKey = (MICROSOFT_DOMAIN, "MatMulIntegerToFloat")
"""(matrix, weights, both scales, both zero points, float32 bias)."""
BLOCKWISE_PRODUCT: OperatorKey = (MICROSOFT_DOMAIN, "MatMulNBits")
"""(float32 matrix, weights of `bits` bits, scales and zero points of their blocks, indices of the
depth, float32 bias)."""
RIGHT_MATRIX: Mapping[OperatorKey, int] = {
    **dict.fromkeys(((domain, f"{fused}MatMul") for domain, fused in _FUSED), 1),
    **dict.fromkeys(((domain, f"{fused}Gemm") for domain, fused in _FUSED), 1),
    **dict.fromkeys((LINEAR_PRODUCT, GENERAL_PRODUCT), 3),
    **dict.fromkeys((DYNAMIC_PRODUCT, SCALED_PRODUCT, BLOCKWISE_PRODUCT), 1),
}
"""Position of the right matrix of every matrix product, whose left one is the first input."""
CONCAT_OF_LEVELS: OperatorKey = (MICROSOFT_DOMAIN, "QLinearConcat")
"""(scale and zero point of the result, then levels, scale and zero point of each tensor)."""
FIRST_OPERAND, OPERAND_INPUTS = 2, 3
"""Position of the first tensor of a QLinearConcat, and inputs of each."""
_OPERANDS = 32
QUANTISED_CONVOLUTIONS: frozenset[OperatorKey] = frozenset(
    {("", "QLinearConv"), (MICROSOFT_DOMAIN, "QLinearConv")}
)
MEASURED_LEVELS: OperatorKey = ("", "DynamicQuantizeLinear")
"""A float32 tensor in levels; second and third result are their scale and zero point."""
MEASURED_SCALE = 1
"""Number of the result that is the scale."""
INTEGER_CONVOLUTION: OperatorKey = ("", "ConvInteger")
"""(levels of an image, weights, both zero points); its result is the sums in 32 bits."""
_WEIGHTS = 3
"""Position of the weights; in the shapes of the inputs, too, since nothing in front is omitted."""
_NONE = 99
"""Position of what an operator does not read."""
LEVELS_TO_LEVELS = QuantisedInputs(operands=((0, 1, 2),), result=(3, 4))
"""Of operators of one tensor."""
_PAIR = QuantisedInputs(operands=((0, 1, 2), (3, 4, 5)), result=(6, 7))


def channels_last(operation: Operation) -> bool:
    """Return True for operators of images whose channels are the last axis."""
    return bool(operation.attributes.get("channels_last", 0))


def channels_first_shape(shape: Shape, *, last: bool = True) -> Shape:
    """Return (N, C, rows, columns, ...) of an image whose channels are the last axis, or second."""
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def _measured(operation: Operation, shapes: Sequence[Shape]) -> Shape:
    return () if operation.attributes.get(RESULT_NUMBER, 0) else shapes[0]


def _convolved(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return the shape of a convolution of levels, channels where those of the image are."""
    data, weights, last = shapes[0], shapes[_WEIGHTS], channels_last(operation)
    if len(data) != len(weights) or len(data) < 3:
        return None
    made = convolved(operation, [channels_first_shape(data, last=last), weights])
    return (made[0], *made[2:], made[1]) if made and last else made


def _filter_size(operation: Operation, shape: Shape) -> int:
    kernel = operation.attributes.get("kernel_shape", ())
    assert isinstance(kernel, tuple)
    channels = channels_first_shape(shape, last=channels_last(operation))[1]
    groups = int(number(operation.attributes, "group", 1))
    return max(1, channels // groups) * prod(int(extent) for extent in kernel)


def _multiplied(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (..., M, N) of a matrix product of levels."""
    left, right = shapes[0], shapes[_WEIGHTS]
    if operation.attributes.get("transA", 0):
        left = (*left[:-2], left[-1], left[-2])
    if operation.attributes.get("transB", 0):
        right = (*right[:-2], right[-1], right[-2])
    if not left or len(right) < 2 or left[-1] != right[-2]:
        return None
    batch = broadcast([left[:-2], right[:-2]])
    return None if batch is None else (*batch, *left[-2:-1], right[-1])


def _depth(operation: Operation, shape: Shape) -> int:
    return shape[-2] if operation.attributes.get("transA", 0) and len(shape) > 1 else shape[-1]


def _by_columns(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    """Return (..., N) of a product by weights whose extents are attributes."""
    depth, columns = (int(number(operation.attributes, name, 0)) for name in ("K", "N"))
    return (*shapes[0][:-1], columns) if shapes[0][-1:] == (depth,) and columns else None


def _pair_shape(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    return broadcast([shapes[0], shapes[_WEIGHTS]])


def _concatenated(operation: Operation, shapes: Sequence[Shape]) -> Shape | None:
    operands = shapes[FIRST_OPERAND::OPERAND_INPUTS]
    return concatenated(operation, operands) if operands else None


_POINT = OperatorFacts(
    inputs=(4, 5), signature=Signature.LEVELS, shape=first_shape, quantised=LEVELS_TO_LEVELS
)
_OF_TWO = OperatorFacts(
    inputs=(7, 8), signature=Signature.LEVELS, shape=_pair_shape, quantised=_PAIR
)
_CONVOLUTION = OperatorFacts(
    kind=OperatorKind.PRODUCT,
    inputs=(8, 9),
    signature=Signature.LEVELS,
    shape=_convolved,
    constants=(ConstantInput(5, WEIGHT_ZERO_POINT, dtype="", is_uniform=True),),
    specials=Specials.FEW,
    summed=_filter_size,
    factors=(4,),  # the scale of the weights: levels are drawn from all of their range
    quantised=replace(_PAIR, bias=8),
)
_PRODUCT = replace(_CONVOLUTION, inputs=(8, 8), shape=_multiplied, summed=_depth, quantised=_PAIR)
_TO_FLOAT = replace(
    MATRIX_PRODUCT,
    inputs=(3, 5),
    signature=Signature.LEVELS,
    factors=(2,),
    quantised=QuantisedInputs(operands=((1, 2, 3),), result=(_NONE, _NONE)),
)

_CONCAT = OperatorFacts(
    inputs=(FIRST_OPERAND + OPERAND_INPUTS, FIRST_OPERAND + OPERAND_INPUTS * _OPERANDS),
    signature=Signature.LEVELS,
    shape=_concatenated,
    quantised=QuantisedInputs(
        operands=tuple(
            (at, at + 1, at + 2)
            for at in range(
                FIRST_OPERAND, FIRST_OPERAND + OPERAND_INPUTS * _OPERANDS, OPERAND_INPUTS
            )
        ),
        result=(0, 1),
    ),
)

QUANTISED_ELEMENTWISE: dict[OperatorKey, OperatorFacts] = {
    (MICROSOFT_DOMAIN, "QLinearAdd"): _OF_TWO,
    CONCAT_OF_LEVELS: _CONCAT,
    (MICROSOFT_DOMAIN, "QLinearLeakyRelu"): _POINT,
    (MICROSOFT_DOMAIN, "QLinearMul"): _OF_TWO,
    (MICROSOFT_DOMAIN, "QLinearSigmoid"): _POINT,
}
QUANTISED_PRODUCTS: dict[OperatorKey, OperatorFacts] = {
    ("", "QLinearConv"): replace(_CONVOLUTION, since=10),
    LINEAR_PRODUCT: replace(_PRODUCT, since=10),
    GENERAL_PRODUCT: replace(
        _PRODUCT,
        inputs=(6, 9),
        quantised=QuantisedInputs(operands=((0, 1, 2), (3, 4, 5)), result=(7, 8), bias=6),
    ),
    (MICROSOFT_DOMAIN, "QLinearConv"): _CONVOLUTION,
    # rounded to 8 bits, ONNX Runtime makes a number of a NaN or an infinity
    BLOCKWISE_PRODUCT: replace(
        _TO_FLOAT, inputs=(3, 6), shape=_by_columns, specials=Specials.MODERATE
    ),
    DYNAMIC_PRODUCT: _TO_FLOAT,
    MEASURED_LEVELS: OperatorFacts(
        kind=OperatorKind.AXIS,
        since=11,
        signature=Signature.MEASURED,
        shape=_measured,
        specials=Specials.MODERATE,
        results=3,
    ),
    INTEGER_CONVOLUTION: replace(
        _CONVOLUTION,
        inputs=(2, 4),
        since=10,
        shape=convolved,
        constants=(ConstantInput(3, WEIGHT_ZERO_POINT, dtype="", is_uniform=True),),
        factors=(),
        quantised=QuantisedInputs(
            operands=((0, _NONE, 2), (1, _NONE, 3)), result=(_NONE, _NONE), makes_sums=True
        ),
    ),
    SCALED_PRODUCT: replace(
        _TO_FLOAT,
        inputs=(4, 7),
        factors=(3,),
        quantised=QuantisedInputs(operands=((0, 2, 4), (1, 3, 5)), result=(_NONE, _NONE)),
    ),
}
