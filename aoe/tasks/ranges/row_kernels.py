"""Kernels for any number of rows, or for open extents, made of the blocks that were tuned."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isqrt, prod
from statistics import geometric_mean

from aoe.bank.operators import OperatorBank, key_of
from aoe.device.compiler import (
    ImageKernel,
    KernelSource,
    RowBlock,
    extent_kernel,
    open_rows_kernel,
    row_kernel,
)
from aoe.entry.shape_range import ShapePoint
from aoe.errors import TurnTimeoutError
from aoe.graph.open_extents import OpenRegion
from aoe.graph.open_rows import OpenRows
from aoe.kernels.family import KernelTarget
from aoe.kernels.matmul.open_rows import with_open_rows
from aoe.kernels.matmul.shape import FEW_ROWS
from aoe.kernels.registry import OPEN_EXTENTS, get_family
from aoe.measurement import Measurement, MeasurePolicy
from aoe.schedule import Schedule
from aoe.tasks.operators.chosen_kernel import ChosenKernel
from aoe.tasks.operators.operator import (
    OperatorContext,
    TunedOperator,
    bytes_around,
    invalid_reason_of,
)
from aoe.tasks.operators.operator_task import OperatorTask, measure_schedules
from aoe.tasks.operators.operator_tasks import TunedOperators
from aoe.tasks.ranges.block_notes import TimedBlock, find_times, note_blocks, note_times
from aoe.tasks.ranges.extent_blocks import (
    LEAST_GAIN,
    ServedRows,
    ServingBlock,
    find_served,
    sample_extents,
    serve_rows,
    usual_blocks,
)
from aoe.tasks.ranges.frequent_rows import paying
from aoe.tasks.ranges.open_operators import (
    ROWS_POWER,
    RowOperator,
    expected_us,
    interpolated_us,
)
from aoe.tuner.policies import block_policy, screening_policy
from aoe.tuner.search.book import opening
from aoe.tuner.task_search import SearchSettings
from aoe.tuner.tune_context import TuneContext
from aoe.workload import Workload

_MOST_LOST = 0.8
"""Expected speed-up at any point below which it is not: blocks of few rows take microseconds, and
are measured no better than that."""


def measure_given(
    tuning: TuneContext,
    context: OperatorContext,
    workload: Workload,
    schedules: Sequence[Schedule],
    policy: MeasurePolicy,
    *,
    at: Workload | None = None,
) -> list[Measurement]:
    """Measure given schedules of a workload, amid the same traffic as in a search.

    What is read again and again from the caches tells little of a model, whose weights are larger.

    Args:
        tuning: The run.
        context: What compiles, and the bytes of the model.
        workload: What to compute.
        schedules: The candidates.
        policy: Of their pairs.
        at: The workload in the shapes to measure kernels of open axes in, None for its own.

    Raises:
        TurnTimeoutError: the time of the run was over before the cores were free.
    """
    runner, settings = tuning.machine.runner, tuning.settings
    task = OperatorTask(
        runner=runner,
        family=get_family(workload.op_type),
        workload=workload,
        kernel_target=KernelTarget.of(runner.target),
        compilers=context.builder,
        settings=SearchSettings(
            method=settings.search, budget=1, seed=settings.seed, screen=policy
        ),
        bytes_around=bytes_around(context, at or workload),
    )
    return measure_schedules(task, schedules, policy, at=at)


def row_kernels(
    tuning: TuneContext,
    context: OperatorContext,
    operators: Sequence[RowOperator],
    points: Sequence[ShapePoint],
    tuned: TunedOperators,
    left_s: Callable[[], float],
    *,
    is_last: bool = True,
) -> list[ChosenKernel]:
    """Return the kernels that promise something over the points of the range.

    Operators whose blocks have saved most come first: one of rows gets no kernel in this run if the
    time is over before all of its blocks are measured.

    Args:
        tuning: The run.
        context: The bank, and what compiles.
        operators: Their blocks have been tuned.
        points: Of the range.
        tuned: What became of the blocks.
        left_s: Seconds until measuring has to end.
        is_last: False where the search goes on: no times of blocks are noted.
    """
    known = {one.operator.key: one for one in tuned.operators}
    found: list[ChosenKernel | None] = []

    def saved_us(operator: RowOperator) -> float:
        blocks = (known.get(key_of(workload)) for workload in operator.blocks.values())
        return len(operator.regions) * sum(one.saved_us for one in blocks if one is not None)

    for one in sorted(operators, key=saved_us, reverse=True):
        if isinstance(one.rows, OpenRegion):
            found.append(_extent_kernel(tuning, context, one, one.rows, points, known, left_s))
        else:
            with suppress(TurnTimeoutError):  # others had the cores until the time was over
                found.append(
                    _row_kernel(tuning, context, one, points, known, left_s, is_last=is_last)
                )
    return [kernel for kernel in found if kernel is not None]


def _chosen(operator: RowOperator, source: KernelSource, saved_us: float) -> ChosenKernel:
    return ChosenKernel(
        source=source,
        key=key_of(source.workload),
        regions=operator.regions,
        op_names=operator.op_names,
        gain_us=saved_us * len(operator.regions),
    )


# ---- rows ----


def _row_kernel(
    tuning: TuneContext,
    context: OperatorContext,
    operator: RowOperator,
    points: Sequence[ShapePoint],
    known: Mapping[str, TunedOperator],
    left_s: Callable[[], float],
    *,
    is_last: bool,
) -> ChosenKernel | None:
    """Return the kernel of an operator for any number of rows, None where it promises nothing.

    Blocks are measured where neither the search of this run has, nor an earlier run has noted their
    times: with others, the same kernel would have another name, and noise could undo what the bank
    says of it.
    """
    bank, settings = context.bank, tuning.settings
    timed = None if settings.repeat_tune else find_times(bank, operator.blocks)
    are_new = False
    if timed is not None:
        blocks = [one.block for one in timed]
    elif settings.lookup_only:
        timed, blocks = [], _recorded_blocks(tuning, operator, known)
    else:
        timed, are_new = _measured_blocks(tuning, context, operator, known, left_s)
        blocks = [one.block for one in timed]
    blocks = paying(blocks, operator.frequent)
    if not blocks or blocks[-1].rows > 1:
        return None  # not every number of rows could be computed to its end
    source = _open_source(tuning, context, operator, blocks, left_s) if is_last else None
    if source is None and isinstance(operator.rows, OpenRows) and not operator.rows.are_apart:
        return None
    source = source or _source(operator, blocks)
    saved_us = 0.0
    if timed:
        default_us = {one.block.rows: one.default_us for one in timed}
        own_us = {one.rows: one.us for one in blocks}
        counts = [operator.rows.rows(point.extents) for point in points]
        before = [interpolated_us(default_us, count) for count in counts]
        is_one_call = isinstance(source, ImageKernel)
        after = [
            interpolated_us(own_us, count) if is_one_call else expected_us(blocks, count)
            for count in counts
        ]
        ratios = [one / other for one, other in zip(before, after, strict=True)]
        if geometric_mean(ratios) < LEAST_GAIN or min(ratios) < _MOST_LOST:
            return None
        saved_us = before[-1] - after[-1]
    if are_new and is_last:  # where nothing is promised now, noise may promise it later
        note_times(bank, operator.blocks, timed, operator.op_names, cut_rows=operator.cut_rows)
    recorded = tuple(one.source.workload for one in blocks)
    return replace(_chosen(operator, source, saved_us), recorded=recorded)


def _open_source(
    tuning: TuneContext,
    context: OperatorContext,
    operator: RowOperator,
    blocks: Sequence[RowBlock],
    left_s: Callable[[], float],
) -> KernelSource | None:
    """Return the kernel of a product of any number of rows, compiled; None without the time.

    The blocks it takes the schedules of have been compiled before.
    """
    if not isinstance(operator.rows, OpenRows):
        return None
    invalid_reason = partial(invalid_reason_of, tuning.machine.runner)
    found = open_product(operator.rows, blocks, invalid_reason)
    compilers = context.builder
    if found is None or compilers is None or compilers.compiles_in(found.parts, left_s()):
        return found
    return None


def _source(operator: RowOperator, blocks: Sequence[RowBlock]) -> KernelSource:
    """Return the kernel of an operator, made of these blocks."""
    found, workload = operator.rows, operator.regions[0].workload
    if not isinstance(found, OpenRows):
        return blocks[0].source
    return row_kernel(
        blocks,
        open_rank=found.open_rank,
        open_inputs=found.open_inputs,
        shapes=[spec.shape for spec in (*workload.inputs, workload.output)],
    )


def open_product(
    found: OpenRows,
    blocks: Sequence[RowBlock],
    invalid_reason: Callable[[Workload, Schedule], str],
) -> ImageKernel | None:
    """Return the kernel of a product that takes its rows from each call, None where there is none.

    A call is computed by the schedule of one block, see `_least_rows`: its weights are read once,
    and its last register tile of rows alone overlaps the one before it.

    Args:
        found: The operator.
        blocks: The largest first.
        invalid_reason: Says what is wrong with a schedule; empty if it can be compiled.
    """
    opened = found.opened
    if opened is None:
        return None
    row = prod(opened.output.shape[found.open_rank :])
    variants: dict[int, KernelSource] = {}
    below = 0
    for block in reversed(blocks):
        fixed = block.source
        schedule = with_open_rows(fixed.workload, fixed.schedule, opened)
        if schedule is None or invalid_reason(opened, schedule):
            continue
        source = KernelSource.of(opened, schedule)
        if source not in variants.values():
            variants[_least_rows(below, block.rows) * row] = source
        below = block.rows
    return open_rows_kernel(variants, blocks[0].source) if variants else None


def _least_rows(below: int, rows: int) -> int:
    """Return the rows from which on the schedule of a block computes, not that of a smaller one.

    Half-way between the two, in the ratio of their rows; but for a few rows schedules wait for
    weights from memory, and walk down more than that row by row.

    Args:
        below: Rows of the next smaller block; 0 for none.
        rows: Of the block.
    """
    half_way = isqrt(below * rows)
    return min(half_way, FEW_ROWS + 1) if below <= FEW_ROWS < rows else half_way


def _measured_blocks(
    tuning: TuneContext,
    context: OperatorContext,
    operator: RowOperator,
    known: Mapping[str, TunedOperator],
    left_s: Callable[[], float],
) -> tuple[list[TimedBlock], bool]:
    """Return the blocks that compute rightly, and whether later runs can rely on their times.

    None where there is no time for all of them.
    """
    found: list[TimedBlock] = []
    are_certain = True
    for rows, workload in operator.blocks.items():
        answer = known.get(key_of(workload))
        schedule = _schedule(tuning, workload, answer)
        if schedule is None:
            continue
        one = _seen(answer, schedule)
        if one is None:
            if left_s() <= 0:
                return [], False
            one = _measured(tuning, context, workload, schedule)
        if one is None or not one.is_correct:
            are_certain = False
            continue
        source = KernelSource.of(workload, schedule)
        block = RowBlock(rows=rows, source=source, us=round(one.latency_us, 3))
        found.append(TimedBlock(block=block, default_us=round(one.baseline_latency_us, 3)))
        are_certain &= one.counts
    return found, are_certain


def _recorded_blocks(
    tuning: TuneContext, operator: RowOperator, known: Mapping[str, TunedOperator]
) -> list[RowBlock]:
    """Return the blocks of a run that measures nothing, from the largest one with a record on.

    The time of a block without a record follows from the next larger one.
    """
    blocks, larger = list[RowBlock](), 0
    us: float | None = None
    for rows, workload in operator.blocks.items():
        answer = known.get(key_of(workload))
        if answer is not None and answer.after_us is not None:
            us = answer.after_us
        elif us is not None:
            us *= (rows / larger) ** ROWS_POWER
        schedule = _schedule(tuning, workload, answer)
        larger = rows
        if schedule is not None and us is not None:
            source = KernelSource.of(workload, schedule)
            blocks.append(RowBlock(rows=rows, source=source, us=round(us, 3)))
    return blocks


def _schedule(
    tuning: TuneContext, workload: Workload, tuned: TunedOperator | None
) -> Schedule | None:
    """Return the schedule of a block: the winner, else the best that was tried, else a guess."""
    if tuned is not None and tuned.schedule is not None:
        return tuned.schedule
    target = KernelTarget.of(tuning.machine.runner.target)
    family = get_family(workload.op_type)
    search = tuned.search if tuned is not None else None
    if search is not None and search.answer is not None:
        return search.answer
    trials = search.trials if search is not None else ()
    good = [one for one in trials if one.measurement.is_correct]
    if good:
        best = max(good, key=lambda one: one.measurement.speedup)
        return family.schedule(workload, best.configuration, target)
    guesses = opening(family.space(workload, target), ())
    return family.schedule(workload, guesses[0], target) if guesses else None


def _seen(tuned: TunedOperator | None, schedule: Schedule) -> Measurement | None:
    """Return the fresh pairs by which the search of this run ended with a schedule, if it did."""
    found = tuned.search if tuned is not None else None
    return found.measurement if found is not None and found.answer == schedule else None


def _measured(
    tuning: TuneContext, context: OperatorContext, workload: Workload, schedule: Schedule
) -> Measurement | None:
    """Measure a block that this run has not searched, with the pairs of a screening."""
    threads, left_s = tuning.machine.runner.target.core_num, tuning.time.stopwatch.left_s()
    policy = block_policy(threads, accept_busy=tuning.settings.accept_busy, left_s=left_s)
    found = measure_given(tuning, context, workload, [schedule], policy)
    return found[0] if found else None


# ---- open extents ----


def _extent_kernel(
    tuning: TuneContext,
    context: OperatorContext,
    operator: RowOperator,
    region: OpenRegion,
    points: Sequence[ShapePoint],
    known: Mapping[str, TunedOperator],
    left_s: Callable[[], float],
) -> ChosenKernel | None:
    """Return the kernel of an operator with open extents, None where it promises nothing."""
    bank = context.bank
    if tuning.settings.lookup_only and not any(map(bank.find, operator.blocks.values())):
        return None
    sources = dict(_open_sources(tuning, operator, known))
    family = OPEN_EXTENTS[operator.regions[0].workload.op_type]
    least = {own: family.least_rows(one.workload, one.schedule) for own, one in sources.items()}
    served = _known_served(tuning, bank, operator)
    if served is None and sources and not tuning.settings.lookup_only:
        blocks = [
            ServingBlock(
                own_rows=own,
                least_rows=least[own],
                measure=partial(_measured_at, tuning, context, source),
            )
            for own, source in sources.items()
        ]
        samples = sample_extents(region, points, tuple(operator.blocks))
        if context.builder is not None and (seconds := left_s()) > 0:
            # several at once, and none within the time of a measurement
            context.builder.prepare([*sources.values()], left_s=seconds)
        measured = serve_rows(blocks, samples, left_s)
        if measured is not None:
            served, facts = measured
            if facts:
                note_blocks(bank, operator.blocks.values(), facts, operator.op_names)
    if served is None:
        served = ServedRows(serves_from=usual_blocks(least))
    blocks_of_kernel = [
        RowBlock(rows=max(first, least[own]), source=sources[own], us=0.0)
        for own, first in sorted(served.serves_from.items(), reverse=True)
        if own in sources
    ]
    if not blocks_of_kernel or blocks_of_kernel[-1].rows > 1:
        return None
    source = extent_kernel(
        blocks_of_kernel,
        shapes=region.stored,
        layouts=region.layouts,
        rows_dimension=region.layouts[-1][region.rows_dimension].source,
    )
    return _chosen(operator, source, served.saved_us)


def _known_served(
    tuning: TuneContext, bank: OperatorBank, operator: RowOperator
) -> ServedRows | None:
    """Return the bank's choice of blocks by number of rows; None where it is to be measured."""
    lookup_only = tuning.settings.lookup_only
    if tuning.settings.repeat_tune:
        return None
    found = find_served(bank, operator.blocks, of_this_model=not lookup_only)
    return None if found is None else ServedRows(serves_from=found)


def _open_sources(
    tuning: TuneContext, operator: RowOperator, known: Mapping[str, TunedOperator]
) -> Iterator[tuple[int, KernelSource]]:
    """Yield the kernels of blocks that read their extents, by the rows they are searched for."""
    for own, workload in operator.blocks.items():
        schedule = _schedule(tuning, workload, known.get(key_of(workload)))
        if schedule is not None:
            opened = OPEN_EXTENTS[workload.op_type].schedule(workload, schedule)
            yield own, KernelSource.of(workload, opened)


def _measured_at(
    tuning: TuneContext, context: OperatorContext, source: KernelSource, at: Workload
) -> Measurement | None:
    """Measure a block for open extents at some."""
    threads = tuning.machine.runner.target.core_num
    policy = screening_policy(threads, accept_busy=tuning.settings.accept_busy)
    found = measure_given(tuning, context, source.workload, [source.schedule], policy, at=at)
    return found[0] if found else None
