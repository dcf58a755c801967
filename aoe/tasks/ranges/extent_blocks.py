"""The blocks of a kernel for open extents, and the numbers of rows each of them serves.

A block is searched at its own number of rows. The kernel calls one block for all rows of a call, so
what counts is how fast each is at the rows and keys that come. Blocks are measured at the points of
a range and at numbers of rows between them, each against ONNX Runtime's default there. From that
table follows from how many rows on each serves. The side-car of the blocks' records has that, so
later runs make the same kernel without measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, isqrt, log

from aoe.bank.operators import OperatorBank, key_of
from aoe.entry.shape_range import ShapePoint
from aoe.errors import TurnTimeoutError
from aoe.graph.open_extents import OpenRegion
from aoe.measurement import Measurement, SpeedupEstimate, estimate_speedup, mean_estimate
from aoe.tasks.ranges.block_notes import find_noted
from aoe.tasks.ranges.image_choice import loses_at
from aoe.workload import Workload

SAMPLE_S = 0.25
"""To measure a block at some extents."""
LEAST_GAIN = 1.02
"""Expected of a kernel, over the points of the range, to be looked at in the whole model."""
_APART = 2
"""Ratio of neighbouring numbers of rows from which on one between them is measured, too."""
_FARTHEST = 4
"""Times its own number of rows up to which a block is measured; the largest one at all beyond."""
_NO_GAIN = SpeedupEstimate(median=1.0, low=1.0, high=1.0, pairs=0, coverage=1.0)
_METHOD, _SERVES, _POINTS_US = "points", "serves_from", "points_us"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentSample:
    """Extents at which the blocks of an operator are measured."""

    rows: int  # Their number
    extents: str  # Of the open dimensions of the model, in words
    workload: Workload  # The operator in these extents
    count: float  # Calls at a point of the range with these extents; 0 between points
    is_inside: bool  # True if the range has so many rows


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBlock:
    """A block that may serve."""

    own_rows: int  # It is searched for
    least_rows: int  # It computes
    # Returns its pairs at some extents, None where nothing can be measured.
    measure: Callable[[Workload], Measurement | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRows:
    """From how many rows on each block serves, and what that was measured to gain."""

    # Numbers of rows by those blocks are searched for; empty where the kernel gains nothing over
    # the points, or surely loses somewhere in the range.
    serves_from: Mapping[int, int]
    saved_us: float = 0.0  # At the largest point; 0 where nothing was measured


# ---- where blocks are measured ----


def sample_extents(
    region: OpenRegion, points: Sequence[ShapePoint], own_rows: Sequence[int]
) -> tuple[ExtentSample, ...]:
    """Return the extents blocks are measured at, by rising rows: points, own rows, between them.

    Between the points other extents are as far between those of the points as the rows are. The
    numbers between are odd ones: they leave a tail in every block but one of a single row.
    """
    ordered = sorted(points, key=lambda point: (region.rows(point.extents), str(point)))
    at_points = [(region.rows(one.extents), one.extents, float(one.count)) for one in ordered]
    wanted = [one for one in at_points if one[0] > 0]
    if not wanted:
        return ()
    least, most = wanted[0][0], wanted[-1][0]
    if region.are_open:
        numbers = {rows for rows, _, _ in wanted} | {rows for rows in own_rows if rows <= most}
        known = sorted(numbers)
        numbers |= {isqrt(a * b) | 1 for a, b in pairwise(known) if b > _APART * a}
        others = numbers - {rows for rows, _, _ in wanted}
        wanted += [(rows, _extents_at(region, ordered, rows), 0.0) for rows in others]
    else:
        pairs = pairwise(ordered)
        wanted += [(least, _mixed(a.extents, b.extents, 0.5), 0.0) for a, b in pairs]
    found: dict[str, ExtentSample] = {}
    for rows, extents, count in wanted:
        workload = region.at(rows, extents)
        if workload is not None:
            key = key_of(workload)
            before = found[key].count if key in found else 0.0
            found[key] = ExtentSample(
                rows=rows,
                extents=_text(region, rows, extents),
                workload=workload,
                count=count + before,
                is_inside=rows >= least,
            )
    return tuple(sorted(found.values(), key=lambda one: (one.rows, _elements(one.workload))))


def _elements(workload: Workload) -> int:
    return sum(spec.size for spec in workload.inputs)


def _text(region: OpenRegion, rows: int, extents: Mapping[str, int]) -> str:
    """Return extents in words: a number of rows need not be a product of the model's dimensions."""
    others = {name: extent for name, extent in extents.items() if name != region.rows_extent}
    return ", ".join(f"{name}={extent}" for name, extent in {"rows": rows, **others}.items())


