"""GatherElements: each result read where an index of its own says, with the chain behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import halide as hl

from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support, all_indices
from aoe.kernels.gathering.unfused_inputs import OwnArgument, plan_unfused, with_own
from aoe.kernels.halide.anchored import (
    AnchoredNest,
    anchor_operands,
    anchored_pipeline,
    split_at_anchor,
)
from aoe.kernels.halide.chain import RESULT, estimate_cycles
from aoe.kernels.halide.iteration import axis_names
from aoe.kernels.halide.loops import moved_to
from aoe.kernels.halide.tiling import RowNest, estimate_us, row_schedule, row_space
from aoe.kernels.math.elements import element_type
from aoe.operators.axes import axis_of
from aoe.operators.element_types import FLOAT32
from aoe.schedule import Schedule, Space, Values
from aoe.workload import Workload

_GATHER_CYCLES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class _GatherPlan:
    """A GatherElements in loops."""

    nest: AnchoredNest  # The operator, the chain behind it, and their loops
    sources: tuple[int, int]  # Inputs that are the data and the indices
    axis: str  # Loop over the indices
    length: int  # Elements they count


def place_of(index: hl.Expr, length: int) -> hl.Expr:
    """Return the place an index counted from either end means: int32, never outside."""
    given = hl.i32(index)
    return hl.clamp(hl.select(given < 0, given + length, given), 0, length - 1)


def other_extents_differ(axis: int, one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Return True unless two tensors have the same extents but for an axis."""
    return len(one) != len(other) or any(
        here != there for at, (here, there) in enumerate(zip(one, other, strict=True)) if at != axis
    )


class GatherElements(PlannedFamily[_GatherPlan]):
    """y[..., i, ...] = chain(x[..., index[..., i, ...], ...]) along one axis."""

    name = "gather_elements"
    anchors = frozenset({("", "GatherElements")})

    def plan(self, workload: Workload) -> _GatherPlan | Support:
        """Plan one GatherElements of what is read, and a chain behind, or tell why not."""
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        refs = parts.anchor.inputs
        if len(refs) != 2 or not all(ref.startswith("x") for ref in refs):
            return Support("GatherElements of what is computed")
        data, index = (int(ref[1:]) for ref in refs)
        if workload.inputs[data].dtype != FLOAT32:
            return Support(f"GatherElements of {workload.inputs[data].dtype}")
        shape, made = workload.inputs[data].shape, workload.inputs[index].shape
        axis = axis_of(parts.anchor, len(shape))
        if axis is None or other_extents_differ(axis, shape, made):
            return Support(f"indices of {made} into {shape}")
        nest = plan_unfused(parts, (data, index), keep=(axis,))
        if isinstance(nest, Support):
            return nest
        return _GatherPlan(
            nest=nest,
            sources=(data, index),
            axis=axis_names(workload)[axis],
            length=shape[axis],
        )

    def pipeline_of(self, plan: _GatherPlan, algorithm: str) -> Pipeline:
        """Return the result as one function."""
        operands = anchor_operands(plan.nest)
        variables, axes = operands.variables, plan.nest.axes
        index = plan.nest.workload.inputs[plan.sources[1]]
        source = hl.ImageParam(hl.Float(32), len(axes), f"x{plan.sources[0]}")
        places = hl.ImageParam(element_type(index.dtype), len(axes), f"x{plan.sources[1]}")
        place = place_of(places[variables], plan.length)
        element = source[moved_to(variables, {plan.axis: place})]
        made = anchored_pipeline(plan.nest, operands, element, {}, {})
        extents = tuple(
            plan.length if axis.name == plan.axis else axis.extent for axis in reversed(axes)
        )
        own = {
            plan.sources[0]: OwnArgument(source, extents),
            plan.sources[1]: OwnArgument(places, made.output_extents),
        }
        checked = all_indices(plan.sources[1], index.size, plan.length)
        return replace(with_own(made, own), indexed=(checked,))

    def space_of(self, plan: _GatherPlan, target: KernelTarget) -> Space:
        """Return the choices of vectors along rows, and of tasks."""
        return row_space(_rows(plan, target), target, heavy=True)

    def schedule_of(self, plan: _GatherPlan, values: Values, target: KernelTarget) -> Schedule:
        return row_schedule(_rows(plan, target), values)


def _rows(plan: _GatherPlan, target: KernelTarget) -> RowNest:
    nest = plan.nest
    size, chain = nest.workload.output.size, estimate_cycles(nest.parts.after)
    work = estimate_us(size, _GATHER_CYCLES + chain, 16 * size, target)
    return RowNest(stage=RESULT, axes=nest.axes, work_us=work)
