"""Moves with the chain behind them: one pass, whatever the number of moves."""

from __future__ import annotations

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.halide.chain import RESULT, build_chain
from aoe.kernels.math.elements import stored
from aoe.kernels.movement.loop_orders import movement_schedule, movement_space, stage_name, turned
from aoe.kernels.movement.plan import Movement, read_movement
from aoe.kernels.movement.reading import (
    as_it_is,
    element,
    loading,
    position_variables,
    read_arguments,
)
from aoe.operators import OPERATORS, OperatorKind
from aoe.operators.element_types import element_types
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload


class MovementFamily:
    """y[i] = chain(x[place(i)], ...): the moves are only places, composed when it is compiled.

    ONNX Runtime copies once for each operator, on one thread, element by element where the
    innermost dimension changes.
    """

    name = "movement"
    anchors = frozenset(
        key for key, facts in OPERATORS.items() if facts.kind is OperatorKind.MOVEMENT
    )

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload is moves of what is read, and a chain behind them."""
        return support_of(read_movement(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the result as one function, and what is turned as stages before it."""
        movement = supported(workload, read_movement(workload))
        variables = tuple(hl.Var(axis.name) for axis in reversed(movement.axes))
        arguments = read_arguments(workload)
        loops = {variable.name(): hl.Expr(variable) for variable in variables}
        places = position_variables(loops, movement.made)
        found = turned(movement)
        load = loading(workload) if movement.chain else as_it_is
        stages: dict[str, hl.Func] = {}
        values: dict[str, hl.Expr] = {}
        for ref, source in movement.sources.items():
            values[ref] = element(source, arguments, places, workload.scalars, load)
            if found is not None and ref in found.refs:
                stages[stage_name(ref)] = stage = hl.Func(stage_name(ref))
                stage[variables] = values[ref]
                values[ref] = stage[variables]
        types = element_types(workload)
        known = build_chain(movement.chain, values, workload.scalars, variables, types)
        output, made = hl.Func(RESULT), known[workload.result]
        output[variables] = stored(made, workload.output.dtype) if movement.chain else made
        nest = tuple((axis.name, axis.extent) for axis in reversed(movement.axes))
        return Pipeline(
            output=output,
            stages={RESULT: output, **stages},
            arguments=arguments,
            argument_extents=tuple((spec.size,) for spec in workload.inputs),
            output_extents=tuple(extent for _, extent in nest),
            loops={RESULT: nest, **{name: _unbounded(movement) for name in stages}},
        )

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return how the result is walked through, vectors or tiles, and tasks."""
        return movement_space(supported(workload, read_movement(workload)), target)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        movement = supported(workload, read_movement(workload))
        return movement_schedule(movement, configuration, target)


def _unbounded(movement: Movement) -> tuple[tuple[str, int], ...]:
    return tuple((axis.name, 0) for axis in reversed(movement.axes))
