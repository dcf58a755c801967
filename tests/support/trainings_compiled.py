"""Training graphs of `torch.compile` without a clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.training.graphs import Choice, TrainingGraph  # noqa: E402
from aoe.torch.modules.training.loops import LoopCompiler  # noqa: E402
from aoe.torch.modules.training.region_settings import RegionSettings  # noqa: E402
from aoe.torch.modules.training.regions import RegionForm  # noqa: E402
from aoe.torch.modules.training.row_loops import LoopSource  # noqa: E402
from aoe.torch.options import engine_settings  # noqa: E402


def region_settings(env: Mapping[str, str]) -> RegionSettings:
    """Return how the regions of a graph are tuned, as by default."""
    tune = engine_settings(Path("net.onnx"), {"output": Path()}, env)
    return RegionSettings(tune=tune, env=env, name="Net", direction="forward", limit_s=math.inf)


class Always(Choice):
    """Uses every kernel that computes the right results."""

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        return True

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        eager()
        compiled()
        return True


class Never(Choice):
    """Finds every kernel and every graph too slow."""

    def region(self, module: Any, call: Any, arguments: Sequence[Any]) -> bool:
        return False

    def graph(self, eager: Callable[[], object], compiled: Callable[[], object]) -> bool:
        return False


class LoopCalls:
    """Counts the calls of loops.

    Attributes:
        count: How often a loop has computed a region.
    """

    def __init__(self) -> None:
        self.count = 0

    def compute(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a loop returns."""
        self.count += 1
        return call(*arguments)


class CountedLoops(LoopCompiler):
    """Keeps no verdict, and counts the calls of loops."""

    def __init__(self, counted: LoopCalls, settings: RegionSettings) -> None:
        super().__init__(settings)
        self._calls = counted

    def verdict(self, digest: str) -> str | None:
        return None

    def keep(self, digest: str, reason: str) -> None:
        pass

    def compile(self, sources: Mapping[RegionForm, LoopSource]) -> Any:
        calls = super().compile(sources)
        return {form: partial(self._calls.compute, call) for form, call in calls.items()}


def compiled(module: Any, counted: LoopCalls, choice: Choice | None = None, **backend: Any) -> Any:
    """Return a module that `torch.compile` trains with loops.

    Args:
        module: It is trained.
        counted: Counts the calls of loops.
        choice: Decides what is used; every right kernel by default.
        backend: More of the backend: its options, or what tunes graphs of inference.
    """
    loops = partial(CountedLoops, counted)
    train = partial(TrainingGraph, choice=choice or Always(), loops=loops)
    return torch.compile(module, backend=partial(aoe_backend, train=train, **backend))
