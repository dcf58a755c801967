"""Whole runs of operator tuning measured by a script: nothing is timed or compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import aoe
from aoe import TuneResult
from aoe.device.registry import resolve_target
from aoe.execute.messages import ModelPart
from aoe.measurement import CpuUse, RoundingSteps
from aoe.ort.profile import ModelProfile
from aoe.schedule import Schedule
from aoe.target import Target
from aoe.tuner.parts import EngineParts
from support.engine.cpu import TwoCoreCpu
from support.engine.fakes import ScriptedRunner, always_twice_as_fast
from support.engine.models import make_model

_MODEL_US = 10_000.0


@dataclass(frozen=True, slots=True)
class ScriptedCpu(TwoCoreCpu):
    """This machine's CPU with two cores and no neighbours, for which nothing is linked."""

    def usage(self) -> CpuUse:
        return CpuUse()

    def build_library(self, *_: object, file: Path, **__: object) -> Path:
        file.write_bytes(b"library")
        return file


@dataclass
class ScriptedRuns:
    """The runners of all runs since the script was set."""

    # True speed-up of every candidate.
    candidate: Callable[[Schedule], float] = always_twice_as_fast
    # True speed-up of one model over another.
    model: Callable[[ModelPart, ModelPart], float] = lambda baseline, tuned: 1.5
    # What a model computes of one set of inputs.
    results: Callable[[ModelPart], Sequence[Any]] = lambda part: [np.ones(3, np.float32)]
    # One for each run, siblings left out.
    runners: list[ScriptedRunner] = field(default_factory=list)
    target: Callable[[Target], Target] = lambda target: target  # Changes the target of this machine
    object_code: bytes = b""  # What kernels are compiled to, see `ScriptedRunner`
    rounding: RoundingSteps | None = None  # Of kernels that make integers of 8 bits
    # Other parts of the engine, by the names of `EngineParts`.
    parts: dict[str, Any] = field(default_factory=dict)

    @property
    def engine(self) -> EngineParts:
        """The engine of these runs."""
        parts: dict[str, Any] = {
            "resolve_target": self.resolve,
            "check_toolchain": lambda *_: None,
            "open_runner": self.open_runner,
            "profile_model": evenly_profiled,
        }
        return EngineParts(**(parts | self.parts))

    def resolve(self, soc_version: str | None, core_num: int | None) -> tuple[ScriptedCpu, Target]:
        """Return a CPU that links nothing, and the target."""
        resolve_target(soc_version, core_num)  # refuses other targets
        device = ScriptedCpu()
        return device, self.target(device.describe(core_num))

    def tune(self, model: Any, **options: Any) -> TuneResult:
        """Tune as `aoe.tune`; the search is the cheapest one, since times are scripted."""
        return aoe.tune(model, engine=self.engine, **{"search": "random", **options})

    def trials(self) -> int:
        """Return how many times candidates were measured since the last call."""
        asked = sum(len(runner.asked("measure_candidates")) for runner in self.runners)
        self.runners.clear()
        return asked

    def open_runner(self, device: Any, target: Any, *_: Any) -> ScriptedRunner:
        """Return a runner by the script."""
        runner = ScriptedRunner(
            device=device,
            target=target,
            jitter=0.0005,
            drift=0.0,
            candidate=lambda schedule: self.candidate(schedule),
            model=lambda baseline, tuned: self.model(baseline, tuned),
            results=lambda part: self.results(part),
            object_code=self.object_code,
            rounding=self.rounding,
        )
        self.runners.append(runner)
        return runner


def evenly_profiled(model: Any, *_: Any, **__: Any) -> ModelProfile:
    """Stand in for `profile_model`: every node takes as long as any other."""
    proto = onnx.load(str(model), load_external_data=False) if isinstance(model, Path) else model
    each_us = _MODEL_US / len(proto.graph.node)
    return ModelProfile(
        node_us={node.name: each_us for node in proto.graph.node}, model_us=_MODEL_US, runs=3
    )


def blocks_net(
    sizes: Sequence[int], *, head: str = "Softmax", extents: tuple[int, int] = (32, 32)
) -> onnx.ModelProto:
    """Return a network of blocks that are operators of their own, and a head.

    Args:
        sizes: Of the LRN in each block: another size is another block.
        head: Operator at the end, over the channels.
        extents: Height and width of the image.
    """
    nodes, last = [], "x"
    for number, size in enumerate(sizes):
        nodes.append(
            helper.make_node("LRN", [last], [f"n{number}"], name=f"lrn{number}", size=size)
        )
        last = f"n{number}"
    nodes.append(helper.make_node(head, [last], ["y"], name="head", axis=1))
    return make_model(nodes, {"x": (1, 24, *extents)}, ["y"])
