"""When buckets are really sent and received, seen by a communication hook."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

import torch.distributed as dist

from aoe.gradients.timeline import SegmentTime, Timeline
from aoe.torch.ddp.ranks import Ranks


class BucketContent(NamedTuple):
    """How many gradients a bucket holds, and their bytes."""

    gradients: int
    bytes: int


class BucketClock:
    """Times the all-reduce of each bucket over some steps, on the host's clock.

    The hook does what DDP does without one: divide by the world size, then sum.

    Args:
        ranks: The processes; every time is that of the slowest.
        contents: The buckets in the order they are sent.
    """

    def __init__(self, ranks: Ranks, contents: Sequence[BucketContent]) -> None:
        self._ranks = ranks
        self._contents = tuple(contents)
        self._sent_ns: dict[int, int] = {}
        self._done_ns: dict[int, int] = {}
        self._steps: list[list[float]] = []

    def attach(self, ddp: Any) -> None:
        """Watch the reducer which DDP has now; a new one is not watched."""
        dist._register_comm_hook(ddp.reducer, self, _watched_all_reduce)

    def start_step(self) -> None:
        """Forget the buckets of the step before."""
        self._sent_ns.clear()
        self._done_ns.clear()

    def end_step(self, start_ns: int, ready_us: Mapping[int, float]) -> None:
        """Take down a step.

        Args:
            start_ns: When its backward started.
            ready_us: When its gradients were ready, after that.
        """
        count = range(len(self._contents))
        sent = [(self._sent_ns.get(place, start_ns) - start_ns) / 1e3 for place in count]
        done = [(self._done_ns.get(place, start_ns) - start_ns) / 1e3 for place in count]
        self._steps.append([*sent, *done, max(ready_us.values(), default=0.0)])

    def timeline(self) -> Timeline:
        """Return the median step; buckets are shown one after the other, as if on one channel."""
        medians = [max(0.0, median(times_us)) for times_us in zip(*self._steps, strict=True)]
        slowest = self._ranks.max(medians)
        count = len(self._contents)
        segments, free_us = [], 0.0
        for place, content in enumerate(self._contents):
            start_us = max(slowest[place], free_us)
            free_us = max(slowest[count + place], start_us)
            segments.append(
                SegmentTime(
                    gradients=content.gradients,
                    bytes=content.bytes,
                    ready_us=slowest[place],
                    start_us=start_us,
                    end_us=free_us,
                )
            )
        return Timeline(segments=tuple(segments), backward_end_us=slowest[-1])


def _watched_all_reduce(clock: BucketClock, bucket: Any) -> Any:
    place = bucket.index()
    clock._sent_ns[place] = time.perf_counter_ns()
    group = clock._ranks.group
    mean = bucket.buffer().div_(clock._ranks.world_size)
    future = dist.all_reduce(mean, group=group, async_op=True).get_future()

    def done(sums: Any) -> Any:
        clock._done_ns[place] = time.perf_counter_ns()
        return sums.value()[0]

    return future.then(done)
