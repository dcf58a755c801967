"""One recorded operator as an ONNX model of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from aoe.errors import ModelImportError
from aoe.torch.collecting.operator_recorder import Sample
from aoe.torch.modules.calls import CallConvention, TensorForm
from aoe.torch.modules.export import ExportedModule, export_module


def export_operator(sample: Sample) -> ExportedModule:
    """Export an operator with arguments of the recorded forms; weights become constants.

    Raises:
        ModelImportError: it has no ONNX counterpart, or nothing that could be tuned.
    """
    operator = _functional(sample.operator)
    if not any(form.dtype.is_floating_point for form in sample.forms):
        raise ModelImportError(f"operator {operator}", "computes with no floating-point tensor")
    module = _Operator(operator, sample)
    tensors = [
        torch.zeros(leaf.shape, dtype=leaf.dtype)
        for leaf in sample.leaves
        if isinstance(leaf, TensorForm)
    ]
    return export_module(module.eval(), CallConvention(module.forward).flatten(tensors, {}))


class _Operator(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, operator: Any, sample: Sample) -> None:
        super().__init__()
        self._operator = operator
        self._spec = sample.spec
        self._leaves: list[Any] = []
        for number, leaf in enumerate(sample.leaves):
            if isinstance(leaf, torch.Tensor):
                self.register_buffer(f"weight_{number}", leaf.detach())
                leaf = _Weight(f"weight_{number}")
            self._leaves.append(leaf)

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        args, kwargs = pytree.tree_unflatten(
            [self._filled(leaf, given) for leaf in self._leaves], self._spec
        )
        return self._operator(*args, **kwargs)

    def _filled(self, leaf: Any, given: Any) -> Any:
        if isinstance(leaf, TensorForm):
            return next(given)
        return getattr(self, leaf.name) if isinstance(leaf, _Weight) else leaf


class _Weight:
    """Stands for a buffer of the module, by name."""

    def __init__(self, name: str) -> None:
        self.name = name


def _functional(operator: torch._ops.OpOverload) -> Any:
    """Return the form of an operator that writes to none of its arguments: `relu` for `relu_`."""
    packet, _, overload = operator.name().partition(".")
    namespace, _, name = packet.partition("::")
    if not name.endswith("_"):
        return operator
    plain = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    return getattr(plain, overload or "default", operator)
