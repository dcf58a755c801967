"""The schedules of a kernel for images of any size, by their speed at the points of a range.

A pure function of a table: schedules by points, each the speed-up over ONNX Runtime's default.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, groupby
from math import isqrt, log
from typing import TypeVar

from aoe.measurement import SpeedupEstimate, mean_estimate

S = TypeVar("S", bound=Hashable)
_MOST_VARIANTS = 3
"""Schedules of one kernel: each is compiled with its own copies for smaller results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointWeight:
    """A point as far as the choice is concerned."""

    elements: int  # Of the result there: the work
    count: float  # Calls


def choose_schedules(
    table: Mapping[S, Sequence[SpeedupEstimate]], points: Sequence[PointWeight]
) -> tuple[S, ...] | None:
    """Return the schedule of each point, None where no choice is without a sure loss.

    One schedule with the best mean for all points, unless two or three for smaller and larger
    results are surely better at every point where they differ from it.

    Args:
        table: Speed-ups at each point, of each schedule.
        points: By rising elements.
    """
    chosen: tuple[S, ...] | None = None
    for runs in range(1, min(_MOST_VARIANTS, len(points)) + 1):
        found = max(
            (one for one in _choices(table, points, runs) if one is not None),
            key=lambda one: _score(table, points, one),
            default=None,
        )
        if chosen is None or (
            found is not None and _is_surely_better(table, points, found, chosen)
        ):
            chosen = found
    return chosen


def loses_at(estimate: SpeedupEstimate) -> bool:
    """True for a schedule that is surely slower than the default."""
    return estimate.high < 1


def switches(schedules: Sequence[S], points: Sequence[PointWeight]) -> dict[int, S]:
    """Return schedules by the elements from which on each computes; the least is 0.

    Between two points that is their geometric middle. Points of as many elements have one schedule,
    the first one's. Where there are too many changes, nothing is returned.

    >>> sizes = [PointWeight(elements=one, count=1) for one in (100, 400, 900)]
    >>> switches("abb", sizes), switches("aaa", sizes)
    ({0: 'a', 200: 'b'}, {0: 'a'})
    """
    found: dict[int, S] = {}
    last = None
    for schedule, point in zip(schedules, points, strict=True):
        if last is None:
            found[0] = schedule
        elif schedule != next(reversed(found.values())) and point.elements > last:
            found[max(last + 1, isqrt(last * point.elements))] = schedule
        last = point.elements
    return found if len(found) <= _MOST_VARIANTS else {}


def _choices(
    table: Mapping[S, Sequence[SpeedupEstimate]], points: Sequence[PointWeight], runs: int
) -> Iterator[tuple[S, ...] | None]:
    """Yield the best schedules for each way to cut the points into so many runs."""
    places = [at for at in range(1, len(points)) if points[at - 1].elements < points[at].elements]
    for cuts in combinations(places, runs - 1):
        found: list[S] = []
        for start, end in zip((0, *cuts), (*cuts, len(points)), strict=True):
            part = range(start, end)
            good = [one for one in table if not any(loses_at(table[one][at]) for at in part)]
            if good:
                best = max(good, key=lambda one: _sum_of_logs(table, points, one, part))
                found += [best] * len(part)
        yield tuple(found) if len(found) == len(points) else None


def _sum_of_logs(
    table: Mapping[S, Sequence[SpeedupEstimate]],
    points: Sequence[PointWeight],
    schedule: S,
    part: range,
) -> float:
    return sum(points[at].count * log(table[schedule][at].median) for at in part)


def _score(
    table: Mapping[S, Sequence[SpeedupEstimate]],
    points: Sequence[PointWeight],
    schedules: Sequence[S],
) -> float:
    """Return the logarithm of the weighted geometric mean, times the sum of weights."""
    return sum(
        _sum_of_logs(table, points, schedule, range(at, at + 1))
        for at, schedule in enumerate(schedules)
    )


def _is_surely_better(
    table: Mapping[S, Sequence[SpeedupEstimate]],
    points: Sequence[PointWeight],
    found: Sequence[S],
    before: Sequence[S],
) -> bool:
    """True if each run of points whose schedule is another one gains more than noise."""
    pairs = [*zip(found, before, strict=True)]
    runs = [(pair, [*run]) for pair, run in groupby(range(len(pairs)), key=pairs.__getitem__)]
    changed = [(new, old, run) for (new, old), run in runs if new != old]
    return bool(changed) and all(
        _mean(table, points, new, run).low > _mean(table, points, old, run).high
        for new, old, run in changed
    )


def _mean(
    table: Mapping[S, Sequence[SpeedupEstimate]],
    points: Sequence[PointWeight],
    schedule: S,
    run: Sequence[int],
) -> SpeedupEstimate:
    return mean_estimate([table[schedule][at] for at in run], [points[at].count for at in run])
