"""BatchNormalization left unfused, with the chain behind it; also in ONNX Runtime's form.

ONNX Runtime turns a lone BatchNormalization in a blocked region into a depthwise 1x1 convolution.

    factor, summand   one value per channel, before everything else or where they are read
    y                 x * factor + summand, then the chain
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import halide as hl

from aoe.kernels.elementwise import row_nest
from aoe.kernels.family import KernelTarget, Pipeline, PlannedFamily, Support
from aoe.kernels.halide.anchored import (
    AnchoredNest,
    anchor_operands,
    anchored_pipeline,
    plan_nest,
    split_at_anchor,
)
from aoe.kernels.halide.chain import Operands, check_chain, estimate_cycles
from aoe.kernels.halide.tiling import GUESSES_MAX, row_schedule, row_space, vector_steps
from aoe.kernels.math.functions import strict
from aoe.kernels.math.normalization import channel_scale, scale_and_shift
from aoe.operators import is_reorder
from aoe.schedule import ComputeRoot, Knob, Memory, Schedule, Space, Step, StoreIn, Values
from aoe.workload import NCHWC_DOMAIN, Workload

FACTOR, SUMMAND = "factor", "summand"
_HEAVY_CYCLES = 12
_SHORT_ROW = 256
"""Elements per channel below which computing the factor again for each row is felt."""
_STACK_CHANNELS_MAX = 8192


class BatchNormalization(PlannedFamily[AnchoredNest]):
    """x * factor + summand with both per channel, then the chain.

    Inlined, factor and summand are hoisted out of the loop over the pixels of a channel; for short
    rows they are better computed once, before.
    """

    name = "batch_normalization"
    anchors = frozenset({("", "BatchNormalization"), (NCHWC_DOMAIN, "Conv")})

    def plan(self, workload: Workload) -> AnchoredNest | Support:
        """Plan a normalisation that only chains follow, or tell why not."""
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        if not all(is_reorder(operation) for operation in parts.before):
            return Support("the normalisation is not the first operator")
        chain = check_chain((parts.anchor, *parts.after))
        return plan_nest(parts) if chain else chain

    def pipeline_of(self, plan: AnchoredNest, algorithm: str) -> Pipeline:
        """Return the chain with the per-channel values as stages."""
        operands = anchor_operands(plan)
        stages = _channel_stages(plan, operands)
        extents = {axis.name: axis.extent for axis in plan.axes}
        loops = {
            name: tuple((v.name(), extents[v.name()]) for v in stage.args())
            for name, stage in stages.items()
        }
        result = _normalise(plan, stages, operands)
        return anchored_pipeline(plan, operands, result, stages, loops)

    def space_of(self, plan: AnchoredNest, target: KernelTarget) -> Space:
        """Return the row-wise space and, where it matters, the place of the parameters."""
        heavy = estimate_cycles(plan.workload.operations) >= _HEAVY_CYCLES
        rows = row_space(row_nest(plan.workload, target), target, heavy=heavy)
        places = _places(plan)
        guesses = [
            {**guess, "parameters": place}
            for place in places
            for guess in rows.first_guesses[: 4 if place == places[0] else 2]
        ]

        def legal(values: Values) -> bool:
            return rows.constraint({k: v for k, v in values.items() if k != "parameters"})

        knobs = (*rows.knobs, Knob("parameters", places))
        return Space(knobs=knobs, constraint=legal, first_guesses=tuple(guesses[:GUESSES_MAX]))

    def schedule_of(self, plan: AnchoredNest, values: Values, target: KernelTarget) -> Schedule:
        rows = row_schedule(row_nest(plan.workload, target), values)
        if values["parameters"] == "inline":
            return rows
        return Schedule((*rows.steps, *_root_steps(plan, target)))


def _channel_axes(nest: AnchoredNest) -> tuple[int, ...]:
    """Return the axes parameters are computed over, outermost first.

    None if there is one channel, or if the model has factor and summand ready-made.
    """
    anchor = nest.parts.anchor
    return () if anchor.domain else nest.iteration.operands[int(anchor.inputs[1][1:])]


def _channel_stages(nest: AnchoredNest, operands: Operands) -> dict[str, hl.Func]:
    """Return factor and summand per channel, where they are to be computed."""
    axes, anchor, values = _channel_axes(nest), nest.parts.anchor, operands.values
    if not axes:
        return {}
    outermost_first = tuple(reversed(operands.variables))
    channel = tuple(outermost_first[at] for at in reversed(axes))
    parameters = [values[ref] for ref in anchor.inputs[1:5]]
    factor, summand = scale_and_shift(parameters, anchor.attributes)
    stages = {FACTOR: hl.Func(FACTOR), SUMMAND: hl.Func(SUMMAND)}
    stages[FACTOR][channel] = factor
    stages[SUMMAND][channel] = summand
    return stages


def _normalise(nest: AnchoredNest, stages: Mapping[str, hl.Func], operands: Operands) -> hl.Expr:
    anchor = nest.parts.anchor
    values = [operands.values[ref] if ref else hl.Expr() for ref in anchor.inputs]
    if anchor.domain:
        return channel_scale(values, anchor.attributes, anchor.version)
    x, *parameters = values
    if stages:
        factor, summand = (stage[tuple(stage.args())] for stage in stages.values())
    else:
        factor, summand = scale_and_shift(parameters, anchor.attributes)
    return strict(x * factor + summand)


def _places(nest: AnchoredNest) -> tuple[str, ...]:
    """Return the places to compute the parameters at, the likelier one first."""
    axes, loops = _channel_axes(nest), nest.axes
    if not axes or prod(loops[at].extent for at in axes) > _STACK_CHANNELS_MAX:
        return ("inline",)
    is_short = loops[-1].extent < _SHORT_ROW or len(loops) - 1 in axes
    blocked = nest.workload.blocked
    return ("root", "inline") if is_short and not blocked else ("inline", "root")


def _root_steps(nest: AnchoredNest, target: KernelTarget) -> tuple[Step, ...]:
    """Return steps that compute both parameters before everything else, in vectors."""
    axis = nest.axes[_channel_axes(nest)[-1]]
    steps: list[Step] = []
    for stage in (FACTOR, SUMMAND):
        steps += [ComputeRoot(stage), StoreIn(stage, Memory.STACK)]
        if axis.extent >= target.vector_lanes:
            steps += vector_steps(stage, axis.name, target.vector_lanes)
    return tuple(steps)
