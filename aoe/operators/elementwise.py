"""Operators whose result depends on one element of each input."""

from __future__ import annotations

from dataclasses import replace

from aoe.operators.facts import (
    MICROSOFT_DOMAIN,
    OperatorFacts,
    OperatorKey,
    Rounding,
    Signature,
    first_shape,
)
from aoe.operators.quantised import QUANTISED_ELEMENTWISE

_ANY_NUMBER = 32  # inputs of a variadic operator

_UNARY = OperatorFacts()
_EXACT = OperatorFacts(rounding=Rounding.EXACT)
_BINARY = OperatorFacts(inputs=(2, 2), since=7)
_VARIADIC = OperatorFacts(inputs=(1, _ANY_NUMBER))
_EXACT_VARIADIC = OperatorFacts(inputs=(1, _ANY_NUMBER), rounding=Rounding.EXACT)
_COMPARISON = OperatorFacts(
    inputs=(2, 2), since=7, signature=Signature.COMPARISON, rounding=Rounding.EXACT
)
_LOGIC = OperatorFacts(inputs=(2, 2), since=7, signature=Signature.LOGIC, rounding=Rounding.EXACT)
_DEQUANTIZE = OperatorFacts(
    inputs=(2, 3),
    since=10,
    signature=Signature.DEQUANTIZE,
    shape=first_shape,
    per_channel=range(1, 3),
    positive=(1,),
    rounding=Rounding.EXACT,
)

ELEMENTWISE_OPERATORS: dict[OperatorKey, OperatorFacts] = {
    ("", "Abs"): _EXACT,
    ("", "Add"): _BINARY,
    ("", "And"): _LOGIC,
    ("", "Cast"): OperatorFacts(signature=Signature.CAST, rounding=Rounding.EXACT),
    ("", "Ceil"): _EXACT,
    ("", "Celu"): _UNARY,
    ("", "Clip"): OperatorFacts(inputs=(1, 3), rounding=Rounding.EXACT),
    ("", "Cos"): _UNARY,
    ("", "DequantizeLinear"): _DEQUANTIZE,
    ("", "Div"): OperatorFacts(inputs=(2, 2), since=7, nonzero=(1,)),
    ("", "Dropout"): OperatorFacts(
        inputs=(1, 3), since=7, shape=first_shape, rounding=Rounding.EXACT
    ),
    ("", "Elu"): _UNARY,
    ("", "Equal"): _COMPARISON,
    ("", "Erf"): _UNARY,
    ("", "Exp"): _UNARY,
    ("", "Floor"): _EXACT,
    ("", "Gelu"): _UNARY,
    ("", "Greater"): _COMPARISON,
    ("", "GreaterOrEqual"): _COMPARISON,
    ("", "HardSigmoid"): _UNARY,
    ("", "HardSwish"): _UNARY,
    ("", "Identity"): _EXACT,
    ("", "IsNaN"): OperatorFacts(signature=Signature.COMPARISON, rounding=Rounding.EXACT),
    ("", "LeakyRelu"): _UNARY,
    ("", "Less"): _COMPARISON,
    ("", "LessOrEqual"): _COMPARISON,
    ("", "Log"): OperatorFacts(positive=(0,)),
    ("", "Max"): _EXACT_VARIADIC,
    ("", "Mean"): _VARIADIC,
    ("", "Min"): _EXACT_VARIADIC,
    ("", "Mish"): _UNARY,
    ("", "Mul"): _BINARY,
    ("", "Neg"): _EXACT,
    ("", "Not"): OperatorFacts(signature=Signature.LOGIC, rounding=Rounding.EXACT),
    ("", "Or"): _LOGIC,
    ("", "PRelu"): _BINARY,
    ("", "Pow"): OperatorFacts(inputs=(2, 2), since=7, positive=(0,)),
    ("", "QuantizeLinear"): replace(_DEQUANTIZE, signature=Signature.QUANTIZE),
    ("", "Reciprocal"): OperatorFacts(nonzero=(0,)),
    ("", "Relu"): _EXACT,
    ("", "Round"): _EXACT,
    ("", "Selu"): _UNARY,
    ("", "Shrink"): _UNARY,
    ("", "Sigmoid"): _UNARY,
    ("", "Sign"): _EXACT,
    ("", "Sin"): _UNARY,
    ("", "Softplus"): _UNARY,
    ("", "Softsign"): _UNARY,
    ("", "Sqrt"): OperatorFacts(positive=(0,)),
    ("", "Sub"): _BINARY,
    ("", "Sum"): _VARIADIC,
    ("", "Swish"): _UNARY,
    ("", "Tanh"): _UNARY,
    ("", "ThresholdedRelu"): _EXACT,
    ("", "Where"): OperatorFacts(inputs=(3, 3), signature=Signature.WHERE, rounding=Rounding.EXACT),
    ("", "Xor"): _LOGIC,
    (MICROSOFT_DOMAIN, "BiasGelu"): OperatorFacts(inputs=(2, 2)),
    (MICROSOFT_DOMAIN, "FastGelu"): OperatorFacts(inputs=(1, 2)),
    (MICROSOFT_DOMAIN, "Gelu"): _UNARY,
    (MICROSOFT_DOMAIN, "QuickGelu"): _UNARY,
    **QUANTISED_ELEMENTWISE,
}
