"""Gain of a tuned model from comparisons: its interval, and the mean over the points of a range."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

from aoe.execute.tasks import ModelComparison, joined_comparison
from aoe.measurement import (
    Clock,
    Measurement,
    Scatter,
    SpeedupEstimate,
    estimate_speedup,
    mean_estimate,
)
from aoe.measurement.clocks import paid_by_waiting
from aoe.measurement.memory import median_memory
from aoe.validation.intervals import (
    ACCEPTING,
    CLEAR,
    HURRIED_LOOKS,
    LATER,
    PRINTED,
    ProcessGain,
    ProcessRatio,
    level_at_the_end,
    looks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointComparison:
    """A tuned model against the untuned one at one point of a range: pairs, and what they say."""

    number: int  # Of the point, in their order
    measurement: Measurement  # All pairs
    estimate: SpeedupEstimate  # Speed-up with its 95 % interval
    # Upper end of the 99 % interval: a model surely loses where it lies below 1. Of five points at
    # which nothing changes, one would lose by 95 % in every eighth run.
    at_most: float
    # Of the logarithm of the speed-up; 0 where only its interval is known.
    standard_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGain:
    """The untuned model against a tuned one."""

    comparison: ModelComparison  # All pairs, and the worst deviation
    estimate: SpeedupEstimate  # Speed-up with its 95 % interval
    # Lower end of the 99 % interval; where it has to exceed 1, a model that is no faster passes
    # once in 200, with the second look of `for_the_record` at most twice.
    surely: float
    # Speed-up in each process; none where one process chose among variants.
    processes: tuple[float, ...] = ()
    # How far its processes lie apart, with what was known of that; None where they cannot tell.
    scatter: Scatter | None = None
    # Of the logarithm of the speed-up; 0 where only its interval is known.
    standard_error: float = 0.0
    # True if too few processes for lack of time do not say whether it is faster or not.
    is_open: bool = False
    # Of a range, the gain at each point where it was measured, in their order.
    points: tuple[PointComparison, ...] = ()


class PointMean:
    """Geometric mean over the points at which two models are compared; of one point, its gain.

    Args:
        weights: Of each point; 0 where only results are compared.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        self._shares = [one / sum(weights) for one in weights]
        self._timed = [number for number, one in enumerate(weights) if one > 0]

    def of_one(self, found: ModelComparison) -> ModelGain:
        """Return the gain of a comparison in a single process, from the intervals of its pairs."""
        estimates = {number: estimate_speedup(found.points[number]) for number in self._timed}
        shares = [self._shares[number] for number in estimates]
        estimate = mean_estimate([*estimates.values()], shares)
        return ModelGain(
            comparison=found,
            estimate=estimate,
            surely=estimate.low,
            points=self._points(found, {n: (one, one.high, 0.0) for n, one in estimates.items()}),
        )

    def is_clear(
        self,
        found: Sequence[ModelComparison],
        known: Scatter | None,
        expected_us: float | None = None,
    ) -> bool:
        """True if processes prove a gain before all have run, on a machine that was quiet."""
        if len(found) not in looks(known):
            return False
        if not all(one.deviation.acceptable and one.is_timed for one in found):
            return False
        if not self._together(found, is_hurried=False, known=known).is_sure:
            return False
        if known is None:
            return True
        gain = self.gain(found, is_hurried=False, known=known)
        return _is_larger_than_wide(gain.estimate) or (
            expected_us is not None and saves_as_expected(gain, expected_us)
        )

    def is_decided_in_hurry(
        self, found: Sequence[ModelComparison], looked_at: Collection[int]
    ) -> bool:
        """True if processes of one order each prove a gain, or show none, at one of their looks."""
        if not all(one.deviation.acceptable and one.is_timed for one in found):
            return False
        if len(found) not in looked_at:
            return False
        gain = self._together(found, is_hurried=True, known=None)
        shows_none = len(found) >= HURRIED_LOOKS[0] and gain.middle <= 0
        return shows_none or gain.middle > gain.half_width(CLEAR)

    def is_scattered(self, found: Sequence[ModelComparison]) -> bool:
        """True if what pairs scatter by counts beside what the place of a process does."""
        return bool(found) and self._together(found, is_hurried=True, known=None).is_scattered

    def may_go_on(self, found: Sequence[ModelComparison], more: int) -> bool:
        """True if a comparison of one order each may go on beyond its limit.

        It does where these prove no gain by themselves, and so many more may.
        """
        if not all(one.deviation.acceptable and one.is_timed for one in found):
            return False
        now = self._together(found, is_hurried=True, known=None)
        then = now.continued(len(found) + more)
        return now.middle <= now.half_width(LATER) and now.middle + now.half_width(
            PRINTED
        ) > then.half_width(LATER)

    def stays_open(self, found: Sequence[ModelComparison], more: int, *, is_early: bool) -> bool:
        """True if further processes of one order each that read like these prove no gain.

        Not even the largest gain these leave possible, the upper end of their printed interval.

        Args:
            found: Of processes that have run.
            more: Processes there is time for.
            is_early: See `gain`.
        """
        if not all(one.deviation.acceptable and one.is_timed for one in found):
            return False
        now = self._together(found, is_hurried=True, known=None)
        count = len(found) + more
        level = level_at_the_end(count, is_hurried=True, is_early=is_early)
        return now.middle + now.half_width(PRINTED) <= now.continued(count).half_width(level)

    def gain(
        self,
        found: Sequence[ModelComparison],
        *,
        is_hurried: bool,
        known: Scatter | None = None,
        is_early: bool = False,
        is_extended: bool = False,
    ) -> ModelGain:
        """Return the gain of comparisons, one per process; see `ProcessGain`.

        One `is_extended` that was looked at before it went on beyond its limit, or ended there.
        """
        gain = self._together(found, is_hurried=is_hurried, known=known)
        level = level_at_the_end(len(found), is_hurried=is_hurried, is_early=is_early)
        if is_extended:
            level = max(level, LATER)
        surely = math.exp(gain.middle - gain.half_width(level))
        joined = self._joined(found, surely, math.exp(gain.middle))
        estimates = {}
        for number in self._timed:
            ratios = tuple(ProcessRatio.of(one.points[number]) for one in found)
            at_point = ProcessGain(processes=ratios, is_hurried=is_hurried, known=known)
            estimate = _estimate(at_point, len(joined.points[number].tuned_us))
            most = math.exp(at_point.middle + at_point.half_width(ACCEPTING))
            estimates[number] = estimate, most, at_point.standard_error
        return ModelGain(
            comparison=joined,
            estimate=_estimate(gain, sum(one.pairs for one, *_ in estimates.values())),
            surely=surely,
            processes=tuple(math.exp(process.log) for process in gain.processes),
            scatter=gain.scatter,
            standard_error=gain.standard_error,
            points=self._points(joined, estimates),
        )

    def _joined(
        self, found: Sequence[ModelComparison], surely: float, speedup: float
    ) -> ModelComparison:
        """Return all pairs; a gain counts unless the wall time of all processes is against it."""
        joined = joined_comparison(found, median_memory)
        load = joined.measurement.load
        if not joined.is_timed or load is None:
            return joined
        against = ""
        if joined.measurement.clock is Clock.CPU:
            by_wall_time = fmean(
                ProcessRatio.mean([point.by_wall_time for point in one.points], self._shares).log
                for one in found
            )
            against = paid_by_waiting(surely, speedup, math.exp(by_wall_time), load)
        return joined.with_points([replace(one, disagreement=against) for one in joined.points])

    def _together(
        self, found: Sequence[ModelComparison], *, is_hurried: bool, known: Scatter | None
    ) -> ProcessGain:
        processes = tuple(ProcessRatio.mean(one.points, self._shares) for one in found)
        return ProcessGain(processes=processes, is_hurried=is_hurried, known=known)

    def _points(
        self, found: ModelComparison, estimates: Mapping[int, tuple[SpeedupEstimate, float, float]]
    ) -> tuple[PointComparison, ...]:
        """Return the gains at the points of a range, none without one."""
        if len(self._shares) < 2:
            return ()
        return tuple(
            PointComparison(
                number=number,
                measurement=found.points[number],
                estimate=estimate,
                at_most=most,
                standard_error=error,
            )
            for number, (estimate, most, error) in estimates.items()
        )


