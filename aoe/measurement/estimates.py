"""Estimates of a speed-up from paired samples, and of the scatter between processes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, stdev
from typing import Self

from aoe.measurement.looks import median_interval, variance_ratio, widened
from aoe.measurement.samples import Measurement, PairedSamples, median_ratio

ACCEPT_COVERAGE = 0.9
"""Least coverage an interval needs before its lower bound may accept anything: 5 pairs."""
_OF_INTERVAL = 1.96
"""Standard deviations to either side in an interval of 95 % of what is normally distributed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupEstimate:
    """Speed-up of a candidate over its baseline with a confidence interval."""

    median: float  # Median of the per-pair ratios, > 1 means faster
    low: float  # Lower end of the interval
    high: float  # Upper end of the interval
    # Number of pairs; with fewer than the confidence needs (6 for 95 %), the interval is the range
    # of the ratios and `coverage` says how little that proves.
    pairs: int
    # Probability that such an interval holds the true median, as do those of all looks before that
    # could have ended the measurement.
    coverage: float

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the median."""
        return (self.high - self.low) / (2 * self.median)


def estimate_speedup(
    samples: Measurement | PairedSamples, confidence: float = 0.95
) -> SpeedupEstimate:
    """Return the median speed-up of the pairs and the confidence interval of that median.

    The interval runs from the k-th smallest to the k-th largest ratio, whatever their distribution.
    It holds under the looks that could have ended the measurement, exactly for independent pairs,
    and is wider by the correlation of neighbouring pairs, see `aoe.measurement.looks`.

    Args:
        samples: Pairs taken in ABBA order, at least one.
        confidence: Least coverage wanted of the interval.

    Raises:
        ValueError: there are no pairs.

    Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    in_turn = samples.ratios
    ratios = sorted(in_turn)
    rank, coverage = median_interval(len(ratios), confidence, samples.looks)
    # neighbouring pairs share their disturbances: as many independent ones would prove more
    rank, coverage = widened(rank, coverage, len(ratios), variance_ratio(in_turn))
    return SpeedupEstimate(
        median=median_ratio(ratios),
        low=ratios[rank - 1],
        high=ratios[-rank],
        pairs=len(ratios),
        coverage=coverage,
    )


def accepts(estimate: SpeedupEstimate, threshold: float) -> bool:
    """True if the lower bound of the speed-up exceeds `threshold`, from 5 pairs or more."""
    return estimate.coverage >= ACCEPT_COVERAGE and estimate.low > threshold


def expected_gain(low: float, high: float, threshold: float) -> float:
    """Return the expected saving of a speed-up beyond a threshold, given its noise.

    The gain `speed-up - 1` where the true speed-up exceeds the threshold, 0 elsewhere, on average
    over a normal distribution as wide as the interval.

    Args:
        low: Lower end of an interval of 95 %.
        high: Upper end.
        threshold: Least speed-up that counts.
    """
    middle, deviation = (low + high) / 2, (high - low) / (2 * _OF_INTERVAL)
    # an interval without width has no noise to average over
    if deviation <= 0:
        return max(0.0, middle - 1) if middle > threshold else 0.0
    noise = NormalDist(middle, deviation)
    beyond = 1 - noise.cdf(threshold)
    return deviation**2 * noise.pdf(threshold) + (middle - 1) * beyond


def mean_estimate(
    estimates: Sequence[SpeedupEstimate], weights: Sequence[float]
) -> SpeedupEstimate:
    """Return the weighted geometric mean of independent estimates, with its interval.

    Args:
        estimates: Of each point.
        weights: Of each point.

    >>> one = SpeedupEstimate(median=1.2, low=1.1, high=1.309, pairs=10, coverage=0.95)
    >>> mean_estimate([one, one], [3, 1]).pairs
    20
    """
    if len(estimates) == 1:
        return estimates[0]
    shares = [weight / sum(weights) for weight in weights]
    pairs = list(zip(shares, estimates, strict=True))
    middle = sum(share * math.log(one.median) for share, one in pairs)
    # errors of independent estimates add as squares, on each side by itself
    below = math.hypot(*(share * math.log(one.median / one.low) for share, one in pairs))
    above = math.hypot(*(share * math.log(one.high / one.median) for share, one in pairs))
    return SpeedupEstimate(
        median=math.exp(middle),
        low=math.exp(middle - below),
        high=math.exp(middle + above),
        pairs=sum(one.pairs for one in estimates),
        coverage=min(one.coverage for one in estimates),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Scatter of processes that compare the same two models."""

    deviation: float  # Standard deviation of the logarithms of their speed-ups
    # Processes it is known from, two at least; of several models, one more than there are degrees
    # of freedom.
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
