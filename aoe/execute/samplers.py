"""Samplers of a pair: each side makes as many calls as last equally long on both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

CALIBRATION_CALLS = 5
_CALIBRATION_US = 50_000.0
"""Calibration of long calls ends after this, with two calls of each side or more."""
_ONE_IS_A_SAMPLE_US = 40_000.0
"""Of calls twice as long as a sample, be they cold, one is a sample: there is nothing to count."""
_TIME_SLICE_US = 4_000.0
"""Source: base slice of the Linux scheduler, 3 ms on 2 cores and 4 ms on 16 or more."""
_LONGEST_US = 5 * _TIME_SLICE_US
_SHORT_US = 5_000.0
"""Calls up to which it shows what has run before them."""
_ALIKE = 1.5
_MAX_REPEATS = 1000
_SHORTEST_US = 0.1


class MakeTimer(Protocol):
    """`Device.timer`."""

    def __call__(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        """Return a function that takes one sample of `repeats` calls, in us of one call."""


def paired_samplers(
    timer: MakeTimer,
    baseline: Callable[[], object],
    tuned: Callable[[], object],
    minimum_us: float,
    before: Callable[[], object] | None = None,
    calls_max: int = _MAX_REPEATS,
    tuned_before: Callable[[], object] | None = None,
) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return functions that take a sample of each side, in us of one call.

    Args:
        timer: Of the device.
        baseline: One call of the baseline.
        tuned: One call of the candidate.
        minimum_us: Least length of a sample.
        before: Is called before each call, and does not count.
        calls_max: Most calls of a sample: what is called before them takes its time too.
        tuned_before: The same as `before` for the candidate, where it is another function.
    """
    sides = ((baseline, before), (tuned, tuned_before or before))
    calls_us = shortest_calls([timer(run, repeats=1, before=ready) for run, ready in sides])
    counts = sample_repeats(calls_us[0], calls_us[1], minimum_us)
    first, second = (min(count, calls_max) for count in counts)
    return (
        timer(baseline, repeats=first, before=before),
        timer(tuned, repeats=second, before=tuned_before or before),
    )


def are_single_and_short(
    timer: MakeTimer, runs: Sequence[Callable[[], object]], minimum_us: float
) -> bool:
    """Return True if one call of each is a sample, and so short that what ran before it counts.

    A program calls one model again and again, which finds what it left in the caches: a recommender
    of 2 ms was 1.23 times as fast so, and 1.29 times behind a call of the other side (one thread of
    a Xeon, CPU time, 2026-11-29). Of several calls in a sample all but the first are such anyway.

    Args:
        timer: Of the device.
        runs: One call of each side.
        minimum_us: Least length of a sample.
    """
    calls_us = shortest_calls([timer(run, repeats=1) for run in runs])
    return minimum_us <= min(calls_us) and max(calls_us) <= _SHORT_US


def shortest_calls(singles: Sequence[Callable[[], float]]) -> list[float]:
    """Return the shortest of several calls of each side, taken in turns.

    The first call of a session is several times as long as the others: a number of calls that
    came from it differed between equal sides, and with it what a sample costs beyond its calls;
    a model of 4 us read 1.01 times as fast as itself.
    """
    shortest = [math.inf] * len(singles)
    spent_us = 0.0
    for call in range(CALIBRATION_CALLS):
        for side, single in enumerate(singles):
            taken_us = single()
            spent_us += taken_us
            shortest[side] = min(shortest[side], taken_us)
        # a first call is cold: it counts only where even that lasts as long as two samples
        is_counted = bool(call) or min(shortest) >= _ONE_IS_A_SAMPLE_US
        if is_counted and spent_us >= _CALIBRATION_US:
            break
    return shortest


def sample_repeats(first_us: float, second_us: float, minimum_us: float) -> tuple[int, int]:
    """Return numbers of calls of each side that make samples of one length.

    A time slice given to another process then hits both sides alike: where one side lasted
    longer than the time between two slices and the other did not, a busy machine inflated their
    ratio without bound. Samples of several slices have their share of them anyway, so that
    beyond that the shorter side is not made longer. Sides that are nearly as fast get the same
    number of calls, so that noise in the calibration does not make them differ.

    Args:
        first_us: Time of one call.
        second_us: Time of one call of the other side.
        minimum_us: Least length of a sample.
    """
    slower_us = max(first_us, second_us)
    length_us = max(minimum_us, min(slower_us, _LONGEST_US))
    counts = [
        max(1, min(_MAX_REPEATS, math.ceil(length_us / max(call_us, _SHORTEST_US))))
        for call_us in (first_us, second_us)
    ]
    if slower_us < _ALIKE * min(first_us, second_us):
        counts = [max(counts)] * 2
    return counts[0], counts[1]
