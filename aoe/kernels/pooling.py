"""Pooling with the chain behind it.

For windows of r rows and s columns:

    columns      what a window has in each column of the input: r elements become one
    y            s neighbouring columns become one result, then the chain

so that a result takes r + s elements instead of r * s where columns are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
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
from aoe.kernels.math.functions import LOWEST, at_least, constant, largest, strict
from aoe.kernels.movement.access_maps import result_loops
from aoe.kernels.movement.reading import (
    SplitAround,
    WindowReads,
    image_extent,
    neighbour,
    read_arguments,
    read_neighbours,
    split_around,
    tap,
    window_pipeline,
)
from aoe.operators import number, op_key
from aoe.operators.element_types import LEVELS
from aoe.operators.windows import WINDOW_OPERATORS, Window, windows_of
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Operation, Workload

ROWS, COLUMN = "columns", "i"
_WRITTEN_OUT_MAX = 81
"""Elements of a window up to which it is written out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooling:
    """A pooling in loops."""

    split: SplitAround  # The pooling, and the chain behind it
    nest: WindowReads  # Loops over the result, and what is read in them
    windows: dict[int, Window]  # By dimension, outermost first

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Loops over the result, outermost first."""
        return self.nest.axes

    @property
    def is_largest(self) -> bool:
        """True for the largest of a window, False for its mean."""
        return self.split.anchor.op_type == "MaxPool"

    @property
    def power(self) -> int:
        """The power elements of a window are summed up in, 0 where they are not."""
        if self.split.anchor.op_type != "LpPool":
            return 0
        return int(number(self.split.anchor.attributes, "p", 2))

    @property
    def counts_padding(self) -> bool:
        """True if zeros around the image count for a mean."""
        return bool(self.split.anchor.attributes.get("count_include_pad", 0))

    def loop(self, dimension: int) -> str:
        """Return the loop over the results of a dimension."""
        return self.nest.dimensions[dimension][0]

    def is_inside(self, dimension: int) -> bool:
        """True if no window of a dimension reaches beyond the elements there are."""
        window = self.windows[dimension]
        if self.split.workload.is_open:  # at other extents the last may
            return window.before == window.behind == 0 and not _reaches_beyond(self.split.anchor)
        return window.is_inside

    @property
    def last(self) -> int:
        """The innermost dimension with windows."""
        return max(self.windows)


def _reaches_beyond(pooling: Operation) -> bool:
    """True if the last window reaches beyond the image and its `pads`, for some extents."""
    same = str(pooling.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    return same or bool(pooling.attributes.get("ceil_mode", 0))


def _is_padded_as_dense(pooling: Operation, windows: Mapping[int, Window]) -> bool:
    """True for dilated windows with automatic padding, of which ONNX Runtime sees the size alone.

    ONNX pads by what a window reaches; results of ONNX Runtime 1.32 are others, and as many others.
    """
    same = str(pooling.attributes.get("auto_pad", "NOTSET")).startswith("SAME")
    return same and any(window.dilation > 1 for window in windows.values() if window.size > 1)


class PoolingFamily(PlannedFamily[Pooling]):
    """y = chain(largest, mean or norm of a window).

    The columns of a row are kept in scratch memory, or pooled again for each window they are in.
    """

    name = "pooling"
    anchors = frozenset(WINDOW_OPERATORS)

    def plan(self, workload: Workload) -> Pooling | Support:
        """Plan one pooling of what is read, and a chain behind it, or tell why not."""
        found = [op for op in workload.operations if op_key(op) in WINDOW_OPERATORS]
        if len(found) != 1:
            return Support(f"{len(found)} poolings")
        split = split_around(workload, found[0])
        if isinstance(split, Support):
            return split
        windows = {
            at: window
            for at, window in enumerate(windows_of(found[0], split.given), start=2)
            if window.size > 1 or window.stride > 1 or window.before or window.behind
        }
        size = 1
        for window in windows.values():
            size *= window.size
            if max(window.before, window.behind) >= window.reach or window.made == 1:
                return Support("a window in the padding, or one of all there is")
        if not windows or size > _WRITTEN_OUT_MAX:
            return Support(f"windows of {size} elements")
        if _is_padded_as_dense(found[0], windows):
            return Support("dilated windows that ONNX Runtime pads as if they were not")
        if workload.is_open and len(windows) < 2:
            return Support("windows of any image along one dimension")
        if found[0].op_type == "LpPool" and number(found[0].attributes, "p", 2) not in (1, 2):
            return Support("LpPool of another power than 1 or 2")
        counts_padding = bool(found[0].attributes.get("count_include_pad", 0))
        if workload.is_open and counts_padding and _reaches_beyond(found[0]):
            return Support("means of any image that count what lies beyond the padding")
        nest = read_neighbours(split, frozenset(windows), result_loops(workload.output))
        if isinstance(nest, Support):
            return nest
        return Pooling(split=split, nest=nest, windows=windows)

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

    def schedule_of(self, plan: Pooling, values: Values, target: KernelTarget) -> Schedule:
        return Schedule(tuple(_steps(plan, values)))


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
    """Return the number of elements in a window, padding included if that counts."""
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


def _steps(plan: Pooling, values: Values) -> Iterator[Step]:
    vector, unroll, tasks = (int(values[name]) for name in ("vector", "unroll", "tasks"))
    loop, around = plan.axes[-1], _around(plan)
    # plain images vectorise along a row, blocked ones over the channels of a block
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
