"""What an all-reduce costs on the real process group, from small to everything at once."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from aoe.gradients.cost import CostSample
from aoe.torch.ddp.ranks import Ranks

SMALLEST_BYTES = 4 << 10
LARGEST_BYTES = 256 << 20
_SIZES = 9
_WARMUP = 2
_REPEATS = 7
_BUDGET_S = 6.0
"""All repeats together; a slow link says enough in three of them."""
_FEWEST = 3


def measure_all_reduce(
    ranks: Ranks, total_bytes: int, *, repeats: int = _REPEATS, sent_as: Any = None
) -> tuple[CostSample, ...]:
    """Measure all-reduces of several sizes; every process calls this, all get the same.

    A time is the median of the repeats, each the time of the slowest process, after a barrier,
    with nothing else going on and the buffer already used.

    Args:
        ranks: The processes; float32 on the device of the group.
        total_bytes: Size of all gradients, the largest one measured (up to 256 MiB).
        repeats: Measured all-reduces per size; fewer, but three, where they take long.
        sent_as: Type of torch numbers are rounded to before, and widened from after it, both in
            the time; None sends them as they are.
    """
    sizes = sweep_sizes(total_bytes)
    buffers = [torch.zeros(size // 4, dtype=torch.float32, device=ranks.device) for size in sizes]
    times_us: list[tuple[float, ...]] = []
    spent_us = 0.0
    for number in range(_WARMUP + repeats):
        # all sizes in turn: what disturbs the machine for a while disturbs them alike
        slowest_us = tuple(_slowest_us(ranks, buffer, sent_as) for buffer in buffers)
        spent_us += sum(slowest_us)
        if number >= _WARMUP:
            times_us.append(slowest_us)
        if len(times_us) >= _FEWEST and spent_us > _BUDGET_S * 1e6:
            break
    medians = [median(repeats_us) for repeats_us in zip(*times_us, strict=True)]
    return tuple(
        CostSample(size, max(time_us, 0.001)) for size, time_us in zip(sizes, medians, strict=True)
    )


def sweep_sizes(total_bytes: int) -> tuple[int, ...]:
    """Return the sizes to measure, spaced evenly on a logarithmic scale, whole float32 numbers."""
    largest = min(max(total_bytes, 4 * SMALLEST_BYTES), LARGEST_BYTES)
    ratio = (largest / SMALLEST_BYTES) ** (1 / (_SIZES - 1))
    sizes = {int(SMALLEST_BYTES * ratio**step) // 4 * 4 for step in range(_SIZES - 1)}
    return tuple(sorted(sizes | {largest // 4 * 4}))


def _slowest_us(ranks: Ranks, buffer: Any, sent_as: Any) -> float:
    """Return the time of one all-reduce, that of the slowest process."""
    ranks.barrier()
    start = time.perf_counter_ns()
    if sent_as is None:
        dist.all_reduce(buffer, group=ranks.group)
    else:
        rounded = buffer.to(sent_as)
        dist.all_reduce(rounded, group=ranks.group)
        buffer.copy_(rounded)
    if buffer.device.type != "cpu":
        getattr(torch, buffer.device.type).synchronize(buffer.device)
    (slowest_us,) = ranks.max([(time.perf_counter_ns() - start) / 1e3])
    return slowest_us