class MeasuredGain(Protocol):
    """A gain with what tells how sure it is: of processes, or as a validation keeps it."""

    @property
    def comparison(self) -> ModelComparison:
        """All pairs, at the point of a range that takes most."""
        ...

    @property
    def estimate(self) -> SpeedupEstimate:
        """Speed-up of the model."""
        ...

    @property
    def standard_error(self) -> float:
        """Of the logarithm of the speed-up."""
        ...

    @property
    def points(self) -> tuple[PointComparison, ...]:
        """Of a range, the gains, that at the largest point last."""
        ...


def saves_as_expected(gain: MeasuredGain, expected_us: float) -> bool:
    """True unless a model saves less than expected by more than one standard error.

    Args:
        gain: Of the model. Of a range, its largest point counts: there kernels save what they
            promise.
        expected_us: Time it is expected to save.
    """
    here = gain.points[-1] if gain.points else gain
    speedup = here.estimate.median * math.exp(here.standard_error)
    return (speedup - 1) * gain.comparison.measurement.latency_us >= expected_us


def _is_larger_than_wide(estimate: SpeedupEstimate) -> bool:
    """Return True if the least gain there is in an interval is more than it is wide."""
    return estimate.low - 1 > estimate.high - estimate.low


def _estimate(gain: ProcessGain, pairs: int) -> SpeedupEstimate:
    printed = gain.half_width(PRINTED)
    return SpeedupEstimate(
        median=math.exp(gain.middle),
        low=math.exp(gain.middle - printed),
        high=math.exp(gain.middle + printed),
        pairs=pairs,
        coverage=PRINTED,
    )
