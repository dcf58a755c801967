"""A task with its outcome, whatever kind it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTask:
    """A task with what a run found out about it."""

    outcome: RepoOutcome  # What became of it in the bank
    reason: str  # Why, in words
    before_us: float | None = (
        None  # Time of the default for one occurrence, None if it is not known
    )
    after_us: float | None = None  # Time of the answer
    # Of the answer over the default, measured in this run or when its record was written.
    speedup: float | None = None
    proven_speedup: float | None = None  # Lower end of its interval, None if unknown

    @property
    def words(self) -> str:
        """Speed-up, outcome and reason, for the line that reports the task."""
        speedup = f"{self.speedup:.2f}x, " if self.speedup else ""
        return f"{speedup}{self.outcome.value}: {self.reason}"

    def log_members(self, trials: int, estimate: SpeedupEstimate | None = None) -> dict[str, Any]:
        """Return the members of the line a log has for the task when it is done.

        Args:
            trials: Candidates that were tried.
            estimate: Speed-up measured in this run, None where there is none.
        """
        low, high = (estimate.low, estimate.high) if estimate else (self.proven_speedup, None)
        figures = {"speedup": self.speedup, "speedup_low": low, "speedup_high": high}
        return {
            "outcome": self.outcome.value,
            "reason": self.reason,
            "done": trials,
            **{name: None if one is None else round(one, 4) for name, one in figures.items()},
        }

    @property
    def is_recalled(self) -> bool:
        """True if its figures are those of a record: an earlier run has measured them."""
        return self.outcome is RepoOutcome.RESERVED and bool(self.before_us or self.speedup)

    @property
    def saved_us(self) -> float:
        """Time an answer is sure to save at one occurrence; 0 where that is not known."""
        return (self.before_us or 0.0) * (1 - 1 / (self.proven_speedup or 1.0))
