"""Workloads of one convolution of plain tensors, transposed or not."""

from __future__ import annotations

from collections.abc import Sequence

from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload
from support.contracts.kernels import operation, plain

FAMILY = "plain_convolution"


def conv_nchw(
    image: Sequence[int],
    filters: Sequence[int],
    *,
    stride: int = 1,
    dilation: int = 1,
    pads: Sequence[int] = (),
    group: int = 1,
    bias: bool = True,
    added: bool = False,
    chain: Sequence[Operation] = (),
    **attributes: AttributeValue,
) -> Workload:
    """Return a convolution of an image (N, C, ...) with filters (O, C, ...) and its chain."""
    axes = len(image) - 2
    pads = tuple(pads) or (0,) * 2 * axes
    extents = tuple(
        (image[2 + at] + pads[at] + pads[axes + at] - dilation * (filters[2 + at] - 1) - 1)
        // stride
        + 1
        for at in range(axes)
    )
    output = plain(image[0], filters[0], *extents)
    moves = _moves(filters, stride, dilation, pads, group)
    given = {**moves, **attributes}
    fused = added or "activation" in given
    op_type, domain = ("FusedConv", MICROSOFT_DOMAIN) if fused else ("Conv", "")
    return _workload(op_type, domain, image, filters, output, bias, added, chain, given)


def transposed_convolution(
    image: Sequence[int],
    filters: Sequence[int],
    *,
    stride: int = 1,
    pads: Sequence[int] = (),
    more: int = 0,
    group: int = 1,
    bias: bool = True,
    chain: Sequence[Operation] = (),
) -> Workload:
    """Return a transposed convolution of (N, C, ...) with filters (C, O / groups, ...)."""
    axes = len(image) - 2
    pads = tuple(pads) or (0,) * 2 * axes
    extents = tuple(
        (image[2 + at] - 1) * stride + filters[2 + at] - pads[at] - pads[axes + at] + more
        for at in range(axes)
    )
    output = plain(image[0], filters[1] * group, *extents)
    given = {**_moves(filters, stride, 1, pads, group), "output_padding": (more,) * axes}
    return _workload("ConvTranspose", "", image, filters, output, bias, False, chain, given)


def _moves(
    filters: Sequence[int], stride: int, dilation: int, pads: Sequence[int], group: int
) -> dict[str, AttributeValue]:
    axes = len(filters) - 2
    return {
        "kernel_shape": tuple(filters[2:]),
        "strides": (stride,) * axes,
        "dilations": (dilation,) * axes,
        "pads": tuple(pads),
        "group": group,
    }


def _workload(
    op_type: str,
    domain: str,
    image: Sequence[int],
    filters: Sequence[int],
    output: TensorSpec,
    bias: bool,
    added: bool,
    chain: Sequence[Operation],
    attributes: dict[str, AttributeValue],
) -> Workload:
    inputs = [plain(*image), plain(*filters, constant=True)]
    names = "x0 x1"
    if bias:
        names += f" x{len(inputs)}"
        inputs.append(plain(output.shape[1], constant=True))
    if added:
        names += f"{'' if bias else ' -'} x{len(inputs)}"
        inputs.append(output)
    node = operation(op_type, names, "t0", domain=domain, **attributes)
    return Workload(op_type=FAMILY, inputs=tuple(inputs), operations=(node, *chain), output=output)
