"""Workload of a fused pointwise and grouped convolution (inverted bottleneck), in numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aoe.kernels.conv_nchwc.direct import met_taps
from aoe.kernels.conv_nchwc.shape import (
    SUM,
    ConvolutionPlan,
    check_arguments,
    read_convolution,
    read_extents,
)
from aoe.kernels.family import Support
from aoe.kernels.halide.anchored import feeding
from aoe.kernels.halide.shapes import infer_shapes
from aoe.operators import BLOCKED_CONVOLUTION, OperatorKind, facts_of, op_key
from aoe.workload import Operation, Precision, TensorSpec, Workload

_AsRead = tuple[int, ...]
"""Extents of a buffer, innermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BottleneckShape:
    """Two convolutions, of which the first makes the image of the second.

    Every block of channels of the second reads that block of the first and no other.
    """

    first: ConvolutionPlan  # Pointwise, with its activation and the chain behind it
    # Depthwise, or in groups of one block of channels, with what stands behind it. Its image is no
    # input of the workload: it has the number behind the last one.
    second: ConvolutionPlan
    extents: tuple[_AsRead, ...]  # Of all inputs, innermost first

    @property
    def in_pairs(self) -> bool:
        """True if factors of the first are bfloat16, summed up in pairs; the second is float32."""
        return self.first.workload.precision is Precision.BFLOAT16

    @property
    def needed(self) -> tuple[int, int]:
        """Rows and columns of the image between both that results are made of; 1 at least."""
        return self._needed_along(0), self._needed_along(1)

    def _needed_along(self, axis: int) -> int:
        shape, apart = self.second.shape, self.second.shape.dilations[axis]
        size = (shape.height, shape.width)[axis]
        results = (shape.rows, shape.columns)[axis]
        tap, taps = (0, shape.kernel[axis]) if shape.is_depthwise else met_taps(shape)[axis]
        first = tap * apart - shape.pads[axis]
        last = first + (taps - 1) * apart + (results - 1) * shape.strides[axis]
        begin, end = (max(0, min(at, size - 1)) for at in (first, last))
        return end - begin + 1

    def read_rows(self, rows: int) -> int:
        """Return the rows of the image between both that some rows of results are made of."""
        shape = self.second.shape
        reach = (rows - 1) * shape.strides[0] + (shape.kernel[0] - 1) * shape.dilations[0]
        return min(shape.height, reach + 1)


def read_expansion(workload: Workload) -> BottleneckShape | Support:
    """Return both convolutions of a workload that is such a pair, or why it is none."""
    if workload.precision.is_lower and workload.precision is not Precision.BFLOAT16:
        precision = workload.precision.value
        return Support(f"two convolutions become one in float32 or bfloat16, not in {precision}")
    parts = _parts(workload)
    if isinstance(parts, Support):
        return parts
    front, second = parts
    made = _made(workload, second)
    if isinstance(made, Support):
        return made
    back = _behind(workload, front, second, made)
    if isinstance(back, Support):
        return back
    plans = []
    for part in (replace(workload, operations=front, output=made), back):
        plan = read_convolution(part)
        if isinstance(plan, Support):
            return plan
        if plan.shape.pooled > 1:
            return Support("a pooling behind two convolutions")
        if not (alike := check_arguments(plan)):
            return alike
        plans.append(plan)
    refused = _first_refusal(plans[0]) or _second_refusal(plans[1])
    return Support(refused) if refused else _joined(plans[0], plans[1], len(workload.inputs))


def _parts(workload: Workload) -> tuple[tuple[Operation, ...], Operation] | Support:
    """Return the operations in front of the second convolution, and that convolution."""
    found = [
        item
        for item in workload.operations
        if op_key(item) == BLOCKED_CONVOLUTION and facts_of(item).kind is OperatorKind.PRODUCT
    ]
    if len(found) != 2:
        return Support(f"{len(found)} blocked convolutions, not two")
    front = feeding(found[1].inputs[0], workload.operations)
    if found[0] not in front:
        return Support("the second convolution does not read what the first one makes")
    return front, found[1]


def _made(workload: Workload, second: Operation) -> TensorSpec | Support:
    """Return the image between both convolutions."""
    shapes = infer_shapes(workload)
    if isinstance(shapes, str):
        return Support(shapes)
    shape, block = shapes[second.inputs[0]], workload.output.block
    if not block or len(shape) != 4 or shape[1] % block:
        return Support(f"the image between has shape {shape}, no whole blocks of channels")
    return replace(workload.output, shape=shape, constant=False)


def _behind(
    workload: Workload, front: tuple[Operation, ...], second: Operation, made: TensorSpec
) -> Workload | Support:
    """Return the second convolution and what is behind it, its image a further input."""
    inside = {item.output for item in front}
    rest = [item for item in workload.operations if item not in front]
    read = [ref for item in rest if item is not second for ref in item.inputs]
    if inside.intersection((*read, *second.inputs[1:])):
        return Support("what the first convolution makes is read again behind the second")
    image = f"x{len(workload.inputs)}"
    reading = replace(second, inputs=(image, *second.inputs[1:]))
    operations = tuple(reading if item is second else item for item in rest)
    return replace(workload, inputs=(*workload.inputs, made), operations=operations)


def _first_refusal(plan: ConvolutionPlan) -> str:
    """Return the reason why a convolution cannot be the first of the two; "" if it can."""
    shape = plan.shape
    if shape.kernel != (1, 1) or shape.strides != (1, 1) or any(shape.pads):
        return "the first convolution is not pointwise"
    if shape.groups > 1 or shape.is_stem:
        return "the first convolution does not sum all channels of a blocked image"
    if plan.prologue is not None:
        return "a chain in front of the first convolution"
    if SUM in plan.inputs or plan.epilogue.numbers:
        return "a tensor is read between both convolutions"
    return ""


def _second_refusal(plan: ConvolutionPlan) -> str:
    """Return the reason why a convolution cannot be the second one; "" if it can."""
    shape = plan.shape
    if shape.groups == 1:
        return "the second convolution is in no groups"
    if shape.is_depthwise:
        return ""
    if plan.workload.precision is Precision.BFLOAT16:
        return "a convolution in groups that are no channels has pairs of its own to sum up"
    if (shape.blocks_summed, shape.blocks_together) == (1, 1):
        return ""
    return "a group of the second convolution has more than a block of channels"


def _joined(
    first: ConvolutionPlan, second: ConvolutionPlan, count: int
) -> BottleneckShape | Support:
    """Return both if they read all of `count` inputs, each in one way."""
    known = read_extents(first, first.shape.weight_extents)
    behind = read_extents(second, second.shape.weight_extents)
    del behind[count]
    for number, extents in behind.items():
        if known.setdefault(number, extents) != extents:
            return Support(f"input {number} is read in two ways")
    if known.keys() != set(range(count)):
        return Support("an input nothing reads")
    ordered = tuple(known[number] for number in range(count))
    return BottleneckShape(first=first, second=second, extents=ordered)
