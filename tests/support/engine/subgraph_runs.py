"""Whole runs of subgraph tuning: graphs are cut and rewritten for real, only times are scripted."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx

from aoe.execute.messages import ModelPart
from aoe.graph.rewrites.registry import RULES
from aoe.runs.run import tune_with
from aoe.runs.subgraphs.result import SgatResult
from aoe.schedule import Schedule
from aoe.tuner.mode import JobType, TuneSettings
from aoe.tuner.parts import EngineParts
from support.engine.environments import run_environment
from support.engine.fakes import RecordingProgress, ScriptedRunner, make_target
from support.engine.scripted_runs import ScriptedCpu, ScriptedRuns
from support.engine.subgraphs import by_kernels, by_splits, c2f_network

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_RULES = ("convolution-split", "mean-to-global-pool")


class Run:
    """A model, a bank, and a machine on which rewrites pay off as scripted.

    What becomes one kernel has tests of its own, and so have layouts.

    Args:
        place: Folder.
        parts: Other parts of the engine, by the names of `EngineParts`.
    """

    def __init__(self, place: Path, **parts: Any) -> None:
        rules = {name: RULES[name] for name in _RULES}
        self.runs = ScriptedRuns(
            parts={
                "open_runner": self._runner,
                "rules": rules,
                "fuses": False,
                "plain_layouts": False,
            }
            | parts
        )
        self.place = place
        self.script: Callable[[ModelPart, ModelPart], Any] = by_splits(1.2)
        self.candidate: Callable[[Schedule], float] = lambda schedule: 0.5  # tested elsewhere
        self.runners: list[ScriptedRunner] = []
        self.progress = RecordingProgress()
        onnx.save(c2f_network(3), place / "net.onnx")
        (place / "bank").mkdir(exist_ok=True)

    @property
    def engine(self) -> EngineParts:
        """The engine of its runs."""
        return self.runs.engine

    def _runner(self, device: Any, target: Any, *_: object) -> ScriptedRunner:
        self.runners.append(self.make_runner(device, target))
        return self.runners[-1]

    def make_runner(self, device: Any, target: Any) -> ScriptedRunner:
        """Return the runner of one run, by the script."""
        return ScriptedRunner(
            model=self.script, candidate=self.candidate, device=device, target=target
        )

    def tune(self, env: dict[str, str] | None = None, **settings: Any) -> SgatResult:
        """Tune once more."""
        facts: dict[str, Any] = {
            "model": self.place / "net.onnx",
            "output": self.place / "out",
            "job_types": (JobType.SGAT,),
            "search": "random",
        }
        base = run_environment(self.place / "bank")
        self.progress = RecordingProgress()
        result = tune_with(
            TuneSettings(**(facts | settings)),
            env=base | (env or {}),
            cwd=self.place,
            progress=self.progress,
            now=_NOW,
            engine=self.engine,
        )
        return result.get(SgatResult)

    @property
    def comparisons(self) -> int:
        """How many comparisons the last run took."""
        return len(self.runners[-1].asked("compare_models"))

    def section(self) -> dict[str, Any]:
        """Return the section of the result file."""
        (file,) = (self.place / "out").glob("aoe_result_sgat_*.json")
        found: dict[str, Any] = json.loads(file.read_text())[1]["SGAT"]
        return found


class FusionRun(Run):
    """A model, a bank, and a machine that measures kernels as scripted; nothing is rewritten.

    Args:
        place: Folder.
        network: The model.
    """

    def __init__(self, place: Path, network: onnx.ModelProto) -> None:
        super().__init__(place, rules={}, fuses=True, plain_layouts=True)
        self.script, self.candidate = by_kernels(1.1), lambda schedule: 2.0
        onnx.save(network, place / "net.onnx")

    def make_runner(self, device: Any, target: Any) -> ScriptedRunner:
        """Return a runner of a machine without noise, for which nothing is linked."""
        return ScriptedRunner(
            candidate=lambda schedule: self.candidate(schedule),
            model=lambda baseline, tuned: self.script(baseline, tuned),
            target=make_target(),
            device=ScriptedCpu(),
            jitter=0.0005,
            drift=0.0,
        )

    @property
    def runner(self) -> ScriptedRunner:
        """The runner of the last run."""
        return self.runners[-1]

    def tune(self, env: dict[str, str] | None = None, **settings: Any) -> SgatResult:
        """Tune once more, with two trials for each kernel."""
        return super().tune(env, **{"trials": 2, **settings})
