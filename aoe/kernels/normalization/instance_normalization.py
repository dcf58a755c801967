"""Normalisation of every channel of every image by its own mean and deviation."""

from __future__ import annotations

from aoe.kernels.family import Support
from aoe.kernels.halide.iteration import axis_names
from aoe.kernels.halide.rows import plan_rows, plan_walk
from aoe.kernels.normalization.groups import find_groups
from aoe.kernels.normalization.statistics import Normalized, NormalizedFamily
from aoe.operators import number
from aoe.workload import Workload

_EPSILON = 1e-5
_NAME = "InstanceNormalization"


class InstanceNormalization(NormalizedFamily):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the pixels of a channel.

    Group normalisation, which networks write as this between two Reshapes, is walked over the
    pixels of the channels of a group; factors and summands of channels stand in the chain behind.
    In the blocked layout the channels of a block are a vector, and pixels are shared out on a few
    of them.
    """

    name = "instance_normalization"
    anchors = frozenset({("", _NAME)})

    def plan(self, workload: Workload) -> Normalized | Support:
        """Plan one normalisation with chains in front and behind, or tell why not."""
        grouped = find_groups(workload)
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
        data, scale, bias = plan.anchor.inputs
        return Normalized(
            plan=plan,
            summands=(data,),
            scale=scale,
            bias=bias,
            epsilon=number(plan.anchor.attributes, "epsilon", _EPSILON),
            centred=True,
        )
