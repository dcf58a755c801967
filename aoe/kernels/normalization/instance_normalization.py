"""Normalisation of every channel of every image by its own mean and deviation.

Networks write group normalisation as InstanceNormalization between two Reshapes. The first one puts
the channels of a group into one, the second takes them apart again; what follows scales channels.
Neither moves data, so the workload is read in loops over the groups, the channels of a group, and
the pixels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoe.kernels.family import Support
from aoe.kernels.halide.anchored import Anchored
from aoe.kernels.halide.chain import check_chain
from aoe.kernels.halide.iteration import axis_names, reshaped
from aoe.kernels.halide.rows import plan_rows, plan_walk
from aoe.kernels.halide.shapes import infer_shapes
from aoe.kernels.normalization.statistics import Normalized, NormalizedFamily
from aoe.operators import Shape, facts_of, number, op_key
from aoe.operators.movement import RESHAPE
from aoe.workload import Operation, TensorSpec, Workload

_EPSILON = 1e-5
_NAME = "InstanceNormalization"
_ANCHOR = ("", _NAME)


class InstanceNormalization(NormalizedFamily):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the pixels of a channel.

    Group normalisation, which networks write as this between two Reshapes, is walked over the
    pixels of the channels of a group; factors and summands of channels stand in the chain behind.
    In the blocked layout the channels of a block are a vector, and pixels are shared out on a few
    of them.
    """

    name = "instance_normalization"
    anchors = frozenset({_ANCHOR})

    def plan(self, workload: Workload) -> Normalized | Support:
        """Plan one normalisation with chains in front and behind, or tell why not."""
        grouped = _find_groups(workload)
        if isinstance(grouped, Support):
            return grouped
        if grouped is not None:
            names = axis_names(grouped.shaped)[2:]
            plan = plan_walk(grouped.parts, grouped.shaped, names, _NAME, is_computed=False)
        else:
            pixels = ("h", "w") if workload.blocked else axis_names(workload)[2:]
            if not pixels:
                return Support(f"{_NAME} without pixels")
            plan = plan_rows(workload, self.anchors, pixels, _NAME)
        if isinstance(plan, Support):
            return plan
        if plan.is_open and len(plan.walked) > 1:
            return Support("images of any size whose rows broadcasting tells apart")
        data, scale, bias = plan.anchor.inputs
        return Normalized(
            plan=plan,
            summands=(data,),
            scale=scale,
            bias=bias,
            epsilon=number(plan.anchor.attributes, "epsilon", _EPSILON),
            centred=True,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grouped:
    """A normalisation of groups of channels."""

    parts: Anchored  # The workload without its Reshapes, split at the normalisation
    # A workload of the same inputs, whose result has the shape (N, groups, channels of a group,
    # pixels...).
    shaped: Workload


def _find_groups(workload: Workload) -> _Grouped | Support | None:
    """Return the groups of a workload that has some, why they are not computed, or None."""
    operations = workload.operations
    at = next((i for i, item in enumerate(operations) if op_key(item) == _ANCHOR), None)
    if at is None:
        return None
    anchor = operations[at]
    joined = next((item for item in operations[:at] if item.output == anchor.inputs[0]), None)
    if joined is None or op_key(joined) != RESHAPE:
        return None
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    readers = [item for item in operations if anchor.output in item.inputs]
    if len(readers) != 1 or op_key(readers[0]) != RESHAPE:
        return Support("groups of channels are not taken apart again")
    shape, groups = shapes[joined.inputs[0]], shapes[joined.output]
    if workload.blocked or not joined.inputs[0].startswith("x"):
        return Support("groups of channels of a computed or blocked tensor")
    whole = shape == shapes[readers[0].output] == workload.output.shape
    if not whole or len(shape) < 3 or groups[0] != shape[0] or shape[1] % groups[1]:
        return Support(f"{groups[1]} groups of a tensor of shape {shape}")
    chain = [item for item in operations if item not in (anchor, joined, readers[0])]
    if any(facts_of(item).per_channel for item in chain):
        return Support("a chain behind groups of channels reads one value per channel")
    parts = _without_reshapes(workload, anchor, joined, readers[0])
    if isinstance(parts, Support):
        return parts
    return _Grouped(parts=parts, shaped=_shaped(workload, anchor, shape, groups[1]))


def _without_reshapes(
    workload: Workload, anchor: Operation, joined: Operation, apart: Operation
) -> Anchored | Support:
    """Return the workload as if tensors had the shape of the loops, split at its anchor."""
    same = {joined.output: joined.inputs[0], apart.output: anchor.output}
    found = tuple(
        replace(item, inputs=tuple(same.get(ref, ref) for ref in item.inputs))
        for item in workload.operations
        if item not in (joined, apart)
    )
    at = next(i for i, item in enumerate(found) if item.output == anchor.output)
    before, after = found[:at], found[at + 1 :]
    chain = check_chain((*before, *after))
    if not chain:
        return chain
    return Anchored(
        workload=replace(workload, operations=found),
        anchor=found[at],
        source=int(joined.inputs[0][1:]),
        before=before,
        after=after,
    )


def _shaped(workload: Workload, anchor: Operation, shape: Shape, groups: int) -> Workload:
    """Return a workload of the same inputs in the loops of the result."""
    wide = (shape[0], groups, shape[1] // groups, *shape[2:])
    parameters = {ref: (groups, *(1,) * (len(wide) - 2)) for ref in anchor.inputs[1:]}
    inputs = [
        replace(spec, shape=_split(spec, f"x{number}", parameters, len(shape), groups))
        for number, spec in enumerate(workload.inputs)
    ]
    return reshaped(workload, inputs, wide)


def _split(
    spec: TensorSpec, ref: str, parameters: Mapping[str, Shape], rank: int, groups: int
) -> Shape:
    """Return the shape of an input with its channels, if it has any, cut into groups."""
    if ref in parameters:
        return parameters[ref]
    full = (1,) * (rank - len(spec.shape)) + spec.shape
    channels = (groups, full[1] // groups) if full[1] > 1 else (1, 1)
    return (full[0], *channels, *full[2:])
