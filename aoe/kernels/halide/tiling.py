"""Loop plans shared by the families: tasks for the threads, vectors along the innermost axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import prod

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget
from aoe.kernels.halide.iteration import Axis
from aoe.schedule import Choice, Knob, Schedule, Space, Step, Values

_CYCLES_PER_US = 3000
"""Clock assumed when work is estimated, in cycles per microsecond: 3 GHz."""
_BYTES_PER_US = 10_000
"""Memory traffic one core is assumed to sustain, in bytes per microsecond: 10 GB/s."""
_TASK_MIN_US = 10.0
"""Work below which handing a task to another thread does not pay."""
LANE = "lane"
TASK = "task"
FLAT, ROW = "flat", "row"
KEEP, AGAIN = "keep", "again"
"""The values of a stage are kept in scratch memory, or computed again where they are read."""
_ROW_BYTES_MAX = 64 << 10
"""Of a row that is kept on the stack of a thread."""
GUESSES_MAX = 6
"""Configurations a family suggests: more would take trials from the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowNest:
    """A loop nest that is computed row by row: no axis but the innermost is vectorised."""

    stage: str  # Stage of the result
    axes: tuple[Axis, ...]  # Loops, outermost first
    work_us: float  # Estimated time of one core for all of it


def estimate_us(
    elements: int, cycles_per_vector: float, traffic_bytes: int, target: KernelTarget
) -> float:
    """Return a rough time of one core for `elements` results: compute or memory bound."""
    compute = elements / target.vector_lanes * cycles_per_vector / _CYCLES_PER_US
    return max(compute, traffic_bytes / _BYTES_PER_US)


def task_choices(work_us: float, parts: int, target: KernelTarget) -> tuple[int, ...]:
    """Return numbers of tasks worth trying: one, and multiples of the threads.

    Args:
        work_us: Time of one core for everything.
        parts: Pieces the work can be cut into.
        target: Gives the threads.
    """
    if target.threads < 2:
        return (1,)
    # several tasks for each thread even out threads that start late
    multiples = [target.threads * factor for factor in (1, 2, 4, 8, 16)]
    useful = [n for n in multiples if n <= parts and work_us / n >= _TASK_MIN_US / 4]
    return (1, *useful)


def best_tasks(work_us: float, choices: Sequence[int]) -> int:
    """Return the largest number of tasks that are each worth handing over, up to four rounds."""
    worthwhile = [n for n in choices[:4] if n == 1 or work_us / n >= _TASK_MIN_US]
    return max(worthwhile)


def vector_choices(extent: int, lanes: int) -> tuple[int, ...]:
    """Return vector widths for a loop of `extent`: registers, or what a short loop allows."""
    # two or four registers as one vector: as many loads and chains of operations in flight
    wide = tuple(lanes * factor for factor in (1, 2, 4) if lanes * factor <= extent)
    if wide:
        return wide
    # a loop shorter than a register: the power of two below, or the guarded one above
    below = 1 << (extent.bit_length() - 1)
    return (below,) if below == extent else (below, 2 * below)


def loops_around(axes: Sequence[Axis], name: str) -> tuple[Axis, ...]:
    """Return the loops around one of `axes`, outermost first; the outermost if there are none."""
    at = [axis.name for axis in axes].index(name)
    return tuple(axes[:at] or axes[:1])


def row_memory(row_bytes: int) -> sch.Memory:
    """Return the memory of a row that is kept."""
    return sch.Memory.STACK if row_bytes <= _ROW_BYTES_MAX else sch.Memory.HEAP


def tile_choices(extent: int, smallest: int) -> tuple[int, ...]:
    """Return numbers of iterations of a loop to compute together: doublings, or all of them."""
    tiles = [smallest << shift for shift in range(6)]
    return (*(tile for tile in tiles if tile < extent), extent)


