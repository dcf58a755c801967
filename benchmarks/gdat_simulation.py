"""Simulate gradient groupings on clusters of 8 to 1024 workers. Nothing here is measured.

    python benchmarks/gdat_simulation.py [--networks resnet50 ...] [--workers 8 ...]
                                         [--tflops 30] [--batch 32] [--json]

Ring all-reduce on one serial channel, ready times from the work of each layer, no jitter, no
contention. A step is forward (half of backward), backward and the tail; figures are how much
longer it is than with the optimum.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gradient_lists import NETWORKS, gradient_trace
from gradient_scaling import LABEL, ge_greedy, hccl_default, ring_cost

from aoe.gradients.cost import AllReduceCost
from aoe.gradients.segmentation import (
    Segmentation,
    from_bucket_caps,
    optimal,
)
from aoe.gradients.timeline import Timeline, simulate
from aoe.gradients.trace import GradientTrace

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


def _document(found: Sequence[Case]) -> dict[str, Any]:
    return {
        "schema": "aoe.gdat_simulation/1",
        "label": LABEL,
        "summary": summary(found),
        "cases": [
            {
                "network": case.network,
                "link": case.link,
                "workers": case.workers,
                "rules": {
                    rule: {
                        "all_reduces": len(timeline.segments),
                        "tail_ms": round(timeline.tail_us / 1e3, 3),
                        "overlap_ratio": round(timeline.overlap_ratio, 4),
                        "step_ms": round(step_us(timeline) / 1e3, 3),
                        "excess_percent": round(case.excess_percent(rule), 3),
                    }
                    for rule, timeline in case.timelines.items()
                },
            }
            for case in found
        ],
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
    """Print the tables, or one JSON document."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS))
    parser.add_argument("--tflops", type=float, default=30.0, help="sustained, of one worker")
    parser.add_argument("--batch", type=int, default=32, help="images or sequences of a worker")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    found = list(
        cases(options.networks, options.workers, batch=options.batch, tflops=options.tflops)
    )
    if options.json:
        json.dump(_document(found), sys.stdout, indent=1)
        print()
    else:
        print("\n".join(_tables(found)))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
