"""A toy task: of some rungs one is the fastest; nothing of the engine's kinds is needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aoe.measurement import Measurement, MeasurePolicy
from aoe.schedule import Configuration, Knob, Space
from aoe.tuner.search.protocol import Trial
from aoe.tuner.task_search import SearchResult, SearchSettings, TaskSearch, TrialRecord
from support.engine.tuning import make_measurement

POLICY = MeasurePolicy(pairs_min=5, pairs_max=5, warmup=0)
RUNGS = 10
Found = SearchResult[int]


@dataclass(frozen=True)
class LadderTask:
    """The rungs of a ladder, and which is the fastest; see `SearchTask`."""

    best: int
    settings = SearchSettings(method="exhaustive", budget=RUNGS, seed=0, screen=POLICY, batch=3)

    def space(self) -> Space:
        return Space(knobs=(Knob("rung", tuple(range(RUNGS))),), first_guesses=({"rung": 0},))

    def answer(self, configuration: Configuration) -> int:
        return int(configuration["rung"])

    def known(self, answer: int, trials: Sequence[TrialRecord]) -> Trial | None:
        return None

    def prepare(self, answers: Sequence[int]) -> None:
        """Do nothing: there is nothing to compile."""

    def measure(
        self, answers: Sequence[int], policy: MeasurePolicy, best: float | None
    ) -> list[Measurement]:
        return [make_measurement(2.0 / (1 + abs(one - self.best))) for one in answers]

    def chosen(self, good: Sequence[TrialRecord]) -> TrialRecord:
        return max(good, key=lambda trial: trial.measurement.speedup)

    def is_hopeless(self, trials: Sequence[TrialRecord]) -> bool:
        return False

    def searched(self, trials: int) -> Found:
        """Return the result of a search of so many rungs."""
        loop = TaskSearch[int](self)
        loop.go_on(trials, left_s=lambda: math.inf, report=lambda done, best: None)
        return loop.concluded(POLICY)
