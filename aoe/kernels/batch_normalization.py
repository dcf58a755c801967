"""BatchNormalization left unfused, with the chain behind it; also ONNX Runtime's form of it.

ONNX Runtime turns a lone BatchNormalization in a blocked region into a depthwise 1x1 convolution.
"""

from __future__ import annotations

from collections.abc import Mapping

import halide as hl

from aoe.kernels.elementwise import iteration_of, row_nest
from aoe.kernels.family import SUPPORTED, KernelTarget, Pipeline, Support
from aoe.kernels.halide.anchored import Anchored, split_at_anchor
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
from aoe.kernels.halide.tiling import GUESSES_MAX, row_schedule, row_space
from aoe.kernels.math.functions import strict
from aoe.kernels.normalization_ops import apply_activation, scale_and_shift
from aoe.operators import is_reorder
from aoe.schedule import (
    Choice,
    ComputeRoot,
    Configuration,
    Knob,
    Memory,
    Schedule,
    Space,
    Split,
    Step,
    StoreIn,
    Tail,
    Vectorize,
)
from aoe.workload import NCHWC_DOMAIN, Workload

FACTOR, SUMMAND = "factor", "summand"
_HEAVY_CYCLES = 12
_SHORT_ROW = 256
"""Elements per channel below which computing the factor again for each row is felt."""
_STACK_CHANNELS_MAX = 8192


class BatchNormalization:
    """x * factor + summand with both per channel, then the chain.

    The factor and the summand are stages of their own: inlined, they are hoisted out of the loop
    over the pixels of a channel; for short rows they are better computed once, before.
    """

    name = "batch_normalization"
    anchors: frozenset[tuple[str, str]] = frozenset(
        {("", "BatchNormalization"), (NCHWC_DOMAIN, "Conv")}
    )

    def supports(self, workload: Workload) -> Support:
        """Tell whether the workload starts with a normalisation that only chains follow."""
        parts = split_at_anchor(workload, self.anchors)
        if isinstance(parts, Support):
            return parts
        if not all(is_reorder(operation) for operation in parts.before):
            return Support("the normalisation is not the first operator")
        chain = check_chain((parts.anchor, *parts.after))
        if not chain:
            return chain
        iteration = plan_iteration(workload)
        return SUPPORTED if isinstance(iteration, Iteration) else iteration

    def pipeline(self, workload: Workload, algorithm: str = "") -> Pipeline:
        """Return the chain with the per-channel values as stages."""
        parts, iteration = _parts(workload), iteration_of(workload)
        variables = loop_variables(iteration)
        arguments = make_arguments(workload, iteration)
        values = load_arguments(arguments, iteration, variables)
        values = build_chain(parts.before, values, workload.scalars, variables)
        stages = _channel_stages(parts, iteration, variables, values)
        normalised = hl.Func("normalised")
        normalised[variables] = _normalise(parts, stages, values)
        values[parts.anchor.output] = normalised[variables]
        values = build_chain(parts.after, values, workload.scalars, variables)
        output = hl.Func(RESULT)
        output[variables] = values[workload.result]
        loops = {RESULT: tuple((axis.name, axis.extent) for axis in reversed(iteration.axes))}
        extents = dict(loops[RESULT])
        for name, stage in stages.items():
            loops[name] = tuple((v.name(), extents[v.name()]) for v in stage.args())
        return Pipeline(
            output=output,
            stages={RESULT: output, **stages},
            arguments=arguments,
            argument_extents=iteration.argument_extents,
            output_extents=iteration.extents,
            loops=loops,
        )

    def space(self, workload: Workload, target: KernelTarget) -> Space:
        """Return the row-wise space and, where it matters, the place of the parameters."""
        heavy = estimate_cycles(workload.operations) >= _HEAVY_CYCLES
        rows = row_space(row_nest(workload, target), target, heavy=heavy)
        places = _places(workload)
        guesses = [
            {**guess, "parameters": place}
            for place in places
            for guess in rows.first_guesses[: 4 if place == places[0] else 2]
        ]

        def legal(values: Mapping[str, Choice]) -> bool:
            return rows.constraint({k: v for k, v in values.items() if k != "parameters"})

        knobs = (*rows.knobs, Knob("parameters", places))
        return Space(knobs=knobs, constraint=legal, first_guesses=tuple(guesses[:GUESSES_MAX]))

    def schedule(
        self, workload: Workload, configuration: Configuration, target: KernelTarget
    ) -> Schedule:
        """Return the steps of a configuration."""
        rows = row_schedule(row_nest(workload, target), configuration)
        if configuration["parameters"] == "inline":
            return rows
        return Schedule((*rows.steps, *_root_steps(workload, target)))


