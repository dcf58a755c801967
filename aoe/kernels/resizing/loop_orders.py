"""Schedules of interpolations: a row of the result after the other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.chain import RESULT, estimate_cycles
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.tiling import (
    LANE,
    estimate_us,
    loops_around,
    parallel_steps,
    row_memory,
    shared_space,
    vector_choices,
)
from aoe.kernels.resizing.plan import Resizing
from aoe.schedule import Schedule, Space, Step, Values

ROWS, FIRST, WEIGHTS = "rows", "first", "weights"
_GATHER_CYCLES = 16
_TAP_CYCLES = 3


def resizing_space(plan: Resizing, target: KernelTarget) -> Space:
    """Return vector widths and tasks."""
    size = plan.split.workload.output.size
    taps = sum(item.taps.count for item in plan.dimensions)
    gathers = 0 if plan.last.rest or _is_blocked(plan) else _GATHER_CYCLES * plan.last.taps.count
    cycles = _TAP_CYCLES * taps + gathers + estimate_cycles(plan.split.chain)
    work = estimate_us(size, cycles, 8 * size, target)
    parts = prod(axis.extent for axis in _around(plan))
    vectors = vector_choices(_vectorised(plan).extent, target.vector_lanes)
    knobs = {"vector": vectors, "unroll": (1, 2)}

    def legal(values: Values) -> bool:
        vector, unroll = int(values["vector"]), int(values["unroll"])
        return unroll == 1 or vector * unroll <= _vectorised(plan).extent

    shapes = ((vector, n) for vector in vectors for n in (2, 1))
    return shared_space(work, parts, target, knobs, shapes, legal)


def resizing_schedule(plan: Resizing, values: Values) -> Schedule:
    """Return the steps of a configuration of `resizing_space`."""
    return Schedule(tuple(_steps(plan, *(int(values[n]) for n in ("vector", "unroll", "tasks")))))


def _steps(plan: Resizing, vector: int, unroll: int, tasks: int) -> Iterator[Step]:
    loop, around = _vectorised(plan), _around(plan)
    if plan.cuts:  # each element makes all its results, so nothing is beyond the end
        last = plan.last
        yield sch.Split(
            RESULT, last.loop, last.loop, last.rest, last.taps.factor, sch.Tail.ROUND_UP
        )
    tail = sch.Tail.SHIFT_INWARDS if vector * unroll <= loop.extent else sch.Tail.GUARD
    piece = f"{loop.name}_u"
    yield sch.Split(RESULT, loop.name, loop.name, piece, vector * unroll, tail)
    yield sch.Split(RESULT, piece, piece, LANE, vector)
    inside: tuple[str, ...] = (LANE, piece)
    if plan.last.rest:
        inside = (plan.last.rest, *inside)
    names = [axis.name for axis in reversed(plan.walked) if axis.name != plan.last.rest]
    yield sch.Reorder(RESULT, (*inside, *names))
    yield sch.Vectorize(RESULT, LANE, vector)
    if unroll > 1:
        yield sch.Unroll(RESULT, piece, unroll)
    if plan.last.rest:
        yield sch.Unroll(RESULT, plan.last.rest, plan.last.taps.factor)
    yield from parallel_steps(RESULT, around, tasks)
    if len(plan.dimensions) > 1 and not plan.last.taps.is_nearest:
        yield sch.ComputeAt(ROWS, RESULT, around[-1].name)
        is_open = plan.split.workload.is_open  # then its length is not known
        yield sch.StoreIn(ROWS, sch.Memory.HEAP if is_open else row_memory(_row_bytes(plan)))
        inner = "i" if loop.name == plan.last.loop else loop.name
        yield sch.Split(ROWS, inner, inner, LANE, vector, sch.Tail.GUARD)
        yield sch.Vectorize(ROWS, LANE, vector)


def _vectorised(plan: Resizing) -> Axis:
    """Return the loop that is vectorised: the innermost but for a woven one."""
    return plan.walked[-2] if plan.last.rest else plan.axes[-1]


def _around(plan: Resizing) -> tuple[Axis, ...]:
    """Return the loops around the last resized dimension; the one itself if there are none."""
    return loops_around(plan.walked, plan.last.loop)


def _row_bytes(plan: Resizing) -> int:
    at = next(i for i, axis in enumerate(plan.axes) if axis.name == plan.last.loop)
    inside = [axis.extent for axis in plan.axes[at + 1 :] if axis.name != plan.last.rest]
    return 4 * prod(inside) * (plan.last.taps.extent + 4)


def _is_blocked(plan: Resizing) -> bool:
    return plan.axes[-1].name != plan.last.loop
