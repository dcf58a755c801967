"""How far processes of one comparison lie apart: what their memory's place does to a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """How far processes that compare the same two models lie apart.

    Attributes:
        deviation: Standard deviation of the logarithms of their speed-ups.
        processes: Processes it is known from, two at least; of several models, one more than there
            are degrees of freedom.
    """

    deviation: float
    processes: int

    def __post_init__(self) -> None:
        if self.processes < 2 or not 0 <= self.deviation < math.inf:
            raise ValueError(f"no scatter (got {self.deviation} of {self.processes} processes)")

    @classmethod
    def of(cls, logs: Sequence[float]) -> Self:
        """Return the scatter of log speed-ups, one per process, two at least."""
        return cls(deviation=stdev(logs), processes=len(logs))

    def pooled(self, logs: Sequence[float]) -> Scatter:
        """Return the pooled scatter of both, for models that may differ in their speed-up.

        Args:
            logs: Of the other; one alone says nothing.
        """
        known, more = self.processes - 1, len(logs) - 1
        if not more:
            return self
        squares = known * self.deviation**2 + more * stdev(logs) ** 2
        free = known + more
        return Scatter(deviation=math.sqrt(squares / free), processes=free + 1)
