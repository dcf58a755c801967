"""Pairs of samples: their number, their order, and when enough is known."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aoe.measurement.estimates import estimate_speedup
from aoe.measurement.load import QUIET_SHARE
from aoe.measurement.looks import Look, is_due, median_interval, planned_look
from aoe.measurement.samples import CallTime, PairedSamples, median_ratio, positive_us


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePolicy:
    """Numbers of samples, and when enough is known.

    Source: A/A runs on a shared 2-core host: 10-20 ABBA pairs put the spread of the estimate
        at 0.2-1 %; a sample below 50-100 us reads the clock more than the kernel.
    """

    pairs_min: int = 10  # Pairs taken before the interval may end the measurement
    pairs_max: int = 40  # Pairs after which the measurement ends in any case
    warmup: int = 1  # Discarded pairs at the start
    race_pairs: int = 3  # Pairs after which a clear loser is dropped
    # Factor by which a clear loser is slower than the best candidate so far.
    race_ratio: float = 1.5
    # Pairs after which a candidate is dropped that has not been as fast as the best one in any of
    # them: one that is as good is dropped with a chance of 1/2 per pair.
    lost_pairs: float = math.inf
    # Seconds after which as many pairs as the confidence needs will do: long calls vary less, and a
    # pair of them costs more than it tells.
    enough_s: float = math.inf
    # Half-width of the interval, relative to its median, that is enough.
    target_half_width: float = 0.01
    # Least coverage of the interval, under all looks that could have ended it.
    confidence: float = 0.95
    sample_min_us: float = 100.0  # Short calls are repeated in a sample until it lasts this long
    threads: int = 1  # Threads the baseline and the candidate may use
    # Share of the CPU time it asks for without which a measurement is taken on a busy machine; 0
    # believes every one.
    least_quiet: float = QUIET_SHARE
    tries: int = 1  # Most measurements, where the first ones meet a busy machine

    def __post_init__(self) -> None:
        if not 1 <= self.pairs_min <= self.pairs_max:
            raise ValueError(
                f"pairs_min must lie in 1..pairs_max (got {self.pairs_min}, {self.pairs_max})"
            )
        if self.warmup < 0 or self.race_pairs < 1 or self.threads < 1:
            raise ValueError("warmup must be >= 0, race_pairs and threads >= 1")
        if self.race_ratio <= 1 or not 0 < self.confidence < 1:
            raise ValueError("race_ratio must exceed 1, confidence must lie inside 0..1")
        if self.lost_pairs < 1 or self.enough_s < 0:
            raise ValueError("lost_pairs must be >= 1, enough_s must not be negative")
        if self.target_half_width < 0 or self.sample_min_us < 0:
            raise ValueError("target_half_width and sample_min_us must not be negative")
        if self.tries < 1 or not 0 <= self.least_quiet <= 1:
            raise ValueError("tries must be >= 1, least_quiet must lie in 0..1")


class WantedSample(NamedTuple):
    """A sample that a measurement asks for."""

    is_tuned: bool  # True for one of the candidate, False for one of the baseline
    samples: PairedSamples  # Taken so far: of a measurement that is ended here


def run_pairs(
    baseline: Callable[[], float],
    tuned: Callable[[], float],
    policy: MeasurePolicy,
    best_ratio: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[], float] = lambda: 0.0,
) -> PairedSamples:
    """Take samples of both sides in ABBA order until enough is known about their ratio.

    Args:
        baseline: Runs one sample of the baseline and returns the time of a call in us.
        tuned: The same for the candidate.
        policy: Numbers of pairs, racing and the wanted width.
        best_ratio: See `wanted_samples`.
        clock: Seconds.
        rest: See `wanted_samples`.

    Returns:
        All samples but the warm-up, and the looks at them; fewer than `policy.pairs_min` pairs if
        the candidate lost the race.
    """
    asking = wanted_samples(policy, best_ratio, clock, rest)
    wanted = next(asking)
    while True:
        sample = tuned() if wanted.is_tuned else baseline()
        try:
            wanted = asking.send(sample)
        except StopIteration as end:
            found: PairedSamples = end.value
            return found


def wanted_samples(
    policy: MeasurePolicy,
    best_ratio: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    rest: Callable[[], float] = lambda: 0.0,
) -> Generator[WantedSample, float, PairedSamples]:
    """Ask for samples of both sides in ABBA order until enough is known about their ratio.

    For sides that nobody can call, such as the steps of a script; else see `run_pairs`. The width
    of the interval ends a measurement, never the side of 1 it lies on. After each look at
    the width measuring may end, so that the looks are kept with the samples: the interval holds
    under them, see `aoe.measurement.looks`. A candidate that lost the race has a median that may
    lie too low, never too high: nothing is accepted by that.

    Args:
        policy: Numbers of pairs, racing and the wanted width.
        best_ratio: Speed-up of the best candidate so far; without it nothing is raced.
        clock: Seconds.
        rest: Is called after every second pair, may let others have the machine, and returns for
            how many seconds: they are no time of the measurement, and a warm-up follows.

    Yields:
        What is to be sampled next; the time of a call in us is sent.

    Returns:
        As `run_pairs`.
    """
    began_s = clock()
    samples = PairedSamples((), ())
    yield from _warm_up(policy.warmup, samples)
    looks: tuple[Look, ...] = ()
    for pair in range(policy.pairs_max):
        # after as many pairs of one order as of the other: each slice of a turn is balanced
        if pair and pair % 2 == 0 and (rested_s := rest()):
            began_s += rested_s
            yield from _warm_up(max(1, policy.warmup), samples)
        # Swapping the order in every other pair cancels a linear drift and cache after-effects.
        is_turned = pair % 2 == 1
        first_us = positive_us((yield WantedSample(is_turned, samples)))
        second_us = positive_us((yield WantedSample(not is_turned, samples)))
        in_order = (second_us, first_us) if is_turned else (first_us, second_us)
        samples = _with_pair(samples, *in_order)._replace(looks=looks)
        if _is_beaten(samples.ratios, policy, best_ratio):
            break
        spent_s, pairs = clock() - began_s, pair + 1
        # as many pairs of one order as of the other: else their median is that of one order
        if pairs % 2 or pairs == policy.pairs_max:
            continue
        if _is_over(pairs, looks, policy, spent_s):
            break
        if pairs >= policy.pairs_min and is_due(pairs, looks):
            looks = (*looks, planned_look(pairs, policy.pairs_max))
            samples = samples._replace(looks=looks)
            if _is_known(samples, policy):
                break
    return samples


def _warm_up(pairs: int, samples: PairedSamples) -> Generator[WantedSample, float, None]:
    for _ in range(pairs):
        yield WantedSample(True, samples)
        # as the first pair begins: both sides follow themselves equally often
        yield WantedSample(False, samples)


def _with_pair(samples: PairedSamples, baseline_us: float, tuned_us: float) -> PairedSamples:
    """Return samples with one more pair, and with its CPU time if both sides know theirs."""
    wall = ((*samples.baseline_us, float(baseline_us)), (*samples.tuned_us, float(tuned_us)))
    if not (isinstance(baseline_us, CallTime) and isinstance(tuned_us, CallTime)):
        return PairedSamples(*wall)
    baseline_cpu_us = (*samples.baseline_cpu_us, baseline_us.cpu_us)
    tuned_cpu_us = (*samples.tuned_cpu_us, tuned_us.cpu_us)
    is_disturbed = baseline_us.is_disturbed or tuned_us.is_disturbed
    return PairedSamples(
        *wall,
        baseline_cpu_us,
        tuned_cpu_us,
        (*samples.disturbed, is_disturbed),
        (*samples.baseline_pool_share, baseline_us.pool_share),
        (*samples.tuned_pool_share, tuned_us.pool_share),
    )


def _is_beaten(ratios: Sequence[float], policy: MeasurePolicy, best_ratio: float | None) -> bool:
    """True if the candidate lost the race against the best one so far."""
    if best_ratio is None:
        return False
    if len(ratios) >= policy.lost_pairs and max(ratios) < best_ratio:
        return True
    return (
        len(ratios) >= policy.race_pairs and median_ratio(ratios) * policy.race_ratio < best_ratio
    )


def _is_over(pairs: int, looks: tuple[Look, ...], policy: MeasurePolicy, spent_s: float) -> bool:
    """True if the time is over, and there are as many pairs as the confidence needs.

    Correlated ones may need more. Not to ask for them keeps the end independent of what was seen.
    """
    if spent_s < policy.enough_s:
        return False
    return median_interval(pairs, policy.confidence, looks)[1] >= policy.confidence


def _is_known(samples: PairedSamples, policy: MeasurePolicy) -> bool:
    """True if the speed-up is known well enough, without spending more than a look may."""
    estimate = estimate_speedup(samples, policy.confidence)
    least = 1 - (1 - policy.confidence) * samples.looks[-1].share
    return estimate.coverage >= least and estimate.half_width < policy.target_half_width
