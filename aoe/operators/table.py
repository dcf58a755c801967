"""Every operator a workload may hold; a group of rows more is a file beside this one."""

from __future__ import annotations

from aoe.operators.axes import AXIS_OPERATORS
from aoe.operators.elementwise import ELEMENTWISE_OPERATORS
from aoe.operators.facts import (
    Named,
    OperatorFacts,
    OperatorKey,
    OperatorKind,
    Rounding,
    first_shape,
    op_key,
)
from aoe.operators.gathering import GATHERING_OPERATORS, LOOK_UP, looks_up
from aoe.operators.movement import INTERPOLATION, MOVEMENT_OPERATORS, interpolates, reordered
from aoe.operators.products import BLOCKED_CONVOLUTION, DENSE_CONVOLUTION, PRODUCT_OPERATORS
from aoe.operators.quantised import QUANTISED_PRODUCTS
from aoe.operators.recurrent import RECURRENT_OPERATORS
from aoe.operators.windows import WINDOW_OPERATORS
from aoe.workload import NCHWC_DOMAIN, Operation

REORDER_INPUT: OperatorKey = (NCHWC_DOMAIN, "ReorderInput")
REORDER_OUTPUT: OperatorKey = (NCHWC_DOMAIN, "ReorderOutput")

_REORDER = OperatorFacts(kind=OperatorKind.REORDER, shape=reordered, rounding=Rounding.EXACT)

OPERATORS: dict[OperatorKey, OperatorFacts] = {
    **ELEMENTWISE_OPERATORS,
    **AXIS_OPERATORS,
    **PRODUCT_OPERATORS,
    **QUANTISED_PRODUCTS,
    **RECURRENT_OPERATORS,
    **MOVEMENT_OPERATORS,
    **WINDOW_OPERATORS,
    **GATHERING_OPERATORS,
    ("", "BatchNormalization"): OperatorFacts(
        inputs=(5, 5), since=7, shape=first_shape, per_channel=range(1, 5), positive=(4,)
    ),
    BLOCKED_CONVOLUTION: OperatorFacts(inputs=(2, 4), shape=first_shape, per_channel=range(1, 3)),
    REORDER_INPUT: _REORDER,
    REORDER_OUTPUT: _REORDER,
}
"""Each row has what ONNX and ONNX Runtime define, once, whoever asks."""


def facts_of(operation: Operation) -> OperatorFacts:
    """Return the row of an operation of a workload.

    Raises:
        ValueError: the table has none.
    """
    if op_key(operation) == BLOCKED_CONVOLUTION and not _scales_channels(operation):
        return DENSE_CONVOLUTION
    if interpolates(op_key(operation), operation.attributes):
        return INTERPOLATION
    if looks_up(operation):
        return LOOK_UP
    found = OPERATORS.get(op_key(operation))
    if found is None:
        raise ValueError(
            f"operator: unknown (got {operation.domain or 'ai.onnx'}:{operation.op_type})"
        )
    return found


def _scales_channels(convolution: Operation) -> bool:
    """Return True for the form in which ONNX Runtime leaves a BatchNormalization or a scale."""
    group = convolution.attributes.get("group", 1)
    kernel = convolution.attributes.get("kernel_shape", ())
    return group != 1 and isinstance(kernel, tuple) and all(extent == 1 for extent in kernel)


def is_reorder(operator: Named) -> bool:
    """Return True for operators that change the layout and no value."""
    return op_key(operator) in (REORDER_INPUT, REORDER_OUTPUT)
