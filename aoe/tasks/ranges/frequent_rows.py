"""Static kernels of frequent shapes: blocks of exactly the rows that a point of the range has.

Rows that are no sum of few blocks take the time of several calls, or compute some rows twice. Where
a point of the range has such a number of rows, a block of just these may pay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from aoe.bank.operators import key_of
from aoe.device.compiler import MOST_BLOCKS, RowBlock
from aoe.entry.shape_range import ShapePoint
from aoe.graph.open_rows import OpenRows
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tasks.ranges.open_operators import RowOperator, expected_us
from aoe.workload import Workload

_MOST = 16
"""Blocks that are searched for frequent shapes, all operators together: each takes its trials, and
keeps weights of its own."""
_LEAST_HOPE = 0.05
"""Share of the time in blocks that one call for all rows has to promise to save."""
_LEAST_GAIN = 0.02
"""Share that it has to save when it was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hope:
    """Time a block of so many rows of an operator may save in all calls, microseconds."""

    saved_us: float
    operator: int
    rows: int
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Time:
    """The time of a block, microseconds."""

    rows: int
    us: float


def frequent_rows(
    operators: Sequence[RowOperator],
    tuned: TunedOperators,
    points: Sequence[ShapePoint],
    is_known: Callable[[Workload], bool],
    noted_rows: Callable[[RowOperator], Mapping[int, bool]],
    *,
    searches: bool,
) -> list[RowOperator]:
    """Return operators with blocks for the rows of the points alone, where these may pay.

    What the bank knows comes first, and what an earlier run has settled stays, so that a second run
    searches nothing: its times are others, and may promise what those of the first did not.

    Args:
        operators: With the blocks they have at any rate.
        tuned: What became of those.
        points: With their counts.
        is_known: Says whether the bank answers for a workload.
        noted_rows: Rows of an operator an earlier run has noted, True for those it gave a block.
        searches: False to take nothing but what the bank knows.
    """
    chosen: dict[int, dict[int, Workload]] = {}
    hopes: list[_Hope] = []
    for at, one in enumerate(operators):
        own = chosen.setdefault(at, {})
        noted = noted_rows(one)
        for rows, calls in uncovered_rows(one, points).most_common():
            workload = one.rows.of(rows)
            if workload is None:
                continue
            if is_known(workload) or (searches and noted.get(rows)):
                own[rows] = workload
            elif searches and rows not in noted:
                saved_us = _hoped_us(_times(one, tuned), rows) * calls * len(one.regions)
                hopes.append(_Hope(saved_us=saved_us, operator=at, rows=rows, workload=workload))
    hopes.sort(key=lambda hope: -hope.saved_us)
    for hope in (one for one in hopes if one.saved_us > 0):
        if sum(map(len, chosen.values())) < _MOST:
            chosen[hope.operator][hope.rows] = hope.workload
    return [replace(operators[at], blocks=blocks) for at, blocks in chosen.items() if blocks]


def uncovered_rows(operator: RowOperator, points: Sequence[ShapePoint]) -> Counter[int]:
    """Return the numbers of rows at the points that have no block, with their calls.

    A product takes its rows from each call: nothing is cut there.
    """
    found: Counter[int] = Counter()
    if isinstance(operator.rows, OpenRows) and operator.rows.opened is None:
        for point in points:
            rows = operator.rows.rows(point.extents)
            if rows and rows not in operator.blocks:
                found[rows] += point.count
    return found


def with_blocks(operators: Sequence[RowOperator], more: Iterable[RowOperator]) -> list[RowOperator]:
    """Return operators with further blocks among their own, the largest first."""
    added = {one.regions[0].nodes: one.blocks for one in more}
    found = []
    for one in operators:
        own = added.get(one.regions[0].nodes, {})
        blocks = dict(sorted({**one.blocks, **own}.items(), reverse=True))
        found.append(replace(one, blocks=blocks, frequent=frozenset(own)))
    return found


def paying(blocks: Sequence[RowBlock], frequent: Collection[int]) -> list[RowBlock]:
    """Return the blocks without those of frequent shapes that save nothing over the others.

    Where these are more than a kernel may have, others go whose neighbours are closest: between
    them, rows are still cut into few blocks.

    Args:
        blocks: The largest first.
        frequent: Rows of those of frequent shapes.
    """
    kept = [one for one in blocks if one.rows not in frequent]
    for one in (one for one in blocks if one.rows in frequent):
        if kept and one.us <= (1 - _LEAST_GAIN) * expected_us(kept, one.rows):
            kept = sorted([*kept, one], key=lambda block: -block.rows)
    while len(kept) > MOST_BLOCKS:
        ratios = {
            at: kept[at - 1].rows / kept[at + 1].rows
            for at in range(1, len(kept) - 1)
            if kept[at].rows not in frequent
        }
        del kept[min(ratios, key=ratios.__getitem__)]
    return kept


def _times(operator: RowOperator, tuned: TunedOperators) -> list[_Time]:
    """Return the blocks whose time is known, the largest first."""
    known = {one.operator.key: one for one in tuned.operators}
    answers = ((rows, known.get(key_of(workload))) for rows, workload in operator.blocks.items())
    times = ((rows, one.after_us or one.before_us) for rows, one in answers if one is not None)
    return [_Time(rows=rows, us=us) for rows, us in times if us]


def _hoped_us(times: Sequence[_Time], rows: int) -> float:
    """Return the microseconds one call for all rows may save over blocks, 0 for too little.

    It takes no less than any smaller block, and no less for a row than the best block.
    """
    if not times or times[-1].rows > 1:
        return 0.0
    cut_us = expected_us(times, rows)
    floor_us = max(
        rows * min(one.us / one.rows for one in times),
        max(one.us for one in times if one.rows <= rows),
    )
    saved_us = cut_us - floor_us
    return saved_us if saved_us >= _LEAST_HOPE * cut_us else 0.0
