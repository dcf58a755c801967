"""Threads that ONNX Runtime computes with; named here so that nobody loads it for the name."""

from __future__ import annotations

from enum import StrEnum


class ThreadPool(StrEnum):
    """Threads of a session.

    OWN: Its own, which spin while they wait, as ONNX Runtime makes them by default.
    SHARED: Those of the process, which spin as well, see `use_shared_pool`; a process that has
        them allows no session any other.
    SLEEPING: Its own, which sleep while they wait: their CPU time is that of computing alone.
    """

    OWN = "own"
    SHARED = "shared"
    SLEEPING = "sleeping"

    def spins(self, threads: int) -> bool:
        """True if so many threads take CPU time while they wait for each other."""
        return threads > 1 and self is not ThreadPool.SLEEPING
