"""Operators PyTorch runs: recorded with shapes, types and attributes, exported one by one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from aoe.errors import ModelImportError
from aoe.torch.modules.calls import CallConvention, TensorForm, is_plain
from aoe.torch.modules.export import ExportedModule, export_module

_IGNORED_NAMESPACES = ("prim", "profiler", "c10d")


class OperatorUse:
    """One operator with one kind of arguments.

    Attributes:
        operator: As PyTorch calls it, `aten.mish.default`.
        inputs: Its tensors, in words.
        attributes: Arguments that are no tensors, by name.
        phase: `forward` or `backward`.
        modules: Qualified names of the modules that ran it.
        count: How often it ran.
        graph: File of the dump that holds it; empty if none does, for `reason`.
        sample: The operator and its arguments, tensors replaced by forms or kept weights.
    """

    def __init__(self, operator: torch._ops.OpOverload, sample: Sample, phase: str) -> None:
        self.operator = str(operator)
        self.inputs = [str(form) for form in sample.forms]
        self.attributes = sample.attributes
        self.phase = phase
        self.modules: set[str] = set()
        self.count = 0
        self.graph = ""
        self.reason = ""
        self.sample = sample

    def to_json(self) -> dict[str, Any]:
        """Return the operator as a dump lists it."""
        return {
            "operator": self.operator,
            "inputs": self.inputs,
            "attributes": self.attributes,
            "phase": self.phase,
            "modules": sorted(self.modules),
            "count": self.count,
            "graph": self.graph or None,
            "reason": self.reason,
        }


class Sample:
    """The arguments of an operator without the data of its tensors, weights excepted."""

    def __init__(
        self,
        operator: torch._ops.OpOverload,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        is_weight: Callable[[torch.Tensor], bool],
    ) -> None:
        self.operator = operator
        leaves, self.spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self.forms = [TensorForm(shape=tuple(t.shape), dtype=t.dtype) for t in tensors]
        self.elements = sum(tensor.numel() for tensor in tensors)
        self.leaves = [
            TensorForm(shape=tuple(leaf.shape), dtype=leaf.dtype)
            if isinstance(leaf, torch.Tensor) and not is_weight(leaf)
            else leaf
            for leaf in leaves
        ]
        names = [argument.name for argument in operator._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        self.attributes = {k: _attribute(v) for k, v in given.items() if not _has_tensor(v)}

    def key(self, phase: str) -> str:
        """Return the identity of equal uses."""
        parts = [str(self.operator), phase, [str(f) for f in self.forms], self.attributes]
        return json.dumps(parts, sort_keys=True)


class OperatorRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Counts operators by what they compute.

    Attributes:
        uses: What was recorded, by key.
        paused: True to record nothing.
        scope: Qualified name of the module at work; None outside of modules.
        is_weight: Tells weights from data.
        found: Keys recorded since `found` was last cleared, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.uses: dict[str, OperatorUse] = {}
        self.found: dict[str, None] = {}
        self.paused = False
        self.scope: str | None = None
        self.is_weight: Callable[[torch.Tensor], bool] = lambda tensor: False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operator, then note it."""
        result = func(*args, **(kwargs or {}))
        if not self.paused and not func.is_view and func.namespace not in _IGNORED_NAMESPACES:
            self._note(func, args, kwargs or {})
        return result

    def _note(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        sample = Sample(func, args, kwargs, self.is_weight)
        phase = "backward" if torch._C._current_graph_task_id() != -1 else "forward"
        key = sample.key(phase)
        use = self.uses.setdefault(key, OperatorUse(func, sample, phase))
        use.count += 1
        if self.scope is not None and phase == "forward":
            use.modules.add(self.scope)
        self.found[key] = None


def _attribute(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_attribute(item) for item in value]
    finite = isinstance(value, float) and value == value and abs(value) != float("inf")
    if value is None or finite or isinstance(value, bool | int | str):
        return value
    return str(value) if is_plain(value) else type(value).__name__


def _has_tensor(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


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
