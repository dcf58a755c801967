"""Simulate gradient groupings on clusters of 8 to 1024 workers. Nothing here is measured.

    python benchmarks/gdat_simulation.py [--networks resnet50 ...] [--workers 8 ...]
                                         [--tflops 30] [--batch 32]

Ring all-reduce on one serial channel, ready times from the work of each layer, no jitter, no
contention. A step is forward (half of backward), backward and the tail; figures are how much
longer it is than with the optimum.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from gradient_lists import NETWORKS, gradient_trace

from aoe.gradients.cost import AllReduceCost, CostModel
from aoe.gradients.segmentation import Segmentation, finish_us, from_bucket_caps, optimal
from aoe.gradients.timeline import Timeline, simulate
from aoe.gradients.trace import GradientTrace

GE_MOST_SEGMENTS = 8
HCCL_PERCENT = (96.54, 3.46)
"""Share of the bytes in each segment. Source: HCCL documentation, set_split_strategy_by_size."""
LABEL = "simulation"
"""Goes with every figure made here."""
WORKERS = (8, 16, 32, 64, 128, 256, 512, 1024)
GRID_MIB = (1, 2, 5, 10, 15, 25, 50, 75, 100, 200, 400)
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A network: bandwidth of a link and latency of a message."""

    name: str
    bytes_per_us: float
    step_us: float


LINKS = (
    Link(name="10 Gb/s, 30 us", bytes_per_us=1250, step_us=30),
    Link(name="25 Gb/s, 10 us", bytes_per_us=3125, step_us=10),
    Link(name="100 Gb/s, 5 us", bytes_per_us=12500, step_us=5),
    Link(name="400 Gb/s, 2 us", bytes_per_us=50000, step_us=2),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cluster and network, with the timeline of every rule."""

    network: str
    link: str
    workers: int
    timelines: dict[str, Timeline]

    def excess_percent(self, rule: str) -> float:
        """Return by how much a step is longer than with the optimum."""
        return (step_us(self.timelines[rule]) / step_us(self.timelines["optimum"]) - 1) * 100


def ring_cost(*, step_us: float, bytes_per_us: float, workers: int) -> AllReduceCost:
    """Return the cost of a ring all-reduce: 2(n-1) steps, 2(n-1)/n of the volume.

    Args:
        step_us: Latency of one message between neighbours.
        bytes_per_us: Bandwidth of a link; 1 GB/s is 1000.
        workers: Number of processes, n; one needs no communication.

    Source: P. Patarasuk, X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of
        workstations, J. Parallel Distrib. Comput. 69 (2009).
    """
    if workers < 1:
        raise ValueError(f"workers must be 1 or more (got {workers})")
    if bytes_per_us <= 0:
        raise ValueError(f"bytes_per_us must be positive (got {bytes_per_us})")
    steps = 2 * (workers - 1)
    return AllReduceCost(latency_us=steps * step_us, us_per_byte=steps / (workers * bytes_per_us))


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


Rule = Callable[[GradientTrace, AllReduceCost], Segmentation]


def best_of_grid(trace: GradientTrace, cost: AllReduceCost) -> Segmentation:
    """Return the best single `bucket_cap_mb` of a grid, the first bucket as DDP has it."""
    grid = [from_bucket_caps(trace.sizes_bytes, cap_bytes=cap_mib * MIB) for cap_mib in GRID_MIB]
    return min(grid, key=lambda segmentation: simulate(trace, segmentation, cost).end_us)


RULES: dict[str, Rule] = {
    "optimum": optimal,
    "DDP default": lambda trace, cost: from_bucket_caps(trace.sizes_bytes),
    "best bucket_cap_mb": best_of_grid,
    "GE greedy": ge_greedy,
    "HCCL default": lambda trace, cost: hccl_default(trace.sizes_bytes),
    "one all-reduce": lambda trace, cost: Segmentation(ends=(len(trace),)),
    "one per gradient": lambda trace, cost: Segmentation(ends=tuple(range(1, len(trace) + 1))),
}


def step_us(timeline: Timeline) -> float:
    """Return the time of a step: forward takes half of backward."""
    return timeline.backward_end_us * 1.5 + timeline.tail_us


def cases(
    networks: Sequence[str], workers: Sequence[int], *, batch: int, tflops: float
) -> Iterator[Case]:
    """Yield every combination."""
    for network in networks:
        trace = gradient_trace(network, batch=batch, tflops=tflops)
        for link in LINKS:
            for count in workers:
                cost = ring_cost(
                    step_us=link.step_us, bytes_per_us=link.bytes_per_us, workers=count
                )
                timelines = {
                    name: simulate(trace, rule(trace, cost), cost) for name, rule in RULES.items()
                }
                yield Case(network=network, link=link.name, workers=count, timelines=timelines)


def summary(found: Sequence[Case]) -> dict[str, dict[str, float]]:
    """Return mean and largest excess of each rule, in percent of a step."""
    return {
        rule: {
            "mean_percent": round(statistics.fmean(case.excess_percent(rule) for case in found), 2),
            "max_percent": round(max(case.excess_percent(rule) for case in found), 2),
        }
        for rule in RULES
        if rule != "optimum"
    }


def _tables(found: Sequence[Case]) -> Iterator[str]:
    rules = [rule for rule in RULES if rule != "optimum"]
    yield f"{LABEL}: {len(found)} clusters; step longer than with the optimum, mean / largest"
    yield ""
    yield "| network | " + " | ".join(rules) + " |"
    yield "|---|" + "---:|" * len(rules)
    groups = [(name, [case for case in found if case.network == name]) for name in NETWORKS]
    for name, part in (*groups, ("all", list(found))):
        if part:
            scores = summary(part)
            cells = (f"{s['mean_percent']:.1f} / {s['max_percent']:.1f} %" for s in scores.values())
            yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""
    yield "| network | link | workers | all-reduces | tail ms | DDP's | best cap's | greedy's |"
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    for case in found:
        if case.workers in (8, 64, 1024):
            tails = (
                f"{case.timelines[rule].tail_us / 1e3:.2f}"
                for rule in ("optimum", "DDP default", "best bucket_cap_mb", "GE greedy")
            )
            count = len(case.timelines["optimum"].segments)
            yield f"| {case.network} | {case.link} | {case.workers} | {count} | " + (
                " | ".join(tails) + " |"
            )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS))
    parser.add_argument("--tflops", type=float, default=30.0, help="sustained, of one worker")
    parser.add_argument("--batch", type=int, default=32, help="images or sequences of a worker")
    options = parser.parse_args(arguments)
    found = list(
        cases(options.networks, options.workers, batch=options.batch, tflops=options.tflops)
    )
    print("\n".join(_tables(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
