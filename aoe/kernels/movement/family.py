"""Moves with the chain behind them: one pass, whatever the number of moves."""

from __future__ import annotations

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import build_chain
from aoe.kernels.math.elements import stored
from aoe.kernels.movement.loop_orders import movement_schedule, movement_space, stage_name, turned
from aoe.kernels.movement.open_pixels import IMAGE_RANK
from aoe.kernels.movement.plan import Movement, read_movement
from aoe.kernels.movement.reading import (
    as_it_is,
    element,
    loading,
    moved_pipeline,
    position_variables,
    read_arguments,
)
from aoe.operators import OPERATORS, OperatorKind
from aoe.operators.element_types import element_types
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload


class MovementFamily(PlannedFamily[Movement]):
    """y[i] = chain(x[place(i)], ...): the moves are only places, composed when it is compiled.

    ONNX Runtime copies once for each operator, on one thread, element by element where the
    innermost dimension changes.
    """

    name = "movement"
    anchors = frozenset(
        key for key, facts in OPERATORS.items() if facts.kind is OperatorKind.MOVEMENT
    )

    def plan(self, workload: Workload) -> Movement | Support:
        """Plan moves of what is read, and a chain behind them, or tell why not."""
        return read_movement(workload)

    def pipeline_of(self, plan: Movement, algorithm: str) -> Pipeline:
        """Return the result as one function, and what is turned as stages before it."""
        workload = plan.workload
        variables = tuple(hl.Var(axis.name) for axis in reversed(plan.axes))
        arguments = read_arguments(workload, IMAGE_RANK)
        loops = {variable.name(): hl.Expr(variable) for variable in variables}
        places = position_variables(loops, plan.made)
        found = turned(plan)
        load = loading(workload) if plan.chain else as_it_is
        stages: dict[str, hl.Func] = {}
        values: dict[str, hl.Expr] = {}
        for ref, source in plan.sources.items():
            values[ref] = element(source, arguments, places, workload.scalars, load)
            if found is not None and ref in found.refs:
                stages[stage_name(ref)] = stage = hl.Func(stage_name(ref))
                stage[variables] = values[ref]
                values[ref] = stage[variables]
        types = element_types(workload)
        made = build_chain(plan.chain, values, workload.scalars, variables, types)[workload.result]
        result = stored(made, workload.output.dtype) if plan.chain else made
        return moved_pipeline(workload, plan.axes, arguments, result, stages)

    def space_of(self, plan: Movement, target: KernelTarget) -> Space:
        """Return the choices of loop order, vectors or tiles, and tasks."""
        return movement_space(plan, target)

    def schedule_of(self, plan: Movement, values: Values, target: KernelTarget) -> Schedule:
        return movement_schedule(plan, values, target)
