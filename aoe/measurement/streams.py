"""Throughput: runs of several streams at the same time, timed together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import repeat
from queue import SimpleQueue

LEAST_SAMPLE_US = 5_000.0
"""Threads wake up within some 0.1 ms: a sample lasts so long that this does not count."""


class FreeRun:
    """A run any stream may make: it takes one that no other stream is making.

    Args:
        runs: Equal ones with memory of their own, one for each stream.
    """

    def __init__(self, runs: Sequence[Callable[[], object]]) -> None:
        self._free: SimpleQueue[Callable[[], object]] = SimpleQueue()
        for run in runs:
            self._free.put(run)

    def __call__(self) -> object:
        """Make the run."""
        run = self._free.get()
        try:
            return run()
        finally:
            self._free.put(run)


class Streams:
    """Threads that call the same thing at the same time; they stay, so that their waiting counts.

    Args:
        count: How many.
        clock: Seconds.
    """

    def __init__(self, count: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self._count = count
        self._clock = clock
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="stream")

    def timer(
        self,
        run: Callable[[], object],
        *,
        repeats: int,
        before: Callable[[], object] | None = None,
    ) -> Callable[[], float]:
        """Return a function that takes one sample of `repeats` calls for each stream.

        Args:
            run: Is called by all streams at the same time.
            repeats: Calls of a stream; one that is done early takes calls of the others.
            before: Must be None: what comes before a call would run beside the other streams.

        Returns:
            Wall time in us from the first call to the end of the last one, over the number of all
            calls: 1e6 over it are the runs of the whole machine in a second.

        Raises:
            ValueError: something is to be done before each call.
        """
        if before is not None:
            raise ValueError("streams cannot do anything before each call (got a function)")
        calls = repeats * self._count

        def sample() -> float:
            # one iterator for all streams: whoever is done early takes the next call
            left = repeat(None, calls)
            start = self._clock()
            for stream in [self._threads.submit(_drain, run, left) for _ in range(self._count)]:
                stream.result()
            return (self._clock() - start) * 1e6 / calls

        return sample


@cache
def streams_of(count: int) -> Streams:
    """Return the streams of this process."""
    return Streams(count)


def _drain(run: Callable[[], object], left: repeat[None]) -> None:
    for _ in left:
        run()
