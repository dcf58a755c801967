"""Samples of a candidate and its baseline, and how its trial ended."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from itertools import compress
from statistics import median
from typing import NamedTuple, Self

from aoe.measurement.load import MachineLoad
from aoe.measurement.looks import Look

_ALIKE = 0.1
"""Most by which the shares of the pool's threads differ in a pair of two calls that ran alike.
Source: of 266 measurements of a model against itself beside load, two threads, 3 proved a gain
(99 %) by such pairs, 8 by pairs within 0.2, 144 by all pairs."""


class Outcome(StrEnum):
    """Outcome of the trial of a candidate.

    Source: the invalidity words of the T4 auto-tuning results format (FAIR Benchmark Hub).
    """

    CORRECT = "correct"
    COMPILE = "compile"
    RUNTIME = "runtime"
    TIMEOUT = "timeout"
    CORRECTNESS = "correctness"
    CONSTRAINTS = "constraints"


OF_THE_MACHINE = frozenset({Outcome.COMPILE, Outcome.RUNTIME, Outcome.TIMEOUT})
"""Outcomes that a full disk, a killed worker, a broken compiler or the clock may give any
candidate: where every candidate ends so, nothing is known of them."""


class Clock(StrEnum):
    """Clock that decides how fast a candidate is."""

    WALL = "wall"
    CPU = "cpu"


class CallTime(float):
    """Wall time of one call in us, with what the kernel of the operating system counted."""

    __slots__ = ("cpu_us", "is_disturbed", "pool_share")
    cpu_us: float  # CPU time that all threads of the process took for the call
    # True if a thread of the process lost its core during the sample, or waited for one.
    is_disturbed: bool
    # Share of the CPU time that other threads took than the one that calls; NaN where that is not
    # known.
    pool_share: float

    def __new__(
        cls,
        wall_us: float,
        cpu_us: float,
        *,
        is_disturbed: bool = False,
        pool_share: float = math.nan,
    ) -> Self:
        """Make a wall time that knows its CPU time."""
        made = super().__new__(cls, wall_us)
        made.cpu_us = cpu_us
        made.is_disturbed = is_disturbed
        made.pool_share = pool_share
        return made


class PairedSamples(NamedTuple):
    """Samples in us; the i-th of both belong to one pair and saw the same machine."""

    baseline_us: tuple[float, ...]  # Wall time of a call of the baseline
    tuned_us: tuple[float, ...]  # The same of the candidate
    # CPU time of all threads for a call of the baseline; empty where threads spin while they wait,
    # since CPU time says nothing then.
    baseline_cpu_us: tuple[float, ...] = ()
    tuned_cpu_us: tuple[float, ...] = ()  # The same of the candidate
    # Of each pair, True if a thread lost its core or waited for one during one of the samples;
    # empty where that is not known.
    disturbed: tuple[bool, ...] = ()
    # See `CallTime`, of each sample of the baseline; empty as those before.
    baseline_pool_share: tuple[float, ...] = ()
    tuned_pool_share: tuple[float, ...] = ()  # The same of the candidate
    # After how many of the pairs there were looks that could have ended the measurement.
    looks: tuple[Look, ...] = ()

    @property
    def ratios(self) -> tuple[float, ...]:
        """Speed-up of each pair, dimensionless, > 1 where the candidate was faster."""
        return _ratios(self.baseline_us, self.tuned_us)

    @property
    def by_cpu_time(self) -> PairedSamples | None:
        """The same pairs with CPU time for wall time, None where it is not known."""
        if not self.tuned_cpu_us:
            return None
        return PairedSamples(self.baseline_cpu_us, self.tuned_cpu_us, looks=self.looks)

    @property
    def by_wall_time(self) -> PairedSamples:
        """The same pairs without CPU time."""
        return PairedSamples(self.baseline_us, self.tuned_us, looks=self.looks)

    @property
    def undisturbed(self) -> PairedSamples:
        """The pairs during which no thread lost its core or waited for one."""
        return self._only([not one for one in self.disturbed]) if self.disturbed else self

    @property
    def alike(self) -> PairedSamples:
        """The pairs in whose samples the threads of the pool took about the same share."""
        shares = zip(self.baseline_pool_share, self.tuned_pool_share, strict=True)
        kept = [not _differ(*pair) for pair in shares]
        return self._only(kept) if kept else self

    def _only(self, kept: Sequence[bool]) -> PairedSamples:
        of_pairs = (tuple(compress(values, kept)) for values in self[:-1])
        looks = tuple(Look(sum(kept[: look.pairs]), look.share) for look in self.looks)
        return PairedSamples._make((*of_pairs, looks))

    def swapped(self) -> PairedSamples:
        """Return the pairs with the baseline for the candidate and the other way round."""
        return PairedSamples(
            baseline_us=self.tuned_us,
            tuned_us=self.baseline_us,
            baseline_cpu_us=self.tuned_cpu_us,
            tuned_cpu_us=self.baseline_cpu_us,
            disturbed=self.disturbed,
            baseline_pool_share=self.tuned_pool_share,
            tuned_pool_share=self.baseline_pool_share,
            looks=self.looks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundingSteps:
    """Integers of a candidate that are next to the baseline's: rounded to the other neighbour."""

    off: int  # Values that differ, by one step each
    of: int  # Values that were compared

    def __str__(self) -> str:
        return f"{self.off:,} of {self.of:,} values one step off"

    def with_others(self, other: RoundingSteps) -> RoundingSteps:
        """Return the count over the values of both."""
        return RoundingSteps(off=self.off + other.off, of=self.of + other.of)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Result of one trial of a candidate."""

    outcome: Outcome  # How the trial ended; only a correct one is sure to have samples
    baseline_us: tuple[float, ...] = ()  # Time of one call of the baseline, one number per pair
    tuned_us: tuple[float, ...] = ()  # Time of one call of the candidate, same length
    detail: str = ""  # Why a failed trial failed, for a reader; empty otherwise
    load: MachineLoad | None = None  # How the machine served it, None where that is not known
    # CPU time of one call of the baseline, see `PairedSamples`.
    baseline_cpu_us: tuple[float, ...] = ()
    tuned_cpu_us: tuple[float, ...] = ()  # The same of the candidate
    looks: tuple[Look, ...] = ()  # See `PairedSamples`
    # Which time decides: CPU time where a busy machine has spoiled wall time.
    clock: Clock = Clock.WALL
    # Why the figures of a busy machine do not count, see `clocks_disagree` and `paid_by_waiting`;
    # else empty.
    disagreement: str = ""
    # True for a failure that no candidate can help: of the harness, the worker or the clock.
    is_of_machine: bool = False
    rounding: RoundingSteps | None = None  # None where results are no integers of 8 bits

    def __post_init__(self) -> None:
        for baseline_us, tuned_us in (
            (self.baseline_us, self.tuned_us),
            (self.baseline_cpu_us, self.tuned_cpu_us),
        ):
            if len(baseline_us) != len(tuned_us):
                raise ValueError(
                    "a measurement needs as many baseline as tuned samples "
                    f"(got {len(baseline_us)} and {len(tuned_us)})"
                )
            for sample_us in (*baseline_us, *tuned_us):
                positive_us(sample_us)
        if self.is_correct and not self.tuned_us:
            raise ValueError("a correct measurement needs samples (got none)")

    @classmethod
    def failure(cls, outcome: Outcome, detail: str, *, is_of_machine: bool = False) -> Self:
        """Return the measurement of a candidate that could not be timed."""
        late = outcome is Outcome.TIMEOUT
        return cls(outcome=outcome, detail=detail, is_of_machine=is_of_machine or late)

    @property
    def is_correct(self) -> bool:
        """True if the candidate computed the right result and was timed."""
        return self.outcome is Outcome.CORRECT

    @property
    def is_timed(self) -> bool:
        """True if a clock decides: CPU time, or wall time of a machine not known to be busy."""
        return self.clock is Clock.CPU or self.load is None or self.load.is_quiet

    @property
    def counts(self) -> bool:
        """True if a clock decides, and the other one does not speak against a gain."""
        return self.is_timed and not self.disagreement

    @property
    def busy_words(self) -> str:
        """Words on the load of a busy machine, and on why neither clock decides."""
        load = "" if self.load is None else str(self.load)
        return "; ".join(filter(None, (load, self.disagreement)))

    @property
    def decisive(self) -> PairedSamples:
        """The pairs by the clock that decides."""
        if self.clock is Clock.CPU and self.tuned_cpu_us:
            return PairedSamples(self.baseline_cpu_us, self.tuned_cpu_us, looks=self.looks)
        return PairedSamples(self.baseline_us, self.tuned_us, looks=self.looks)

    @property
    def latency_us(self) -> float:
        """Median time of one call of the candidate; ValueError without samples.

        CPU time where it decides and there is one thread: a call takes no less, and on an idle
        machine no more. Of several threads it is the sum, so that wall time stays.
        """
        return _median("latency_us", self._of_a_call.tuned_us)

    @property
    def baseline_latency_us(self) -> float:
        """The same of the baseline."""
        return _median("baseline_latency_us", self._of_a_call.baseline_us)

    @property
    def _of_a_call(self) -> PairedSamples:
        is_alone = self.load is not None and self.load.threads == 1
        return self.decisive if is_alone else PairedSamples(self.baseline_us, self.tuned_us)

    @property
    def ratios(self) -> tuple[float, ...]:
        """Speed-up of each pair by the clock that decides, > 1 where the candidate was faster."""
        return self.decisive.ratios

    @property
    def speedup(self) -> float:
        """Median of the per-pair ratios, not the ratio of the medians: drift cancels."""
        if not self.tuned_us:
            raise ValueError("speedup: a failed measurement without samples has none")
        return median_ratio(self.ratios)

    @property
    def by_wall_time(self) -> Measurement:
        """The same measurement with wall time as the clock, whichever decides."""
        return replace(self, clock=Clock.WALL)


def joined_loads(measurements: Sequence[Measurement]) -> MachineLoad | None:
    """Return the load of all of them, with the most tries of any; None if one is not known."""
    loads = [found.load for found in measurements if found.load is not None]
    if len(loads) < len(measurements) or not loads:
        return None
    return replace(
        loads[0],
        use=reduce(operator.add, (load.use for load in loads)),
        tries=max(load.tries for load in loads),
        paused_s=sum(load.paused_s for load in loads),
    )


def median_ratio(ratios: Sequence[float]) -> float:
    """Return the median; of the two in the middle the geometric mean, as x and 1/x cancel."""
    ordered = sorted(ratios)
    lower, upper = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return lower if lower == upper else math.sqrt(lower * upper)


def positive_us(sample_us: float) -> float:
    """Return a time, which must be positive and finite.

    Raises:
        ValueError: it is not.
    """
    if not (math.isfinite(sample_us) and sample_us > 0):
        raise ValueError(f"a time must be positive and finite (got {sample_us})")
    return sample_us


def _differ(baseline_share: float, tuned_share: float) -> bool:
    """True if two calls ran on other threads; False for NaN."""
    return abs(baseline_share - tuned_share) > _ALIKE


def _ratios(baseline_us: tuple[float, ...], tuned_us: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(base / tuned for base, tuned in zip(baseline_us, tuned_us, strict=True))


def _median(name: str, samples: tuple[float, ...]) -> float:
    if not samples:
        raise ValueError(f"{name}: a failed measurement without samples has none")
    return median(samples)
