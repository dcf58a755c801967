"""Softmax and LogSoftmax over an axis that is not the last, with the chain behind them.

The stages, for a tile of columns:

    peak         the largest element
    grown        e^(x - peak), kept in scratch memory or computed again
    partial      sums of 64 exponentials, where the axis is long
    total        sum of the exponentials
    y            grown / total, or x - peak - log(total), then the chain
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from operator import add
from typing import Any

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import UPDATE, KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.anchored import Anchored, anchor_operands, anchored_pipeline
from aoe.kernels.halide.chain import RESULT, Operands, estimate_cycles
from aoe.kernels.halide.columns import TASKS, TILE, VECTOR, WalkPlan, plan_walked
from aoe.kernels.halide.loops import moved_to
from aoe.kernels.halide.tiling import AGAIN, KEEP, LANE, estimate_us, vector_steps
from aoe.kernels.math.functions import (
    LOWEST,
    constant,
    log,
    softmax_numerator,
    strict,
    weight_of_negative,
)
from aoe.operators import SOFTMAX_ONE_AXIS_SINCE, softmax_axis
from aoe.schedule import Schedule, Space, Step, Values
from aoe.workload import Workload

PEAK, GROWN, PARTIAL, TOTAL = "peak", "grown", "partial", "total"
_CYCLES = 30
_UNROLLED_MAX = 4
_SCRATCH_BYTES_MAX = 192 << 10
_PART = 64
"""Terms summed up before partial sums are: keeps the rounding error of long sums small."""


class Softmax(PlannedFamily[WalkPlan]):
    """e^(x - peak) / total, or x - peak - log(total).

    A tile of columns is walked along the axis once for the largest value, once for the
    exponentials and their sum, and once for the result.
    """

    name = "softmax"
    anchors = frozenset({("", "Softmax"), ("", "LogSoftmax")})

    def plan(self, workload: Workload) -> WalkPlan | Support:
        """Plan one softmax over a middle axis and a chain behind it, or tell why not."""
        return plan_walked(workload, self.anchors, _reduced_axis, "softmax")

    def pipeline_of(self, plan: WalkPlan, algorithm: str) -> Pipeline:
        """Return the passes as stages; the chain is inlined into the last."""
        operands = anchor_operands(plan.nest)
        passes = _passes(plan, operands)
        stages: dict[str, Any] = {name: made.function for name, made in passes.items()}
        loops = {name: tuple((v.name(), 0) for v in f.args()) for name, f in stages.items()}
        for name, made in passes.items():
            if made.reduced:
                stages[f"{name}{UPDATE}"] = made.function.update()
                loops[f"{name}{UPDATE}"] = ((made.reduced, 0), *loops[name])
        result = _result(plan, operands, passes)
        return anchored_pipeline(plan.nest, operands, result, stages, loops)

    def space_of(self, plan: WalkPlan, target: KernelTarget) -> Space:
        """Return columns per tile, vector width, tasks, and whether exponentials are kept."""
        elements = plan.nest.workload.output.size
        cycles = _CYCLES + estimate_cycles(plan.nest.parts.after)
        work = estimate_us(elements, cycles, 12 * elements, target)

        def legal(values: Values) -> bool:
            kept = int(values[TILE]) + int(values[VECTOR])
            kept_bytes = 4 * kept * plan.walked.extent
            return values["exponentials"] != KEEP or kept_bytes <= _SCRATCH_BYTES_MAX

        return plan.tiles.space(
            work,
            target,
            best_vectors=4,
            others={"exponentials": (KEEP, AGAIN)},
            order=(TILE, VECTOR, TASKS, "exponentials"),
            legal=legal,
        )

    def schedule_of(self, plan: WalkPlan, values: Values, target: KernelTarget) -> Schedule:
        return _schedule(plan, values)


def _reduced_axis(parts: Anchored) -> int | Support:
    """Return the dimension that is reduced, or why it is not one this kernel reduces."""
    shape = parts.workload.output.shape
    rank = len(shape)
    axis = softmax_axis(parts.anchor)
    if not -rank <= axis < rank:
        return Support(f"axis {axis} of a tensor of rank {rank}")
    axis %= rank
    if prod(shape[axis + 1 :]) == 1:
        return Support("the reduced axis is the last")
    if parts.anchor.version < SOFTMAX_ONE_AXIS_SINCE:
        return Support(f"version {parts.anchor.version} reduces all axes from {axis} to the last")
    return axis


@dataclass(frozen=True, slots=True)
class _Pass:
    """A stage before the result, and the loop it reduces, if it does."""

    function: hl.Func
    reduced: str = ""


def _columns(plan: WalkPlan, operands: Operands) -> tuple[hl.Var, ...]:
    """Return the loop variables that are not reduced, innermost first."""
    return tuple(v for v in operands.variables if v.name() != plan.walked.name)


def _passes(plan: WalkPlan, operands: Operands) -> dict[str, _Pass]:
    """Return peak, exponentials and their sum by name; the sum of a long axis is made in parts."""
    columns, length = _columns(plan, operands), plan.walked.extent
    source = operands.arguments[plan.nest.parts.source]

    def along(function: hl.Func | hl.ImageParam, at: hl.Expr) -> hl.Expr:
        return function[moved_to(operands.variables, {plan.walked.name: at})]

    k, grown = hl.RDom([(0, length)], "k"), hl.Func(GROWN)
    peak = _reduction(PEAK, columns, k, LOWEST, hl.max, along(source, hl.Expr(k.x)))
    lowered = strict(source[operands.variables] - peak.function[columns])
    is_softmax = plan.nest.parts.anchor.op_type == "Softmax"
    grow = softmax_numerator if is_softmax else weight_of_negative
    grown[operands.variables] = grow(lowered)
    passes = {PEAK: peak, GROWN: _Pass(grown)}
    # a long sum in float32 loses digits: parts of 64 lose fewer
    if length <= 2 * _PART:
        t = hl.RDom([(0, length)], "t")
        term = along(grown, hl.Expr(t.x))
    else:
        part, p = hl.Var("part"), hl.RDom([(0, _PART)], "p")
        at = part * _PART + p.x
        grown_there = along(grown, hl.clamp(at, 0, length - 1))
        inside = hl.select(at < length, grown_there, constant(0.0))
        partial = _reduction(PARTIAL, (*columns, part), p, 0.0, add, inside)
        t = hl.RDom([(0, -(-length // _PART))], "t")
        term = partial.function[(*columns, hl.Expr(t.x))]
        passes[PARTIAL] = partial
    passes[TOTAL] = _reduction(TOTAL, columns, t, 0.0, add, term)
    return passes


def _reduction(
    name: str,
    place: tuple[hl.Var, ...],
    domain: hl.RDom,
    start: float,
    combine: Callable[[hl.Expr, hl.Expr], hl.Expr],
    term: hl.Expr,
) -> _Pass:
    """Return a stage that combines `term` over `domain` for each `place`."""
    function = hl.Func(name)
    function[place] = constant(start)
    function[place] = combine(function[place], term)
    function.compute_root()  # steps place it closer
    return _Pass(function, domain.x.name())


def _result(plan: WalkPlan, operands: Operands, passes: Mapping[str, _Pass]) -> hl.Expr:
    """Return the value of one element."""
    columns, variables = _columns(plan, operands), operands.variables
    total = passes[TOTAL].function[columns]
    if plan.nest.parts.anchor.op_type == "Softmax":
        inverse = strict(constant(1.0) / total)
        return strict(passes[GROWN].function[variables] * inverse)
    log_total = hl.Func("log_total")
    log_total[columns] = log(total)
    source = operands.arguments[plan.nest.parts.source]
    lowered = source[variables] - passes[PEAK].function[columns]
    return strict(lowered - log_total[columns])


def _schedule(plan: WalkPlan, values: Values) -> Schedule:
    tile, vector = int(values[TILE]), int(values[VECTOR])
    column, place = plan.nest.axes[-1].name, plan.tiles.place(values)
    lanes = [LANE] if vector > 1 else []
    steps: list[Step] = [*plan.tiles.steps(values)]
    in_parts = [PARTIAL] if plan.walked.extent > 2 * _PART else []
    placed = [PEAK, *in_parts, TOTAL, *([GROWN] if values["exponentials"] == KEEP else [])]
    # all stages of a tile inside its loop: the tile stays in the first-level cache
    for stage in placed:
        steps += [sch.ComputeAt(stage, RESULT, place), sch.StoreIn(stage, sch.Memory.STACK)]
        steps += vector_steps(stage, column, vector)
    for stage, reduced in ((PEAK, "k"), (PARTIAL, "p"), (TOTAL, "t")):
        if stage in placed:
            update = f"{stage}{UPDATE}"
            steps += vector_steps(update, column, vector)
            steps.append(sch.Reorder(update, (*lanes, column, f"{reduced}$x")))
            # vectors beside each other: one alone would wait for its own last sum at each step
            if lanes and tile % vector == 0 and 1 < tile // vector <= _UNROLLED_MAX:
                steps.append(sch.Unroll(update, column, tile // vector))
    return Schedule(tuple(steps))
