"""Concatenation of levels: each tensor is looked up in a table from its scale to the result's.

    table    levels of the result, by the level of one of the tensors; one for each
    y        rows of all of them, one behind the other

Scales are inputs, so a tensor whose scale is the result's is looked up, too: with AVX-512 VBMI that
takes as long as a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import halide as hl

from aoe import schedule as sch
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.chain import RESULT
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.halide.tables import looked_up_rows, table_of
from aoe.kernels.halide.tiling import guided_space
from aoe.kernels.math.elements import element_type
from aoe.operators import op_key
from aoe.operators.element_types import element_types, misread, read_types
from aoe.operators.movement import concat_axis
from aoe.operators.quantised import CONCAT_OF_LEVELS, FIRST_OPERAND, OPERAND_INPUTS
from aoe.schedule import Knob, Schedule, Space, Values
from aoe.workload import Layout, Operation, Workload

_INSIDE, _ROW, _GROUP = "inside", "row", "group"
_OPERANDS_MAX = 4
"""Tensors the look-up takes. Source: `glue/tables.c`."""
_GROUP_BYTES = 1 << 15
"""Bytes of a group of rows, the task of a thread; a call for each takes time of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcatPlan:
    """Tensors of levels that become the rows of one."""

    workload: Workload  # The operator
    operation: Operation
    rows: tuple[int, int]  # Of a group, and groups: in each tensor and in the result
    lengths: tuple[int, ...]  # Levels of a row of each tensor

    def operand(self, number: int) -> tuple[str, ...]:
        """Return the references of levels, scale and zero point of a tensor."""
        first = FIRST_OPERAND + OPERAND_INPUTS * number
        return self.operation.inputs[first : first + OPERAND_INPUTS]

    def requantised(self, number: int) -> tuple[Operation, ...]:
        """Return the operations a level of a tensor goes through."""
        return (
            Operation(op_type="DequantizeLinear", inputs=self.operand(number), output="t0"),
            Operation(
                op_type="QuantizeLinear", inputs=("t0", *self.operation.inputs[:2]), output="t1"
            ),
        )


class ConcatOfLevels(PlannedFamily[ConcatPlan]):
    """QLinearConcat along any axis."""

    name = "quantised_concat"
    anchors = frozenset({CONCAT_OF_LEVELS})

    def plan(self, workload: Workload) -> ConcatPlan | Support:
        """Plan one concatenation, or tell why not."""
        found = [item for item in workload.operations if op_key(item) == CONCAT_OF_LEVELS]
        if len(found) != 1 or len(workload.operations) != 1:
            return Support("a concatenation of levels with a chain")
        (operation,) = found
        if not all(ref.startswith("x") for ref in operation.inputs):
            return Support(f"{operation.op_type} reads a scalar, or nothing")
        shapes = infer_shapes(workload)
        reason = misread(operation, read_types(operation, element_types(workload)))
        if reason or isinstance(shapes, str):
            return Support(reason or str(shapes))
        if workload.is_open or any(spec.layout is not Layout.PLAIN for spec in workload.inputs):
            return Support(f"{operation.op_type} of open extents, or in blocks")
        operands = operation.inputs[FIRST_OPERAND::OPERAND_INPUTS]
        if len(operands) > _OPERANDS_MAX or len(set(operands)) < len(operands):
            return Support(f"{operation.op_type} of {len(operands)} tensors, or of one twice")
        others = set(operation.inputs) - set(operands)
        if any(workload.inputs[int(ref[1:])].size != 1 for ref in others):
            return Support(f"{operation.op_type} with scales of another granularity")
        shape = workload.output.shape
        axis = concat_axis(operation, len(shape))
        lengths = tuple(prod(shapes[ref][axis:]) for ref in operands)
        return ConcatPlan(
            workload=workload,
            operation=operation,
            rows=_grouped(prod(shape[:axis]), sum(lengths)),
            lengths=lengths,
        )

    def pipeline_of(self, plan: ConcatPlan, algorithm: str) -> Pipeline:
        """Return the look-ups of all tensors as one stage."""
        workload = plan.workload
        loops = hl.Var(_INSIDE), hl.Var(_ROW), hl.Var(_GROUP)
        extents: list[tuple[int, ...]] = [()] * len(workload.inputs)
        for number, length in enumerate(plan.lengths):
            extents[int(plan.operand(number)[0][1:])] = (length, *plan.rows)
        arguments = tuple(
            hl.ImageParam(element_type(spec.dtype), len(here), f"x{number}")
            for number, (spec, here) in enumerate(zip(workload.inputs, extents, strict=True))
        )
        operands = []
        for number in range(len(plan.lengths)):
            chain, ref = plan.requantised(number), plan.operand(number)[0]
            of_operand = replace(workload, operations=chain)
            table = table_of(of_operand, chain, ref, arguments)
            operands.append((arguments[int(ref[1:])], table))
        result = looked_up_rows(RESULT, operands, loops, workload.output.dtype)
        made = (sum(plan.lengths), *plan.rows)
        return Pipeline(
            output=result,
            stages={RESULT: result},
            arguments=arguments,
            argument_extents=tuple(extents),
            output_extents=made,
            loops={RESULT: tuple(zip((_INSIDE, _ROW, _GROUP), made, strict=True))},
        )

    def space_of(self, plan: ConcatPlan, target: KernelTarget) -> Space:
        """Return the search space: one task, or a task per group of rows for the threads."""
        tasks = (1,) if target.threads == 1 or plan.rows[1] == 1 else (1, plan.rows[1])
        return guided_space((Knob("tasks", tasks),), ((count,) for count in reversed(tasks)))

    def schedule_of(self, plan: ConcatPlan, values: Values, target: KernelTarget) -> Schedule:
        return Schedule(() if values["tasks"] == 1 else (sch.Parallel(RESULT, _GROUP),))


def _grouped(rows: int, length: int) -> tuple[int, int]:
    """Return rows of a group and groups, all of one size: a look-up cannot be cut elsewhere."""
    most = max(1, _GROUP_BYTES // length)
    size = max(count for count in range(1, min(rows, most) + 1) if rows % count == 0)
    if size * length < _GROUP_BYTES // 8:
        size = rows
    return size, rows // size
