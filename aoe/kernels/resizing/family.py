"""Linear and cubic interpolation with the chain behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.math.functions import constant, strict
from aoe.kernels.movement.reading import (
    image_extent,
    neighbour,
    read_arguments,
    window_pipeline,
)
from aoe.kernels.resizing.loop_orders import FIRST, ROWS, WEIGHTS, resizing_schedule, resizing_space
from aoe.kernels.resizing.plan import Dimension, Resizing, read_resizing
from aoe.kernels.resizing.taps import Extent
from aoe.operators.movement import RESIZES
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload

_ELEMENT, _TAP = "i", "j"


class ResizingFamily(PlannedFamily[Resizing]):
    """y = chain(sum of weights times neighbours), one dimension after the other.

    Rows are blended first, as short as they are in the input; then along a row. Where each element
    makes as many results, with the same weights again and again, those are as many vectors.
    Images of any size are resized to the nearest, too; those of one size are only moved.
    """

    name = "resizing"
    anchors = RESIZES

    def plan(self, workload: Workload) -> Resizing | Support:
        """Plan one interpolation of what is read, and a chain behind it, or tell why not."""
        return read_resizing(workload)

    def pipeline_of(self, plan: Resizing, algorithm: str) -> Pipeline:
        """Return blended rows, where the last dimension is read and how it is weighed, and y."""
        variables = tuple(hl.Var(axis.name) for axis in reversed(plan.axes))
        arguments = read_arguments(plan.split.workload, len(plan.axes))
        rows = _rows(plan, arguments, variables)
        stages = {ROWS: rows}
        if plan.last.rest:
            interpolated = _woven(plan, rows, variables)
        else:
            extent = _extent(plan, arguments, plan.last)
            stages |= {} if plan.last.taps.is_nearest else _tables(plan.last, extent)
            interpolated = _looked_up(plan, rows, stages, variables, extent)
        made = window_pipeline(plan.split, plan.nest, arguments, interpolated, stages)
        multiples = {plan.last.loop: plan.last.taps.factor} if plan.cuts else {}
        return replace(made, multiples=multiples)

    def space_of(self, plan: Resizing, target: KernelTarget) -> Space:
        """Return vector width and tasks."""
        return resizing_space(plan, target)

    def schedule_of(self, plan: Resizing, values: Values, target: KernelTarget) -> Schedule:
        return resizing_schedule(plan, values)


def _rows(
    plan: Resizing, arguments: tuple[hl.ImageParam, ...], variables: tuple[hl.Var, ...]
) -> hl.Func:
    """Return the input blended over all resized dimensions but the last, clamped along that."""
    at, last = hl.Var(_ELEMENT), plan.last
    place = tuple(at if v.name() == last.loop else v for v in variables if v.name() != last.rest)
    others = plan.dimensions[:-1]
    loops = {v.name(): hl.Expr(v) for v in place}
    loops[last.tap] = _kept(at, last, _extent(plan, arguments, last))
    inner = _blended(plan, arguments, others, loops)
    if last.rest and last.taps.reads_beside_first:
        second = _blended(plan, arguments, others, {**loops, last.tap: hl.i32(1)})
        beside = inner + strict(second * constant(0.0))  # see `Taps.reads_beside_first`
        inner = hl.select(hl.likely(at >= 0), inner, beside)
    rows = hl.Func(ROWS)
    rows[place] = inner
    return rows


def _blended(
    plan: Resizing,
    arguments: tuple[hl.ImageParam, ...],
    others: Sequence[Dimension],
    loops: Mapping[str, hl.Expr],
) -> hl.Expr:
    """Return an element of the last resized dimension, blended over the `others`."""
    total = hl.Expr()
    for taps in product(*(range(item.taps.count) for item in others)):
        known, weight = dict(loops), constant(1.0)
        for item, number in zip(others, taps, strict=True):
            result = loops[item.loop]
            extent = _extent(plan, arguments, item)
            first = item.taps.first(result, extent)
            known[item.tap] = _kept(first + number, item, extent)
            weight = weight * item.taps.weights(result, extent)[number]
        value = neighbour(plan.split, plan.nest, arguments, known)
        term = value * weight if others else value
        total = total + term if total.defined() else term
    return total


def _extent(plan: Resizing, arguments: Sequence[hl.ImageParam], item: Dimension) -> Extent:
    at = next(at for at, names in plan.nest.dimensions.items() if names[0] == item.loop)
    return image_extent(plan.split, plan.nest, arguments, at)


def _kept(at: hl.Expr, item: Dimension, extent: Extent) -> hl.Expr:
    """Return an element that may be outside, or else the one at the border."""
    return at if item.taps.is_nearest else hl.clamp(at, 0, extent - 1)


def _tables(last: Dimension, extent: Extent) -> dict[str, hl.Func]:
    """Return index and weights of the elements for each result of the last dimension."""
    at, tap = hl.Var(last.loop), hl.Var(_TAP)
    first, weights = hl.Func(FIRST), hl.Func(WEIGHTS)
    first[at] = last.taps.first(hl.Expr(at), extent)
    weights[at, tap] = hl.mux(tap, last.taps.weights(hl.Expr(at), extent))
    for function in (first, weights):
        function.compute_root()
    return {FIRST: first, WEIGHTS: weights}


def _looked_up(
    plan: Resizing,
    rows: hl.Func,
    tables: Mapping[str, hl.Func],
    variables: tuple[hl.Var, ...],
    extent: Extent,
) -> hl.Expr:
    last = plan.last
    at = next(v for v in variables if v.name() == last.loop)
    if last.taps.is_nearest:
        there = last.taps.first(hl.Expr(at), extent)
        return rows[tuple(there if v.name() == last.loop else v for v in variables)]
    total = hl.Expr()
    for number in range(last.taps.count):
        there = hl.clamp(tables[FIRST][at] + number, 0, extent - 1)
        place = tuple(there if v.name() == last.loop else v for v in variables)
        term = rows[place] * tables[WEIGHTS][at, number]
        total = total + term if total.defined() else term
    return total


def _woven(plan: Resizing, rows: hl.Func, variables: tuple[hl.Var, ...]) -> hl.Expr:
    last = plan.last
    names = {v.name(): v for v in variables}
    at = hl.Expr(names[last.loop])
    rest = names[last.rest] if last.rest in names else at % last.taps.factor
    at = at // last.taps.factor if plan.cuts else at
    total = hl.Expr()
    phases = [last.taps.phase(number) for number in range(last.taps.factor)]
    for number in range(last.taps.count):
        there = at + hl.mux(rest, [hl.i32(first) for first, _ in phases]) + number
        weight = hl.mux(rest, [constant(weights[number]) for _, weights in phases])
        place = tuple(
            there if v.name() == last.loop else v for v in variables if v.name() != last.rest
        )
        term = rows[place] * weight
        if any(weights[number] == 0.0 for _, weights in phases):
            term = strict(term)  # else a NaN that is multiplied by 0 is lost
        total = total + term if total.defined() else term
    return total
