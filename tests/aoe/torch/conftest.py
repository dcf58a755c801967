"""Fixtures for tests with PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.engine.untuned import UntunedEngine


@pytest.fixture(autouse=True, scope="session")
def _one_table_of_onnx_operators() -> Iterator[None]:
    """Let PyTorch's exporter make its table of operators once, not for each of many exports."""
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry
    except ImportError:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        made_once = staticmethod(cache(ONNXRegistry.from_torchlib))
        patch.setattr(ONNXRegistry, "from_torchlib", made_once)
        yield


@pytest.fixture
def engine() -> UntunedEngine:
    """Return an engine that tunes nothing and remembers what it was asked."""
    from support.engine.untuned import UntunedEngine

    return UntunedEngine()


@pytest.fixture
def inference() -> Iterator[None]:
    """Draw the same numbers in each test, and want no gradients."""
    import torch

    torch.manual_seed(0)
    with torch.no_grad():
        yield
