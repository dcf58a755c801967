"""Schedules of moves: rows where neighbours stay neighbours, tiles turned in registers else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.chain import RESULT, estimate_cycles
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.tiling import (
    FLAT,
    LANE,
    RowNest,
    best_tasks,
    estimate_us,
    guided_space,
    parallel_steps,
    row_schedule,
    row_space,
    task_choices,
)
from aoe.kernels.movement.moves import reads_of
from aoe.kernels.movement.plan import Movement
from aoe.schedule import Choice, Knob, Schedule, Space, Step, Values

WALK = "walk"
TURN, WEAVE, GATHER = "turn", "weave", "gather"
"""Tiles turned in registers; vectors woven into one another; elements gathered one by one."""
_WOVEN_MAX = 4
"""Iterations of an innermost loop that are woven; more are turned."""
_ACROSS, _ALONG = "across", "along"
_SIDES = (4, 8, 16)
_MOVE_CYCLES = 2


@dataclass(frozen=True, slots=True)
class Turned:
    """Operands read in another order than they are written.

    Attributes:
        along: The loop whose iterations read neighbours.
        refs: The operands.
    """

    along: Axis
    refs: tuple[str, ...]


def turned(movement: Movement) -> Turned | None:
    """Return the operand read across the innermost loop, None if there is none, or not in rows."""
    inner, loops = movement.axes[-1], movement.axes[:-1]
    found: dict[str, list[str]] = {}
    for ref, source in movement.sources.items():
        read = next(reads_of(source), None)
        stride = abs(read.address.coefficient(inner.name)) if read is not None else 1
        if read is None or stride == 1 or (stride == 0 and inner.extent > _WOVEN_MAX):
            continue
        along = [
            axis.name
            for axis in loops
            if axis.extent >= _SIDES[0] and read.address.coefficient(axis.name) == 1
        ]
        if along:
            found.setdefault(along[0], []).append(ref)
    if not found:
        return None
    name = max(found, key=lambda name: len(found[name]))
    axis = next(axis for axis in loops if axis.name == name)
    return Turned(axis, tuple(found[name]))


def movement_space(movement: Movement, target: KernelTarget) -> Space:
    """Return the ways to walk through the result, and the tasks."""
    nest, found = row_nest(movement, target), turned(movement)
    if found is None:
        space = row_space(nest, target, heavy=bool(movement.made))
        # across the ends of rows, elements are gathered one by one
        rows_first = sorted(space.first_guesses, key=lambda guess: guess["inner"] == FLAT)
        return replace(space, first_guesses=tuple(rows_first))
    inner, lanes = movement.axes[-1], target.vector_lanes
    parts = prod(axis.extent for axis in movement.axes) // lanes**2
    tasks = task_choices(nest.work_us, max(1, parts), target)
    across = tuple(side for side in _SIDES if side <= inner.extent) or (1,)
    along = tuple(side for side in _SIDES if side <= found.along.extent)
    woven = inner.extent <= _WOVEN_MAX and found.along == movement.axes[-2]
    walks = (WEAVE, TURN, GATHER) if woven else (TURN, GATHER)
    knobs = (
        Knob(WALK, walks),
        Knob(_ACROSS, across),
        Knob(_ALONG, along),
        Knob("tasks", tasks),
    )

    def legal(values: Values) -> bool:
        wide, walk = int(values[_ACROSS]), values[WALK]
        if walk == WEAVE:
            return wide == across[0]
        return walk == TURN or int(values[_ALONG]) == along[0]

    best = best_tasks(nest.work_us, tasks)
    middle = (_near(across, lanes // 2), _near(along, lanes // 2))

    def guesses() -> Iterator[tuple[Choice, ...]]:
        if woven:
            yield WEAVE, across[0], middle[1], best
            yield WEAVE, across[0], along[-1], best
        yield TURN, *middle, best
        yield TURN, across[-1], middle[1], best
        yield TURN, middle[0], along[-1], best
        yield GATHER, across[-1], along[0], best
        yield TURN, *middle, 1

    return guided_space(knobs, guesses(), legal)


def movement_schedule(movement: Movement, values: Values, target: KernelTarget) -> Schedule:
    """Return the steps of a configuration of `movement_space`."""
    found = turned(movement)
    if found is None:
        return row_schedule(row_nest(movement, target), values)
    walk, tasks = values[WALK], int(values["tasks"])
    across, along = int(values[_ACROSS]), int(values[_ALONG])
    inner = movement.axes[-1].name
    if walk == GATHER:
        outer = [_tiles(axis, {inner: across}) for axis in movement.axes]
        steps = [*_vector(RESULT, inner, across, sch.Tail.SHIFT_INWARDS)]
        return Schedule((*steps, *parallel_steps(RESULT, outer, tasks)))
    if walk == WEAVE:
        return Schedule(tuple(_woven_steps(movement, found, along, tasks)))
    return Schedule(tuple(_turned_steps(movement, found, across, along, tasks)))


def row_nest(movement: Movement, target: KernelTarget) -> RowNest:
    """Return the loops of the result and what they cost."""
    workload = movement.workload
    traffic = 8 * workload.output.size
    cycles = _MOVE_CYCLES + estimate_cycles(movement.chain)
    work_us = estimate_us(workload.output.size, cycles, traffic, target)
    return RowNest(stage=RESULT, axes=movement.axes, work_us=work_us)


def stage_name(ref: str) -> str:
    """Return the stage an operand is turned in."""
    return f"moved_{ref}"


def _turned_steps(
    movement: Movement, found: Turned, across: int, along: int, tasks: int
) -> Iterator[Step]:
    """Yield steps that read rows of a tile, and write its columns."""
    inner, read = movement.axes[-1].name, found.along.name
    sides = {inner: across, read: along}
    column, row = f"{inner}_t", f"{read}_t"
    yield sch.Split(RESULT, inner, inner, column, across, sch.Tail.SHIFT_INWARDS)
    yield sch.Split(RESULT, read, read, row, along, sch.Tail.SHIFT_INWARDS)
    outer = [_tiles(axis, sides) for axis in movement.axes]
    yield sch.Reorder(RESULT, (column, row, *(axis.name for axis in reversed(outer))))
    yield sch.Vectorize(RESULT, column, across)
    yield sch.Unroll(RESULT, row, along)
    yield from parallel_steps(RESULT, outer, tasks)
    for ref in found.refs:
        stage = stage_name(ref)
        yield sch.ComputeAt(stage, RESULT, inner)
        yield sch.StoreIn(stage, sch.Memory.STACK)
        names = [axis.name for axis in reversed(movement.axes) if axis.name != read]
        yield sch.Reorder(stage, (read, *names))
        yield from _vector(stage, read, along, sch.Tail.GUARD)
        yield sch.Unroll(stage, inner, across)


def _woven_steps(movement: Movement, found: Turned, along: int, tasks: int) -> Iterator[Step]:
    """Yield steps that read as many vectors as the innermost loop is long, and weave them."""
    inner, read = movement.axes[-1], found.along.name
    row = f"{read}_t"
    yield sch.Split(RESULT, read, read, row, along, sch.Tail.SHIFT_INWARDS)
    outer = [_tiles(axis, {read: along}) for axis in movement.axes[:-1]]
    yield sch.Reorder(RESULT, (inner.name, row, *(axis.name for axis in reversed(outer))))
    yield sch.Vectorize(RESULT, row, along)
    yield sch.Unroll(RESULT, inner.name, inner.extent)
    yield from parallel_steps(RESULT, outer, tasks)


def _vector(stage: str, loop: str, width: int, tail: sch.Tail) -> tuple[Step, ...]:
    if width < 2:
        return ()
    return sch.Split(stage, loop, loop, LANE, width, tail), sch.Vectorize(stage, LANE, width)


def _tiles(axis: Axis, sides: Mapping[str, int]) -> Axis:
    """Return the loop over the tiles of a loop."""
    return Axis(axis.name, -(-axis.extent // sides.get(axis.name, 1)))


def _near(sides: tuple[int, ...], wanted: int) -> int:
    return min(sides, key=lambda side: abs(side - wanted))
