"""Workloads of one blocked convolution, with and without a chain behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aoe.workload import NCHWC_DOMAIN, AttributeValue, Operation, TensorSpec, Workload
from support.contracts.kernels import block_size, blocked, operation, plain

BLOCK = block_size() or 16
SILU = (operation("Sigmoid", "t0", "t1"), operation("Mul", "t0 t1", "t2"))
"""A chain of two for `chained`: SiLU, also called Swish."""


def convolution(
    size: tuple[int, int],
    *,
    batch: int = 1,
    blocks: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
    bias: bool = True,
    added: bool = False,
    kernel: tuple[int, int] = (3, 3),
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    **attributes: AttributeValue,
) -> Workload:
    """Return a convolution of images of `size`, with blocks of channels read and written."""
    read, written = (BLOCK * count for count in blocks)
    rows, columns = (
        (size[at] + pads[at] + pads[2 + at] - dilations[at] * (kernel[at] - 1) - 1) // strides[at]
        + 1
        for at in range(2)
    )
    output = blocked(batch, written, rows, columns)
    inputs = [blocked(batch, read, *size), plain(written, read, *kernel, constant=True)]
    names = "x0 x1"
    if bias:
        names += f" x{len(inputs)}"
        inputs.append(plain(written, constant=True))
    if added:
        names += f"{'' if bias else ' -'} x{len(inputs)}"
        inputs.append(output)
    given: dict[str, AttributeValue] = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "group": 1,
        **attributes,
    }
    node = operation("Conv", names, "t0", domain=NCHWC_DOMAIN, **given)
    return Workload(op_type="convolution", inputs=tuple(inputs), operations=(node,), output=output)


def in_groups(known: Workload, groups: int) -> Workload:
    """Return a convolution whose channels are in groups; as many as channels is depthwise."""
    image, weights, *others = known.inputs
    written, _, *kernel = weights.shape
    filters = plain(written, image.shape[1] // groups, *kernel, constant=True)
    node = known.operations[0]
    grouped = replace(node, attributes={**node.attributes, "group": groups})
    return replace(
        known, inputs=(image, filters, *others), operations=(grouped, *known.operations[1:])
    )


def depthwise(known: Workload) -> Workload:
    """Return a convolution with one filter for each channel."""
    return in_groups(known, known.inputs[0].shape[1])


def expansion(
    second: Workload, blocks: int, *between: Operation, **attributes: AttributeValue
) -> Workload:
    """Return a convolution in groups whose image a pointwise one makes.

    Args:
        second: The one in groups, with what is behind it.
        blocks: Of channels the pointwise one reads.
        between: A chain that reads `p0`, its result.
        attributes: Of the pointwise one.
    """
    image = second.inputs[0]
    channels = BLOCK * blocks
    narrow = replace(image, shape=(image.shape[0], channels, *image.shape[2:]))
    filters = plain(image.shape[1], channels, 1, 1, constant=True)
    own = (narrow, filters, plain(image.shape[1], constant=True))
    given: dict[str, AttributeValue] = {"kernel_shape": (1, 1), "strides": (1, 1), **attributes}
    first = operation("Conv", "x0 x1 x2", "p0", domain=NCHWC_DOMAIN, group=1, **given)
    moved = {f"x{at}": f"x{at - 1 + len(own)}" for at in range(1, len(second.inputs))}
    moved["x0"] = (first, *between)[-1].output
    behind = (
        replace(item, inputs=tuple(moved.get(ref, ref) for ref in item.inputs))
        for item in second.operations
    )
    return replace(
        second,
        op_type="expanded_convolution",
        inputs=(*own, *second.inputs[1:]),
        operations=(first, *between, *behind),
    )


def stem(known: Workload, channels: int) -> Workload:
    """Return a convolution of a plain image with few channels, as a network starts with."""
    image, weights, *others = known.inputs
    plain_image = plain(image.shape[0], channels, *image.shape[2:])
    filters = plain(weights.shape[0], channels, *weights.shape[2:], constant=True)
    return replace(known, inputs=(plain_image, filters, *others))


def chained(
    known: Workload,
    *behind: Operation,
    reads: tuple[TensorSpec, ...] = (),
    scalars: tuple[float, ...] = (),
) -> Workload:
    """Return a convolution with a chain behind it, which reads further inputs after its own."""
    return replace(
        known,
        inputs=(*known.inputs, *reads),
        operations=(*known.operations, *behind),
        scalars=scalars,
    )


def with_computed_weights(known: Workload) -> Workload:
    """Return a convolution whose weights are no constant."""
    image, weights, *others = known.inputs
    return replace(known, inputs=(image, plain(*weights.shape), *others))


def pooled(known: Workload, **attributes: AttributeValue) -> Workload:
    """Return a workload with a pooling behind it, of 2 x 2 where nothing else is said."""
    given = {"kernel_shape": (2, 2), "strides": (2, 2), **attributes}
    pooling = operation("MaxPool", known.result, "p", domain=NCHWC_DOMAIN, **given)
    batch, channels, rows, columns = known.output.shape
    output = replace(known.output, shape=(batch, channels, rows // 2, columns // 2))
    return replace(known, operations=(*known.operations, pooling), output=output)


def exactly(workload: Workload, inputs: dict[str, np.ndarray]) -> np.ndarray:
    """Return the convolution without bias in float64, blocked in and out."""
    attributes = workload.operations[0].attributes
    pads, strides = attributes["pads"], attributes["strides"]
    x, weights = (np.asarray(inputs[name], np.float64) for name in ("x0", "x1"))
    batch, channels, height, width = x.shape
    image = x.reshape(batch, channels // BLOCK, height, width, BLOCK)
    image = image.transpose(0, 1, 4, 2, 3).reshape(batch, channels, height, width)
    image = np.pad(image, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    out, kernel = weights.shape[0], weights.shape[2:]
    filters = weights.reshape(out // BLOCK, channels // BLOCK, *kernel, BLOCK, BLOCK)
    filters = filters.transpose(0, 5, 1, 4, 2, 3).reshape(out, channels, *kernel)
    down, along = attributes["dilations"]
    spread = tuple(
        apart * (size - 1) + 1 for apart, size in zip((down, along), kernel, strict=True)
    )
    windows = np.lib.stride_tricks.sliding_window_view(image, spread, axis=(2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], ::down, ::along]
    result = np.einsum("nchwij,ocij->nohw", windows, filters)
    _, _, rows, columns = result.shape
    result = result.reshape(batch, out // BLOCK, BLOCK, rows, columns)
    return result.transpose(0, 1, 3, 4, 2).reshape(batch, out, rows, columns)
