"""Choice of the segmentations that are measured, and their order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from aoe.gradients.cost import CostModel, InflatedCost
from aoe.gradients.segmentation import Segmentation, finish_us, neighbours, optimal
from aoe.gradients.trace import GradientTrace

INFLATIONS = (1.0, 1.25, 1.5, 2.0)
"""Real steps have jitter and contention the fit did not see."""
LATENCY_INFLATIONS = (2.0, 4.0)
"""Each all-reduce also costs the computation something that a fit on an idle machine misses."""
DEFAULT_LIMIT = 8


class Origin(StrEnum):
    """Origin of a candidate segmentation."""

    OPTIMUM = "optimum"
    INFLATED = "inflated"
    LATENCY = "latency"
    NEIGHBOUR = "neighbour"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentationCandidate:
    """A segmentation to be measured."""

    segmentation: Segmentation  # The grouping
    origin: Origin  # Where it comes from
    inflation: float  # Factor on the cost (or on its latency) it is optimal for
    predicted_us: float  # End of its last all-reduce by the cost as measured


def cost_behind(cost: CostModel, origin: Origin, inflation: float) -> CostModel:
    """Return the cost that candidates of this origin and inflation are optimal for."""
    if origin is Origin.LATENCY:
        return InflatedCost(base=cost, extra_us=(inflation - 1) * cost.cost_us(0))
    return InflatedCost(base=cost, factor=inflation)


def choose_candidates(
    trace: GradientTrace,
    cost: CostModel,
    *,
    limit: int = DEFAULT_LIMIT,
    max_segments: int | None = None,
    exclude: Collection[Segmentation] = (),
) -> tuple[SegmentationCandidate, ...]:
    """Return the segmentations to measure, most promising first, each once.

    First the optimum, then the optima of inflated costs, then the best neighbours of the
    optimum by prediction, of each kind in turn: joined, split, moved.

    Args:
        trace: The gradients.
        cost: As measured.
        limit: Most candidates.
        max_segments: Most segments of each, None for no limit.
        exclude: Segmentations that are measured anyway, such as the default.
    """
    found: dict[Segmentation, SegmentationCandidate] = {}
    seen = set(exclude)
    best = optimal(trace, cost, max_segments=max_segments)
    proposals = (
        *_inflated(trace, cost, max_segments),
        *((near, Origin.NEIGHBOUR, 1.0) for near in _near(trace, cost, best, max_segments)),
    )
    for segmentation, origin, inflation in proposals:
        if segmentation in seen or len(found) >= limit:
            continue
        seen.add(segmentation)
        found[segmentation] = SegmentationCandidate(
            segmentation=segmentation,
            origin=origin,
            inflation=inflation,
            predicted_us=finish_us(trace, segmentation, cost),
        )
    return tuple(found.values())


def _inflated(
    trace: GradientTrace, cost: CostModel, max_segments: int | None
) -> Iterator[tuple[Segmentation, Origin, float]]:
    kinds = [
        (Origin.OPTIMUM if inflation == 1 else Origin.INFLATED, inflation)
        for inflation in INFLATIONS
    ]
    for origin, factor in (
        *kinds,
        *((Origin.LATENCY, inflation) for inflation in LATENCY_INFLATIONS),
    ):
        behind = cost_behind(cost, origin, factor)
        yield optimal(trace, behind, max_segments=max_segments), origin, factor


def _near(
    trace: GradientTrace, cost: CostModel, best: Segmentation, max_segments: int | None
) -> Iterator[Segmentation]:
    """Yield neighbours, best prediction first, one of each kind in turn."""
    kinds: dict[int, list[tuple[float, tuple[int, ...]]]] = {-1: [], 1: [], 0: []}
    for neighbour in neighbours(best, len(trace)):
        if max_segments is None or len(neighbour) <= max_segments:
            predicted_us = finish_us(trace, neighbour, cost)
            kinds[len(neighbour) - len(best)].append((predicted_us, neighbour.ends))
    ranked = (sorted(kind) for kind in kinds.values())
    for turn in zip_longest(*ranked):
        yield from (Segmentation(ends=found[1]) for found in turn if found is not None)
