"""Pooling with the chain behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.math.functions import LOWEST, at_least, constant, largest, strict
from aoe.kernels.movement.reading import (
    image_extent,
    neighbour,
    read_arguments,
    window_pipeline,
)
from aoe.kernels.movement.windows import tap
from aoe.kernels.pooling.loop_orders import COLUMN, ROWS, pooling_schedule, pooling_space
from aoe.kernels.pooling.plan import Pooling, read_pooling
from aoe.operators.element_types import LEVELS
from aoe.operators.windows import WINDOW_OPERATORS, Window
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload


class PoolingFamily(PlannedFamily[Pooling]):
    """y = chain(largest, mean or norm of a window).

    A window is pooled over all dimensions but the last first, for each column of the input; the
    columns of a row are kept in scratch, or pooled again for each window they are in.
    """

    name = "pooling"
    anchors = frozenset(WINDOW_OPERATORS)

    def plan(self, workload: Workload) -> Pooling | Support:
        """Plan one pooling of what is read, and a chain behind it, or tell why not."""
        return read_pooling(workload)

    def pipeline_of(self, plan: Pooling, algorithm: str) -> Pipeline:
        """Return pooled columns and the result."""
        variables = tuple(hl.Var(axis.name) for axis in reversed(plan.axes))
        arguments = read_arguments(plan.split.workload, len(plan.axes))
        columns = _columns(plan, arguments, variables)
        pooled = _pooled_row(plan, columns, arguments, variables)
        if plan.power == 2:
            pooled = strict(hl.sqrt(pooled))
        elif not plan.is_largest and not plan.power:
            pooled = pooled / _count(plan, arguments, {v.name(): hl.Expr(v) for v in variables})
        return window_pipeline(plan.split, plan.nest, arguments, pooled, {ROWS: columns})

    def space_of(self, plan: Pooling, target: KernelTarget) -> Space:
        """Return vector width, tasks, and whether columns are kept."""
        return pooling_space(plan, target)

    def schedule_of(self, plan: Pooling, values: Values, target: KernelTarget) -> Schedule:
        return pooling_schedule(plan, values)


def _columns(
    plan: Pooling, arguments: Sequence[hl.ImageParam], variables: Sequence[hl.Var]
) -> hl.Func:
    """Return windows pooled over all dimensions but the last, at each column of the input."""
    column, last = hl.Var(COLUMN), plan.loop(plan.last)
    place = tuple(column if v.name() == last else v for v in variables)
    loops = {v.name(): hl.Expr(v) for v in place}
    others = [at for at in plan.windows if at != plan.last]
    terms = []
    for steps in product(*(range(plan.windows[at].size) for at in others)):
        at_tap, inside = {plan.last: hl.Expr(column)}, []
        for at, step in zip(others, steps, strict=True):
            window = plan.windows[at]
            start = loops[plan.loop(at)] * window.stride - window.before
            at_tap[at] = start + step * window.dilation
        known = dict(loops)
        for at, there in at_tap.items():
            extent = image_extent(plan.split, plan.nest, arguments, at)
            known[tap(at)] = there
            if not plan.is_inside(at):
                if at != plan.last or not _keeps_last(plan):
                    inside.append((there >= 0) & (there < extent))
                known[tap(at)] = hl.clamp(hl.likely(there), 0, extent - 1)
        value = neighbour(plan.split, plan.nest, arguments, known)
        terms.append((value, inside))
    columns = hl.Func(ROWS)
    columns[place] = _reduced(plan, terms, power=plan.power)
    return columns


def _pooled_row(
    plan: Pooling,
    columns: hl.Func,
    arguments: Sequence[hl.ImageParam],
    variables: Sequence[hl.Var],
) -> hl.Expr:
    window, loop = plan.windows[plan.last], plan.loop(plan.last)
    extent = image_extent(plan.split, plan.nest, arguments, plan.last)
    is_chosen = _keeps_last(plan) and not plan.is_inside(plan.last)
    terms = []
    for step in range(window.size):
        places = [
            v * window.stride + (step * window.dilation - window.before) if v.name() == loop else v
            for v in variables
        ]
        there = next(p for p, v in zip(places, variables, strict=True) if v.name() == loop)
        inside = [(there >= 0) & (there < extent)] if is_chosen else []
        terms.append((hl.Expr(columns[tuple(places)]), inside))
    return _reduced(plan, terms)


def _keeps_last(plan: Pooling) -> bool:
    """True if a NaN counts that is the last element of its window, and no other one.

    So it does in ONNX Runtime in the blocked layout; in the plain one it depends on where in a
    vector the result lies, and every NaN is kept. That takes three instructions instead of one: of
    windows of 3x3 in blocks 14 % of the time, of 5x5 half.
    """
    return plan.is_largest and plan.split.workload.blocked


def _reduced(
    plan: Pooling, terms: Sequence[tuple[hl.Expr, list[hl.Expr]]], power: int = 0
) -> hl.Expr:
    """Return the largest or the sum of elements, each with the conditions that it is no padding."""
    nothing = constant(LOWEST if plan.is_largest else 0.0)
    total = hl.Expr()
    for value, inside in terms:
        if _keeps_last(plan) and total.defined():
            more = at_least(value, total)
            for condition in inside:
                more = hl.select(hl.likely(condition), more, total)
            total = more
            continue
        # the choice first: of sums of chosen products Halide 21 loses one choice in a guarded tail
        term = value
        for condition in inside:
            term = hl.select(hl.likely(condition), term, nothing)
        term = {0: term, 1: hl.abs(term), 2: term * term}[power]
        if not total.defined():
            total = term
        else:
            total = _larger(plan, total, term) if plan.is_largest else total + term
    return total


def _larger(plan: Pooling, total: hl.Expr, term: hl.Expr) -> hl.Expr:
    """Return the larger one; NaN stays, but integers have none."""
    is_float = plan.split.workload.inputs[plan.nest.read.number].dtype not in LEVELS
    return largest(total, term) if is_float else hl.max(total, term)


def _count(
    plan: Pooling, arguments: Sequence[hl.ImageParam], loops: Mapping[str, hl.Expr]
) -> hl.Expr:
    """Return the number of elements of a mean."""
    total = hl.i32(1)
    for at, window in plan.windows.items():
        if plan.is_inside(at) or (plan.counts_padding and window.is_inside_padding):
            total = total * window.size
            continue
        extent = image_extent(plan.split, plan.nest, arguments, at)
        loop = loops[plan.loop(at)]
        total = total * _elements(window, extent, loop, counts=plan.counts_padding)
    return hl.f32(total)


def _elements(window: Window, extent: int | hl.Expr, at: hl.Expr, *, counts: bool) -> hl.Expr:
    """Return the number of elements in a window, those of the padding too if that counts."""
    first, end = (-window.before, extent + window.behind) if counts else (0, extent)
    start = at * window.stride - window.before
    inside = [
        hl.i32((start + step * window.dilation >= first) & (start + step * window.dilation < end))
        for step in range(window.size)
    ]
    total = inside[0]
    for term in inside[1:]:
        total = total + term
    return total
