"""ArgMax and ArgMin along any axis: the place of the largest or smallest element.

The stages; a candidate is an element with its place:

    rows         parts       up to 64 candidates, each the best of every 64th element
                 parts_32, parts_16, ... parts_1   the better of two halves, until one is left
    columns      best        a tile of columns, walked along the axis in vectors
    y            the place of the last candidate
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.columns import TILE, VECTOR, ColumnTiles
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tiling import LANE, estimate_us, parallel_steps, row_memory, shared_space
from aoe.kernels.math.functions import constant, strict
from aoe.operators import number, op_key
from aoe.operators.axes import axis_of
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Workload

_ROW, _COLUMN, _ACCUMULATOR, _WALK = "r", "c", "acc", "k"
_BEST, _PARTS = "best", "parts"
_ACCUMULATORS = (16, 32, 64)
_CYCLES = 4
_ELEMENTS_MAX = 1 << 31
"""Elements from which 32 bits do not count a tensor's."""

Candidate = tuple[hl.Expr, hl.Expr]
"""An element and where it is: float32, int32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArgPlan:
    """An ArgMax or ArgMin in loops: rows, the axis, columns."""

    rows: int  # Elements around the axis
    length: int  # Elements along it
    columns: int  # Elements inside of it
    is_largest: bool  # True for ArgMax
    takes_last: bool  # True if the last of equal elements is wanted

    @property
    def is_row(self) -> bool:
        """True if the axis is the innermost."""
        return self.columns == 1

    @property
    def worst(self) -> hl.Expr:
        """A value no element is worse than."""
        return constant(float("-inf" if self.is_largest else "inf"))

    @property
    def tiles(self) -> ColumnTiles:
        """Tiles of the columns inside of the axis."""

        def outer(tile: int) -> tuple[Axis, ...]:
            return Axis(_ROW, self.rows), Axis(f"{_COLUMN}_tile", -(-self.columns // tile))

        return ColumnTiles(column=Axis(_COLUMN, self.columns), outer=outer)

    def better(self, one: Candidate, other: Candidate) -> Candidate:
        """Return the better of two candidates, by their places where they are equal.

        The places are always compared: a condition that is a strict comparison and nothing else
        makes Halide 21 write the value before it chooses the place by it.
        """
        value, best = one[0], other[0]
        exceeds = strict(value > best if self.is_largest else value < best)
        first = one[1] > other[1] if self.takes_last else one[1] < other[1]
        wins = exceeds | (strict(value == best) & first)
        return hl.select(wins, value, best), hl.select(wins, one[1], other[1])


class ArgExtremes(PlannedFamily[_ArgPlan]):
    """y = the place of the first element nothing exceeds, or of the last one: int64.

    A NaN is never the largest, unless it comes first: then nothing is larger, as in ONNX Runtime's
    reductions of one axis among several.
    """

    name = "arg_extremes"
    anchors = frozenset({("", "ArgMax"), ("", "ArgMin")})

    def plan(self, workload: Workload) -> _ArgPlan | Support:
        """Plan one ArgMax or ArgMin of what is read, or tell why not."""
        anchor = workload.operations[-1]
        if op_key(anchor) not in self.anchors:
            return Support("no ArgMax or ArgMin")
        if len(workload.operations) > 1 or len(workload.inputs) > 1:
            return Support(f"{anchor.op_type} of what is computed")
        shapes = infer_shapes(workload)
        if isinstance(shapes, str):
            return Support(shapes)
        given, made = workload.inputs[0], workload.output
        if (given.dtype, made.dtype) != ("float32", "int64") or given.block or made.block:
            return Support(f"{anchor.op_type} of {given.dtype} in {given.layout_name}")
        axis = axis_of(anchor, len(given.shape))
        if axis is None or given.shape[axis] < 2 or given.size >= _ELEMENTS_MAX:
            return Support(f"{anchor.op_type} of a single element, or of too many")
        return _ArgPlan(
            rows=prod(given.shape[:axis]),
            length=given.shape[axis],
            columns=prod(given.shape[axis + 1 :]),
            is_largest=anchor.op_type == "ArgMax",
            takes_last=bool(number(anchor.attributes, "select_last_index", 0)),
        )

    def pipeline_of(self, plan: _ArgPlan, algorithm: str) -> Pipeline:
        """Return the candidates as stages, and the place of the best."""
        return _row_pipeline(plan) if plan.is_row else _column_pipeline(plan)

    def space_of(self, plan: _ArgPlan, target: KernelTarget) -> Space:
        """Return candidates walked together, or columns of a tile, and tasks."""
        elements = plan.rows * plan.length * plan.columns
        work = estimate_us(elements, _CYCLES, 4 * elements, target)
        if plan.is_row:
            return shared_space(work, plan.rows, target, {}, ((),), tries_most=True)
        return plan.tiles.space(work, target, best_vectors=16)

    def schedule_of(self, plan: _ArgPlan, values: Values, target: KernelTarget) -> Schedule:
        return (_row_schedule if plan.is_row else _column_schedule)(plan, values)


def _column_pipeline(plan: _ArgPlan) -> Pipeline:
    column, row = hl.Var(_COLUMN), hl.Var(_ROW)
    source = hl.ImageParam(hl.Float(32), 3, "x0")
    walk = hl.RDom([(1, plan.length - 1)], _WALK)
    best = hl.Func(_BEST)
    best[column, row] = (source[column, 0, row], hl.i32(0))
    element = (source[column, walk.x, row], hl.Expr(walk.x))
    best[column, row] = plan.better(element, _candidate(best[column, row]))
    best.compute_root()  # steps place it closer
    output = hl.Func(RESULT)
    output[column, row] = hl.cast(hl.Int(64), hl.Expr(best[column, row][1]))
    nest = ((_COLUMN, plan.columns), (_ROW, plan.rows))
    unbounded = ((_COLUMN, 0), (_ROW, 0))
    return Pipeline(
        output=output,
        stages={RESULT: output, _BEST: best, f"{_BEST}{UPDATE}": best.update()},
        arguments=(source,),
        argument_extents=((plan.columns, plan.length, plan.rows),),
        output_extents=(plan.columns, plan.rows),
        loops={
            RESULT: nest,
            _BEST: unbounded,
            f"{_BEST}{UPDATE}": ((walk.x.name(), plan.length - 1), *unbounded),
        },
    )


def _row_pipeline(plan: _ArgPlan) -> Pipeline:
    """Return candidates that start with the end of a row, and are compared half by half."""
    at, row, count = hl.Var(_ACCUMULATOR), hl.Var(_ROW), _accumulators(plan)
    source = hl.ImageParam(hl.Float(32), 2, "x0")
    whole = plan.length // count
    walk = hl.RDom([(0, whole)], _WALK)
    parts = hl.Func(_PARTS)
    end = at + (plan.length - count)
    last = source[end, row]
    parts[at, row] = (
        hl.select(hl.is_nan(last), plan.worst, last),
        hl.select(hl.is_nan(last), hl.i32(0), end),
    )
    place = walk.x * count + at
    kept = parts[at, row]
    parts[at, row] = plan.better((source[place, row], place), _candidate(kept))
    stages: dict[str, hl.Func] = {_PARTS: parts}
    loops = {_PARTS: ((_ACCUMULATOR, count), (_ROW, 0))}
    left = parts
    for width in _halves(count):
        halves = hl.Func(_half(width))
        one, other = left[at, row], left[at + width, row]
        halves[at, row] = plan.better(_candidate(one), _candidate(other))
        stages[_half(width)], loops[_half(width)] = halves, ((_ACCUMULATOR, width), (_ROW, 0))
        left = halves
    for function in stages.values():
        function.compute_root()  # steps place it closer
    output = hl.Func(RESULT)
    first_is_nan = hl.is_nan(source[0, row])
    output[row] = hl.cast(hl.Int(64), hl.select(first_is_nan, hl.i32(0), hl.Expr(left[0, row][1])))
    update = f"{_PARTS}{UPDATE}"
    return Pipeline(
        output=output,
        stages={RESULT: output, **stages, update: parts.update()},
        arguments=(source,),
        argument_extents=((plan.length, plan.rows),),
        output_extents=(plan.rows,),
        loops={
            RESULT: ((_ROW, plan.rows),),
            **loops,
            update: ((walk.x.name(), whole), (_ACCUMULATOR, count), (_ROW, 0)),
        },
    )


def _candidate(found: Any) -> Candidate:
    return hl.Expr(found[0]), hl.Expr(found[1])


def _accumulators(plan: _ArgPlan) -> int:
    """Return the number of candidates of a row that are walked together."""
    fitting = [count for count in _ACCUMULATORS if 2 * count <= plan.length]
    return int(fitting[-1] if fitting else 1 << (plan.length.bit_length() - 1))


def _halves(count: int) -> list[int]:
    found = []
    while count > 1:
        count //= 2
        found.append(count)
    return found


def _half(width: int) -> str:
    return f"{_PARTS}_{width}"


def _row_schedule(plan: _ArgPlan, values: Values) -> Schedule:
    steps: list[Step] = list(parallel_steps(RESULT, (Axis(_ROW, plan.rows),), int(values["tasks"])))
    count, update = _accumulators(plan), f"{_PARTS}{UPDATE}"
    widths = {_PARTS: count, **{_half(width): width for width in _halves(count)}}
    # candidates of a row are a few registers: they never leave the stack
    for stage in widths:
        steps += [sch.ComputeAt(stage, RESULT, _ROW), sch.StoreIn(stage, sch.Memory.STACK)]
    widths[update] = count
    steps += [
        sch.Vectorize(name, _ACCUMULATOR, width) for name, width in widths.items() if width > 1
    ]
    return Schedule((*steps, sch.Reorder(update, (_ACCUMULATOR, f"{_WALK}$x"))))


def _column_schedule(plan: _ArgPlan, values: Values) -> Schedule:
    tile, vector, update = int(values[TILE]), int(values[VECTOR]), f"{_BEST}{UPDATE}"
    steps: list[Step] = [
        *plan.tiles.steps(values),
        sch.ComputeAt(_BEST, RESULT, plan.tiles.place(values)),
        sch.StoreIn(_BEST, row_memory(8 * (tile + vector))),
    ]
    lane = f"{LANE}_b"
    for stage in (_BEST, update):
        steps += [sch.Split(stage, _COLUMN, _COLUMN, lane, vector, sch.Tail.GUARD)]
        steps += [sch.Vectorize(stage, lane, vector)] if vector > 1 else []
    return Schedule((*steps, sch.Reorder(update, (lane, _COLUMN, f"{_WALK}$x"))))
