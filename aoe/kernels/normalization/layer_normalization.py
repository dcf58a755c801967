"""Normalisation along the last axes: by mean and deviation, or by the root mean square."""

from __future__ import annotations

from aoe.kernels.family import Support
from aoe.kernels.halide.iteration import axis_names
from aoe.kernels.halide.rows import RowPlan, plan_rows
from aoe.kernels.normalization.layout_change import find_turned
from aoe.kernels.normalization.statistics import Normalized, NormalizedFamily
from aoe.operators import MICROSOFT_DOMAIN, number, op_key
from aoe.operators.axes import normalized_axis
from aoe.workload import Operation, Workload

_FLOAT32 = 1
"""Element type statistics are taken in. Source: ONNX TensorProto.FLOAT."""
_EPSILON, _SKIP_EPSILON = 1e-5, 1e-12
"""Defaults of ONNX's operators and of ONNX Runtime's that add two tensors first."""


class LayerNormalization(NormalizedFamily):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, or x / sqrt(mean square + epsilon).

    A row is walked for its mean, for the squares of what is left without it, and for the results.
    What stands in front (a residual sum) is computed while the row is read first, and kept. So are
    channels that lie in planes or blocks, and are put last in front (`layout_change.py`).
    """

    name = "layer_normalization"
    anchors = frozenset(
        {
            ("", "LayerNormalization"),
            ("", "RMSNormalization"),
            ("", "SimplifiedLayerNormalization"),
            (MICROSOFT_DOMAIN, "SkipLayerNormalization"),
            (MICROSOFT_DOMAIN, "SkipSimplifiedLayerNormalization"),
        }
    )

    def plan(self, workload: Workload) -> Normalized | Support:
        """Plan one normalisation with chains in front and behind, or tell why not."""
        found = [item for item in workload.operations if op_key(item) in self.anchors]
        if not found:
            return Support("no operator of this family")
        if workload.blocked:
            return Support("a normalisation of rows in the blocked layout")
        anchor, rank = found[0], len(workload.output.shape)
        if number(anchor.attributes, "stash_type", _FLOAT32) != _FLOAT32:
            return Support(f"{anchor.op_type} with statistics of another type")
        axis = normalized_axis(anchor)
        if not -rank <= axis < rank:
            return Support(f"axis {axis} of a tensor of rank {rank}")
        adds = anchor.op_type.startswith("Skip")
        plan = None if adds else find_turned(workload, anchor)
        if plan is None:
            names, known = axis_names(workload)[axis:], self.anchors
            plan = plan_rows(workload, known, names, anchor.op_type, sums_inputs=adds)
        if isinstance(plan, Support):
            return plan
        return _with_parameters(plan, plan.anchor, adds=adds)


def _with_parameters(plan: RowPlan, anchor: Operation, *, adds: bool) -> Normalized:
    """Return the plan with what the operator reads beside the tensor it normalises.

    Source: ONNX operators, versions 17 and 23; ONNX Runtime's ContribOperators.md.
    """
    data, *parameters = anchor.inputs
    centred = anchor.op_type in ("LayerNormalization", "SkipLayerNormalization")
    skip = parameters.pop(0) if adds else ""
    scale = parameters.pop(0)
    bias = parameters.pop(0) if centred and parameters else ""
    return Normalized(
        plan=plan,
        summands=tuple(ref for ref in (data, skip, *parameters) if ref),
        scale=scale,
        bias=bias,
        epsilon=number(anchor.attributes, "epsilon", _SKIP_EPSILON if adds else _EPSILON),
        centred=centred,
    )
