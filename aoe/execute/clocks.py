"""Measuring by wall time, and on a busy machine by CPU time, with the threads each needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from aoe.measurement import Clock, Measurement, MeasurePolicy
from aoe.ort.sessions import ThreadPool

T = TypeVar("T")
Take = Callable[[ThreadPool, MeasurePolicy], T]
"""Takes a measurement with sessions of a pool."""


class EitherClock:
    """Measures as users run a model, and by CPU time where the machine is too busy for that.

    Threads that spin while they wait take CPU time for nothing. So CPU time of several threads is
    taken with sessions of their own, whose threads sleep. What began to be measured so goes on
    so, until the machine is quiet again.

    Args:
        threads: Threads that compute.
        pool: Of the sessions whose wall time counts.
    """

    def __init__(self, threads: int, pool: ThreadPool = ThreadPool.SHARED) -> None:
        self._threads = threads
        self._by_wall = self._pool = pool

    @property
    def pool(self) -> ThreadPool:
        """What the next measurement begins with."""
        return self._pool

    def spins(self, pool: ThreadPool) -> bool:
        """True if threads of a pool take CPU time while they wait."""
        return self._threads > 1 and pool is not ThreadPool.SLEEPING

    def measured(
        self, take: Take[T], policy: MeasurePolicy, measurement_of: Callable[[T], Measurement]
    ) -> T:
        """Return what was measured by the clock that decides, or on a machine too busy for both.

        Args:
            take: Measures with sessions of a pool.
            policy: Waiting for a quiet machine comes last.
            measurement_of: Finds the measurement in what `take` returns.

        Raises:
            Everything that `take` does.
        """
        if self._threads == 1:  # nobody to wait for: the same sessions serve both clocks
            return take(self._by_wall, policy)
        at_once = replace(policy, tries=1)
        for pool in (self._pool, self._other):
            self._pool = pool
            found = take(pool, at_once)
            if self._is_settled(measurement_of(found)):
                return found
        self._pool = self._by_wall
        return take(self._by_wall, policy) if policy.tries > 1 else found

    @property
    def _other(self) -> ThreadPool:
        asleep = self._pool is ThreadPool.SLEEPING
        return self._by_wall if asleep else ThreadPool.SLEEPING

    def _is_settled(self, found: Measurement) -> bool:
        if not found.is_correct:
            return True
        asleep = self._pool is ThreadPool.SLEEPING
        return found.clock is Clock.CPU if asleep else found.counts