def _extents_at(region: OpenRegion, points: Sequence[ShapePoint], rows: int) -> dict[str, int]:
    """Return extents between those of the points around a number of rows; points ascend by it."""
    below = [one for one in points if region.rows(one.extents) <= rows] or [points[0]]
    above = [one for one in points if region.rows(one.extents) >= rows] or [points[-1]]
    low, high = below[-1], above[0]
    first, last = region.rows(low.extents), region.rows(high.extents)
    part = log(rows / first) / log(last / first) if first < rows < last else 0.0
    return _mixed(low.extents, high.extents, part)


def _mixed(low: Mapping[str, int], high: Mapping[str, int], part: float) -> dict[str, int]:
    """Return extents between others, on a logarithmic scale."""
    return {
        name: round(exp((1 - part) * log(low[name]) + part * log(high[name])))
        if min(low[name], high[name]) > 0
        else low[name]
        for name in low
    }


def _may_serve(own_rows: int, rows: int, largest: int) -> bool:
    """True if a block that is searched for `own_rows` may be the best for so many."""
    return rows <= _FARTHEST * own_rows or own_rows == largest


def times_to_measure(
    region: OpenRegion, points: Sequence[ShapePoint], own_rows: Sequence[int]
) -> int:
    """Return the number of measurements of blocks at single extents, about."""
    samples = sample_extents(region, points, own_rows)
    return sum(
        own <= one.rows and _may_serve(own, one.rows, max(own_rows))
        for one in samples
        for own in own_rows
    )


# ---- the table, and what follows from it ----


@dataclass(frozen=True, slots=True)
class _Cell:
    measurement: Measurement
    estimate: SpeedupEstimate


_Table = dict[int, dict[int, _Cell]]
"""Measurements by number of the sample and own rows of the block."""


def serve_rows(
    blocks: Sequence[ServingBlock],
    samples: Sequence[ExtentSample],
    left_s: Callable[[], float],
) -> tuple[ServedRows, dict[str, object]] | None:
    """Measure blocks at samples, and return which serve where, and facts for the side-car.

    A kernel that gains nothing over the points is not to be used, nor one that surely loses at a
    sample of the range, and does so again.

    Returns:
        None where time or the machine have kept from measuring: nothing is known then, unless a
        block computes wrongly: none serves in this run. Without facts where later runs cannot rely
        on them: on those of a busy machine, or on no gain that a second look may find.
    """
    wrong = set[int]()
    found = _served(blocks, samples, left_s, wrong)
    return (ServedRows(serves_from={}), {}) if found is None and wrong else found


def _served(
    blocks: Sequence[ServingBlock],
    samples: Sequence[ExtentSample],
    left_s: Callable[[], float],
    wrong: set[int],
) -> tuple[ServedRows, dict[str, object]] | None:
    """Return the answer of `serve_rows`; own rows of blocks that are wrong go into `wrong`."""
    try:
        table = _measured(blocks, samples, left_s, wrong)
        if table is None:
            return None
        right = {own for row in table.values() for own in row}
        least = {one.own_rows: one.least_rows for one in blocks if one.own_rows in right}
        chosen = choose_blocks(_scores(samples, table), least)
        at_samples = _chosen_cells(samples, table, chosen)
        by_rows = {one.own_rows: one for one in blocks}
        mean = _mean_at_points(samples, at_samples)
        is_sure = mean.median >= LEAST_GAIN or mean.high < LEAST_GAIN
        if mean.median < LEAST_GAIN or _loses_surely(samples, at_samples, chosen, by_rows):
            chosen = {}
    except TurnTimeoutError:
        return None
    served = ServedRows(serves_from=chosen, saved_us=_saved_us(samples, at_samples))
    cells = (cell for row in table.values() for cell in row.values())
    is_sure &= all(cell.measurement.counts for cell in cells)
    return served, _facts(samples, at_samples, chosen) if is_sure else {}


