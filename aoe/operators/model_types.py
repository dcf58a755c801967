"""Operator types as a model has them: what ONNX Runtime has fused or renamed is taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aoe.operators.facts import OperatorKind
from aoe.operators.table import facts_of, is_reorder
from aoe.workload import Operation

_TAKEN_APART: Mapping[str, tuple[str, ...]] = {
    "BiasGelu": ("Add", "Gelu"),
    "FastGelu": ("Gelu",),
    "FusedConv": ("Conv",),
    "FusedGemm": ("Gemm",),
    "FusedMatMul": ("MatMul",),
    "QuickGelu": ("Sigmoid", "Mul"),
    "SkipLayerNormalization": ("Add", "LayerNormalization"),
    "SkipSimplifiedLayerNormalization": ("Add", "RMSNormalization"),
    "SimplifiedLayerNormalization": ("RMSNormalization",),
}
"""Operators only ONNX Runtime has. Source: its contrib operators, domain com.microsoft."""
_ACTIVATION = "activation"
_KINDS = (OperatorKind.PRODUCT, OperatorKind.AXIS)
"""The operator that names a workload, before the operators fused with it."""


def model_types(operations: Iterable[Operation]) -> tuple[str, ...]:
    """Return the types of the model's operators a workload stands for, reorders left out."""
    return tuple(
        name
        for operation in _computing(operations)
        for name in (*_own_types(operation), *_activation(operation))
    )


def main_type(operations: Iterable[Operation]) -> str:
    """Return the type that names a workload: its product, else what walks an axis, or its first."""
    computing = _computing(operations)
    for kind in _KINDS:
        for operation in computing:
            if facts_of(operation).kind is kind:
                return _own_types(operation)[-1]
    return _own_types(computing[0])[0]


def _computing(operations: Iterable[Operation]) -> Sequence[Operation]:
    """Return the operations but reorders, unless there is nothing else."""
    given = tuple(operations)
    return tuple(operation for operation in given if not is_reorder(operation)) or given


def _own_types(operation: Operation) -> tuple[str, ...]:
    return _TAKEN_APART.get(operation.op_type, (operation.op_type,))


def _activation(operation: Operation) -> tuple[str, ...]:
    """Return the activation ONNX Runtime has fused into an operator as an attribute."""
    name = operation.attributes.get(_ACTIVATION, "")
    return (name,) if isinstance(name, str) and name else ()
