"""Chains in front of a convolution that leave the padding of the channels out.

ONNX Runtime fills the last block of channels up. An operator that knows no blocked layout stands
between reorders, the first of which drops what was filled up; the last fills up with zeros again.
A kernel computes the chain in all channels, and makes those zeros itself.
"""

from __future__ import annotations

from dataclasses import replace

from aoe.kernels.halide.prologue import feeding
from aoe.operators import BLOCKED_CONVOLUTION, REORDER_OUTPUT, is_reorder, number, op_key
from aoe.workload import Operation, Workload


def without_padding_dropped(workload: Workload) -> tuple[Workload, int]:
    """Return a workload whose chain in front of its convolution drops no channels.

    Returns:
        The workload without the reorders that do, and how many channels the chain makes; the
        workload as it is, and 0, where none are dropped, or not the same everywhere.
    """
    front = _front(workload)
    reorders = [item for item in front if is_reorder(item)]
    dropping = [item for item in reorders if op_key(item) == REORDER_OUTPUT]
    kept = {int(number(item.attributes, "channels", 0)) for item in dropping}
    widths = {
        spec.shape[1]
        for index, spec in enumerate(workload.inputs)
        if spec.block and any(f"x{index}" in item.inputs for item in front)
    }
    if len(kept) != 1 or len(widths) != 1 or not is_reorder(front[-1]):
        return workload, 0
    channels, width = kept.pop(), widths.pop()
    is_last_block = width - workload.output.block < channels < width
    if not is_last_block or any(item.attributes.get("channels_last", 0) for item in reorders):
        return workload, 0
    return _without(workload, reorders), channels


def _front(workload: Workload) -> tuple[Operation, ...]:
    """Return the operations that make the convolution's image; none where there is no image."""
    at = [i for i, item in enumerate(workload.operations) if op_key(item) == BLOCKED_CONVOLUTION]
    if len(at) != 1:
        return ()
    before = workload.operations[: at[0]]
    return feeding(workload.operations[at[0]].inputs[0], before)


def _without(workload: Workload, reorders: list[Operation]) -> Workload:
    """Return a workload in which what a reorder makes is what it reads."""
    same: dict[str, str] = {}
    for item in reorders:
        same[item.output] = same.get(item.inputs[0], item.inputs[0])
    operations = tuple(
        replace(item, inputs=tuple(same.get(ref, ref) for ref in item.inputs))
        for item in workload.operations
        if item not in reorders
    )
    return replace(workload, operations=operations)