def _measured(
    blocks: Sequence[ServingBlock],
    samples: Sequence[ExtentSample],
    left_s: Callable[[], float],
    wrong: set[int],
) -> _Table | None:
    table = _Table()
    largest = max(one.own_rows for one in blocks)
    for at, sample in enumerate(samples):
        row = table.setdefault(at, {})
        fitting = (one for one in blocks if one.least_rows <= sample.rows)
        for block in (one for one in fitting if _may_serve(one.own_rows, sample.rows, largest)):
            if left_s() <= 0:
                return None
            found = block.measure(sample.workload)
            if found is None or found.is_of_machine:
                return None
            if not found.is_correct:
                wrong.add(block.own_rows)
            else:
                row[block.own_rows] = _Cell(found, estimate_speedup(found))
    return {
        at: {own: cell for own, cell in row.items() if own not in wrong}
        for at, row in table.items()
    }


def _scores(
    samples: Sequence[ExtentSample], table: Mapping[int, Mapping[int, _Cell]]
) -> dict[int, dict[int, float]]:
    """Return the logarithms of speed-ups by rows and block, weighted means over equal rows."""
    found: dict[int, dict[int, list[tuple[float, float]]]] = {}
    for at, row in table.items():
        for own, cell in row.items():
            pairs = found.setdefault(samples[at].rows, {}).setdefault(own, [])
            pairs.append((samples[at].count or 1.0, log(cell.estimate.median)))
    return {
        rows: {
            own: sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)
            for own, pairs in row.items()
        }
        for rows, row in found.items()
    }


def choose_blocks(
    scores: Mapping[int, Mapping[int, float]], least: Mapping[int, int]
) -> dict[int, int]:
    """Return from how many rows on each block serves; empty where none computes a single row.

    Blocks for more rows serve larger numbers, and the sum of all scores is greatest. A change
    between two measured numbers lies in their geometric middle.

    Args:
        scores: Logarithms of speed-ups, by rows and the rows a block is searched for.
        least: Rows that a block computes at least.

    >>> choose_blocks({1: {1: 0.5}, 4: {1: 0.1, 16: 0.2}, 16: {1: -0.5, 16: 0.3}}, {1: 1, 16: 4})
    {1: 1, 16: 4}
    >>> choose_blocks({1: {1: 0.5}, 4: {1: 0.2, 16: 0.1}, 16: {1: -0.5, 16: 0.3}}, {1: 1, 16: 4})
    {1: 1, 16: 8}
    """
    best: dict[int, tuple[float, tuple[tuple[int, int], ...]]] = {0: (0.0, ())}
    for rows in sorted(scores):
        found = {}
        for own, score in scores[rows].items():
            before = [one for last, one in best.items() if last <= own]
            if before:
                total, path = max(before)
                found[own] = (total + score, (*path, (rows, own)))
        best = found or best
    _, path = max(best.values())
    chosen, below = dict[int, int](), 0
    for rows, own in path:
        if own not in chosen:  # it begins to serve
            chosen[own] = max(least[own], below + 1, isqrt(below * rows))
        below = rows
    single = next((own for own in sorted(least) if least[own] == 1), None)
    if single is None or not chosen:
        return {}
    first = min(chosen, key=lambda own: chosen[own])
    return {**chosen, (first if least[first] == 1 else single): 1}


