"""Modules for tests of `aoe.torch.optimize`, and the state one must be left in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import aoe.torch  # noqa: E402
from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.compiled import OptimizedModule  # noqa: E402
from support.engine.untuned import UntunedEngine  # noqa: E402

_TABLES = tuple(map(attrgetter, ("_parameters", "_buffers", "_modules")))
_FORWARD_HOOKS = attrgetter("_forward_hooks")
_VERSION = attrgetter("_version")


class Linear(nn.Module):
    """One weight."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


class Scaled(nn.Module):
    """An argument times a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3))

    def forward(self, x: Any) -> Any:
        return (x * self.weight).exp()


class Branching(nn.Module):
    """Cannot be exported."""

    def forward(self, x: Any) -> Any:
        return x if x.sum() > 0 else -x


def snapshot(module: Any) -> list[Any]:
    found: list[Any] = []
    for name, submodule in module.named_modules():
        attributes = {k: id(v) for k, v in submodule.__dict__.items()}
        tables = [
            [(k, id(v)) for k, v in table.items()]
            for table in (find(submodule) for find in _TABLES)
        ]
        found.append((name, attributes, tables, len(_FORWARD_HOOKS(submodule))))
    found += [(p.requires_grad, _VERSION(p), p.grad) for p in module.parameters()]
    return found


def optimize(module: Any, example_inputs: Any, job_type: int | str = 2, **options: Any) -> Any:
    """Optimize a module with an engine that tunes nothing, unless another `engine` is given."""
    options.setdefault("engine", UntunedEngine())
    return aoe.torch.optimize(module, example_inputs, job_type, **options)


@contextmanager
def computed_by_torch(module: OptimizedModule) -> Iterator[list[Any]]:
    """Yield what grows with each call of an optimized module that PyTorch computes."""
    calls: list[Any] = []

    def note(called: nn.Module, args: Any) -> None:
        if called is module.original:
            calls.append(args)

    handle = nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield calls
    finally:
        handle.remove()


def tensors_in(value: Any) -> list[Any]:
    """Return the tensors of a result, however it nests them."""
    if isinstance(value, torch.Tensor):
        return [value]
    if not isinstance(value, dict | tuple | list):
        return []
    inside = value.values() if isinstance(value, dict) else value
    return [tensor for item in inside for tensor in tensors_in(item)]


def untuned(graph_module: Any, example_inputs: Any, **given: Any) -> Any:
    """Stand in for the backend "aoe": its engine tunes nothing, unless another one is given."""
    given.setdefault("engine", UntunedEngine())
    return aoe_backend(graph_module, example_inputs, **given)