def task_chunk(extents: Sequence[int], tasks: int, multiple: int = 1) -> tuple[int, int]:
    """Return which loop is cut so that it and the loops around give `tasks` tasks, and the size.

    Args:
        extents: Of the loops, outermost first.
        tasks: Wanted, 2 or more.
        multiple: What a piece of the last loop is a multiple of.
    """
    at, around = 0, 1
    while around * extents[at] < tasks and at < len(extents) - 1:
        around *= extents[at]
        at += 1
    # pieces of the cut loop, so that with the loops around it there are about `tasks`
    size = -(-extents[at] // -(-tasks // around))
    if at == len(extents) - 1:
        size = min(extents[at], -(-size // multiple) * multiple)
    return at, size


def parallel_steps(
    stage: str, axes: Sequence[Axis], tasks: int, multiple: int = 1
) -> tuple[Step, ...]:
    """Return steps that share out the loops `axes`, outermost first, in about `tasks` tasks.

    The loop that is cut keeps its name inside a task, so that stages can be computed there. Only
    the loop over the pieces is fused with the loops around it: fused loops cost a division each
    time.
    """
    if tasks < 2:
        return ()
    at, size = task_chunk([axis.extent for axis in axes], tasks, multiple)
    name = axes[at].name
    return (
        sch.Split(stage, name, TASK, name, size, sch.Tail.SHIFT_INWARDS),
        *(sch.Fuse(stage, axis.name, TASK, TASK) for axis in reversed(axes[:at])),
        sch.Parallel(stage, TASK),
    )


def tile_steps(
    stage: str, tile: Axis, outer: Sequence[Axis], order: Sequence[str], inner: Iterable[Step] = ()
) -> tuple[Step, ...]:
    """Return steps that cut a loop into tiles and walk each before the next.

    Args:
        stage: Stage of the loops.
        tile: The loop, and the iterations of a tile.
        outer: Loops around a tile, outermost first, that over the tiles last.
        order: Loops within a tile, innermost first.
        inner: Steps that make `order` out of the loops within a tile.
    """
    around = (axis.name for axis in reversed(outer))
    return (
        sch.Split(stage, tile.name, outer[-1].name, tile.name, tile.extent, sch.Tail.SHIFT_INWARDS),
        *inner,
        sch.Reorder(stage, (*order, *around)),
    )


def row_space(nest: RowNest, target: KernelTarget, *, heavy: bool) -> Space:
    """Return the space of a row-wise kernel.

    Args:
        nest: The loops.
        target: Vector width and threads.
        heavy: True if computing, not memory, bounds the kernel: narrower vectors first.
    """
    layouts, lanes = _layouts(nest, target), target.vector_lanes
    vectors = {v for kind in layouts for v in vector_choices(_inner(nest, kind), lanes)}
    parts = max(1, prod(axis.extent for axis in nest.axes) // lanes)
    tasks = task_choices(nest.work_us, parts, target)
    knobs = (
        Knob("inner", layouts),
        Knob("vector", tuple(sorted(vectors))),
        Knob("unroll", (1, 2, 4)),
        Knob("tasks", tasks),
    )

    def legal(values: Values) -> bool:
        vector, unroll = int(values["vector"]), int(values["unroll"])
        extent = _inner(nest, str(values["inner"]))
        if vector not in vector_choices(extent, target.vector_lanes):
            return False
        if unroll == 1 or vector * unroll <= extent:
            return True
        return vector == extent and _RowLoops.of(nest, values).outer_extent >= unroll

    best = best_tasks(nest.work_us, tasks)
    counts = tuple(dict.fromkeys((best, max(tasks), 1)))
    return guided_space(knobs, _row_guesses(nest, layouts, lanes, counts, heavy=heavy), legal)


def guided_space(
    knobs: tuple[Knob, ...],
    guesses: Iterable[tuple[Choice, ...]],
    legal: Callable[[Values], bool] = lambda _: True,
) -> Space:
    """Return a space with the first few legal ones of `guesses`.

    Args:
        knobs: The decisions.
        guesses: Choices in the order of the knobs, best first; illegal and repeated ones are
            passed over.
        legal: True for choices that may be combined.
    """
    names = [knob.name for knob in knobs]
    distinct = (dict(zip(names, guess, strict=True)) for guess in dict.fromkeys(guesses))
    best_first = tuple(islice(filter(legal, distinct), GUESSES_MAX))
    return Space(knobs=knobs, constraint=legal, first_guesses=best_first)


def shared_space(
    work_us: float,
    parts: int,
    target: KernelTarget,
    knobs: Mapping[str, tuple[Choice, ...]],
    shapes: Iterable[tuple[Choice, ...]],
    legal: Callable[[Values], bool] = lambda _: True,
    *,
    tries_most: bool = False,
) -> Space:
    """Return a space of `knobs`, and of how many tasks the work is shared out in.

    Args:
        work_us: Time of one core for everything.
        parts: Pieces the work can be cut into.
        target: Gives the threads.
        knobs: The other decisions, by name.
        shapes: Choices in the order of `knobs`, best first: tried with the best number of tasks,
            then with one.
        legal: True for choices that may be combined.
        tries_most: True if the largest number of tasks is tried before one is.
    """
    tasks, offered = task_choices(work_us, parts, target), list(shapes)
    counts = (best_tasks(work_us, tasks), *((max(tasks),) if tries_most else ()), 1)
    guesses = [(*shape, count) for count in counts for shape in offered]
    decisions = (*(Knob(name, choices) for name, choices in knobs.items()), Knob("tasks", tasks))
    return guided_space(decisions, guesses, legal)


def _row_guesses(
    nest: RowNest, layouts: Sequence[str], lanes: int, counts: Sequence[int], *, heavy: bool
) -> Iterator[tuple[Choice, ...]]:
    """Yield layout, vector, unrolling and tasks, best first; not all of them are legal."""
    for count in counts:
        for kind in layouts:
            vectors = vector_choices(_inner(nest, kind), lanes)
            shapes = [(vectors[0], 2), (vectors[min(1, len(vectors) - 1)], 2)]
            shapes = shapes if heavy else shapes[::-1]
            shapes += [(vectors[0], 1), (vectors[-1], 1)]
            for vector, unroll in shapes if count == counts[0] else shapes[::2]:
                yield kind, vector, unroll, count


@dataclass(frozen=True, slots=True)
class _RowLoops:
    """The loops of a configuration, outermost first, and where they are cut for the threads."""

    axes: tuple[Axis, ...]
    cut: int
    size: int

    @classmethod
    def of(cls, nest: RowNest, values: Values) -> _RowLoops:
        axes = nest.axes
        if values["inner"] == FLAT:
            axes = (*axes[:-2], Axis(FLAT, axes[-2].extent * axes[-1].extent))
        block = int(values["vector"]) * int(values["unroll"])
        cut, size = -1, 0
        if int(values["tasks"]) > 1:
            cut, size = task_chunk([a.extent for a in axes], int(values["tasks"]), block)
        return cls(axes, cut, size)

    def extent(self, at: int) -> int:
        """Return the iterations of a loop inside a task."""
        return self.size if at == self.cut else self.axes[at].extent

    @property
    def outer_extent(self) -> int:
        """Iterations of the loop around the innermost, inside a task; 1 if none is left there."""
        innermost = len(self.axes) - 1
        return 1 if self.cut == innermost or innermost == 0 else self.extent(innermost - 1)


def row_schedule(nest: RowNest, values: Values) -> Schedule:
    """Return the steps of a configuration of `row_space`."""
    loops = _RowLoops.of(nest, values)
    stage, inner = nest.stage, loops.axes[-1].name
    vector, unroll, tasks = (int(values[name]) for name in ("vector", "unroll", "tasks"))
    steps: list[Step] = []
    if values["inner"] == FLAT:
        steps.append(sch.Fuse(stage, nest.axes[-2].name, nest.axes[-1].name, FLAT))
    steps += parallel_steps(stage, loops.axes, tasks, vector * unroll)
    # a row of one vector cannot be unrolled: rows of the loop around it are, instead
    extent = loops.extent(len(loops.axes) - 1)
    if unroll > 1 and vector == extent and loops.outer_extent >= unroll:
        around = loops.axes[-2].name
        copies = f"{around}_u"
        steps += inner_steps(stage, inner, extent, vector, 1)
        steps.append(sch.Split(stage, around, around, copies, unroll, sch.Tail.SHIFT_INWARDS))
        steps.append(sch.Unroll(stage, copies, unroll))
    else:
        steps += inner_steps(stage, inner, extent, vector, unroll)
    return Schedule(tuple(steps))


def inner_steps(stage: str, name: str, extent: int, vector: int, unroll: int) -> tuple[Step, ...]:
    """Return steps that vectorise and unroll one loop; a tail is computed twice or guarded."""
    block = vector * unroll
    if vector < 2 and unroll < 2:
        return ()
    # the last vector overlaps the one before it; in a loop shorter than a vector nothing is before
    tail = sch.Tail.SHIFT_INWARDS if block <= extent else sch.Tail.GUARD
    if unroll < 2:
        return (
            sch.Split(stage, name, name, LANE, vector, tail),
            sch.Vectorize(stage, LANE, vector),
        )
    return (
        sch.Split(stage, name, name, f"{name}_u", block, tail),
        sch.Split(stage, f"{name}_u", f"{name}_u", LANE, vector),
        sch.Vectorize(stage, LANE, vector),
        sch.Unroll(stage, f"{name}_u", unroll),
    )


def vector_steps(stage: str, loop: str, vector: int, lane: str = LANE) -> tuple[Step, ...]:
    """Return steps that make vectors of a loop, guarded at its end; none for single elements."""
    if vector < 2:
        return ()
    return (
        sch.Split(stage, loop, loop, lane, vector, sch.Tail.GUARD),
        sch.Vectorize(stage, lane, vector),
    )


def _layouts(nest: RowNest, target: KernelTarget) -> tuple[str, ...]:
    """Return ways to vectorise: along the row, or across the ends of short rows."""
    row, lanes = nest.axes[-1].extent, target.vector_lanes
    short = len(nest.axes) > 1 and row < 2 * lanes
    if not short or row == lanes:
        return (ROW,)
    return (FLAT, ROW) if row < lanes else (ROW, FLAT)


def _inner(nest: RowNest, layout: str) -> int:
    return nest.axes[-1].extent * (nest.axes[-2].extent if layout == FLAT else 1)
