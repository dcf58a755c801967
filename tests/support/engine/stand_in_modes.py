"""Modes of tuning that tune nothing: what a run gives them is looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from aoe.tuner.mode import JobType, ModeContext
from aoebank import AoebankError


@dataclass(frozen=True, kw_only=True)
class StandInResult:
    """What a mode gives that does nothing."""

    job: ClassVar[JobType] = JobType("stand_in")
    tuning_name: str = "net"
    om_file: Path | None = None
    speedup: float = 1.0
    metric: str = "latency"
    bank: Path = Path("bank")
    result_file: Path = Path("result.json")
    bank_failure: AoebankError | None = None


@dataclass(frozen=True)
class StandInMode:
    """A mode that passes what it is given on."""

    # Is called with what `run` is given; may raise, or give the result.
    told: Callable[[ModeContext], object]
    result: StandInResult = field(default_factory=StandInResult)  # What `run` returns otherwise
    # Is called with what `check` is given; may raise.
    asked: Callable[[ModeContext], object] = lambda context: None

    def check(self, context: ModeContext) -> None:
        self.asked(context)

    def run(self, context: ModeContext) -> StandInResult:
        told = self.told(context)
        return told if isinstance(told, StandInResult) else self.result
