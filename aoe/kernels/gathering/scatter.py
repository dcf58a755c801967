"""ScatterElements: a copy in which some elements are replaced, or combined with others.

y            the copy, its rows shared by the tasks
y.update     rows or columns shared by the tasks, inside of them the indices in their order,
             inside of these the columns, in vectors
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import (
    UPDATE,
    KernelTarget,
    Pipeline,
    PlannedFamily,
    Support,
    all_indices,
)
from aoe.kernels.gathering.gather import other_extents_differ, place_of
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.tiling import (
    LANE,
    TASK,
    estimate_us,
    inner_steps,
    parallel_steps,
    shared_space,
    vector_choices,
)
from aoe.kernels.math.elements import element_type
from aoe.kernels.math.functions import strict
from aoe.operators import op_key
from aoe.operators.axes import axis_of
from aoe.operators.element_types import FLOAT32
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Workload

_ROW, _PLACE, _COLUMN, _WALK = "r", "p", "c", "k"
_CYCLES = 60
_ELEMENTS_MAX = 1 << 31
"""Elements from which 32 bits do not count a tensor's."""

_REDUCTIONS: Mapping[str, Callable[[hl.Expr, hl.Expr], hl.Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: strict(old + new),
    "mul": lambda old, new: strict(old * new),
    "max": lambda old, new: hl.select(strict(old > new), old, new),
    "min": lambda old, new: hl.select(strict(old < new), old, new),
}
"""As ONNX Runtime chooses: a NaN that is there is replaced, a new one stays until the next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScatterPlan:
    """A ScatterElements in loops: rows, the axis, columns."""

    workload: Workload  # What is computed
    sources: tuple[int, int, int]  # Inputs that are the data, the indices and the updates
    rows: int  # Elements in front of the axis
    columns: int  # Elements behind it
    length: int  # Elements along it
    count: int  # Indices along it
    reduction: str  # How an update is combined with what is there


class ScatterElements(PlannedFamily[_ScatterPlan]):
    """y = x; then y[..., index[..., i, ...], ...] = update[..., i, ...], one i after the other.

    What lies in front of the axis and behind it cannot meet: it is what threads share, and
    vectors are made of. Indices of one place come one after the other, so that of two equal ones
    the later counts, and sums round as in ONNX Runtime.
    """

    name = "scatter_elements"
    anchors = frozenset({("", "ScatterElements")})

    def plan(self, workload: Workload) -> _ScatterPlan | Support:
        """Plan one ScatterElements of what is read, or tell why not."""
        anchor = workload.operations[-1]
        if op_key(anchor) not in self.anchors or len(workload.operations) > 1:
            return Support("no ScatterElements, or more than one operator")
        refs = anchor.inputs
        if set(refs) != {"x0", "x1", "x2"} or len(refs) != 3:
            return Support("ScatterElements of one tensor in two roles")
        data, index, new = (int(ref[1:]) for ref in refs)
        given, places, updates = (workload.inputs[number] for number in (data, index, new))
        axis, reduction = axis_of(anchor, len(given.shape)), _reduction(workload)
        if reduction not in _REDUCTIONS:
            return Support(f"reduction {reduction}")
        if axis is None or other_extents_differ(axis, given.shape, places.shape):
            return Support(f"indices of {places.shape} into {given.shape}")
        if updates.shape != places.shape or workload.output.shape != given.shape:
            return Support(f"updates of {updates.shape} for indices of {places.shape}")
        if {given.dtype, updates.dtype} != {FLOAT32}:
            return Support(f"updates of {updates.dtype} in a tensor of {given.dtype}")
        if given.block or max(given.size, places.size) >= _ELEMENTS_MAX:
            return Support(f"{given.size} elements in {given.layout_name}")
        return _ScatterPlan(
            workload=workload,
            sources=(data, index, new),
            rows=prod(given.shape[:axis]),
            columns=prod(given.shape[axis + 1 :]),
            length=given.shape[axis],
            count=places.shape[axis],
            reduction=reduction,
        )

    def pipeline_of(self, plan: _ScatterPlan, algorithm: str) -> Pipeline:
        """Return the copy, whose update writes where the indices say."""
        column, place, row = hl.Var(_COLUMN), hl.Var(_PLACE), hl.Var(_ROW)
        data, index, new = plan.sources
        source = hl.ImageParam(hl.Float(32), 3, f"x{data}")
        places = hl.ImageParam(element_type(plan.workload.inputs[index].dtype), 3, f"x{index}")
        updates = hl.ImageParam(hl.Float(32), 3, f"x{new}")
        walk = hl.RDom([(0, plan.count)], _WALK)
        output = hl.Func(RESULT)
        output[column, place, row] = source[column, place, row]
        there = place_of(places[column, walk.x, row], plan.length)
        old = hl.Expr(output[column, there, row])
        combine = _REDUCTIONS[plan.reduction]
        output[column, there, row] = combine(old, updates[column, walk.x, row])
        written = (plan.columns, plan.count, plan.rows)
        whole = (plan.columns, plan.length, plan.rows)
        extents = {data: whole, index: written, new: written}
        arguments = {data: source, index: places, new: updates}
        return Pipeline(
            output=output,
            stages={RESULT: output, f"{RESULT}{UPDATE}": output.update()},
            arguments=tuple(arguments[number] for number in sorted(arguments)),
            argument_extents=tuple(extents[number] for number in sorted(extents)),
            output_extents=whole,
            loops={
                RESULT: ((_COLUMN, plan.columns), (_PLACE, plan.length), (_ROW, plan.rows)),
                f"{RESULT}{UPDATE}": (
                    (_COLUMN, plan.columns),
                    (walk.x.name(), plan.count),
                    (_ROW, plan.rows),
                ),
            },
            indexed=(all_indices(index, prod(written), plan.length),),
        )

    def space_of(self, plan: _ScatterPlan, target: KernelTarget) -> Space:
        """Return vector widths and tasks."""
        written, size = plan.rows * plan.count * plan.columns, plan.workload.output.size
        work = estimate_us(written, _CYCLES, 8 * size + 20 * written, target)
        vectors = vector_choices(plan.columns, target.vector_lanes)
        parts = max(plan.rows, plan.columns)
        shapes = ((vector,) for vector in vectors)
        return shared_space(work, parts, target, {"vector": vectors}, shapes)

    def schedule_of(self, plan: _ScatterPlan, values: Values, target: KernelTarget) -> Schedule:
        return Schedule(tuple(_steps(plan, values)))


def _reduction(workload: Workload) -> str:
    return str(workload.operations[-1].attributes.get("reduction", "none"))


def _steps(plan: _ScatterPlan, values: Values) -> list[Step]:
    """Return steps for the copy, then for the updates; no update may be made twice."""
    vector, tasks, update = int(values["vector"]), int(values["tasks"]), f"{RESULT}{UPDATE}"
    around = (Axis(_ROW, plan.rows), Axis(_PLACE, plan.length))
    steps: list[Step] = [
        *parallel_steps(RESULT, around, min(tasks, plan.rows * plan.length)),
        *inner_steps(RESULT, _COLUMN, plan.columns, vector, 1),
    ]
    # indices along the axis keep their order, so threads share rows, or columns where rows are few
    shared = _COLUMN if plan.rows < tasks else _ROW
    extent = plan.columns if shared == _COLUMN else plan.rows
    order = [_COLUMN, f"{_WALK}$x", _ROW]
    if tasks > 1:
        piece = -(-extent // tasks)
        # pieces of whole vectors
        if shared == _COLUMN:
            piece = -(-piece // vector) * vector
        steps.append(sch.Split(update, shared, TASK, shared, piece, sch.Tail.GUARD))
        order.append(TASK)
    if vector > 1:
        steps.append(sch.Split(update, _COLUMN, _COLUMN, LANE, vector, sch.Tail.GUARD))
        steps.append(sch.Vectorize(update, LANE, vector))
        order.insert(0, LANE)
    steps.append(sch.Reorder(update, tuple(order)))
    if tasks > 1:
        steps.append(sch.Parallel(update, TASK))
    return steps
