"""Samples of a candidate and its baseline, and how its trial ended."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from statistics import median
from typing import NamedTuple, Self

from aoe.measurement.load import MachineLoad


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


OF_THE_MACHINE = frozenset({Outcome.COMPILE, Outcome.RUNTIME, Outcome.TIMEOUT})
"""What a full disk, a killed worker or a broken compiler makes of any candidate, and what the clock
does: where every candidate ends so, nothing is known of them."""


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
        is_of_machine: True for a failure that no candidate can help: of the harness, the worker or
            the clock.
    """

    outcome: Outcome
    baseline_us: tuple[float, ...] = ()
    tuned_us: tuple[float, ...] = ()
    detail: str = ""
    load: MachineLoad | None = None
    is_of_machine: bool = False

    def __post_init__(self) -> None:
        if len(self.baseline_us) != len(self.tuned_us):
            raise ValueError(
                "a measurement needs as many baseline as tuned samples "
                f"(got {len(self.baseline_us)} and {len(self.tuned_us)})"
            )
        for sample_us in (*self.baseline_us, *self.tuned_us):
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
        return median_ratio(self.ratios)


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


def _ratios(baseline_us: tuple[float, ...], tuned_us: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(base / tuned for base, tuned in zip(baseline_us, tuned_us, strict=True))


def _median(name: str, samples: tuple[float, ...]) -> float:
    if not samples:
        raise ValueError(f"{name}: a failed measurement without samples has none")
    return median(samples)
