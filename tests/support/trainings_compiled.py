"""Training graphs of `torch.compile` without a clock and a search: first guesses are used."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from aoe.device.compiler import KernelSource  # noqa: E402
from aoe.device.registry import resolve_target  # noqa: E402
from aoe.device.toolchain import find_toolchain  # noqa: E402
from aoe.kernels.family import KernelTarget  # noqa: E402
from aoe.kernels.registry import FAMILIES  # noqa: E402
from aoe.schedule import Configuration  # noqa: E402
from aoe.torch.modules.backend import aoe_backend  # noqa: E402
from aoe.torch.modules.training.graphs import Choice, TrainingGraph  # noqa: E402
from aoe.torch.modules.training.kernels import Calls, link_regions  # noqa: E402
from aoe.torch.modules.training.loops import LoopCompiler  # noqa: E402
from aoe.torch.modules.training.programs import Program, workloads_of  # noqa: E402
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


class FirstGuesses:
    """Tunes nothing: kernels are the first guesses of their families, compiled in this process.

    Attributes:
        asked: Settings of every call.
        tuned: Regions of every call, and those there are kernels for.
        calls: How often a kernel has computed a region.
        loops: How often a loop has.
    """

    def __init__(self) -> None:
        self.asked: list[RegionSettings] = []
        self.tuned: list[tuple[int, int]] = []
        self.calls = self.loops = 0

    def __call__(self, programs: Mapping[RegionForm, Program], settings: RegionSettings) -> Calls:
        device, target = resolve_target(None, 1)
        facts = KernelTarget.of(target)
        chosen = {}
        for key, workload in workloads_of(programs.values()).items():
            family = FAMILIES[workload.op_type]
            guess = Configuration(family.space(workload, facts).first_guesses[0])
            schedule = family.schedule(workload, guess, facts)
            chosen[key] = KernelSource.of(workload, schedule)

        def compile_kernels(sources: Sequence[KernelSource], folder: Path) -> dict[str, str]:
            for source in sources:
                device.compile_kernel(source, target, folder)
            return {source.name: "" for source in sources}

        calls = link_regions(
            programs,
            chosen,
            compile_kernels,
            device=device,
            target=target,
            toolchain=find_toolchain(os.environ),
        )
        self.asked.append(settings)
        self.tuned.append((len(programs), len(calls)))
        return {form: partial(self._counted, call) for form, call in calls.items()}

    def _counted(self, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls += 1
        return call(*arguments)

    def compute_loop(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a loop returns."""
        self.loops += 1
        return call(*arguments)


class CountedLoops(LoopCompiler):
    """Keeps no verdict, and counts the calls of loops in what is to tune."""

    def __init__(self, tune: FirstGuesses, settings: RegionSettings) -> None:
        super().__init__(settings)
        self._tune = tune

    def verdict(self, digest: str) -> str | None:
        return None

    def keep(self, digest: str, reason: str) -> None:
        pass

    def compile(self, sources: Mapping[RegionForm, LoopSource]) -> Any:
        calls = super().compile(sources)
        return {form: partial(self._counted, call) for form, call in calls.items()}

    def _counted(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return self._tune.compute_loop(call, *arguments)


def compiled(module: Any, tune: FirstGuesses, choice: Choice | None = None, **backend: Any) -> Any:
    """Return a module that `torch.compile` trains with loops, or with regions from `tune`.

    Args:
        module: It is trained.
        tune: Tunes regions without a loop, and counts calls.
        choice: Decides what is used; every right kernel by default.
        backend: More of the backend: its options, or what tunes graphs of inference.
    """
    loops = partial(CountedLoops, tune)
    train = partial(TrainingGraph, tune=tune, choice=choice or Always(), loops=loops)
    return torch.compile(module, backend=partial(aoe_backend, train=train, **backend))
