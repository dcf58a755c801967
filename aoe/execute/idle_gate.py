"""What is measured on a busy machine: pairs by CPU time, or once it is quiet.

`QuietPairs` stands in the worker and waits within bounds; `EitherClock` asks, of several threads,
for pairs by CPU time before anybody waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from aoe.measurement import (
    Clock,
    CpuUse,
    MachineLoad,
    Measurement,
    MeasurePolicy,
    PairedSamples,
    deciding_clock,
    pairs_that_count,
    run_pairs,
)
from aoe.ort.thread_pools import ThreadPool

PATIENCE_S = 60.0
"""A worker waits so long for a quiet machine, all its measurements together."""
FIRST_PAUSE_S = 1.0
"""Before the second try; each further pause is twice as long."""

Sampler = Callable[[], float]
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class QuietPairs:
    """Takes pairs again when the machine was busy, as long as the patience lasts.

    Attributes:
        usage: Counters of this process, see `Device.usage`.
        patience_s: Seconds of waiting that are left.
        sleep: Waits.
    """

    usage: Callable[[], CpuUse]
    patience_s: float = PATIENCE_S
    sleep: Callable[[float], None] = time.sleep

    def take(
        self,
        baseline: Sampler,
        tuned: Sampler,
        policy: MeasurePolicy,
        best_ratio: float | None = None,
        *,
        spins: bool,
    ) -> tuple[PairedSamples, MachineLoad]:
        """Return the pairs of the quietest try, and how the machine served it.

        Pairs of a busy machine that CPU time decides are not taken again.

        Args:
            baseline: Takes a sample of the baseline.
            tuned: The same of the candidate.
            policy: Numbers of pairs and tries, and what counts as quiet.
            best_ratio: Speed-up of the best candidate so far, see `run_pairs`.
            spins: True if threads spin while they wait, so that CPU time says nothing.
        """
        best = self._once(baseline, tuned, policy, best_ratio, spins=spins)
        tries, patience_s = 1, self.patience_s
        while not _is_decided(*best) and tries < policy.tries and self._pause(tries):
            tries += 1
            found = self._once(baseline, tuned, policy, best_ratio, spins=spins)
            best = max(best, found, key=lambda taken: taken[1].use.given_share)
        return best[0], replace(best[1], tries=tries, paused_s=patience_s - self.patience_s)

    def _once(
        self,
        baseline: Sampler,
        tuned: Sampler,
        policy: MeasurePolicy,
        best_ratio: float | None,
        *,
        spins: bool,
    ) -> tuple[PairedSamples, MachineLoad]:
        before = self.usage()
        samples = run_pairs(baseline, tuned, policy, best_ratio)
        load = MachineLoad(
            use=self.usage().since(before), threads=policy.threads, least_quiet=policy.least_quiet
        )
        samples = pairs_that_count(samples, load)
        return samples.by_wall_time if spins else samples, load

    def _pause(self, tries: int) -> bool:
        """Wait before another try; return False if that would take more patience than is left."""
        pause_s = FIRST_PAUSE_S * 2 ** (tries - 1)
        if pause_s > self.patience_s:
            return False
        self.patience_s -= pause_s
        self.sleep(pause_s)
        return True


def _is_decided(samples: PairedSamples, load: MachineLoad) -> bool:
    return load.is_quiet or deciding_clock(samples, load) is Clock.CPU


class EitherClock:
    """Measures as users run a model, and by CPU time where the machine is too busy for that.

    Threads that spin while they wait take CPU time for nothing, so that CPU time of several
    threads is taken with threads that sleep. What began to be measured so goes on so, until the
    machine is quiet again.

    Attributes:
        pool: What the next measurement begins with.
    """

    def __init__(self) -> None:
        self.pool = ThreadPool.SHARED

    def measured(
        self,
        take: Callable[[ThreadPool, MeasurePolicy], T],
        policy: MeasurePolicy,
        measurements_of: Callable[[T], Sequence[Measurement]],
    ) -> T:
        """Measure by wall time, then by CPU time, until one of the clocks decides.

        Args:
            take: Measures with a pool.
            policy: Waiting for a quiet machine comes last.
            measurements_of: Finds the measurements in what `take` returns.

        Raises:
            Whatever `take` does.
        """
        at_once = replace(policy, tries=1)
        for pool in (self.pool, _other(self.pool)):
            self.pool = pool
            found = take(pool, at_once)
            if all(_is_settled(one, pool) for one in measurements_of(found)):
                return found
        self.pool = ThreadPool.SHARED
        return take(self.pool, policy) if policy.tries > 1 else found


def _other(pool: ThreadPool) -> ThreadPool:
    return ThreadPool.SHARED if pool is ThreadPool.SLEEPING else ThreadPool.SLEEPING


def _is_settled(found: Measurement, pool: ThreadPool) -> bool:
    """True unless the other clock may say more.

    Wall time of threads that sleep is not what users see, be the machine quiet or not.
    """
    if not found.is_correct:
        return True
    return found.clock is Clock.CPU if pool is ThreadPool.SLEEPING else found.counts
