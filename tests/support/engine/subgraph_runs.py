"""Whole runs of subgraph tuning: graphs are cut and rewritten for real, only times are scripted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import onnx
import pytest

from aoe.execute.messages import ModelPart
from aoe.graph.rewrites.registry import RULES
from aoe.schedule import Schedule
from aoe.testing.fakes import RecordingProgress, ScriptedRunner
from aoe.tuning.mode import JobType, TuneSettings
from aoe.tuning.run import tune_with
from aoe.tuning.sgat.result import SgatResult
from support.engine.subgraphs import by_splits, c2f_network

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
_RULES = ("convolution-split", "mean-to-global-pool")


class Run:
    """A model, a bank, and a machine on which rewrites pay off as scripted."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place = place
        self.script: Callable[[ModelPart, ModelPart], Any] = by_splits(1.2)
        self.candidate: Callable[[Schedule], float] = lambda schedule: 0.5  # tested elsewhere
        self.runners: list[ScriptedRunner] = []
        self.progress = RecordingProgress()
        onnx.save(c2f_network(3), place / "net.onnx")
        (place / "bank").mkdir()
        monkeypatch.setattr("aoe.tuning.workbench.Runner", self._runner)
        monkeypatch.setattr(  # what becomes one kernel has tests of its own, and so have layouts
            "aoe.tuning.sgat.run.tune_scopes", lambda *_, **__: None
        )
        monkeypatch.setattr("aoe.tuning.sgat.run._has_blocked_layout", lambda _: False)
        monkeypatch.setattr("aoe.tuning.sgat.run.RULES", {name: RULES[name] for name in _RULES})

    def _runner(self, device: Any, target: Any, *_: object) -> ScriptedRunner:
        runner = ScriptedRunner(
            model=self.script,
            candidate=self.candidate,
            device=device,
            target=target,
        )
        self.runners.append(runner)
        return self.runners[-1]

    def tune(self, env: dict[str, str] | None = None, **settings: Any) -> SgatResult:
        """Tune once more."""
        facts: dict[str, Any] = {
            "model": self.place / "net.onnx",
            "output": self.place / "out",
            "job_types": (JobType.SGAT,),
        }
        base = {"PATH": os.environ["PATH"], "TUNE_BANK_PATH": str(self.place / "bank")}
        self.progress = RecordingProgress()
        result = tune_with(
            TuneSettings(**(facts | settings)),
            env=base | (env or {}),
            cwd=self.place,
            progress=self.progress,
            now=_NOW,
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
