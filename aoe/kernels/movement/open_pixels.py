"""Moves of channels of images of any size, whose rows and columns are one loop.

They are planned as those of images of a single row of more columns than any buffer has. So a term
of an address is a multiple of a whole image, or leads to a place inside of one, and can be read off
its coefficient.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod

from aoe.kernels.family import Support
from aoe.kernels.halide.iteration import Axis
from aoe.kernels.halide.shapes import channel_axes, shapes_of
from aoe.operators import is_reorder
from aoe.operators.movement import moves_channels_alone
from aoe.workload import Operation, TensorSpec, Workload

_PIXELS = 1 << 40
"""Columns of the row."""
_RANK = 4
IMAGE_RANK = 2
"""Dimensions of the buffer of images of any size."""


def in_pixels(workload: Workload, moves: Iterable[Operation]) -> Workload | Support:
    """Return a workload with its images in single rows, or why they are not moved as a whole.

    Args:
        workload: Images of any size among its inputs.
        moves: Operations of it that move.
    """
    for item in moves:
        if item.attributes.get("channels_last", 0) or not (
            is_reorder(item) or moves_channels_alone(item, _RANK)
        ):
            return Support(f"{item.op_type} of images of any size")
    if all(moves_channels_alone(item, _RANK) for item in workload.operations):
        return Support("images of any size that are only copied")
    if len(workload.output.shape) != _RANK:
        return Support(f"images of any size of {len(workload.output.shape)} dimensions")
    shapes = shapes_of(workload)
    channels = shapes if isinstance(shapes, str) else channel_axes(workload, shapes)
    if isinstance(channels, str):
        return Support(channels)
    image = workload.output.shape[2:]
    for at, spec in enumerate(workload.inputs):
        is_whole = spec.open and spec.shape[2:] == image
        if not (is_whole or f"x{at}" in channels or set(spec.shape[-2:]) <= {1}):
            return Support("images of any size beside others")
    inputs = tuple(_in_a_row(spec) if spec.open else spec for spec in workload.inputs)
    return replace(workload, inputs=inputs, output=_in_a_row(workload.output))


def _in_a_row(spec: TensorSpec) -> TensorSpec:
    return replace(spec, shape=(*spec.shape[:2], 1, _PIXELS))


def image_size(spec: TensorSpec) -> int:
    """Return the elements of a row of `in_pixels`, of all channels of a block; 0 for others."""
    is_row = len(spec.shape) == _RANK and spec.shape[-1] == _PIXELS
    return _PIXELS * max(1, spec.block) if is_row else 0


def with_extents(axes: Sequence[Axis], image: Sequence[int]) -> tuple[Axis, ...]:
    """Return loops over single rows as loops over images of these rows and columns."""
    return tuple(
        replace(axis, extent=axis.extent // _PIXELS * prod(image))
        if axis.extent >= _PIXELS
        else axis
        for axis in axes
    )


def buffer_extents(spec: TensorSpec) -> tuple[int, ...]:
    """Return the extents of a tensor's buffer, innermost first: of an image, and of how many."""
    if not spec.open:
        return (spec.size,)
    image = prod(spec.shape[2:]) * max(1, spec.block)
    return image, spec.size // image
