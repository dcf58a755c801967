"""The form a convolution's workload is brought into before a family reads it.

Long rows. A register tile covers a few columns of one row, so rows that it does not divide cost
products that are made twice: 7 columns in tiles of 6 take 1.7 times as long, 49 in one row 1.1
times. Where filters read single elements, the axes of an image are taken for longer rows.

Padded channels. ONNX Runtime fills the last block of channels up. An operator that knows no blocked
layout stands between reorders, the first of which drops what was filled up; the last fills up with
zeros again. A kernel computes the chain in all channels, and makes the zeros itself.

A pooling behind. Of two rows and two columns of results the largest is left. The results of a
Winograd tile are whole squares, so the image in front of the pooling is never written, nor read
again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import halide as hl

from aoe.kernels.halide.anchored import feeding
from aoe.kernels.halide.shapes import shapes_of
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    OPERATORS,
    REORDER_OUTPUT,
    Shape,
    facts_of,
    integers,
    is_reorder,
    number,
    op_key,
)
from aoe.operators.products import TRANSPOSED_CONVOLUTION
from aoe.operators.windows import windows_of
from aoe.workload import NCHWC_DOMAIN, AttributeValue, Layout, Operation, TensorSpec, Workload

_BIAS = 2
"""Position of the input with one value for each channel."""
_WIDTHS_OF_8, _WIDTHS = (12,), range(10, 15)
"""Columns of the register tiles of AVX2, whose blocks have 8 channels (12 of one block, or 6 of
two), and of larger register files."""
_WASTED = 1.045
"""Columns computed for each column of a row, up to which rows stay as long as they are."""
_MOST_COLUMNS = 512
"""Of a row: more would leave groups of rows that do not stay in the second-level cache."""
_SIDE = 2


def in_long_rows(workload: Workload, product: Operation) -> Workload:
    """Return a workload of the same buffers with images of longer rows; itself if none fits.

    Plain images get one axis, blocked ones as many rows as `blocked_image` says.

    Args:
        workload: A convolution, the chain behind it, and perhaps one in front.
        product: The convolution.
    """
    image = workload.output.shape[2:]
    axes = len(image)
    if axes < 2 or not _reads_single_elements(product, workload, axes):
        return workload
    is_plain = workload.output.layout is Layout.PLAIN
    rows = (prod(image),) if is_plain else blocked_image(image, workload.output.block)
    if rows == image:
        return workload
    of_channels = _parameters(workload) | set(product.inputs[_BIAS : _BIAS + 1])
    inputs = []
    for at, spec in enumerate(workload.inputs):
        shape = spec.shape if f"x{at}" in of_channels else _regrouped(spec.shape, image, rows)
        if shape is None or (is_plain and spec.layout is not Layout.PLAIN):
            return workload
        inputs.append(replace(spec, shape=shape, open=_regrouped_axes(spec, axes, len(rows))))
    operations = tuple(
        _with_axes(item, len(rows)) if item is product else item for item in workload.operations
    )
    shape = *workload.output.shape[:2], *rows
    opened = _regrouped_axes(workload.output, axes, len(rows))
    output = replace(workload.output, shape=shape, open=opened)
    return replace(workload, inputs=tuple(inputs), operations=operations, output=output)


def blocked_image(image: Shape, block: int) -> Shape:
    """Return rows and columns a blocked image is computed in.

    Rows are as short as they may be: threads share them.

    Args:
        image: Rows and columns it has.
        block: Channels of a block.
    """
    pixels, columns = prod(image), image[1]
    longer = range(columns + 1, min(pixels, _MOST_COLUMNS) + 1)
    offered = [columns, *(number for number in longer if pixels % number == 0)]
    widths = _WIDTHS_OF_8 if block == 8 else _WIDTHS
    wasted = {number: _wasted(number, widths) for number in offered}
    good = [number for number in offered if wasted[number] <= _WASTED]
    chosen = good[0] if good else min(offered, key=lambda number: wasted[number])
    return pixels // chosen, chosen


def _wasted(columns: int, widths: Collection[int]) -> float:
    """Return computed columns per column of a row, for the best of some tile widths."""
    return min(-(-columns // wide) * wide / columns for wide in widths)


def _reads_single_elements(product: Operation, workload: Workload, axes: int) -> bool:
    weights = workload.inputs[int(product.inputs[1][1:])].shape
    return (
        op_key(product) != TRANSPOSED_CONVOLUTION
        and len(weights) == axes + 2
        and set(weights[2:]) == {1}
        and not any(integers(product, "pads", 2 * axes, 0))
        and set(integers(product, "strides", axes, 1)) == {1}
    )


def _parameters(workload: Workload) -> set[str]:
    """Return the references read as one value for each channel, but for weights."""
    return {
        operation.inputs[at]
        for operation in workload.operations
        for at in facts_of(operation).per_channel
        if at < len(operation.inputs) and _is_vector(operation.inputs[at], workload)
    }


def _is_vector(ref: str, workload: Workload) -> bool:
    return ref.startswith("x") and len(workload.inputs[int(ref[1:])].shape) == 1


def _regrouped(shape: Shape, image: Shape, rows: Shape) -> Shape | None:
    """Return a shape that broadcasts as before over an image of other rows; None if none does."""
    axes = len(image)
    inner = (1,) * (axes - len(shape)) + shape[-axes:]
    if not shape:
        return shape
    if all(extent == 1 for extent in inner):
        return *shape[:-axes], *(1,) * len(rows)
    return (*shape[:-axes], *rows) if inner == image else None


def _regrouped_axes(spec: TensorSpec, axes: int, rows: int) -> tuple[int, ...]:
    """Return the open axes of a tensor whose image has `rows` axes for `axes`: all, or none."""
    first = len(spec.shape) - axes
    outer = tuple(axis for axis in spec.open if axis < first)
    return outer if outer == spec.open else (*outer, *range(first, first + rows))


def _with_axes(product: Operation, axes: int) -> Operation:
    moves: dict[str, tuple[int, ...]] = {
        "kernel_shape": (1,) * axes,
        "pads": (0,) * (2 * axes),
        "strides": (1,) * axes,
        "dilations": (1,) * axes,
    }
    attributes: dict[str, AttributeValue] = {**product.attributes, **moves}
    return replace(product, attributes=attributes)


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


def without_pooling(workload: Workload) -> tuple[Workload, int]:
    """Return a workload without the pooling it ends in.

    Returns:
        The workload, and of how many rows and columns one result is left; as it is, and 1, where
        it ends otherwise.
    """
    *before, last = workload.operations
    if op_key(last) != (NCHWC_DOMAIN, "MaxPool") or not before:
        return workload, 1
    if last.inputs != (before[-1].output,) or not all(op_key(item) in OPERATORS for item in before):
        return workload, 1
    shapes = shapes_of(workload)
    if isinstance(shapes, str) or shapes[last.output] != workload.output.shape:
        return workload, 1
    whole = shapes[last.inputs[0]]
    in_squares = all(
        (window.size, window.stride, window.dilation) == (_SIDE, _SIDE, 1)
        and window.before == window.behind == 0
        and window.extent == _SIDE * window.made
        for window in windows_of(last, whole)
    )
    if not in_squares or (workload.is_open and _cuts_squares(last)):
        return workload, 1
    output = replace(workload.output, shape=whole)
    return replace(workload, operations=tuple(before), output=output), _SIDE


def _cuts_squares(pooling: Operation) -> bool:
    """True if odd extents leave squares of which a part lies beyond the image."""
    padding = str(pooling.attributes.get("auto_pad", "NOTSET"))
    return bool(pooling.attributes.get("ceil_mode", 0)) or padding.startswith("SAME")


def largest_of_squares(whole: hl.Func, place: Sequence[hl.Var], side: int) -> hl.Expr:
    """Return the largest result of a square, or the only one.

    Args:
        whole: Results, by channel of a block, column, row, block, image.
        place: Index of the square.
        side: Its rows and columns.
    """
    channel, column, row, *outer = place
    results = [
        whole[(channel, column * side + right, row * side + down, *outer)]
        for down in range(side)
        for right in range(side)
    ]
    return reduce(hl.max, results)
