"""Attention of any number of batches, queries and keys, by the schedule of a fixed one.

A schedule is won for a workload of fixed shape, whose kernel nothing of this concerns. The same
steps serve a kernel that reads its extents from the buffers it is given, for at least as many
queries: tiles of so many rows are shifted inwards, and scores end with a whole panel of 16. Tiles
of keys have several widths, of which a call takes the one that computes least beside its keys: 75
keys, five panels, are one tile of 5 or two of 3, and would be two of 4. What is kept for the keys
of a query has no size known before, so it comes from the scratch memory of the task, once for all
tiles; folds over the keys have the accumulators of one panel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

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
    rows_around,
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
from aoe.kernels.matmul.panels import FILLED, fills_panels
from aoe.kernels.matmul.row_tiles import PanelTile, tile_cost, with_panels
from aoe.kernels.matmul.shape import BLOCK, PANEL, most_panels
from aoe.operators import MICROSOFT_DOMAIN
from aoe.operators import number as number_of
from aoe.schedule import Schedule, Step
from aoe.workload import Workload

OPEN = "open_extents"
"""Algorithm that reads the extents of batches, queries and keys from its buffers."""


BLOCK_ROWS = (100, 16, 4, 3, 2, 1)
"""Queries of the workloads kernels are searched for: numbers that share keys as they lie, which
five to fifteen do in groups of four, a short text, and one that register tiles do not fit. The best
of ten schedules for 64 by 64 took 20 % longer than the best for 100 by 100 at 197 by 197, which is
the best from 80 on but at 128 (12 heads of 64, a thread of a busy AMD EPYC with AVX-512, CPU
time)."""


_NARROWEST, _WIDEST = 2, 5
"""Panels of keys of a tile of scores beside those of a schedule: one panel wastes nothing at 16
keys alone, and six are two tiles of three."""
_TASK_AND_TILE = 2
"""Splits of the queries of a result in tiles: a kernel of a few queries has one."""


def least_rows(workload: Workload, schedule: Schedule) -> int:
    """Return the queries of the tile, or task, that is shifted inwards; 1 where it has one."""
    queries = supported(workload, read_attention(workload)).queries.name
    splits = [step for step in schedule.steps if isinstance(step, sch.Split)]
    of_queries = [step for step in splits if (step.stage, step.var) == (RESULT, queries)]
    shifted = [step.factor for step in of_queries if step.tail is sch.Tail.SHIFT_INWARDS]
    return max(shifted, default=1)


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
    steps = (*_kept_steps(schedule, attention), *_folds(whole), *_filled_panels(schedule, whole))
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
    """Yield the steps of panels of keys whose last one is filled as far as there are keys."""
    if attention.is_few or not fills_panels(attention.scores):
        return
    filled = f"{KEYS_PACKED}{UPDATE}"
    yield sch.Vectorize(filled, f"{FILLED}$x", PANEL)
    for step in schedule.steps:
        if isinstance(step, sch.Parallel) and step.stage == KEYS_PACKED:
            yield replace(step, stage=filled)


def _folds(attention: Attention) -> Iterator[Step]:
    for name in (PEAK, TOTAL):
        yield from fold_steps(name, rows_around(attention), RESULT, attention.queries.name)


def _tiled_keys(attention: Attention) -> TiledExtent:
    """Return the keys as an extent that tiles of scores cut, of several widths."""
    tile = PanelTile(
        stage=SCORES,
        columns=attention.keys.name,
        panel=PANEL,
        sums=(SCORE_SUMS, f"{SCORE_SUMS}{UPDATE}"),
        panels=BLOCK,
    )

    def sized(schedule: Schedule, target: KernelTarget) -> Iterator[SizedTile]:
        cuts = [step for step in schedule.steps if isinstance(step, sch.Split)]
        columns = [one.factor for one in cuts if (one.stage, one.var) == (SCORES, tile.columns)]
        queries = [
            one.factor for one in cuts if (one.stage, one.var) == (SCORES, attention.queries.name)
        ]
        if not columns or not queries or columns[0] % PANEL:
            return
        own, rows = columns[0] // PANEL, queries[0]
        widest = min(most_panels(rows, target), _WIDEST)
        for wide in (own, *(one for one in range(widest, _NARROWEST - 1, -1) if one != own)):
            yield SizedTile(
                schedule=with_panels(schedule, tile, wide),
                size=PANEL * wide,
                cost=tile_cost(rows, wide),
            )

    dimension = 1 if attention.scores.right_turned else 0
    return TiledExtent(argument=attention.scores.right, dimension=dimension, tiles=sized)


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
        tiled=None if attention.is_few else _tiled_keys(attention),
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
