"""Modules for tests of `aoe.torch.optimize`, and the state one must be left in."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402


class Linear(nn.Module):
    """One weight."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return self.fc(x)


def snapshot(module: Any) -> list[Any]:
    found: list[Any] = []
    for name, submodule in module.named_modules():
        attributes = {k: id(v) for k, v in submodule.__dict__.items()}
        tables = [
            [(k, id(v)) for k, v in table.items()]
            for table in (submodule._parameters, submodule._buffers, submodule._modules)
        ]
        found.append((name, attributes, tables, len(submodule._forward_hooks)))
    found += [(p.requires_grad, p._version, p.grad) for p in module.parameters()]
    return found