def _parts(workload: Workload) -> Anchored:
    parts = split_at_anchor(workload, BatchNormalization.anchors)
    if not isinstance(parts, Anchored):
        raise ValueError(f"batch_normalization: not supported: {parts.reason}")
    return parts


def _channel_axes(parts: Anchored, iteration: Iteration) -> tuple[int, ...]:
    """Return the axes the parameters have, outermost first; none if there is one channel."""
    return iteration.operands[int(parts.anchor.inputs[1][1:])]


def _channel_stages(
    parts: Anchored,
    iteration: Iteration,
    variables: tuple[hl.Var, ...],
    values: Mapping[str, hl.Expr],
) -> dict[str, hl.Func]:
    """Return factor and summand per channel; none where the model has them ready-made."""
    axes = _channel_axes(parts, iteration)
    if parts.anchor.domain or not axes:
        return {}
    channel = tuple(reversed([tuple(reversed(variables))[i] for i in axes]))
    parameters = [values[ref] for ref in parts.anchor.inputs[1:5]]
    factor, summand = scale_and_shift(parameters, parts.anchor.attributes)
    stages = {FACTOR: hl.Func(FACTOR), SUMMAND: hl.Func(SUMMAND)}
    stages[FACTOR][channel] = factor
    stages[SUMMAND][channel] = summand
    return stages


def _normalise(
    parts: Anchored, stages: Mapping[str, hl.Func], values: Mapping[str, hl.Expr]
) -> hl.Expr:
    anchor = parts.anchor
    x, *parameters = (values[ref] for ref in anchor.inputs if ref)
    if anchor.domain:
        result = strict(x * parameters[0])
        if len(parameters) > 1:
            result = strict(result + parameters[1])
        return apply_activation(result, anchor.attributes)
    if stages:
        factor, summand = (stage[tuple(stage.args())] for stage in stages.values())
    else:
        factor, summand = scale_and_shift(parameters, anchor.attributes)
    return strict(x * factor + summand)


def _places(workload: Workload) -> tuple[str, ...]:
    """Return where the parameters may be computed, the likelier place first."""
    parts, iteration = _parts(workload), iteration_of(workload)
    axes = _channel_axes(parts, iteration)
    if parts.anchor.domain or not axes:
        return ("inline",)
    channels = 1
    for at in axes:
        channels *= iteration.axes[at].extent
    if channels > _STACK_CHANNELS_MAX:
        return ("inline",)
    is_short = iteration.axes[-1].extent < _SHORT_ROW or len(iteration.axes) - 1 in axes
    return ("root", "inline") if is_short and not workload.blocked else ("inline", "root")


def _root_steps(workload: Workload, target: KernelTarget) -> tuple[Step, ...]:
    """Return steps that compute both parameters before everything else, in vectors."""
    iteration = iteration_of(workload)
    axis = iteration.axes[_channel_axes(_parts(workload), iteration)[-1]]
    steps: list[Step] = []
    for stage in (FACTOR, SUMMAND):
        steps += [ComputeRoot(stage), StoreIn(stage, Memory.STACK)]
        if axis.extent >= target.vector_lanes:
            lanes = target.vector_lanes
            steps.append(Split(stage, axis.name, axis.name, "lane", lanes, Tail.GUARD))
            steps.append(Vectorize(stage, "lane", lanes))
    return tuple(steps)
