"""One timed sample of a call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_MAX_REPEATS = 1000
_SHORTEST_US = 0.1


def sample_function(binding: Callable[[], object], *, minimum_us: float) -> Callable[[], float]:
    """Return a function that times one sample of `binding` in microseconds per call.

    A call shorter than `minimum_us` is repeated inside the sample, so that the clock's
    resolution and the call into Python do not show.
    """
    begin = time.perf_counter()
    binding()
    once_us = (time.perf_counter() - begin) * 1e6
    repeats = min(_MAX_REPEATS, math.ceil(minimum_us / max(once_us, _SHORTEST_US)))
    repeats = max(1, repeats)

    def sample() -> float:
        start = time.perf_counter()
        for _ in range(repeats):
            binding()
        return (time.perf_counter() - start) * 1e6 / repeats

    return sample
