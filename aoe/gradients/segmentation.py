"""Groupings of gradients for all-reduce: the optimum, and the rule of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from aoe.gradients.cost import CostModel
from aoe.gradients.trace import GradientTrace

DDP_FIRST_BYTES = 1024 * 1024
DDP_CAP_BYTES = 25 * 1024 * 1024
"""Bucket sizes of PyTorch. Source: torch.distributed, `_DEFAULT_FIRST_BUCKET_BYTES` and
`bucket_cap_mb` of DistributedDataParallel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmentation:
    """A grouping of consecutive gradients, each group one all-reduce."""

    # One past the last gradient of each segment, in the order of readiness; the last is the number
    # of gradients.
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.ends or any(a >= b for a, b in pairwise((0, *self.ends))):
            raise ValueError(f"ends must increase from above 0 (got {self.ends[:20]})")

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """First gradient of each segment, and one past its last."""
        return tuple(pairwise((0, *self.ends)))


def optimal(
    trace: GradientTrace, cost: CostModel, *, max_segments: int | None = None
) -> Segmentation:
    """Return the segmentation whose last all-reduce ends first; of equal ones a shortest.

    Dynamic program over F(j), the earliest end of everything up to gradient j on one serial
    channel: F(j) = min over i of max(F(i), r_j) + c(P_j - P_i), with ready times r and prefix
    sizes P. Exact for any cost, since a smaller F(i) never hurts. O(n^2), with a limit on the
    segments that binds O(n^2 max_segments).

    Args:
        trace: The gradients.
        cost: Of one all-reduce.
        max_segments: Most segments, None for no limit.
    """
    if max_segments is not None and max_segments < 1:
        raise ValueError(f"max_segments must be 1 or more (got {max_segments})")
    ready = np.asarray(trace.ready_us, dtype=np.float64)
    prefix = np.concatenate(([0.0], np.cumsum(np.asarray(trace.sizes_bytes, dtype=np.float64))))
    free = _shortest_of_best(ready, prefix, cost)
    if max_segments is None or len(free) <= max_segments:
        return free
    return _limited(ready, prefix, cost, max_segments)


def from_bucket_caps(
    sizes_bytes: Sequence[int],
    first_bytes: int = DDP_FIRST_BYTES,
    cap_bytes: int = DDP_CAP_BYTES,
) -> Segmentation:
    """Return the segments DistributedDataParallel makes of its bucket sizes.

    A bucket takes gradients until it holds its cap or more, the first one a cap of its own. DDP
    keeps a bucket per data type; this takes all gradients as of one type.

    Source: torch/csrc/distributed/c10d/reducer.cpp, compute_bucket_assignment_by_size.
    """
    ends: list[int] = []
    held = 0
    for place, size in enumerate(sizes_bytes):
        held += size
        if held >= (cap_bytes if ends else first_bytes):
            ends.append(place + 1)
            held = 0
    return _closed(ends, len(sizes_bytes))


def neighbours(segmentation: Segmentation, n: int) -> Iterator[Segmentation]:
    """Yield everything one step away: two segments joined, one split, a border moved by one.

    Args:
        segmentation: Where the steps start.
        n: Number of gradients.
    """
    cuts = segmentation.ends[:-1]
    taken = {0, n, *cuts}
    for cut in cuts:
        yield _with_cuts((other for other in cuts if other != cut), n)
    for cut in cuts:
        for moved in (cut - 1, cut + 1):
            if moved not in taken:
                yield _with_cuts((moved if old == cut else old for old in cuts), n)
    for cut in range(1, n):
        if cut not in taken:
            yield _with_cuts((*cuts, cut), n)


def finish_us(trace: GradientTrace, segmentation: Segmentation, cost: CostModel) -> float:
    """Return when the last all-reduce ends, from the start of backward, on a serial channel."""
    prefix = (0, *accumulate(trace.sizes_bytes))
    end_us = 0.0
    for first, end in segmentation.ranges:
        start_us = max(end_us, trace.ready_us[end - 1])
        end_us = start_us + cost.cost_us(prefix[end] - prefix[first])
    return end_us


def _with_cuts(cuts: Iterator[int] | Sequence[int], n: int) -> Segmentation:
    return Segmentation(ends=(*sorted(cuts), n))


def _closed(ends: Sequence[int], n: int) -> Segmentation:
    return Segmentation(ends=(*(end for end in ends if end < n), n))


def _shortest_of_best(
    ready: NDArray[np.float64], prefix: NDArray[np.float64], cost: CostModel
) -> Segmentation:
    count = len(ready)
    best_us = np.zeros(count + 1)
    segments = np.zeros(count + 1, dtype=np.int64)
    origin = np.zeros(count + 1, dtype=np.int64)
    for end in range(1, count + 1):
        times = np.maximum(best_us[:end], ready[end - 1])
        times += cost.costs_us(prefix[end] - prefix[:end])
        ties = np.flatnonzero(times == times.min())
        start = int(ties[np.argmin(segments[ties])])
        best_us[end], segments[end], origin[end] = times[start], segments[start] + 1, start
    ends = [count]
    while origin[ends[-1]]:
        ends.append(int(origin[ends[-1]]))
    return Segmentation(ends=tuple(reversed(ends)))


def _limited(
    ready: NDArray[np.float64], prefix: NDArray[np.float64], cost: CostModel, limit: int
) -> Segmentation:
    """Return the best of at most `limit` segments; best_us[k, j] has exactly k of them."""
    count = len(ready)
    best_us = np.full((limit + 1, count + 1), np.inf)
    best_us[0, 0] = 0.0
    origin = np.zeros((limit + 1, count + 1), dtype=np.int64)
    for end in range(1, count + 1):
        times = np.maximum(best_us[:-1, :end], ready[end - 1])
        times += cost.costs_us(prefix[end] - prefix[:end])
        starts = times.argmin(axis=1)
        origin[1:, end] = starts
        best_us[1:, end] = np.take_along_axis(times, starts[:, None], axis=1)[:, 0]
    segments = int(best_us[:, count].argmin())
    ends = [count]
    for left in range(segments, 1, -1):
        ends.append(int(origin[left, ends[-1]]))
    return Segmentation(ends=tuple(reversed(ends)))
