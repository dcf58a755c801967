"""Attention of any number of batches, queries and keys, by the schedule of a fixed one.

A schedule is won for a workload of fixed shape, whose kernel nothing of this concerns. The same
steps serve a kernel that reads its extents from the buffers it is given. Its register tiles have
several heights and widths, of which a call takes those that cost least together: 17 queries are two
tiles of 9 or three of 6, and would be three of 8; 75 keys, five panels of 16, are one tile of 5 or
two of 3, and would be two of 4. The last tile of queries is shifted inwards, and scores end with a
whole panel. What is kept for the keys of a query has no size known before, so it comes from the
scratch memory of the task, once for all tiles; folds over the keys have the accumulators of one
panel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import nsmallest

from aoe import schedule as sch
from aoe.kernels.attention.shape import Attention, read_attention
from aoe.kernels.attention.tiles import (
    GROWN,
    INNER,
    KEYS_PACKED,
    PEAK,
    SCORE_SUMS,
    SCORES,
    TOTAL,
    VALUE_SUMS,
    filled_stage,
    read_by_keys,
    rows_around,
    tile_cycles,
    value_blocks,
)
from aoe.kernels.family import (
    UPDATE,
    KernelTarget,
    OpenDimension,
    Pipeline,
    Role,
    SizedTile,
    Support,
    TiledExtent,
    supported,
)
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.reductions import fold_steps
from aoe.kernels.halide.tiling import TASK
from aoe.kernels.matmul.panels import FILLED
from aoe.kernels.matmul.row_tiles import PanelTile, with_panels, with_rows
from aoe.kernels.matmul.shape import BLOCK, LANE, PANEL, most_panels, panels_of
from aoe.operators import MICROSOFT_DOMAIN
from aoe.operators import number as number_of
from aoe.schedule import Schedule, Step
from aoe.workload import Workload

OPEN = "open_extents"
"""Algorithm that reads the extents of batches, queries and keys from its buffers."""


BLOCK_ROWS = (100, 16, 4, 3, 2, 1)
"""Queries of the workloads kernels are searched for: numbers that share keys as they lie, a short
text, which serves from five queries on, and one that register tiles do not fit. The best
of ten schedules for 64 by 64 took 20 % longer than the best for 100 by 100 at 197 by 197, which is
the best from 80 on but at 128 (12 heads of 64, a thread of a busy AMD EPYC with AVX-512, CPU
time)."""


_LOWEST, _HIGHEST = 4, 12
"""Queries of a tile of scores beside that of a schedule; fewer share keys as they lie."""
_MOST_TILES = 10
"""Register tiles of a kernel, each of which is compiled."""
_LEAST_SAVED = 0.002
"""Of the time, by a further tile."""
_WEIGHT_CYCLES, _TILE_CYCLES = 28, 150
"""Of a vector of weights, their largest and their sum included, and of a tile besides.

