"""Chains of element-wise operators of any length, with broadcasting, plain or blocked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.algorithms import KNOB, known_algorithm
from aoe.kernels.family import KernelTarget, Pipeline, Support, support_of, supported
from aoe.kernels.halide.anchored import feeding
from aoe.kernels.halide.chain import (
    RESULT,
    Operands,
    build_chain,
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
from aoe.kernels.math.elements import loaded
from aoe.operators import STORED_DTYPES
from aoe.operators.element_types import BOOLEAN, element_types
from aoe.schedule import Configuration, Knob, Schedule, Space, Values
from aoe.workload import Operation, Workload

_HEAVY_CYCLES = 12
"""Cycles of a vector from which computing, not memory, sets the pace."""
TABLE, LOOKED_UP, CHUNK = "table", "looked_up", "chunk"
_LEAST_LOOKED_UP = 4096
"""Elements from which a table is worth its 256 results."""
_CHUNKS = (1 << 12, 1 << 14, 1 << 16)
"""Elements looked up at once: they pass through the first-level cache, or the second."""
_BYTES, _LANES = 64, 16
_LEAST_REPEATED = 8
"""How often a value is read that is made before everything else."""


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
            return chain_pipeline(workload, *_hoisted(workload, operands))
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


# ---- gates ----


def _hoisted(workload: Workload, operands: Operands) -> tuple[Operands, tuple[Operation, ...]]:
    """Return operands with the costly values of few elements made first, and the other operations.

    A gate for each channel is computed once, not for every pixel.
    """
    iteration, types, operations = operands.iteration, element_types(workload), workload.operations
    axes: dict[str, frozenset[int]] = {"": frozenset()}
    axes |= {f"x{at}": frozenset(found) for at, found in enumerate(iteration.operands)}
    axes |= {f"s{at}": frozenset() for at in range(len(workload.scalars))}
    for operation in operations:
        axes[operation.output] = frozenset().union(*(axes[ref] for ref in operation.inputs))

    def is_small(ref: str) -> bool:
        size = prod(iteration.axes[at].extent for at in axes[ref])
        return 0 < _LEAST_REPEATED * size <= iteration.size and bool(axes[ref])

    made: dict[str, hl.Expr] = {}
    for operation in operations:
        ref, chain = operation.output, feeding(operation.output, operations)
        readers = [item for item in operations if ref in item.inputs]
        is_read_larger = any(not is_small(item.output) for item in readers)
        is_heavy = estimate_cycles(chain) >= _HEAVY_CYCLES and types[ref] != BOOLEAN
        if is_small(ref) and is_read_larger and is_heavy and not workload.is_open:
            made[ref] = _made_first(workload, operands, chain, axes)
    wanted, kept = {workload.result}, list[Operation]()
    for operation in reversed(operations):
        if operation.output in wanted and operation.output not in made:
            kept.append(operation)
            wanted.update(operation.inputs)
    return replace(operands, values={**operands.values, **made}), tuple(reversed(kept))


def _made_first(
    workload: Workload,
    operands: Operands,
    chain: Sequence[Operation],
    axes: Mapping[str, frozenset[int]],
) -> hl.Expr:
    """Return the result of a chain, computed before everything else in its own loops."""
    ref, types, names = chain[-1].output, element_types(workload), operands.iteration.axes
    variables = [hl.Var(names[at].name) for at in sorted(axes[ref], reverse=True)]
    values: dict[str, hl.Expr] = {}
    for read in sorted({one for item in chain for one in item.inputs if one.startswith("x")}):
        number = int(read[1:])
        place = [names[at].name for at in reversed(operands.iteration.operands[number])]
        function = hl.Func(f"{read}_first")
        element = operands.arguments[number][tuple(map(hl.Var, place))]
        function[tuple(variables)] = loaded(element, types[read])
        values[read] = hl.Expr(function[tuple(variables)])
    known = build_chain(chain, values, workload.scalars, variables, types)
    first = hl.Func(f"{ref}_first")
    first[tuple(variables)] = known[ref]
    first.compute_root().vectorize(variables[0], _LANES, hl.TailStrategy.GuardWithIf)
    return hl.Expr(first[tuple(variables)])


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
