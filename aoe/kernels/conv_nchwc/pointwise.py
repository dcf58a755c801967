"""Convolutions that read single elements: the axes of an image are taken for longer rows.

A register tile covers a few columns of one row, so rows that it does not divide cost products that
are made twice: 7 columns in tiles of 6 take 1.7 times as long, 49 in one row 1.1 times.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import prod

from aoe.operators import Shape, facts_of, integers, op_key
from aoe.operators.products import TRANSPOSED_CONVOLUTION
from aoe.workload import AttributeValue, Layout, Operation, TensorSpec, Workload

_BIAS = 2
"""Position of the input with one value for each channel."""
_WIDTHS_OF_8, _WIDTHS = (12,), range(10, 15)
"""Columns of the register tiles of AVX2, whose blocks have 8 channels (12 of one block, or 6 of
two), and of larger register files."""
_WASTED = 1.045
"""Columns computed for each column of a row, up to which rows stay as long as they are."""
_MOST_COLUMNS = 512
"""Of a row: more would leave groups of rows that do not stay in the second-level cache."""


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
    for number, spec in enumerate(workload.inputs):
        shape = spec.shape if f"x{number}" in of_channels else _regrouped(spec.shape, image, rows)
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
