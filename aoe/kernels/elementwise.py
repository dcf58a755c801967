"""Chains of element-wise operators of any length, with broadcasting, plain or blocked."""

from __future__ import annotations

from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.halide.chain import (
    RESULT,
    chain_pipeline,
    check_chain,
    estimate_cycles,
    read_operands,
)
from aoe.kernels.halide.iteration import Iteration, plan_iteration
from aoe.kernels.halide.tiling import RowNest, estimate_us, row_schedule, row_space
from aoe.operators import STORED_DTYPES
from aoe.operators.element_types import BOOLEAN, element_types
from aoe.schedule import Configuration, Schedule, Space
from aoe.workload import Workload

_HEAVY_CYCLES = 12
"""Cycles of a vector from which computing, not memory, sets the pace."""


class Elementwise:
    """One pass over the result: every operator of the chain inlined into the innermost loop."""

    name = "elementwise"
    anchors: frozenset[tuple[str, str]] = frozenset()

    def supports(self, workload: Workload) -> Support:
        """Check that every operator is element-wise and the layouts go together."""
        chain = check_chain(workload.operations, element_types(workload))
        return chain and support_of(_plan(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the chain as one function."""
        operands = read_operands(workload, iteration_of(workload))
        return chain_pipeline(workload, operands, workload.operations)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return vector width, unrolling, tasks and, for short rows, what is vectorised."""
        heavy = estimate_cycles(workload.operations) >= _HEAVY_CYCLES
        return row_space(row_nest(workload, target), target, heavy=heavy)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        return row_schedule(row_nest(workload, target), configuration)


def iteration_of(workload: Workload) -> Iteration:
    """Return the loop nest of a workload known to be supported."""
    return supported(workload, _plan(workload))


def _plan(workload: Workload) -> Iteration | Support:
    return plan_iteration(workload, stored={*STORED_DTYPES, BOOLEAN})


def row_nest(workload: Workload, target: KernelTarget) -> RowNest:
    """Return the loops of the result and what they cost."""
    iteration = iteration_of(workload)
    traffic = 4 * (workload.output.size + sum(spec.size for spec in workload.inputs))
    cycles = estimate_cycles(workload.operations)
    return RowNest(
        stage=RESULT,
        axes=iteration.axes,
        work_us=estimate_us(iteration.size, cycles, traffic, target),
    )