Source: least squares over 29 tiles at 14 lengths, which are 4 % off: the best tile by them takes
1.02 of the time of the best one (12 heads of 64, an Intel Xeon of family 6, model 167, AVX-512,
CPU time, 2026-11-30)."""
_TASK_AND_TILE = 2
"""Splits of the queries of a result in tiles: a kernel of a few queries has one."""


def least_rows(workload: Workload, schedule: Schedule) -> int:
    """Return the queries of the lowest tile, which is shifted inwards; 1 where it has one."""
    queries = supported(workload, read_attention(workload)).queries.name
    splits = [step for step in schedule.steps if isinstance(step, sch.Split)]
    of_queries = [step for step in splits if (step.stage, step.var) == (RESULT, queries)]
    shifted = [step.factor for step in of_queries if step.tail is sch.Tail.SHIFT_INWARDS]
    return min(max(shifted, default=1), _LOWEST)


def opened(attention: Attention) -> Attention:
    """Return an attention whose batches, queries and keys are open."""
    return replace(
        attention,
        scores=replace(attention.scores, open_columns=True),
        values=replace(attention.values, open_depth=True),
        is_open=True,
    )


def open_schedule(workload: Workload, schedule: Schedule) -> Schedule:
    """Return the schedule of open extents of one of a fixed shape.

    Args:
        workload: One whose `dimension_roles` are known.
        schedule: For it.
    """
    attention = supported(workload, read_attention(workload))
    whole = opened(attention)
    steps = (*_kept_steps(schedule, attention), *_folds(whole))
    if not whole.is_few:
        # what is left for the last task is no code of its own, which would be as much again
        steps += (*_filled_panels(schedule, whole), sch.NeverPartition(RESULT, TASK))
    return Schedule(steps, algorithm=OPEN)


def _kept_steps(schedule: Schedule, attention: Attention) -> Iterator[Step]:
    keys = attention.keys.name
    whole_tiles = _whole_tiles(schedule, attention.queries.name)
    for step in schedule.steps:
        if step.stage.startswith((PEAK, TOTAL)):
            continue
        if isinstance(step, sch.StoreIn) and step.stage in (SCORES, GROWN):
            # taken once for all tiles of a task; freed behind each, sums would leave the registers
            step = replace(step, memory=sch.Memory.STACK)
        if isinstance(step, sch.Split) and step.stage == SCORES and step.var in (keys, INNER):
            step = replace(step, tail=sch.Tail.ROUND_UP)  # register tiles are whole ones
        if isinstance(step, sch.Split) and step.stage == GROWN:
            step = replace(step, tail=sch.Tail.ROUND_UP)
        yield whole_tiles.get(step, step)


def _whole_tiles(schedule: Schedule, queries: str) -> dict[Step, Step]:
    """Return the splits of queries by others, which shift the last register tile inwards.

    A fixed shape shifts the last task: of 17 queries in tasks of 16 it computes 32. Here they are
    cut into tiles first, 5 of 4 queries, and a task is as many tiles as it has, or what is left.
    """
    splits = [
        step for step in schedule.steps if isinstance(step, sch.Split) and step.var == queries
    ]
    of_result = [step for step in splits if step.stage == RESULT]
    if len(of_result) < _TASK_AND_TILE:
        return {}
    task, tile = of_result
    found: dict[Step, Step] = {
        task: replace(tile, tail=sch.Tail.SHIFT_INWARDS),
        tile: replace(task, factor=task.factor // tile.factor, tail=sch.Tail.GUARD),
    }
    for step in splits:
        if step.stage == SCORES:
            found[step] = replace(step, tail=sch.Tail.SHIFT_INWARDS)
    return found


def _filled_panels(schedule: Schedule, attention: Attention) -> Iterator[Step]:
    """Yield the steps of panels that are filled as far as there are keys."""
    filled = f"{KEYS_PACKED}{UPDATE}"
    if attention.scores.right_turned:  # row by row, which leaves out those behind the last
        width = math.gcd(PANEL, attention.scores.depth)
        yield sch.Split(filled, "k", "k", "in_k", width, sch.Tail.GUARD)
        yield sch.Reorder(filled, ("in_k", "k", f"{FILLED}$x", "panel"))
        yield sch.Vectorize(filled, "in_k", width)
    else:
        yield sch.Vectorize(filled, f"{FILLED}$x", PANEL)
    for step in schedule.steps:
        if isinstance(step, sch.Parallel) and step.stage == KEYS_PACKED:
            yield replace(step, stage=filled)
    for stage in map(filled_stage, read_by_keys(attention)):
        yield sch.ComputeAt(stage, RESULT, TASK)
        yield sch.StoreIn(stage, sch.Memory.STACK)
        yield sch.Vectorize(stage, LANE, PANEL)
        yield sch.Vectorize(f"{stage}{UPDATE}", f"{FILLED}$x", PANEL)


def _folds(attention: Attention) -> Iterator[Step]:
    for name in (PEAK, TOTAL):
        yield from fold_steps(name, rows_around(attention), RESULT, attention.queries.name)


# ---- register tiles of several sizes ----


@dataclass(frozen=True, slots=True)
class _Tile:
    """A register tile of scores, and what it costs."""

    rows: int  # Queries
    panels: int  # Of keys
    score: float  # Cycles of the tile
    rest: float  # Cycles of its queries besides, for each key

    def cycles(self, length: int) -> float:
        """Return the cycles of so many queries and keys; infinite where they are no whole tile."""
        if length < self.rows:
            return math.inf
        across = -(-length // (PANEL * self.panels))
        return -(-length // self.rows) * (across * self.score + length * self.rest)


def _tiled(attention: Attention) -> TiledExtent:
    """Return the keys as an extent that tiles of scores cut, of several heights and widths."""
    of_keys = PanelTile(
        stage=SCORES,
        columns=attention.keys.name,
        panel=PANEL,
        sums=(SCORE_SUMS, f"{SCORE_SUMS}{UPDATE}"),
        panels=BLOCK,
    )
    of_values = PanelTile(
        stage=RESULT,
        columns=attention.values.columns.name,
        panel=PANEL,
        sums=(VALUE_SUMS, f"{VALUE_SUMS}{UPDATE}"),
        panels=BLOCK,
    )

    def sized(schedule: Schedule, target: KernelTarget) -> Iterator[SizedTile]:
        own = _own_tile(schedule, attention)
        if own is None:
            return
        for tile in _tiles(own, attention, target):
            made = with_panels(schedule, of_keys, tile.panels)
            if tile.rows != own[0]:
                wide = value_blocks(attention, tile.rows, target)
                made = with_panels(made, of_values, wide)
                made = with_rows(made, attention.queries.name, tile.rows)
            yield SizedTile(
                schedule=made,
                size=PANEL * tile.panels,
                cost=tile.score,
                rows=tile.rows,
                rest=tile.rest,
            )

    return TiledExtent(
        argument=attention.scores.right,
        dimension=1 if attention.scores.right_turned else 0,
        tiles=sized,
        rows_dimension=1,
    )


def _own_tile(schedule: Schedule, attention: Attention) -> tuple[int, int] | None:
    """Return rows and panels of the tile of scores of a schedule, None where none is whole."""
    cuts = [step for step in schedule.steps if isinstance(step, sch.Split)]
    factors = {one.var: one.factor for one in reversed(cuts) if one.stage == SCORES}
    rows, columns = (factors.get(one.name, 0) for one in (attention.queries, attention.keys))
    return (rows, columns // PANEL) if rows and columns and not columns % PANEL else None


def _tiles(own: tuple[int, int], attention: Attention, target: KernelTarget) -> list[_Tile]:
    """Return the tile of a schedule, and those beside it.

    Of all that registers hold the one is left out that others do best without, and so on: for as
    many queries as keys, from a third to twice as many as the schedule is for.
    """
    lowest, queries = min(own[0], _LOWEST), attention.queries.extent
    shapes = {
        (rows, panels)
        for rows in range(lowest, _HIGHEST + 1)
        for panels in range(1, most_panels(rows, target) + 1)
    }
    kept = dict.fromkeys(
        (own, (lowest, 1) if own[0] > lowest else own)
    )  # the lowest fits all calls
    known = {shape: _tile(*shape, attention, target) for shape in (*kept, *sorted(shapes))}
    lengths = range(max(lowest, queries // 3), 2 * queries + 1, max(1, queries // PANEL))
    # as much for lengths from 4 to 8 as for those from 8 to 16
    least = _LEAST_SAVED * sum(1 / length for length in lengths)
    while len(known) > len(kept):
        lost = dict.fromkeys(known, 0.0)
        for length in lengths:
            cycles = {shape: tile.cycles(length) for shape, tile in known.items()}
            best, other = nsmallest(2, cycles, key=cycles.__getitem__)
            lost[best] += (cycles[other] / cycles[best] - 1) / length
        dropped = min(known.keys() - kept.keys(), key=lambda shape: (lost[shape], shape))
        if len(known) <= _MOST_TILES and lost[dropped] >= least:
            break
        del known[dropped]
    return list(known.values())


def _tile(rows: int, panels: int, attention: Attention, target: KernelTarget) -> _Tile:
    wide = value_blocks(attention, rows, target)
    sums = -(-panels_of(attention.values) // wide) * tile_cycles(wide, rows, target)
    weights = _WEIGHT_CYCLES * rows / target.vector_lanes
    products = attention.scores.depth * tile_cycles(panels, rows, target)
    return _Tile(rows, panels, products + _TILE_CYCLES, sums + weights)


def dimension_roles(workload: Workload) -> tuple[tuple[Role, ...], ...] | None:
    """Return the roles of the dimensions of each input and the result, None for no attention."""
    attention = read_attention(workload)
    if isinstance(attention, Support) or attention.in_pairs or attention.scores.left_turned:
        return None
    if attention.views:  # which strides of the buffers say then
        return None
    scores, values = attention.scores, attention.values
    found = []
    for number, spec in enumerate((*workload.inputs, workload.output)):
        last = [Role.ROWS, Role.SUMMED]  # of the scores, which the chain in front of it reads
        if number in (scores.left, len(workload.inputs)):
            last = [Role.ROWS, Role.CLOSED]
        elif number in (scores.right, values.right):
            closed_last = _closed(attention, number) == {-1}
            last = [Role.SUMMED, Role.CLOSED] if closed_last else [Role.CLOSED, Role.SUMMED]
        roles = [Role.BATCH] * (len(spec.shape) - 2) + last
        found.append(tuple(roles[len(roles) - len(spec.shape) :]))
    return tuple(found)


def with_turned_matrix(workload: Workload, number: int) -> Workload | None:
    """Return an attention with keys or values stored the other way round, None for other inputs."""
    operations, inputs = list(workload.operations), list(workload.inputs)
    for at, item in enumerate(operations):
        if item.op_type in ("MatMul", "FusedMatMul") and item.inputs[1] == f"x{number}":
            turned = 1 - number_of(item.attributes, "transB", 0)
            operations[at] = replace(
                item,
                op_type="FusedMatMul",
                domain=MICROSOFT_DOMAIN,
                version=1,
                attributes={"alpha": 1.0, **item.attributes, "transB": int(turned)},
            )
            *batch, rows, columns = inputs[number].shape
            inputs[number] = replace(inputs[number], shape=(*batch, columns, rows))
            return replace(workload, inputs=tuple(inputs), operations=tuple(operations))
    return None


def with_open_dimensions(attention: Attention, pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that says which dimensions of its buffers are open."""
    rank = len(attention.scores.iteration.axes)
    found = [_dimensions(attention, number) for number in range(len(pipeline.arguments))]
    result = (OpenDimension(at, is_open=at < rank - 1) for at in reversed(range(rank)))
    padded = pipeline.padded | {SCORES, GROWN}
    return replace(
        pipeline,
        padded=padded,
        open_dimensions=(*found, tuple(result)),
        tiled=None if attention.is_few else _tiled(attention),
    )


def _dimensions(attention: Attention, number: int) -> tuple[OpenDimension, ...]:
    """Return the open dimensions of an input."""
    closed, rank = _closed(attention, number), len(attention.scores.workload.inputs[number].shape)
    return tuple(
        OpenDimension(at, is_open=at < 0 or at - rank not in closed)
        for at in attention.dimensions(number)
    )


def _closed(attention: Attention, number: int) -> frozenset[int]:
    """Return the dimensions of an input that are no batches, queries or keys, from the back."""
    scores, values = attention.scores, attention.values
    if number == scores.left:
        return frozenset({-1})
    return frozenset(
        -1 if product.right_turned is (product is scores) else -2
        for product in (scores, values)
        if number == product.right
    )
