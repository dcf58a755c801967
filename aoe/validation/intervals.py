"""Interval of a gain measured in several processes.

A process is one sample: where its memory came to lie decides a few percent for all of its pairs. Of
three and more that have loaded the models in both orders, Student's interval is taken, with a
scatter no smaller than what their pairs show: on a busy machine five processes of a model against
itself lay within 0.3 % of each other, a tenth of that, all on one side of 1. A large
model in a short time has one to four, of one order each, and two numbers hardly tell how much they
scatter: Student's interval of 1.9 and 2.2 reaches from 0.8 to 5.2. There what is known before joins
them, as if it had been seen in four processes more:

    variance = (4 * (placing^2 + pairs) + squares) / (4 + freedom)

`placing` is what loading does to a process, from models against themselves; `pairs` the variance of
the median of its pairs, from their scatter, so that a noisy hour counts however well two processes
agree; `squares` what the processes scatter by, with `freedom` degrees of freedom.

Source: A. Gelman et al., Bayesian Data Analysis, 3rd ed., section 3.3 (scaled inverse chi-squared
    prior of a variance; the mean has a t distribution then).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev
from typing import Self

from aoe.measurement import Measurement, Scatter, variance_ratio
from aoe.validation.time_reserve import PROCESSES

PRINTED, ACCEPTING, LATER, CLEAR = 0.95, 0.99, 0.995, 0.999
_QUANTILES = {
    PRINTED: (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    ACCEPTING: (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250),
    LATER: (127.32, 14.089, 7.453, 5.598, 4.773, 4.317, 4.029, 3.833, 3.690),
    CLEAR: (636.619, 31.599, 12.924, 8.610, 6.869, 5.959, 5.408, 5.041, 4.781),
}
"""Of Student's t, both tails, for one degree of freedom and more. Source: W. S. Gosset 1908."""
_ONCE_IN_2000 = _QUANTILES[CLEAR]
"""Of one tail, which what is no faster passes once in 2000."""
LOOKS = {3: _ONCE_IN_2000[1], PROCESSES - 1: _ONCE_IN_2000[2], PROCESSES: 4.908}
"""The same for the looks at a final comparison, by processes. What is no faster passes by the first
once in 2000, by the second too, by the third once in 250: together once in 200, as by five at once.
Source: alpha spending (K. K. G. Lan and D. L. DeMets, Biometrika 70, 1983)."""
_ONCE_IN_400 = _QUANTILES[LATER]
"""Of one tail, which what is no faster passes once in 400."""
HURRIED_LOOKS, EARLY_LOOKS = (4, 6, 8, 10, 12), (2, 4, 6)
"""Processes of one order each after which a comparison in a hurry may end: the final one, and one
of a model whose search goes on. What is no faster passes by each of these looks once in 2000. Where
none has ended the final one, it is over with its time, and what is no faster passes once in 400.
Source: in the simulations of the tests all together pass less than once in a hundred."""
_EARLY = (1, 2, 3)
"""Processes after which there is a look instead of the first two, where the scatter of a model like
this one is known: what it is known from counts among the degrees of freedom. What is no faster
passes by the first once in 400, by the second and the third once in 2000 each, by the last, and by
as many processes once more, once in 400: there may be a second last comparison, see
`ModelValidator`. So all of it together stays below one in a hundred."""
_LEAST_SCATTER, _KNOWN = 0.015, 1.25
"""A known one counts as no less: a few processes of another day that lie close together may do so
by chance. Processes that scatter more than the second number times as much speak for themselves."""
_OF_BOTH = 0.03
"""Standard deviation of a process of both orders where nothing is known, worth as many processes as
`PLACING` is: with it, what two or three have said of a model like this one is enough to go by.
Source: in the simulations of the tests equal models pass less than once in a hundred, also where
the true scatter is twice what is known, up to the 5 % that were ever seen."""
PLACING, _WORTH = 0.05, 4
"""Standard deviation of a process, order of loading and place of its memory together, and how many
processes that counts for. Source: a model against itself read 0.96 to 1.02 in processes of one
order. In simulations equal models pass less than once in a hundred as long as it is at most 0.07
(`tests/aoe/validation/test_intervals.py`)."""
_ENOUGH = 3
"""Processes of both orders each that say themselves how much they scatter."""
_ORDER_IS_NOISE = (2, 4)
"""Processes, as many of each order, among whose scatter what the order does counts. It is in no
middle of theirs, so that the interval is too wide by it, if anything, and a degree of freedom more
is worth more: of gains of 5 %, where processes scatter by 1 %, four prove 83 % so, and 43 % where
the mean of each order takes one, in 400 simulated comparisons."""
_OF_MEAN_DEVIATION = math.sqrt(math.pi / 2)
"""Standard deviation by the mean distance from the middle, of normally distributed numbers."""
_OF_MEDIAN_DEVIATION = 1.4826
"""The same by the median distance."""
_OF_MEDIAN = math.pi / 2
"""Variance of a median by that of a mean, of normally distributed numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRatio:
    """The ratio measured in one process."""

    log: float  # Natural logarithm of the median ratio of its pairs
    variance: float = 0.0  # Of that median, as far as its pairs show it
    # The same by the median distance of the pairs: what a few of them read on a busy machine, half
    # or twice the others, moves it no more than it moves their median.
    calm_variance: float = 0.0

    @classmethod
    def of(cls, measurement: Measurement) -> Self:
        """Return the ratio of a process from its pairs."""
        log = math.log(measurement.speedup)
        distances = [abs(math.log(ratio) - log) for ratio in measurement.ratios]
        pairs = len(distances)
        if pairs < 2:
            return cls(log=log)
        # distances from a middle that follows them are too short; of a median distance, the factor
        # is within 4 % of that of C. Croux and P. J. Rousseeuw, Time-efficient algorithms (1992)
        scale = _OF_MEDIAN / pairs * (pairs / (pairs - 1)) ** 2 * variance_ratio(measurement.ratios)
        return cls(
            log=log,
            variance=scale * (_OF_MEAN_DEVIATION * fmean(distances)) ** 2,
            calm_variance=scale * (_OF_MEDIAN_DEVIATION * median(distances)) ** 2,
        )

    @classmethod
    def mean(cls, measurements: Sequence[Measurement], shares: Sequence[float]) -> Self:
        """Return the mean ratio of one process over points, by their shares, 1 together."""
        ratios = [cls.of(one) for one in measurements]
        pairs = list(zip(shares, ratios, strict=True))
        return cls(
            log=sum(share * one.log for share, one in pairs),
            variance=sum(share**2 * one.variance for share, one in pairs),
            calm_variance=sum(share**2 * one.calm_variance for share, one in pairs),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessGain:
    """The gain measured in one or several processes, with its interval."""

    processes: tuple[ProcessRatio, ...]  # In the order they ran
    # True if each has loaded both models once, every other one the tuned one first; False if each
    # has loaded them in both orders.
    is_hurried: bool
    # Scatter of processes of both orders of a model like this one; it helps where there are one to
    # three that scatter no more than it explains.
    known: Scatter | None = None

    @property
    def middle(self) -> float:
        """Logarithm of the gain; what the order of loading does cancels from two processes on."""
        return fmean(fmean(logs) for logs in self._orders())

    def half_width(self, level: float) -> float:
        """Return half of the interval of the middle.

        Args:
            level: Its coverage: `PRINTED`, `ACCEPTING`, `LATER` or `CLEAR`.
        """
        quantile, error = self._interval(level)
        return quantile * error

    @property
    def standard_error(self) -> float:
        """Standard error of the middle, that of the printed interval."""
        return self._interval(PRINTED)[1]

    def _interval(self, level: float) -> tuple[float, float]:
        """Return the quantile and the standard error whose product is half of the interval."""
        logs, count = self._logs, len(self.processes)
        if self.known is not None and self._is_explained:
            return _known_interval(self.known.pooled(logs), count, level)
        if not self.is_hurried and count >= _ENOUGH:
            quantile = _QUANTILES[level][count - 2]
            if level == ACCEPTING:
                is_strict = count > PROCESSES or (self.known is not None and count == PROCESSES)
                quantile = _ONCE_IN_400[count - 2] if is_strict else LOOKS.get(count, quantile)
            return quantile, self._spread / math.sqrt(count)
        experienced = self._with_experience(level)
        squares, freedom = self._scatter()
        if freedom < 2:
            return experienced
        quantiles = _QUANTILES[level]
        quantile = quantiles[min(freedom, len(quantiles)) - 1]
        # a few may agree by chance: they scatter no less than their pairs show
        by_pairs = fmean(process.calm_variance for process in self.processes)
        alone = quantile, math.sqrt(max(squares / freedom, by_pairs) / count)
        return min(experienced, alone, key=math.prod)

    @property
    def is_scattered(self) -> bool:
        """True if the median of a process's pairs scatters half as much as its place in memory."""
        return fmean(one.variance for one in self.processes) > (PLACING / 2) ** 2

    def continued(self, count: int) -> ProcessGain:
        """Return so many processes; those that have not run read as these of the same order."""
        processes = [*self.processes]
        while len(processes) < count:
            processes.append(processes[-min(2, len(processes))])
        return replace(self, processes=tuple(processes))

    @property
    def is_sure(self) -> bool:
        """True if a look after these processes proves a gain, see `looks`."""
        may_look = len(self.processes) >= _ENOUGH or self._is_explained
        return may_look and self.middle > self.half_width(ACCEPTING)

    @property
    def scatter(self) -> Scatter | None:
        """Scatter of the ratios, with what earlier runs know of it; None where they cannot tell."""
        if self.is_hurried:
            return None
        if self.known is not None and len(self.processes) < PROCESSES:
            return self.known.pooled(self._logs)
        return Scatter.of(self._logs) if len(self.processes) >= _ENOUGH else None

    @property
    def _logs(self) -> list[float]:
        return [process.log for process in self.processes]

    @property
    def _is_explained(self) -> bool:
        """True if so few, or the pairs of one, scatter no more than what is known lets expect."""
        if self.known is None or self.is_hurried or len(self.processes) not in _EARLY:
            return False
        lone = len(self.processes) == 1
        seen = math.sqrt(self.processes[0].variance) if lone else self._spread
        return seen <= _KNOWN * max(self.known.deviation, _LEAST_SCATTER)

    @property
    def _spread(self) -> float:
        """Standard deviation of a process, at least that of its pairs: few may agree by chance."""
        by_pairs = fmean(process.calm_variance for process in self.processes)
        return max(stdev(self._logs), math.sqrt(by_pairs))

    def _with_experience(self, level: float) -> tuple[float, float]:
        """Return quantile and standard error of the interval with the prior on processes."""
        orders = self._orders()
        squares, freedom = self._scatter()
        by_pairs = fmean(process.variance for process in self.processes)
        before = _WORTH * (PLACING**2 + by_pairs)
        variance = (before + squares) / (_WORTH + freedom)
        share = fmean(1 / len(logs) for logs in orders) / len(orders)
        quantiles = _QUANTILES[level]
        return quantiles[min(_WORTH + freedom, len(quantiles)) - 1], math.sqrt(variance * share)

    def _scatter(self) -> tuple[float, int]:
        """Return squares of the distances from the means of each order, and degrees of freedom."""
        groups = [self._logs] if len(self.processes) in _ORDER_IS_NOISE else self._orders()
        squares = sum((one - fmean(group)) ** 2 for group in groups for one in group)
        return squares, sum(len(group) - 1 for group in groups)

    def _orders(self) -> list[list[float]]:
        """Return the logarithms of the processes of each order of loading."""
        logs = self._logs
        if not self.is_hurried:
            return [logs]
        return [same for same in (logs[::2], logs[1::2]) if same]


