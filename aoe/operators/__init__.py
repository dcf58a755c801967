"""Facts about operators: one row each, for every part of the engine.

The rows say what ONNX and ONNX Runtime define. How an operator is computed is written in the
kernel families, keyed by the same names.
"""

from aoe.operators.axes import SOFTMAX_ONE_AXIS_SINCE, softmax_axis
from aoe.operators.facts import (
    INDEX_DTYPES,
    KERNEL_DTYPES,
    MICROSOFT_DOMAIN,
    MOVED_DTYPES,
    RESULT_NUMBER,
    STORED_DTYPES,
    Attributes,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    Shape,
    Signature,
    Specials,
    broadcast,
    integers,
    number,
    op_key,
)
from aoe.operators.products import BLOCKED_CONVOLUTION, convolved, turned
from aoe.operators.table import OPERATORS, REORDER_INPUT, REORDER_OUTPUT, facts_of, is_reorder

__all__ = [
    "BLOCKED_CONVOLUTION",
    "INDEX_DTYPES",
    "KERNEL_DTYPES",
    "MICROSOFT_DOMAIN",
    "MOVED_DTYPES",
    "OPERATORS",
    "REORDER_INPUT",
    "REORDER_OUTPUT",
    "RESULT_NUMBER",
    "SOFTMAX_ONE_AXIS_SINCE",
    "STORED_DTYPES",
    "Attributes",
    "OperatorFacts",
    "OperatorKey",
    "OperatorKind",
    "Rounding",
    "Shape",
    "Signature",
    "Specials",
    "broadcast",
    "convolved",
    "facts_of",
    "integers",
    "is_reorder",
    "number",
    "op_key",
    "softmax_axis",
    "turned",
]
