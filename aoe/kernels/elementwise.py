"""Chains of element-wise operators of any length, with broadcasting, plain or blocked."""

from __future__ import annotations

import halide as hl

from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.kernels.halide.chain import (
    RESULT,
    build_chain,
    check_chain,
    estimate_cycles,
    load_arguments,
    loop_variables,
    make_arguments,
)
from aoe.kernels.halide.iteration import Iteration, plan_iteration
from aoe.kernels.halide.tiling import RowNest, estimate_us, row_schedule, row_space
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload

_HEAVY_CYCLES = 12
"""Cycles of a vector from which computing, not memory, sets the pace."""


class Elementwise:
    """One pass over the result: every operator of the chain inlined into the innermost loop."""

    name = "elementwise"
    anchors: frozenset[tuple[str, str]] = frozenset()

    def supports(self, workload: Workload) -> Support:
        """Tell whether every operator is element-wise and the layouts go together."""
        chain = check_chain(workload.operations)
        if not chain:
            return chain
        iteration = plan_iteration(workload)
        return SUPPORTED if isinstance(iteration, Iteration) else iteration

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the chain as one function."""
        iteration = iteration_of(workload)
        variables = loop_variables(iteration)
        arguments = make_arguments(workload, iteration)
        values = build_chain(
            workload.operations,
            load_arguments(arguments, iteration, variables),
            workload.scalars,
            variables,
        )
        output = hl.Func(RESULT)
        output[variables] = values[workload.result]
        return Pipeline(
            output=output,
            stages={RESULT: output},
            arguments=arguments,
            argument_extents=iteration.argument_extents,
            output_extents=iteration.extents,
            loops={RESULT: tuple((axis.name, axis.extent) for axis in reversed(iteration.axes))},
        )

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return vector width, unrolling, tasks and, for short rows, what is vectorised."""
        heavy = estimate_cycles(workload.operations) >= _HEAVY_CYCLES
        return row_space(row_nest(workload, target), target, heavy=heavy)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        return row_schedule(row_nest(workload, target), configuration)


def iteration_of(workload: Workload) -> Iteration:
    """Return the loop nest of a workload known to be supported."""
    iteration = plan_iteration(workload)
    if not isinstance(iteration, Iteration):
        raise ValueError(f"{workload.op_type}: not supported: {iteration.reason}")
    return iteration


def row_nest(workload: Workload, target: KernelTarget) -> RowNest:
    """Return the loops of the result and what they cost."""
    iteration = iteration_of(workload)
    traffic = 4 * (workload.output.size + sum(spec.size for spec in workload.inputs))
    cycles = estimate_cycles(workload.operations)
    return RowNest(
        stage=RESULT,
        names=tuple(axis.name for axis in iteration.axes),
        extents=tuple(axis.extent for axis in iteration.axes),
        work_us=estimate_us(iteration.size, cycles, traffic, target),
    )
