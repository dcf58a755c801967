"""Schedules of poolings: a row of the result after the other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.chain import RESULT, estimate_cycles
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.tiling import (
    AGAIN,
    KEEP,
    estimate_us,
    inner_steps,
    loops_around,
    parallel_steps,
    row_memory,
    shared_space,
    vector_choices,
    vector_steps,
)
from aoe.kernels.pooling.plan import Pooling
from aoe.schedule import Schedule, Space, Step, Values

ROWS, COLUMN = "columns", "i"


def pooling_space(plan: Pooling, target: KernelTarget) -> Space:
    """Return vector width, results at once, tasks, and whether columns are kept."""
    workload, loop = plan.split.workload, plan.axes[-1]
    reads = prod(window.size for window in plan.windows.values())
    cycles = 2 * reads + estimate_cycles(plan.split.chain)
    work = estimate_us(workload.output.size, cycles, 12 * workload.output.size, target)
    parts = prod(axis.extent for axis in _around(plan))
    vectors = vector_choices(loop.extent, target.vector_lanes)
    columns = (KEEP, AGAIN) if len(plan.windows) > 1 else (AGAIN,)
    knobs = {"columns": columns, "vector": vectors, "unroll": (1, 2, 4)}

    def legal(values: Values) -> bool:
        unroll = int(values["unroll"])
        return unroll == 1 or unroll <= _unrolled(plan, int(values["vector"]))

    shapes = ((kind, vector, n) for vector in vectors[:2] for n in (2, 1) for kind in columns)
    return shared_space(work, parts, target, knobs, shapes, legal)


def pooling_schedule(plan: Pooling, values: Values) -> Schedule:
    """Return the steps of a configuration of `pooling_space`."""
    return Schedule(tuple(_steps(plan, values)))


def _steps(plan: Pooling, values: Values) -> Iterator[Step]:
    vector, unroll, tasks = (int(values[name]) for name in ("vector", "unroll", "tasks"))
    loop, around = plan.axes[-1], _around(plan)
    if loop.name == plan.loop(plan.last):
        yield from inner_steps(RESULT, loop.name, loop.extent, vector, unroll)
    else:
        yield from inner_steps(RESULT, loop.name, loop.extent, vector, 1)
        if unroll > 1:
            at = plan.axes[-2].name
            yield sch.Split(RESULT, at, at, f"{at}_u", unroll, sch.Tail.SHIFT_INWARDS)
            yield sch.Unroll(RESULT, f"{at}_u", unroll)
    yield from parallel_steps(RESULT, around, tasks)
    if values["columns"] == KEEP:
        # pooled columns of one row, read by every window they are in
        yield sch.ComputeAt(ROWS, RESULT, around[-1].name)
        is_open = plan.split.workload.is_open  # then its length is not known
        yield sch.StoreIn(ROWS, sch.Memory.HEAP if is_open else row_memory(_row_bytes(plan)))
        inner = COLUMN if loop.name == plan.loop(plan.last) else loop.name
        yield from vector_steps(ROWS, inner, vector)


def _unrolled(plan: Pooling, vector: int) -> int:
    """Return the number of results, or of vectors of them, to write out."""
    loop = plan.axes[-1]
    if loop.name == plan.loop(plan.last):
        return loop.extent // vector
    return plan.axes[-2].extent if vector == loop.extent else 1


def _around(plan: Pooling) -> tuple[Axis, ...]:
    """Return the loops around the last dimension with windows; that one if there are none."""
    return loops_around(plan.axes, plan.loop(plan.last))


def _row_bytes(plan: Pooling) -> int:
    at = [axis.name for axis in plan.axes].index(plan.loop(plan.last))
    window = plan.windows[plan.last]
    columns = window.extent + window.before + window.behind + window.reach
    return 4 * columns * prod(axis.extent for axis in plan.axes[at + 1 :])
