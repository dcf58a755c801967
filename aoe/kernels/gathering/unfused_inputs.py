"""Operators that read some of their inputs in a way of their own, unlike the chain behind them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import halide as hl

from aoe.kernels.family import Pipeline, Support
from aoe.kernels.halide.anchored import Anchored, AnchoredNest
from aoe.kernels.halide.iteration import axis_names, plan_iteration
from aoe.kernels.halide.shapes import infer_shapes
from aoe.workload import Operation, TensorSpec, Workload


@dataclass(frozen=True, slots=True)
class OwnArgument:
    """A buffer as the operator sees it: dense, extents innermost first."""

    parameter: hl.ImageParam
    extents: tuple[int, ...]


def plan_unfused(
    parts: Anchored, own: Collection[int], keep: Collection[int] = ()
) -> AnchoredNest | Support:
    """Return the loops of an operator's result and of the chain behind it.

    Args:
        parts: The workload.
        own: Inputs only the operator reads, which have no part in the loops.
        keep: Dimensions of the result whose loops stay apart from their neighbours.
    """
    workload, anchor = parts.workload, parts.anchor
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    if workload.blocked or shapes[anchor.output] != workload.output.shape:
        return Support(f"the result of {anchor.op_type} is blocked, or broadcast by what follows")
    chain = (*parts.before, *parts.after)
    refs = {f"x{number}" for number in own}
    if any(ref in refs for operation in chain for ref in operation.inputs):
        return Support(f"what {anchor.op_type} reads is read by the chain, too")
    names = axis_names(workload)
    iteration = plan_iteration(_chain_alone(parts, own), keep=[names[at] for at in keep])
    if isinstance(iteration, Support):
        return iteration
    return AnchoredNest(parts=parts, iteration=replace(iteration, operands=iteration.operands[:-1]))


def with_own(pipeline: Pipeline, own: Mapping[int, OwnArgument]) -> Pipeline:
    """Return a pipeline with the operator's own buffers in the place of some arguments."""
    arguments, extents = list(pipeline.arguments), list(pipeline.argument_extents)
    for number, argument in own.items():
        arguments[number], extents[number] = argument.parameter, argument.extents
    return replace(pipeline, arguments=tuple(arguments), argument_extents=tuple(extents))


def _chain_alone(parts: Anchored, own: Collection[int]) -> Workload:
    """Return the chain of a workload without its anchor, whose result is one input more."""
    workload, made = parts.workload, parts.anchor.output
    read = f"x{len(workload.inputs)}"
    chain = [
        replace(item, inputs=tuple(read if ref == made else ref for ref in item.inputs))
        for item in (*parts.before, *parts.after)
    ]
    nothing = Operation(op_type="Identity", inputs=(read,), output=made)
    others = [
        TensorSpec(shape=()) if number in own else spec
        for number, spec in enumerate(workload.inputs)
    ]
    result = TensorSpec(shape=workload.output.shape)
    return replace(
        workload, inputs=(*others, result), operations=tuple(chain) or (nothing,), output=result
    )
