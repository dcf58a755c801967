"""Every kernel family by name, the order in which they are offered a workload."""

from __future__ import annotations

from dataclasses import replace

from aoe.kernels.arg_extremes import ArgExtremes
from aoe.kernels.attention.family import AttentionFamily
from aoe.kernels.attention.open_extents import (
    BLOCK_ROWS,
    dimension_roles,
    least_rows,
    open_schedule,
    with_turned_matrix,
)
from aoe.kernels.conv_nchw.family import ConvNchw
from aoe.kernels.conv_nchwc.family import Convolution
from aoe.kernels.cumulative_sum import CumulativeSum
from aoe.kernels.elementwise import Elementwise
from aoe.kernels.elementwise_ops import ELEMENTWISE_OPS
from aoe.kernels.family import KernelFamily, OpenExtents
from aoe.kernels.gathering.gather import GatherElements
from aoe.kernels.gathering.grid_sample import GridSample
from aoe.kernels.gathering.look_ups import LookUps
from aoe.kernels.gathering.scatter import ScatterElements
from aoe.kernels.inverted_bottleneck.family import InvertedBottleneck
from aoe.kernels.matmul.family import MatMul
from aoe.kernels.matmul.integer_family import IntegerMatMul
from aoe.kernels.movement.family import MovementFamily
from aoe.kernels.normalization.batch_normalization import BatchNormalization
from aoe.kernels.normalization.instance_normalization import InstanceNormalization
from aoe.kernels.normalization.layer_normalization import LayerNormalization
from aoe.kernels.normalization.lrn import Lrn
from aoe.kernels.pooling import PoolingFamily
from aoe.kernels.quantised_concat import ConcatOfLevels
from aoe.kernels.quantised_conv.family import QuantisedConvolution
from aoe.kernels.recurrent.family import Recurrent
from aoe.kernels.reductions import Reductions
from aoe.kernels.resizing import ResizingFamily
from aoe.kernels.softmax.columns import Softmax
from aoe.kernels.softmax.rows import RowSoftmax
from aoe.operators import OperatorKey, op_key
from aoe.workload import Workload

FAMILIES: dict[str, KernelFamily] = {
    "convolution": Convolution(),
    "matmul": MatMul(),
    "quantised_matmul": IntegerMatMul(),
    "attention": AttentionFamily(),
    "recurrent": Recurrent(),
    "plain_convolution": ConvNchw(),
    "quantised_convolution": QuantisedConvolution(),
    "quantised_concat": ConcatOfLevels(),
    "expanded_convolution": InvertedBottleneck(),
    "lrn": Lrn(),
    "softmax": Softmax(),
    "softmax_rows": RowSoftmax(),
    "layer_normalization": LayerNormalization(),
    "instance_normalization": InstanceNormalization(),
    "reductions": Reductions(),
    "arg_extremes": ArgExtremes(),
    "cumulative_sum": CumulativeSum(),
    "batch_normalization": BatchNormalization(),
    "pooling": PoolingFamily(),
    "resizing": ResizingFamily(),
    "gather_elements": GatherElements(),
    "scatter_elements": ScatterElements(),
    "grid_sample": GridSample(),
    "movement": MovementFamily(),
    "look_ups": LookUps(),
    "elementwise": Elementwise(),
}
"""A family is one file and one line here; the most special come first."""

OPEN_EXTENTS: dict[str, OpenExtents] = {
    "attention": OpenExtents(
        rows=BLOCK_ROWS,
        least_rows=least_rows,
        roles=dimension_roles,
        schedule=open_schedule,
        turned=with_turned_matrix,
    ),
}
"""Families with kernels that read extents at run time; one more is a line."""

OPEN_FAMILIES = frozenset(
    {
        *("convolution", "plain_convolution", "instance_normalization"),
        *("pooling", "resizing", "movement", "elementwise"),
    }
)
"""Families whose kernels may take any extents along some axes (`TensorSpec.open`)."""

FUSIBLE = frozenset(ELEMENTWISE_OPS)
"""(domain, op_type) of operators that chain freely."""


def get_family(name: str) -> KernelFamily:
    """Return the family called `name`.

    Raises:
        ValueError: there is none.
    """
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(f"kernel family: unknown (got {name}, expected one of {known})")
    return FAMILIES[name]


def anchors() -> frozenset[OperatorKey]:
    """Return (domain, op_type) of operators with a kernel of their own which cannot chain."""
    named = [family.anchors for family in FAMILIES.values()]
    return frozenset[OperatorKey]().union(*named) - FUSIBLE


def classify(workload: Workload) -> Workload | str:
    """Return the workload with its kernel family, or why the closest family does not compute it."""
    reasons = {}
    for name, family in FAMILIES.items():
        named = replace(workload, op_type=name)
        if workload.is_open and name not in OPEN_FAMILIES:
            reasons[name] = "kernels for fixed shapes"
            continue
        try:
            support = family.supports(named)
        except Exception as error:  # a bug of one family costs its own kernels, never a run
            reasons[name] = f"the family failed: {type(error).__name__}: {error}"
            continue
        if support:
            return named
        reasons[name] = support.reason
    closest = _closest(workload)
    return f"{closest}: {reasons[closest]}"


def _closest(workload: Workload) -> str:
    """Return the most special family built around an operator of a workload, else the last one."""
    operators = {op_key(operation) for operation in workload.operations}
    special = (name for name, family in FAMILIES.items() if family.anchors & operators)
    return next(special, [*FAMILIES][-1])
