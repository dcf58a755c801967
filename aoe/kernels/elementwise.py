"""Chains of element-wise operators of any length, with broadcasting, plain or blocked."""

from __future__ import annotations

import halide as hl

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.halide.chain import (
    RESULT,
    Operands,
    chain_pipeline,
    check_chain,
    estimate_cycles,
    read_operands,
)
from aoe.kernels.halide.iteration import Iteration, plan_iteration
from aoe.kernels.halide.tables import is_point_function, looked_up, table_of
from aoe.kernels.halide.tiling import (
    RowNest,
    estimate_us,
    guided_space,
    inner_steps,
    row_schedule,
    row_space,
)
from aoe.operators import STORED_DTYPES
from aoe.operators.element_types import BOOLEAN, element_types
from aoe.schedule import Configuration, Knob, Schedule, Space, Values
from aoe.workload import Workload

_HEAVY_CYCLES = 12
"""Cycles of a vector from which computing, not memory, sets the pace."""
TABLE, LOOKED_UP, CHUNK = "table", "looked_up", "chunk"
_LEAST_LOOKED_UP = 4096
"""Elements from which a table is worth its 256 results."""
_CHUNKS = (1 << 12, 1 << 14, 1 << 16)
"""Elements looked up at once: they pass through the first-level cache, or the second."""
_BYTES = 64


class Elementwise:
    """One pass over the result: every operator of the chain inlined into the innermost loop.

    Levels of 8 bits made of levels of one tensor are looked up instead (`TABLE`).
    """

    name = "elementwise"
    anchors: frozenset[tuple[str, str]] = frozenset()

    def supports(self, workload: Workload) -> Support:
        """Check that every operator is element-wise and the layouts go together."""
        chain = check_chain(workload.operations, element_types(workload))
        return chain and support_of(_plan(workload))

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the chain as one function, or a table of its results and look-ups."""
        operands = read_operands(workload, iteration_of(workload))
        if not algorithm:
            return chain_pipeline(workload, operands, workload.operations)
        known_algorithm(self.name, algorithm, _algorithms(workload))
        return _table_pipeline(workload, operands)

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return vector width, unrolling, tasks and, for short rows, what is vectorised."""
        if TABLE in _algorithms(workload):
            return _table_space(workload)
        heavy = estimate_cycles(workload.operations) >= _HEAVY_CYCLES
        return row_space(row_nest(workload, target), target, heavy=heavy)

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        if configuration.get(KNOB) == TABLE:
            return _table_schedule(workload, configuration, target)
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


# ---- look-ups ----


def _algorithms(workload: Workload) -> tuple[str, ...]:
    """Return the names of the algorithms besides the chain itself."""
    source, size = _looked_up(workload), workload.output.size
    return (TABLE,) if source is not None and size >= _LEAST_LOOKED_UP else ()


def _looked_up(workload: Workload) -> int | None:
    """Return the number of the one input that is no single number, if levels are made of it."""
    tensors = [number for number, spec in enumerate(workload.inputs) if spec.size > 1]
    if len(tensors) != 1 or workload.is_open or workload.blocked:
        return None
    (number,) = tensors
    is_whole = workload.inputs[number].size == workload.output.size
    is_point = is_point_function(workload, workload.operations, f"x{number}")
    return number if is_whole and is_point else None


def _table_pipeline(workload: Workload, operands: Operands) -> Pipeline:
    source, arguments = _looked_up(workload), operands.arguments
    assert source is not None
    table = table_of(workload, workload.operations, f"x{source}", arguments)
    found = looked_up(
        LOOKED_UP, arguments[source], table, operands.variables, workload.output.dtype
    )
    output, iteration = hl.Func(RESULT), operands.iteration
    output[operands.variables] = found[operands.variables]
    nest = tuple((axis.name, axis.extent) for axis in reversed(iteration.axes))
    return Pipeline(
        output=output,
        stages={RESULT: output, LOOKED_UP: found},
        arguments=arguments,
        argument_extents=iteration.argument_extents,
        output_extents=iteration.extents,
        loops={RESULT: nest, LOOKED_UP: tuple((loop, 0) for loop, _ in nest)},
    )


def _table_space(workload: Workload) -> Space:
    chunks = tuple(n for n in _CHUNKS if n <= workload.output.size)
    knobs = (Knob(KNOB, (TABLE,)), Knob(CHUNK, chunks))
    return guided_space(knobs, ((TABLE, chunk) for chunk in reversed(chunks)))


def _table_schedule(workload: Workload, values: Values, target: KernelTarget) -> Schedule:
    (axis,) = iteration_of(workload).axes
    chunk = int(values[CHUNK])
    steps = [
        sch.Split(RESULT, axis.name, CHUNK, axis.name, chunk, sch.Tail.SHIFT_INWARDS),
        sch.ComputeAt(LOOKED_UP, RESULT, CHUNK),
        sch.StoreIn(LOOKED_UP, sch.Memory.STACK),
        *inner_steps(RESULT, axis.name, chunk, _BYTES, 1),
    ]
    if target.threads > 1:
        steps.append(sch.Parallel(RESULT, CHUNK))
    return Schedule(tuple(steps), algorithm=TABLE)
