"""The clock of a run, and the report of a mode that follows it on disk."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

R = TypeVar("R", bound=Any)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopwatch:
    """Time of a run, and whether its limit is reached."""

    clock: Callable[[], float]  # Monotonic seconds
    start: float  # When the run began
    limit_s: float | None = None  # Searching ends after so many seconds; None for no limit
    # Seconds of the limit that are kept besides, by what is known now.
    reserve_s: Callable[[], float] = lambda: 0.0

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return self.clock() - self.start

    def left_s(self) -> float:
        """Return the seconds until the limit, infinity without one."""
        if self.limit_s is None:
            return math.inf
        return max(0.0, self.limit_s - self.reserve_s() - self.elapsed_s())

    def is_over(self) -> bool:
        """Return True once the limit is passed."""
        return self.limit_s is not None and self.elapsed_s() > self.limit_s

    def keeping(self, seconds: float) -> Stopwatch:
        """Return the same clock with a limit that leaves so many seconds for what follows."""
        if self.limit_s is None:
            return self
        return replace(self, limit_s=max(0.0, self.limit_s - seconds))


def start_stopwatch(clock: Callable[[], float], limit_s: float | None) -> Stopwatch:
    """Return a stopwatch that runs from now on."""
    return Stopwatch(clock=clock, start=clock(), limit_s=limit_s)


class Phase(StrEnum):
    """Phases of a mode in their order; a mode with several parts goes through them again."""

    START = "start"
    PROFILE = "profile"
    SEARCH = "search"
    VALIDATE = "judge"
    WRITE = "write"


class PhaseTimes:
    """Time of a run by phase.

    Args:
        stopwatch: Of the run, which begins with `Phase.START`.
    """

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch
        self._phase, self._began_s = Phase.START, 0.0
        self._seconds = dict.fromkeys(Phase, 0.0)

    def begin(self, phase: Phase) -> None:
        """End the phase that goes on, and begin another, or go on with it."""
        now_s = self._stopwatch.elapsed_s()
        self._seconds[self._phase] += now_s - self._began_s
        self._phase, self._began_s = phase, now_s

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each phase until now; their sum is the time of the run."""
        self.begin(self._phase)
        return {phase.value: round(seconds, 2) for phase, seconds in self._seconds.items()}


class LiveReport(Generic[R]):
    """The report of a mode, written anew whenever it changes.

    Args:
        report: What is known before the run: a dataclass with `tuning_time_s`.
        publish: Writes a report over the one before.
        stopwatch: Of the run.
    """

    def __init__(self, report: R, publish: Callable[[R], None], stopwatch: Stopwatch) -> None:
        self.value = report
        self._publish = publish
        self._stopwatch = stopwatch

    def update(self, **changes: Any) -> None:
        """Change members of the report and write it, with the time spent so far.

        Raises:
            OutputError: it cannot be written.
        """
        spent_s = self._stopwatch.elapsed_s()
        self.value = replace(self.value, tuning_time_s=spent_s, **changes)
        self._publish(self.value)
