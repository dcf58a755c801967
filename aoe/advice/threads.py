"""The number of threads that was fastest in the profile, tried against that of the model now."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from aoe.advice.trying import TriedAction, verdict_of
from aoe.execute.idle_gate import QuietPairs
from aoe.measurement import QUIET_SHARE, MeasurePolicy, estimate_speedup
from aoebank import plural

THREADS_ACTION = "fewer-threads"
_THREAD_PAIRS = 6
_THREAD_RUNS = 5
_ENOUGH_S = 20.0
"""Sessions of models of several GiB take seconds to open: then the pairs of an interval will do."""


def try_threads(
    open_run: Callable[[int], Callable[[], object]],
    pairs: QuietPairs,
    policy: MeasurePolicy,
    *,
    fewer: int,
    room_us: float,
    clock: Callable[[], float] = time.perf_counter,
) -> TriedAction:
    """Return the gain of fewer threads: sessions one after the other, each with its own threads.

    Two pools of threads in one process would wait for each other, so each sample opens its session
    and closes it again.

    Args:
        open_run: Returns a function that runs the model once with so many threads.
        pairs: Takes samples, and sees how the machine served them.
        policy: How many, and the threads of the model now.
        fewer: To be tried.
        room_us: What the model loses.
        clock: Seconds.
    """

    threads = policy.threads

    def sampler(count: int) -> Callable[[], float]:
        def sample() -> float:
            run = open_run(count)
            run()
            times = []
            for _ in range(_THREAD_RUNS):
                began_s = clock()
                run()
                times.append((clock() - began_s) * 1e6)
            return median(times)

        return sample

    samples, load = pairs.take(sampler(threads), sampler(fewer), policy, spins=True)
    estimate = estimate_speedup(samples)
    return TriedAction(
        action=THREADS_ACTION,
        what=f"{plural(fewer, 'thread')} instead of {threads}: --aicore_num={fewer}",
        room_us=room_us,
        estimate=estimate,
        verdict=verdict_of(estimate, is_quiet=load is None or load.is_quiet),
    )


def thread_policy(threads: int, *, accept_busy: bool) -> MeasurePolicy:
    """Return the policy of `try_threads`: each sample opens a session."""
    return MeasurePolicy(
        pairs_min=_THREAD_PAIRS,
        pairs_max=2 * _THREAD_PAIRS,
        warmup=0,
        enough_s=_ENOUGH_S,
        threads=threads,
        least_quiet=0.0 if accept_busy else QUIET_SHARE,
    )
