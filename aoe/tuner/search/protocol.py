"""Protocol of search algorithms: `ask` and `tell`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

from aoe.measurement import Measurement, Outcome
from aoe.schedule import Configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Measured configuration, as a search is told."""

    outcome: Outcome  # How the trial ended
    # Median of the per-pair ratios against the baseline, > 1 is faster; None exactly if the trial
    # failed. This is what a search maximises: unlike a latency it does not move with the load of
    # the machine.
    speedup: float | None = None
    latency_us: float | None = None  # Median latency of the candidate, None if it was not timed

    def __post_init__(self) -> None:
        if self.is_correct != (self.speedup is not None):
            raise ValueError(
                f"a trial has a speed-up exactly if it is correct (got {self.outcome}, "
                f"{self.speedup})"
            )
        for number in (self.speedup, self.latency_us):
            if number is not None and not (math.isfinite(number) and number > 0):
                raise ValueError(f"a speed-up and a latency must be positive (got {number})")

    @classmethod
    def of(cls, measurement: Measurement) -> Self:
        """Return the trial of a measurement, as a search is told it."""
        if not measurement.is_correct:
            return cls(outcome=measurement.outcome)
        return cls(
            outcome=measurement.outcome,
            speedup=measurement.speedup,
            latency_us=measurement.latency_us,
        )

    @property
    def is_correct(self) -> bool:
        """True if the candidate computed the right result and was timed."""
        return self.outcome is Outcome.CORRECT


@dataclass(frozen=True, slots=True, kw_only=True)
class BestTrial:
    """The configuration with the highest speed-up told so far."""

    configuration: Configuration
    trial: Trial


class Search(Protocol):
    """Proposes configurations of one space, within one budget.

    Deterministic: the same arguments and the same sequence of calls give the same answers.
    """

    @property
    def best(self) -> BestTrial | None:
        """The fastest correct configuration told; the earlier one wins a tie."""
        ...

    @property
    def is_converged(self) -> bool:
        """True if the search expects next to nothing from the trials it has left."""
        ...

    def ask(self, n: int = 1) -> tuple[Configuration, ...]:
        """Return up to `n` legal configurations worth a trial.

        Never one that was told, or asked before. Empty when the space or the budget, counted in
        configurations handed out, is used up.
        """
        ...

    def tell(self, configuration: Configuration, trial: Trial) -> None:
        """Report a trial; one of a configuration told before replaces its first, noisier one.

        Raises:
            ValueError: the configuration is not in the space.
        """
        ...
