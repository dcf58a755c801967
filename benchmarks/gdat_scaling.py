"""Carry a tuned model on paper from the processes it was measured with to 8 to 1,024 workers.

    python benchmarks/gdat_scaling.py BANK_FILE [BANK_FILE ...] [--workers 8 ...]

BANK_FILE is a `<soc_version>_gradient_fusion.json` that gradient tuning wrote; its times and, from
the side-car, the fitted cost of all-reduce are what is carried over. A ring is assumed: latency
grows with its 2(n-1) steps, time per byte with 2(n-1)/n. Everything printed is a simulation; the
figures are backward and tail together, in ms.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gdat_simulation import GRID_MIB, MIB, WORKERS
from gradient_scaling import LABEL, simulate_scaling

from aoe.bank.gradients import GradientBank
from aoe.bank.journal import BankJournal
from aoe.bank.records.gradient import StoredGradients
from aoe.gradients.cost import AllReduceCost, CostModel, CostSample, TableCost, fit_cost
from aoe.gradients.segmentation import Segmentation, from_bucket_caps, optimal
from aoe.gradients.timeline import simulate
from aoe.gradients.trace import GradientTrace

Rule = Callable[[GradientTrace, AllReduceCost], Segmentation]
_SUFFIX = "_gradient_fusion.json"


def main() -> int:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("banks", nargs="+", type=Path)
    parser.add_argument("--workers", nargs="+", type=int, default=list(WORKERS))
    arguments = parser.parse_args()
    for path in arguments.banks:
        for stored in _records(path):
            print("\n".join(_table(path.parent.name, stored, arguments.workers)), end="\n\n")
    return 0


def _records(path: Path) -> Iterator[StoredGradients]:
    soc_version = path.name.removesuffix(_SUFFIX)
    journal = BankJournal(path.parent, soc_version, fingerprint={}, model={}, engine_version="0")
    bank = GradientBank(journal)
    for record in json.loads(path.read_text()):
        stored = bank.find(int(record["modelhash"]))
        if stored is None or stored.cost is None or not stored.world_size:
            sys.exit(f"{path}: {record['modelhash']} has no measured all-reduce in its side-car")
        yield stored


def _line(cost: CostModel) -> AllReduceCost:
    """Return the line of a cost; one through its points where a table was measured."""
    if isinstance(cost, TableCost):
        points = zip(cost.sizes_bytes, cost.times_us, strict=True)
        return fit_cost([CostSample(int(size), us) for size, us in points])
    assert isinstance(cost, AllReduceCost)
    return cost


def _table(name: str, stored: StoredGradients, workers: Sequence[int]) -> Iterator[str]:
    trace, world = stored.trace, stored.world_size
    assert stored.cost is not None
    assert world is not None
    cost = _line(stored.cost)
    yield (
        f"{LABEL}: {name}, {len(trace)} gradients, {trace.total_bytes / 1e6:.0f} MB, from {world} "
        f"processes with {cost.latency_us:.0f} us and {cost.us_per_byte * MIB:.0f} us for a MiB"
    )
    yield "\n| workers | DDP default | best bucket_cap_mb | optimum | segments | default/optimum |"
    yield "|---|---|---|---|---|---|"
    rules: tuple[Rule, ...] = (
        lambda trace, _: from_bucket_caps(trace.sizes_bytes),
        _best_of_grid,
        optimal,
    )
    points = [
        simulate_scaling(trace, cost, measured_workers=world, workers=workers, segment=rule)
        for rule in rules
    ]
    for default, grid, best in zip(*points, strict=True):
        ends = [
            point.timeline.backward_end_us + point.timeline.tail_us
            for point in (default, grid, best)
        ]
        times = " | ".join(f"{end / 1e3:.1f}" for end in ends)
        segments = len(best.segmentation)
        yield f"| {best.workers} | {times} | {segments} | {ends[0] / ends[2]:.3f}x |"


def _best_of_grid(trace: GradientTrace, cost: AllReduceCost) -> Segmentation:
    grid = [from_bucket_caps(trace.sizes_bytes, cap * MIB, cap * MIB) for cap in GRID_MIB]
    return min(grid, key=lambda segmentation: simulate(trace, segmentation, cost).tail_us)


if __name__ == "__main__":
    sys.exit(main())
