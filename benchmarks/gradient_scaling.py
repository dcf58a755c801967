"""What a segmentation would do on more workers: a simulation, never a measurement.

And the greedy rule of open CANN, with which the optimum is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from aoe.gradients.cost import AllReduceCost, CostModel
from aoe.gradients.segmentation import Segmentation, finish_us
from aoe.gradients.timeline import Timeline, simulate
from aoe.gradients.trace import GradientTrace

GE_MOST_SEGMENTS = 8
HCCL_PERCENT = (96.54, 3.46)
"""Share of the bytes in each segment. Source: HCCL documentation, set_split_strategy_by_size."""
LABEL = "simulation"
"""Goes with every figure made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """One simulated cluster.

    Attributes:
        workers: Number of processes.
        cost: All-reduce among them.
        segmentation: Chosen for that cost.
        timeline: What it leads to.
        label: Says that this is a simulation.
    """

    workers: int
    cost: AllReduceCost
    segmentation: Segmentation
    timeline: Timeline
    label: str = LABEL


def ring_cost(*, step_us: float, bytes_per_us: float, workers: int) -> AllReduceCost:
    """Return the cost of a ring all-reduce: 2(n-1) steps, 2(n-1)/n of the volume.

    Args:
        step_us: Latency of one message between neighbours.
        bytes_per_us: Bandwidth of a link; 1 GB/s is 1000.
        workers: Number of processes, n; one needs no communication.

    Source: P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
        workstations, J. Parallel Distrib. Comput. 69 (2009).
    """
    _check_workers(workers)
    if bytes_per_us <= 0:
        raise ValueError(f"bytes_per_us must be positive (got {bytes_per_us})")
    steps = 2 * (workers - 1)
    return AllReduceCost(latency_us=steps * step_us, us_per_byte=steps / (workers * bytes_per_us))


def scale_cost(cost: AllReduceCost, *, measured_workers: int, workers: int) -> AllReduceCost:
    """Return what a cost measured among a few workers would be among others, as a ring.

    Latency grows with the 2(n-1) steps, time per byte with 2(n-1)/n. A part of the measured
    latency does not depend on n in truth, so latencies of large clusters come out high.

    Source: as `ring_cost`.
    """
    if measured_workers < 2:
        raise ValueError(f"a cost is measured among 2 workers or more (got {measured_workers})")
    _check_workers(workers)
    steps = (workers - 1) / (measured_workers - 1)
    return AllReduceCost(
        latency_us=cost.latency_us * steps,
        us_per_byte=cost.us_per_byte * steps * measured_workers / workers,
    )


def simulate_scaling(
    trace: GradientTrace,
    cost: AllReduceCost,
    *,
    measured_workers: int,
    workers: Sequence[int],
    segment: Callable[[GradientTrace, AllReduceCost], Segmentation],
) -> tuple[ScalingPoint, ...]:
    """Return a simulation for each number of workers, the segmentation chosen anew for each.

    Args:
        trace: Backward of one worker; it is taken to stay the same.
        cost: Fitted among `measured_workers`.
        measured_workers: World size of the fit.
        workers: World sizes to simulate.
        segment: Rule under test, such as `optimal`.
    """
    points = []
    for count in workers:
        scaled = scale_cost(cost, measured_workers=measured_workers, workers=count)
        segmentation = segment(trace, scaled)
        points.append(
            ScalingPoint(
                workers=count,
                cost=scaled,
                segmentation=segmentation,
                timeline=simulate(trace, segmentation, scaled),
            )
        )
    return tuple(points)


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise ValueError(f"workers must be 1 or more (got {workers})")


def ge_greedy(
    trace: GradientTrace,
    cost: CostModel,
    *,
    max_segments: int = GE_MOST_SEGMENTS,
    most_bytes: float = float("inf"),
) -> Segmentation:
    """Return what the greedy rule of open CANN makes of a trace, as a yardstick.

    For every possible first segment, each later one closes as soon as it computed for longer
    than the all-reduce before it takes, start-up included, or got too large. The one that ends
    first is taken (here by exact simulation, which only helps the rule), HCCL's default where
    nothing but a single segment is left.

    Args:
        trace: The gradients.
        cost: Of one all-reduce; of nothing, it is the start-up time.
        max_segments: Segmentations with more are not considered.
        most_bytes: Size at which a segment closes in any case.

    Source: rule as published in hicann/ge, calculation_tool; own implementation.
    """
    prefix = (0, *accumulate(trace.sizes_bytes))
    best, best_us = None, finish_us(trace, Segmentation(ends=(len(trace),)), cost)
    for first in range(1, len(trace)):
        if prefix[first] > most_bytes:
            break
        ends = [first]
        while ends[-1] < len(trace) and len(ends) <= max_segments:
            start = ends[-2] if len(ends) > 1 else 0
            budget = cost.cost_us(prefix[ends[-1]] - prefix[start]) + cost.cost_us(0)
            ends.append(_greedy_end(trace, prefix, ends[-1], budget, most_bytes))
        if len(ends) > max_segments:
            continue
        found = Segmentation(ends=tuple(ends))
        found_us = finish_us(trace, found, cost)
        if found_us < best_us:
            best, best_us = found, found_us
    return best or hccl_default(trace.sizes_bytes)


def _greedy_end(
    trace: GradientTrace, prefix: Sequence[int], start: int, budget_us: float, most_bytes: float
) -> int:
    """Return one past the last gradient of a segment; a gradient over the limit stands alone."""
    for place in range(start, len(trace)):
        computed_us = trace.ready_us[place] - trace.ready_us[start - 1]
        if computed_us > budget_us or prefix[place + 1] - prefix[start] > most_bytes:
            return max(place, start + 1)
    return len(trace)


def by_percent(sizes_bytes: Sequence[int], percents: Sequence[float]) -> Segmentation:
    """Return the segments that hold these shares of the bytes, each cut at the nearest gradient.

    Args:
        sizes_bytes: Sizes in the order of readiness.
        percents: Shares; cuts at the same gradient count once, and none comes after the last.
    """
    prefix = np.cumsum(np.asarray(sizes_bytes, dtype=np.float64))
    marks = np.cumsum(np.asarray(percents, dtype=np.float64))[:-1] / 100 * prefix[-1]
    inner = prefix[:-1]
    cuts = {int(np.argmin(np.abs(inner - mark))) + 1 for mark in marks} if len(inner) else set()
    return Segmentation(ends=(*sorted(cuts), len(sizes_bytes)))


def hccl_default(sizes_bytes: Sequence[int]) -> Segmentation:
    """Return HCCL's split when nothing is tuned: 96.54 % of the bytes, then the rest."""
    return by_percent(sizes_bytes, HCCL_PERCENT)
