"""Softmax and LogSoftmax over the last axis, with the scale and the mask in front of them.

Of levels too (QLinearSoftmax). 256 exponentials in a table are no faster: sixteen of them take one
gather, about 16 loads, or the twelve instructions of a polynomial.

The stages, for each row:

    source       scaled and masked scores, where a chain stands in front
    peak         the largest score
    grown        e^(source - peak), kept in scratch memory or computed again
    total        sum of the exponentials
    y            grown / total, or source - peak - log(total), then the chain
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import add

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.iteration import axis_names
from aoe.kernels.halide.rows import SOURCE, RowKernel, RowPlan, plan_rows, rows_schedule, rows_space
from aoe.kernels.math.elements import round_small
from aoe.kernels.math.functions import (
    LOWEST,
    constant,
    log,
    softmax_numerator,
    strict,
    weight_of_negative,
)
from aoe.operators import SOFTMAX_ONE_AXIS_SINCE, op_key, softmax_axis
from aoe.operators.axes import SOFTMAX_OF_LEVELS, softmax_version
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload

_PEAK, _GROWN, _TOTAL = "peak", "grown", "total"
_CYCLES = 25


def _kept(plan: RowPlan) -> Mapping[str, str]:
    """Return the knob of each stage that may be kept."""
    source = {SOURCE: SOURCE} if plan.is_computed else {}
    return {**source, _GROWN: "exponentials"}


class RowSoftmax(PlannedFamily[RowPlan]):
    """e^(x - peak) / total, or x - peak - log(total), along rows.

    A row is walked three times. The chain in front (attention scales scores and adds a mask) is
    computed while the row is read.
    """

    name = "softmax_rows"
    anchors = frozenset({("", "Softmax"), ("", "LogSoftmax"), SOFTMAX_OF_LEVELS})

    def plan(self, workload: Workload) -> RowPlan | Support:
        """Plan one softmax of rows with chains in front and behind, or tell why not."""
        found = [item for item in workload.operations if op_key(item) in self.anchors]
        if not found:
            return Support("no operator of this family")
        if workload.blocked:
            return Support("softmax in the blocked layout")
        anchor, rank = found[0], len(workload.output.shape)
        axis = softmax_axis(anchor)
        if not -rank <= axis < rank:
            return Support(f"axis {axis} of a tensor of rank {rank}")
        names = axis_names(workload)[axis % rank :]
        reduced = names if softmax_version(anchor) < SOFTMAX_ONE_AXIS_SINCE else names[:1]
        return plan_rows(workload, self.anchors, reduced, anchor.op_type)

    def pipeline_of(self, plan: RowPlan, algorithm: str) -> Pipeline:
        """Return peak, exponentials and total as stages; the chain is inlined into the result."""
        kernel = RowKernel(plan, lambda values: values[plan.anchor.inputs[0]])
        peak = kernel.fold(_PEAK, kernel.walked, constant(LOWEST), hl.max)
        is_softmax = plan.anchor.op_type != "LogSoftmax"
        grow = softmax_numerator if is_softmax else weight_of_negative
        lowered, of_levels = strict(kernel.element - peak), op_key(plan.anchor) == SOFTMAX_OF_LEVELS
        if of_levels:
            lowered = strict(lowered * kernel.values[plan.anchor.inputs[1]])
        grown = kernel.keep(_GROWN, grow(lowered))
        total = kernel.fold(_TOTAL, lambda at: kernel.along(grown, at), constant(0.0), add)
        if of_levels:
            scale, zero = (kernel.values[ref] for ref in plan.anchor.inputs[3:])
            # in ONNX Runtime the number 1 is a whole number of levels
            factor = kernel.per_row("factor", strict(hl.floor(strict(1.0 / scale)) / total))
            level = round_small(strict(grown[kernel.variables] * factor))
            return kernel.pipeline(strict(level + zero))
        if is_softmax:
            inverse = kernel.per_row("inverse", strict(constant(1.0) / total))
            return kernel.pipeline(strict(grown[kernel.variables] * inverse))
        log_total = kernel.per_row("log_total", log(total))
        return kernel.pipeline(strict(strict(kernel.element - peak) - log_total))

    def space_of(self, plan: RowPlan, target: KernelTarget) -> Space:
        """Return tasks, vectors, and what is kept while a row is walked."""
        return rows_space(plan, target, _CYCLES, _kept(plan))

    def schedule_of(self, plan: RowPlan, values: Values, target: KernelTarget) -> Schedule:
        return rows_schedule(plan, values, (_PEAK, _TOTAL), _kept(plan))
