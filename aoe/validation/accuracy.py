"""Accuracy of the whole model, and the kernels that lower it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isnan
from typing import Generic

from aoe.tuner.precision.constraint import AccuracyConstraint, Trade, told
from aoe.validation.candidates import P


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAccuracy(Generic[P]):
    """Accuracy a model keeps, and the kernels of lower precision in it."""

    constraint: AccuracyConstraint  # What has to hold
    trade: Trade  # Which kernels stay, and what the metric says of them
    kernels: tuple[P, ...]  # One for each place of the model
    weighed: tuple[P, ...]  # Kernels that were in question
    sets: int  # Sets of inputs the model was run on
    made_up: bool  # True if they were made up

    @property
    def is_kept(self) -> bool:
        """True if the constraint is known to hold, with all that stays."""
        return self.trade.holds and self.trade.in_time

    def __str__(self) -> str:
        inputs = "made-up inputs" if self.made_up else f"{self.sets} input sets"
        value = f"{self.constraint.name} {told(self.trade.value)} on {inputs}"
        if not self.trade.in_time and isnan(self.trade.value):
            value = f"{self.constraint.name} not measured for want of time"
        return f"{value} ({self.constraint})"

    def followed_by(self, later: HeldAccuracy[P]) -> HeldAccuracy[P]:
        """Return the accuracy after both steps, one after the other; the rows are of the first."""
        return replace(
            later,
            weighed=self.weighed,
            trade=replace(
                later.trade,
                roll_back=(*self.trade.roll_back, *later.trade.roll_back),
                at_first=self.trade.at_first,
                alone={**later.trade.alone, **self.trade.alone},
            ),
        )