def usual_blocks(least: Mapping[int, int]) -> dict[int, int]:
    """Return from how many rows on each block serves where nothing was measured.

    >>> usual_blocks({1: 1, 2: 2, 4: 4, 16: 5, 100: 12})
    {1: 1, 2: 2, 4: 4, 16: 8, 100: 40}
    """
    found, below = dict[int, int](), 0
    for own in sorted(least):
        found[own] = max(least[own], isqrt(below * own))
        below = own
    return found


def _chosen_cells(
    samples: Sequence[ExtentSample],
    table: Mapping[int, Mapping[int, _Cell]],
    chosen: Mapping[int, int],
) -> dict[int, _Cell]:
    """Return the measurements of the blocks that serve, by number of the sample."""
    found = {}
    for at, row in table.items():
        own = _serving(chosen, samples[at].rows)
        if own in row:
            found[at] = row[own]
    return found


def _serving(chosen: Mapping[int, int], rows: int) -> int:
    """Return the block that serves so many rows, 0 for none."""
    fitting = [(first, own) for own, first in chosen.items() if first <= rows]
    return max(fitting, default=(0, 0))[1]


def _loses_surely(
    samples: Sequence[ExtentSample],
    at_samples: Mapping[int, _Cell],
    chosen: Mapping[int, int],
    blocks: Mapping[int, ServingBlock],
) -> bool:
    """True if the kernel loses at a sample of the range, also when that is measured again."""
    for at, cell in at_samples.items():
        if samples[at].is_inside and loses_at(cell.estimate):
            again = blocks[_serving(chosen, samples[at].rows)].measure(samples[at].workload)
            if again is None or not (again.is_correct and again.counts):
                continue
            if loses_at(estimate_speedup(again)):
                return True
    return False


def _mean_at_points(
    samples: Sequence[ExtentSample], at_samples: Mapping[int, _Cell]
) -> SpeedupEstimate:
    """Return the weighted geometric mean of the speed-ups at the points.

    Where the block that serves was not measured, nothing is gained.
    """
    points = [(at, one.count) for at, one in enumerate(samples) if one.count]
    found = [at_samples[at].estimate if at in at_samples else _NO_GAIN for at, _ in points]
    return mean_estimate(found, [count for _, count in points]) if found else _NO_GAIN


def _saved_us(samples: Sequence[ExtentSample], at_samples: Mapping[int, _Cell]) -> float:
    """Return the microseconds a call saves at the largest point, 0 where it was not measured."""
    largest = max((at for at, one in enumerate(samples) if one.count), default=None)
    found = at_samples.get(largest) if largest is not None else None
    return found.measurement.baseline_latency_us - found.measurement.latency_us if found else 0.0


# ---- the side-car ----


def _facts(
    samples: Sequence[ExtentSample], at_samples: Mapping[int, _Cell], chosen: Mapping[int, int]
) -> dict[str, object]:
    """Return the facts of a kernel for its side-car: who serves, and the times that decided."""
    times = {
        samples[at].extents: [
            round(cell.measurement.baseline_latency_us, 3),
            round(cell.measurement.latency_us, 3),
        ]
        for at, cell in at_samples.items()
    }
    serves = {str(own): first for own, first in chosen.items()}
    return {"method": _METHOD, _SERVES: serves, _POINTS_US: times}


def find_served(
    bank: OperatorBank, workloads: Mapping[int, Workload], *, of_this_model: bool
) -> dict[int, int] | None:
    """Return from how many rows on each block serves, as an earlier run has measured it.

    None where the records of the blocks say nothing, or were replaced since.

    Args:
        bank: The bank.
        workloads: Of the blocks, by the rows they are searched for.
        of_this_model: True to take only what was measured for this model and range, and only if
            all blocks that serve have records.
    """
    noted = find_noted(bank, workloads.values(), _METHOD, _SERVES, of_this_model=of_this_model)
    if noted is None:
        return None
    recorded = {own for own, one in workloads.items() if bank.find(one) is not None}
    chosen = {own: first for own in workloads if isinstance(first := noted.get(str(own)), int)}
    if len(chosen) < len(noted) or (of_this_model and not chosen.keys() <= recorded):
        return None
    return chosen