def level_at_the_end(processes: int, *, is_hurried: bool, is_early: bool = False) -> float:
    """Return the level of the interval that accepts a gain when a comparison is over.

    Args:
        processes: That have run.
        is_hurried: True for those of one order each; with fewer than a look asks for there was
            none.
        is_early: True for a model whose search goes on.
    """
    if is_early:
        return CLEAR
    return LATER if is_hurried and processes >= HURRIED_LOOKS[0] else ACCEPTING


def least_early_gain(processes: int) -> float:
    """Return the least gain an early comparison proves whose processes scatter no more than usual.

    Args:
        processes: Most there is time for.
    """
    distances = (_LEAST_SCATTER / math.sqrt(2), -_LEAST_SCATTER / math.sqrt(2))
    usual = [ProcessRatio(log=distances[at // 2 % 2]) for at in range(EARLY_LOOKS[-1])]
    widths = (
        ProcessGain(processes=tuple(usual[:count]), is_hurried=True).half_width(CLEAR)
        for count in EARLY_LOOKS
        if count <= processes
    )
    return math.exp(min(widths, default=math.inf))


def looks(known: Scatter | None) -> Collection[int]:
    """Return after how many processes a comparison may end."""
    return LOOKS if known is None else (*_EARLY, PROCESSES)


def _known_interval(both: Scatter, count: int, level: float) -> tuple[float, float]:
    """Return quantile and standard error of a mean of so many, whose scatter is known from more.

    That scatter speaks alone, or where it is known from few, together with experience.
    """
    quantiles = _QUANTILES[level]
    if level == ACCEPTING:
        quantiles = _ONCE_IN_400 if count == _EARLY[0] else _ONCE_IN_2000
    deviation, freedom = max(both.deviation, _LEAST_SCATTER), both.processes - 1
    all_freedom = _WORTH + freedom
    together = math.sqrt((_WORTH * _OF_BOTH**2 + freedom * deviation**2) / all_freedom)
    intervals = (
        (quantiles[min(free, len(quantiles)) - 1], spread / math.sqrt(count))
        for free, spread in ((freedom, deviation), (all_freedom, together))
    )
    return min(intervals, key=math.prod)
