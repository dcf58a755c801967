"""Measurements on a busy machine: pairs by CPU time, or pairs taken once it is quiet.

`QuietPairs` stands in the worker and waits within bounds; `EitherClock` asks, of several threads,
for pairs by CPU time before anybody waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

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


class OtherRuns(Protocol):
    """Other runs on this machine, which may wait to measure."""

    def are_waiting(self) -> bool:
        """True if one is to be let in; costs a microsecond."""
        ...

    def let_in(self) -> None:
        """Return once they have had their turn."""
        ...

    def sleep(self, pause_s: float) -> None:
        """Wait for so long; others have their turn meanwhile."""
        ...


class NoOtherRuns:
    """None of which anybody says that they wait, see `OtherRuns`."""

    def are_waiting(self) -> bool:
        """Return False."""
        return False

    def let_in(self) -> None:
        """Return at once."""

    def sleep(self, pause_s: float) -> None:
        """Wait for so long."""
        time.sleep(pause_s)


@dataclass(slots=True, kw_only=True)
class QuietPairs:
    """Takes pairs again when the machine was busy, as long as the patience lasts."""

    usage: Callable[[], CpuUse]  # Counters of this process, see `Device.usage`
    patience_s: float = PATIENCE_S  # Seconds of waiting that are left
    # Are let in between pairs and during pauses.
    others: OtherRuns = field(default_factory=NoOtherRuns)

    def take(
        self,
        baseline: Sampler,
        tuned: Sampler,
        policy: MeasurePolicy,
        best_ratio: float | None = None,
        *,
        spins: bool,
        lets_in: bool = True,
    ) -> tuple[PairedSamples, MachineLoad]:
        """Return the pairs of the quietest try, and how the machine served it.

        Pairs of a busy machine that CPU time decides are not taken again.

        Args:
            baseline: Takes a sample of the baseline.
            tuned: The same of the candidate.
            policy: Numbers of pairs and tries, and what counts as quiet.
            best_ratio: Speed-up of the best candidate so far, see `run_pairs`.
            spins: True if threads spin while they wait, so that CPU time says nothing.
            lets_in: False if other runs have to wait: there may be no memory for them beside it.
        """

        def once() -> tuple[PairedSamples, MachineLoad]:
            samples, load = self._pairs(baseline, tuned, policy, best_ratio, lets_in=lets_in)
            samples = pairs_that_count(samples, load)
            return samples.by_wall_time if spins else samples, load

        best = once()
        tries, patience_s = 1, self.patience_s
        while not _is_decided(*best) and tries < policy.tries and self._pause(tries):
            tries += 1
            # the quietest, never the fastest: choosing by speed would choose lucky pairs
            best = max(best, once(), key=lambda taken: taken[1].use.given_share)
        return best[0], replace(best[1], tries=tries, paused_s=patience_s - self.patience_s)

    def _pairs(
        self,
        baseline: Sampler,
        tuned: Sampler,
        policy: MeasurePolicy,
        best_ratio: float | None,
        *,
        lets_in: bool,
    ) -> tuple[PairedSamples, MachineLoad]:
        before, use = self.usage(), CpuUse()

        def rest() -> float:
            nonlocal before, use
            if not (lets_in and self.others.are_waiting()):
                return 0.0
            left = self.usage()
            use += left.since(before)
            self.others.let_in()
            before = self.usage()  # nothing of what others did is held against the machine
            return before.wall_s - left.wall_s

        samples = run_pairs(baseline, tuned, policy, best_ratio, rest=rest)
        use += self.usage().since(before)
        return samples, MachineLoad(use=use, threads=policy.threads, least_quiet=policy.least_quiet)

    def _pause(self, tries: int) -> bool:
        """Wait before another try; return False if that would take more patience than is left."""
        pause_s = FIRST_PAUSE_S * 2 ** (tries - 1)
        if pause_s > self.patience_s:
            return False
        self.patience_s -= pause_s
        self.others.sleep(pause_s)
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
        with_measurements: Callable[[T, Sequence[Measurement]], T],
    ) -> T:
        """Measure by wall time, then by CPU time, until one of the clocks decides.

        Where none does, the result says why, which pairs of threads that sleep have told. A machine
        that has become quiet meanwhile is measured as users run a model, without waiting. Of
        several measurements, those stay which CPU time has decided.

        Args:
            take: Measures with a pool.
            policy: Waiting for a quiet machine comes last.
            measurements_of: Finds the measurements in what `take` returns.
            with_measurements: Returns the same result with other measurements.

        Raises:
            Whatever `take` does.
        """
        at_once = replace(policy, tries=1)
        asleep: Sequence[Measurement] = ()
        is_quiet_now = False
        for pool in (self.pool, _other(self.pool)):
            self.pool = pool
            found = take(pool, at_once)
            if _are_settled(those := measurements_of(found), pool):
                return found
            if pool is ThreadPool.SLEEPING:
                asleep, is_quiet_now = those, any(map(_is_by_wall_time, _demanding(those)))
                # threads that spin tell nothing on a machine that was busy a moment ago
                if not is_quiet_now:
                    break
        if policy.tries > 1 or (self.pool is ThreadPool.SLEEPING and is_quiet_now):
            found = take(ThreadPool.SHARED, policy)
            is_quiet = _are_settled(measurements_of(found), ThreadPool.SHARED)
            self.pool = ThreadPool.SHARED if is_quiet else ThreadPool.SLEEPING
        told = list(map(_better_told, measurements_of(found), asleep))
        return with_measurements(found, told)


def _other(pool: ThreadPool) -> ThreadPool:
    return ThreadPool.SHARED if pool is ThreadPool.SLEEPING else ThreadPool.SLEEPING


def _better_told(found: Measurement, by_sleeping: Measurement) -> Measurement:
    """Return the measurement that counts; if neither does, with the reason of sleeping threads."""
    if found.counts:
        return found
    if by_sleeping.is_correct and by_sleeping.clock is Clock.CPU:
        return by_sleeping
    return replace(found, disagreement=by_sleeping.disagreement)


def _is_by_wall_time(found: Measurement) -> bool:
    """True if the machine was quiet enough for wall time to count."""
    return found.is_correct and found.counts and found.clock is Clock.WALL


def _demanding(found: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements that ask most of the machine: others beside them compare results."""
    most = max((one.load.least_quiet for one in found if one.load is not None), default=0.0)
    return [one for one in found if one.load is None or one.load.least_quiet >= most]


def _are_settled(found: Sequence[Measurement], pool: ThreadPool) -> bool:
    return all(_is_settled(one, pool) for one in _demanding(found))


def _is_settled(found: Measurement, pool: ThreadPool) -> bool:
    """True unless the other clock may say more.

    Wall time of threads that sleep is not what users see, be the machine quiet or not.
    """
    if not found.is_correct:
        return True
    return found.clock is Clock.CPU if pool is ThreadPool.SLEEPING else found.counts
