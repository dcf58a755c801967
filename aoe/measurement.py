"""Paired timing: how a candidate is measured against its baseline and what that proves."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from statistics import median
from typing import NamedTuple, Self

ACCEPT_COVERAGE = 0.9
"""Least coverage an interval needs before its lower bound may accept anything: 5 pairs."""

QUIET_SHARE = 0.9
"""Share of the CPU time a measurement asked for that it has to get, to be believed."""
_STEAL_ROUNDING_S = 0.02
"""Stolen time is counted in ticks of 10 ms on each core: so much of it proves nothing."""


class Outcome(StrEnum):
    """How the trial of a candidate ended.

    Source: the invalidity words of the T4 auto-tuning results format (FAIR Benchmark Hub).
    """

    CORRECT = "correct"
    COMPILE = "compile"
    RUNTIME = "runtime"
    TIMEOUT = "timeout"
    CORRECTNESS = "correctness"
    CONSTRAINTS = "constraints"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePolicy:
    """How many samples are taken, and when enough is known.

    Attributes:
        pairs_min: Pairs taken before the interval may end the measurement.
        pairs_max: Pairs after which the measurement ends in any case.
        warmup: Discarded pairs at the start.
        race_pairs: Pairs after which a clear loser is dropped.
        race_ratio: Factor by which a clear loser is slower than the best candidate so far.
        target_half_width: Half-width of the interval, relative to its median, that is enough.
        confidence: Least coverage of the interval.
        sample_min_us: Short calls are repeated in a sample until it lasts this long.
        threads: Threads the baseline and the candidate may use.
        least_quiet: Share of the CPU time it asks for without which a measurement is taken on a
            busy machine; 0 believes every one.
        tries: Most measurements, where the first ones meet a busy machine.

    Source: A/A runs on a shared 2-core host: 10-20 ABBA pairs put the spread of the estimate
        at 0.2-1 %; a sample below 50-100 us reads the clock more than the kernel.
    """

    pairs_min: int = 10
    pairs_max: int = 40
    warmup: int = 1
    race_pairs: int = 3
    race_ratio: float = 1.5
    target_half_width: float = 0.01
    confidence: float = 0.95
    sample_min_us: float = 100.0
    threads: int = 1
    least_quiet: float = QUIET_SHARE
    tries: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.pairs_min <= self.pairs_max:
            raise ValueError(
                f"pairs_min must lie in 1..pairs_max (got {self.pairs_min}, {self.pairs_max})"
            )
        if self.warmup < 0 or self.race_pairs < 1 or self.threads < 1:
            raise ValueError("warmup must be >= 0, race_pairs and threads >= 1")
        if self.race_ratio <= 1 or not 0 < self.confidence < 1:
            raise ValueError("race_ratio must exceed 1, confidence must lie inside 0..1")
        if self.target_half_width < 0 or self.sample_min_us < 0:
            raise ValueError("target_half_width and sample_min_us must not be negative")
        if self.tries < 1 or not 0 <= self.least_quiet <= 1:
            raise ValueError("tries must be >= 1, least_quiet must lie in 0..1")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """What the threads of a process got of the machine: counters, or what was added to them.

    Attributes:
        wall_s: Time on the clock.
        cpu_s: CPU time of all threads.
        waited_s: Time threads could have run and were not let, all together.
        stolen_s: Time the hypervisor gave the usable cores to others, all together.
        switches: Involuntary context switches: how often a thread lost its core.
    """

    wall_s: float = 0.0
    cpu_s: float = 0.0
    waited_s: float = 0.0
    stolen_s: float = 0.0
    switches: int = 0

    def __add__(self, other: CpuUse) -> CpuUse:
        return CpuUse(
            wall_s=self.wall_s + other.wall_s,
            cpu_s=self.cpu_s + other.cpu_s,
            waited_s=self.waited_s + other.waited_s,
            stolen_s=self.stolen_s + other.stolen_s,
            switches=self.switches + other.switches,
        )

    def since(self, earlier: CpuUse) -> CpuUse:
        """Return what was added since these counters were read; never less than nothing."""
        return CpuUse(
            wall_s=max(0.0, self.wall_s - earlier.wall_s),
            cpu_s=max(0.0, self.cpu_s - earlier.cpu_s),
            waited_s=max(0.0, self.waited_s - earlier.waited_s),
            stolen_s=max(0.0, self.stolen_s - earlier.stolen_s),
            switches=max(0, self.switches - earlier.switches),
        )

    @property
    def given_share(self) -> float:
        """CPU time the threads got, as a share of what they asked for; 1 on a quiet machine.

        It does not matter for it whether idle threads spin or sleep, as it would for CPU time
        over wall time and threads: what spins asks for CPU time and gets it, what sleeps does
        not ask.
        """
        lost_s = self.waited_s + max(0.0, self.stolen_s - _STEAL_ROUNDING_S)
        return self.cpu_s / (self.cpu_s + lost_s) if self.cpu_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineLoad:
    """How the machine served a measurement.

    Attributes:
        use: While the samples were taken.
        threads: Threads each side may use.
        tries: Measurements taken until this one.
        least_quiet: Share of the CPU time asked for that had to be given.
    """

    use: CpuUse
    threads: int = 1
    tries: int = 1
    least_quiet: float = QUIET_SHARE

    @property
    def is_quiet(self) -> bool:
        """True if the figures may be believed."""
        return self.use.given_share >= self.least_quiet

    @property
    def cpu_share(self) -> float:
        """CPU time over wall time and threads; below 1 on a quiet machine too, if threads sleep."""
        return self.use.cpu_s / (self.use.wall_s * self.threads) if self.use.wall_s else 1.0

    def __str__(self) -> str:
        tries = f", {self.tries} tries" if self.tries > 1 else ""
        return (
            f"{self.use.given_share:.0%} of the CPU time it asked for, "
            f"{self.use.switches} involuntary switches, {self.use.stolen_s:.2f} s stolen{tries}"
        )


class PairedSamples(NamedTuple):
    """Samples in us; the i-th of both belong to one pair and saw the same machine."""

    baseline_us: tuple[float, ...]
    tuned_us: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Speed-up of each pair, dimensionless, > 1 where the candidate was faster."""
        return _ratios(self.baseline_us, self.tuned_us)

    def swapped(self) -> PairedSamples:
        """Return the pairs with the baseline for the candidate and the other way round."""
        return PairedSamples(baseline_us=self.tuned_us, tuned_us=self.baseline_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What one trial of a candidate brought.

    Attributes:
        outcome: How the trial ended; only a correct one is sure to have samples.
        baseline_us: Time of one call of the baseline, one number per pair.
        tuned_us: Time of one call of the candidate, same length.
        detail: Why a failed trial failed, for a reader; empty otherwise.
        load: How the machine served it, None where that is not known.
    """

    outcome: Outcome
    baseline_us: tuple[float, ...] = ()
    tuned_us: tuple[float, ...] = ()
    detail: str = ""
    load: MachineLoad | None = None

    def __post_init__(self) -> None:
        if len(self.baseline_us) != len(self.tuned_us):
            raise ValueError(
                "a measurement needs as many baseline as tuned samples "
                f"(got {len(self.baseline_us)} and {len(self.tuned_us)})"
            )
        for sample_us in (*self.baseline_us, *self.tuned_us):
            _positive(sample_us)
        if self.is_correct and not self.tuned_us:
            raise ValueError("a correct measurement needs samples (got none)")

    @classmethod
    def failure(cls, outcome: Outcome, detail: str) -> Self:
        """Return the measurement of a candidate that could not be timed."""
        return cls(outcome=outcome, detail=detail)

    @property
    def is_correct(self) -> bool:
        """True if the candidate computed the right result and was timed."""
        return self.outcome is Outcome.CORRECT

    @property
    def is_quiet(self) -> bool:
        """True unless the machine is known to have been too busy for the figures to count."""
        return self.load is None or self.load.is_quiet

    @property
    def latency_us(self) -> float:
        """Median time of one call of the candidate; ValueError without samples."""
        return _median("latency_us", self.tuned_us)

    @property
    def baseline_latency_us(self) -> float:
        """Median time of one call of the baseline; ValueError without samples."""
        return _median("baseline_latency_us", self.baseline_us)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Speed-up of each pair, dimensionless, > 1 where the candidate was faster."""
        return _ratios(self.baseline_us, self.tuned_us)

    @property
    def speedup(self) -> float:
        """Median of the per-pair ratios, not the ratio of the medians: drift cancels."""
        if not self.tuned_us:
            raise ValueError("speedup: a failed measurement without samples has none")
        return _median_ratio(self.ratios)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupEstimate:
    """Speed-up of a candidate over its baseline with a confidence interval.

    Attributes:
        median: Median of the per-pair ratios, > 1 means faster.
        low: Lower end of the interval.
        high: Upper end of the interval.
        pairs: Number of pairs; with fewer than the confidence needs (6 for 95 %), the interval
            is the range of the ratios and `coverage` says how little that proves.
        coverage: Probability that such an interval holds the true median.
    """

    median: float
    low: float
    high: float
    pairs: int
    coverage: float

    @property
    def half_width(self) -> float:
        """Half of the interval, relative to the median."""
        return (self.high - self.low) / (2 * self.median)


def joined_loads(measurements: Sequence[Measurement]) -> MachineLoad | None:
    """Return the load of all of them, with the most tries of any; None if one is not known."""
    loads = [found.load for found in measurements if found.load is not None]
    if len(loads) < len(measurements) or not loads:
        return None
    return replace(
        loads[0],
        use=reduce(operator.add, (load.use for load in loads)),
        tries=max(load.tries for load in loads),
    )


def median_interval(count: int, confidence: float = 0.95) -> tuple[int, float]:
    """Return which order statistics enclose the median, and how surely they do.

    The interval runs from the k-th smallest to the k-th largest of `count` independent samples,
    whatever their distribution; its coverage is 1 - 2 P(B < k) with B binomial(count, 1/2).

    Args:
        count: Number of samples, at least 1.
        confidence: Least coverage wanted.

    Returns:
        The largest k whose coverage reaches `confidence`, or 1 (smallest to largest sample) when
        none does, and the exact coverage of that interval.

    Source: H. A. David, H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1.
    """
    if count < 1:
        raise ValueError(f"an interval needs samples (got {count})")
    total = 2**count
    below, best, coverage = 1, 1, 1 - 2 / total
    for rank in range(2, count // 2 + 1):
        below += math.comb(count, rank - 1)
        if 1 - 2 * below / total < confidence:
            break
        best, coverage = rank, 1 - 2 * below / total
    return best, coverage


def estimate_speedup(
    samples: Measurement | PairedSamples, confidence: float = 0.95
) -> SpeedupEstimate:
    """Return the median speed-up of the pairs and the confidence interval of that median.

    Args:
        samples: Pairs taken in ABBA order, at least one.
        confidence: Least coverage wanted of the interval.

    Raises:
        ValueError: there are no pairs.
    """
    ratios = sorted(samples.ratios)
    rank, coverage = median_interval(len(ratios), confidence)
    return SpeedupEstimate(
        median=_median_ratio(ratios),
        low=ratios[rank - 1],
        high=ratios[-rank],
        pairs=len(ratios),
        coverage=coverage,
    )


def accepts(estimate: SpeedupEstimate, threshold: float) -> bool:
    """True if the lower bound of the speed-up exceeds `threshold`, from 5 pairs or more."""
    return estimate.coverage >= ACCEPT_COVERAGE and estimate.low > threshold


def run_pairs(
    baseline: Callable[[], float],
    tuned: Callable[[], float],
    policy: MeasurePolicy,
    best_ratio: float | None = None,
) -> PairedSamples:
    """Take samples of both sides in ABBA order until enough is known about their ratio.

    The width of the interval ends a measurement, never the side of 1 it lies on: stopping as
    soon as a result looks good would make the interval lie.

    Args:
        baseline: Runs one sample of the baseline and returns the time of a call in us.
        tuned: The same for the candidate.
        policy: Numbers of pairs, racing and the wanted width.
        best_ratio: Speed-up of the best candidate so far; without it nothing is raced.

    Returns:
        All samples but the warm-up; fewer than `policy.pairs_min` pairs if the candidate lost
        the race.
    """
    for _ in range(policy.warmup):
        tuned()
        baseline()  # as the first pair begins: both sides follow themselves equally often
    baseline_us: list[float] = []
    tuned_us: list[float] = []
    for pair in range(policy.pairs_max):
        # Swapping the order in every other pair cancels a linear drift and cache after-effects.
        first, second = (baseline, tuned) if pair % 2 == 0 else (tuned, baseline)
        first_us, second_us = _positive(first()), _positive(second())
        baseline_us.append(first_us if pair % 2 == 0 else second_us)
        tuned_us.append(second_us if pair % 2 == 0 else first_us)
        samples = PairedSamples(tuple(baseline_us), tuple(tuned_us))
        if _is_settled(samples, policy, best_ratio):
            return samples
    return PairedSamples(tuple(baseline_us), tuple(tuned_us))


def _is_settled(samples: PairedSamples, policy: MeasurePolicy, best_ratio: float | None) -> bool:
    """True if the candidate lost the race or its speed-up is known well enough."""
    pairs = len(samples.tuned_us)
    if (
        best_ratio is not None
        and pairs >= policy.race_pairs
        and _median_ratio(samples.ratios) * policy.race_ratio < best_ratio
    ):
        return True
    # as many pairs of one order as of the other: else their median is that of one order
    if pairs < policy.pairs_min or pairs % 2:
        return False
    estimate = estimate_speedup(samples, policy.confidence)
    return estimate.coverage >= policy.confidence and estimate.half_width < policy.target_half_width


def _ratios(baseline_us: tuple[float, ...], tuned_us: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(base / tuned for base, tuned in zip(baseline_us, tuned_us, strict=True))


def _median_ratio(ratios: Sequence[float]) -> float:
    """Return the median; of the two in the middle the geometric mean, as x and 1/x cancel."""
    ordered = sorted(ratios)
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return lower if lower == upper else math.sqrt(lower * upper)


def _median(name: str, samples: tuple[float, ...]) -> float:
    if not samples:
        raise ValueError(f"{name}: a failed measurement without samples has none")
    return median(samples)


def _positive(sample_us: float) -> float:
    if not (math.isfinite(sample_us) and sample_us > 0):
        raise ValueError(f"a time must be positive and finite (got {sample_us})")
    return sample_us
