"""Quantised convolutions: workloads, and what they are in integers, by NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import Operation, TensorSpec, Workload

Array = np.ndarray[Any, Any]


def quantised_convolution(
    channels: tuple[int, int],
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    group: int = 1,
    batch: int = 1,
    last: bool = True,
    levels: str = "uint8",
    made: str = "uint8",
    weights: str = "int8",
    zero_point: int | None = None,
    scale_of_channels: bool = True,
    bias: bool = True,
    added: bool = False,
    point: str = "",
    gated: bool = False,
) -> Workload:
    """Return a convolution of levels; `added` puts a QLinearAdd behind it, `point` a function.

    Args:
        channels: Read and made.
        image: Extents, outermost first.
        kernel: The same of the filter.
        stride: Along every axis.
        pad: At every end.
        dilation: Along every axis.
        group: Number of groups.
        batch: Images.
        last: True if channels are the last axis.
        levels: Element type of the image.
        made: Element type of the result.
        weights: Element type of the weights.
        zero_point: Of the weights; by default that of symmetric ones.
        scale_of_channels: True if weights have a scale for each channel.
        bias: True if there is one.
        added: True if another tensor is added.
        point: Operator of one tensor behind all, or none.
        gated: True if what it makes is multiplied by what it was made of.
    """
    rank, (read, written) = len(image), channels
    extents = tuple(
        (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
        for extent, size in zip(image, kernel, strict=True)
    )
    x, y = (
        (batch, *axes, count) if last else (batch, count, *axes)
        for axes, count in ((image, read), (extents, written))
    )
    inputs = [
        TensorSpec(shape=x, dtype=levels),
        _constant((), "float32"),
        _constant((), levels),
        _constant((written, read // group, *kernel), weights),
        _constant((written,) if scale_of_channels else (), "float32"),
        _constant((), "float32"),
        _constant((), made),
    ]
    refs = ["x0", "x1", "x2", "x3", "x4", "", "x5", "x6"]
    if bias:
        refs.append(f"x{len(inputs)}")
        inputs.append(_constant((written,), "int32"))
    centre = {"int8": 0, "uint8": 128}[weights] if zero_point is None else zero_point
    operations = [
        Operation(
            op_type="QLinearConv",
            domain=MICROSOFT_DOMAIN if last else "",
            version=1 if last else 10,
            inputs=tuple(refs),
            output="t0",
            attributes={
                "kernel_shape": kernel,
                "strides": (stride,) * rank,
                "pads": (pad,) * 2 * rank,
                "dilations": (dilation,) * rank,
                "group": group,
                "w_zero_point": centre,
                **({"channels_last": 1} if last else {}),
            },
        )
    ]
    output = TensorSpec(shape=y, dtype=made)
    if added:
        first = len(inputs)
        inputs += [output, *(_constant((), one) for one in ("float32", made) * 2)]
        others = (f"x{first + at}" for at in range(5))
        operations.append(_behind("QLinearAdd", ("t0", "x5", "x6", *others), "t1"))
    if point:
        ref, scale, zero = operations[-1].output, f"x{len(inputs)}", f"x{len(inputs) + 1}"
        inputs += [_constant((), "float32"), _constant((), made)]
        operations.append(_behind(point, (ref, "x5", "x6", scale, zero), "t2"))
        if gated:
            made_scale, made_zero = f"x{len(inputs)}", f"x{len(inputs) + 1}"
            inputs += [_constant((), "float32"), _constant((), made)]
            factors = (ref, "x5", "x6", "t2", scale, zero, made_scale, made_zero)
            operations.append(_behind("QLinearMul", factors, "t3"))
    return Workload(
        op_type="quantised_convolution",
        inputs=tuple(inputs),
        operations=tuple(operations),
        output=output,
    )


def _constant(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    return TensorSpec(shape=shape, dtype=dtype, constant=True)


def _behind(op_type: str, inputs: tuple[str, ...], output: str) -> Operation:
    return Operation(op_type=op_type, domain=MICROSOFT_DOMAIN, inputs=inputs, output=output)


def integer_sums(workload: Workload, inputs: Mapping[str, Array]) -> Array:
    """Return the sums of products of a convolution alone, with its bias: (N, O, ...), int64."""
    operation = workload.operations[0]
    x, w = inputs["x0"].astype(np.int64), inputs["x3"].astype(np.int64)
    if operation.attributes.get("channels_last"):
        x = np.moveaxis(x, -1, 1)
    x, w = x - int(inputs["x2"]), w - int(str(operation.attributes["w_zero_point"]))
    stride, pad, dilation = (
        operation.attributes[name][0]  # type: ignore[index]
        for name in ("strides", "pads", "dilations")
    )
    groups, kernel = int(str(operation.attributes["group"])), w.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), *[(pad, pad)] * len(kernel)])
    extents = [
        (extent - dilation * (size - 1) - 1) // stride + 1
        for extent, size in zip(x.shape[2:], kernel, strict=True)
    ]
    sums = np.zeros((len(x), len(w), *extents), np.int64)
    for group, of_group in enumerate(np.split(x, groups, axis=1)):
        made = slice(group * len(w) // groups, (group + 1) * len(w) // groups)
        for tap in product(*map(range, kernel)):
            seen = tuple(
                slice(at * dilation, at * dilation + stride * (extent - 1) + 1, stride)
                for at, extent in zip(tap, extents, strict=True)
            )
            factors = w[(made, slice(None), *tap)]
            sums[:, made] += np.einsum("nc...,oc->no...", of_group[(..., *seen)], factors)
    if operation.inputs[-1] == "x7" and len(operation.inputs) > 8:
        sums += inputs["x7"].reshape(-1, *[1] * len(kernel))
    return sums


def requantised(workload: Workload, inputs: Mapping[str, Array], sums: Array) -> Array:
    """Return the levels of sums in the layout of the result: float32 factors, half to even."""
    scale = inputs["x4"].reshape(-1, *[1] * (sums.ndim - 2))
    factor = (np.float32(inputs["x1"]) * scale) / np.float32(inputs["x5"])
    limits = np.iinfo(inputs["x6"].dtype)
    with np.errstate(over="ignore"):
        level = np.rint(sums.astype(np.float32) * factor.astype(np.float32))
    levels = np.clip(level + np.float32(inputs["x6"]), limits.min, limits.max)
    levels = levels.astype(inputs["x6"].dtype)
    is_last = workload.operations[0].attributes.get("channels_last")
    return np.ascontiguousarray(np.moveaxis(levels, 1, -1)) if is_last else levels
