"""Axes of charts: where values stand in a drawing, and where an axis is marked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Linear or logarithmic axis."""

    low: float  # Value at the start; above 0 where the axis is logarithmic
    high: float  # Value at the end, above `low`
    start: float  # Place of `low`, in units of the drawing
    end: float  # Place of `high`
    is_log: bool = False  # True for a logarithmic axis

    def at(self, value: float) -> float:
        """Return the place of a value; values beyond an end stand there.

        >>> Scale(low=1, high=100, start=0, end=50, is_log=True).at(10)
        25.0
        """
        if self.is_log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + min(max(share, 0.0), 1.0) * (self.end - self.start), 2)

    def ticks(self) -> Iterator[float]:
        """Yield powers of ten of a logarithmic axis; of others round values, four to nine."""
        if self.is_log:
            first = math.ceil(math.log10(self.low) - 1e-9)
            last = math.floor(math.log10(self.high) + 1e-9)
            yield from (10.0**exponent for exponent in range(first, last + 1))
            return
        rough = (self.high - self.low) / 8
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        yield from (number * step for number in range(first, last + 1))
