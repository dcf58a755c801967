"""Quantised operators: workloads, and what convolutions are in integers, by NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from aoe.operators import MICROSOFT_DOMAIN
from aoe.workload import AttributeValue, Operation, TensorSpec, Workload

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
        gated: True if what it reads is multiplied by its result, as in SiLU.
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
            made_of = f"x{len(inputs)}", f"x{len(inputs) + 1}"
            inputs += [_constant((), "float32"), _constant((), made)]
            factors = (ref, "x5", "x6", "t2", scale, zero)
            operations.append(_behind("QLinearMul", (*factors, *made_of), "t3"))
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


def blockwise(
    rows: tuple[int, ...],
    depth: int,
    columns: int,
    *chain: Operation,
    bits: int = 4,
    block: int = 32,
    level: int = 0,
    zeros: bool = True,
    bias: bool = False,
    more: tuple[TensorSpec, ...] = (),
) -> Workload:
    """Return rows x0 by weights x1, scales x2, then zero points, bias and a chain's inputs."""
    blocks = -(-depth // block)
    inputs = [
        TensorSpec(shape=(*rows, depth)),
        _constant((columns, blocks, block * bits // 8), "uint8"),
        _constant((columns, blocks), "float32"),
    ]
    refs = ["x0", "x1", "x2", "", "", ""]
    if zeros:
        inputs.append(_constant((columns, -(-blocks * bits // 8)), "uint8"))
        refs[3] = "x3"
    if bias:
        inputs.append(_constant((columns,), "float32"))
        refs[5] = f"x{len(inputs) - 1}"
    while not refs[-1]:
        refs.pop()
    anchor = Operation(
        op_type="MatMulNBits",
        domain=MICROSOFT_DOMAIN,
        version=1,
        inputs=tuple(refs),
        output="t0",
        attributes={
            "K": depth,
            "N": columns,
            "bits": bits,
            "block_size": block,
            "accuracy_level": level,
        },
    )
    return Workload(
        op_type="quantised_matmul",
        inputs=(*inputs, *more),
        operations=(anchor, *chain),
        output=TensorSpec(shape=(*rows, columns)),
    )


def integer_convolution(
    channels: tuple[int, int],
    image: tuple[int, ...],
    kernel: tuple[int, ...],
    *,
    stride: int = 1,
    pad: int = 0,
    dilation: int = 1,
    group: int = 1,
    batch: int = 1,
    weights: str = "int8",
    zero_point: int | None = None,
    levels: str = "",
    scale_of_channels: bool = False,
    bias: bool = True,
    added: bool = False,
    relu: bool = True,
) -> Workload:
    """Return a convolution as `quantize_dynamic` writes it, with its chain.

    Inputs are the image, weights and their scale, then bias and what is added; last, where levels
    are given, their zero point and their scale.

    Args:
        channels: Read and made.
        image: Extents, outermost first.
        kernel: The same of the filter.
        stride: Along every axis.
        pad: At every end.
        dilation: Along every axis.
        group: Number of groups.
        batch: Images.
        weights: Element type of the weights.
        zero_point: Of the weights; None if it is left out.
        levels: Type of the levels of the image; by default it is float32, and they are measured.
        scale_of_channels: True if weights have a scale for each channel.
        bias: True if there is one.
        added: True if another tensor is added.
        relu: True if a Relu ends the chain.
    """
    rank, (read, written) = len(image), channels
    extents = tuple(
        (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
        for extent, size in zip(image, kernel, strict=True)
    )
    of_channels = (1, written, *(1,) * rank)
    output = TensorSpec(shape=(batch, written, *extents))
    inputs = [
        TensorSpec(shape=(batch, read, *image), dtype=levels or "float32"),
        _constant((written, read // group, *kernel), weights),
        _constant(of_channels if scale_of_channels else (), "float32"),
    ]
    behind = [("Add", f"x{len(inputs)}")] if bias else []
    inputs += [_constant(of_channels, "float32")] if bias else []
    behind += [("Add", f"x{len(inputs)}")] if added else []
    inputs += [output] if added else []
    quantised, zero, scale = "t0", "t0_2", "t0_1"
    operations = [
        Operation(
            op_type="DynamicQuantizeLinear",
            version=11,
            inputs=("x0",),
            output=ref,
            attributes={"result": at} if at else {},
        )
        for at, ref in enumerate((quantised, scale, zero))
    ]
    if levels:
        quantised, zero, scale = "x0", f"x{len(inputs)}", f"x{len(inputs) + 1}"
        inputs += [TensorSpec(shape=(), dtype=levels), TensorSpec(shape=())]
        operations = []
    attributes: dict[str, AttributeValue] = {
        "kernel_shape": kernel,
        "strides": (stride,) * rank,
        "pads": (pad,) * 2 * rank,
        "dilations": (dilation,) * rank,
        "group": group,
    }
    if zero_point is not None:
        attributes["w_zero_point"] = zero_point
    operations += [
        Operation(
            op_type="ConvInteger",
            version=10,
            inputs=(quantised, "x1", zero),
            output="t1",
            attributes=attributes,
        ),
        Operation(op_type="Cast", version=13, inputs=("t1",), output="t2", attributes={"to": 1}),
        Operation(op_type="Mul", version=14, inputs=(scale, "x2"), output="t3"),
        Operation(op_type="Mul", version=14, inputs=("t2", "t3"), output="t4"),
    ]
    for op_type, ref in behind:
        made = f"t{len(operations) + 2}"
        read_too = operations[-1].output, ref
        operations.append(Operation(op_type=op_type, version=14, inputs=read_too, output=made))
    if relu:
        last = operations[-1].output
        operations.append(Operation(op_type="Relu", version=14, inputs=(last,), output="y"))
    return Workload(
        op_type="quantised_convolution",
        inputs=tuple(inputs),
        operations=tuple(operations),
        output=output,
    )


def measured_levels(values: Array) -> tuple[Array, np.float32, int]:
    """Return levels, scale and zero point as ONNX defines DynamicQuantizeLinear, in float32."""
    lowest, highest = np.float32(min(values.min(), 0)), np.float32(max(values.max(), 0))
    scale = (highest - lowest) / np.float32(255) if highest > lowest else np.float32(1)
    zero = int(np.rint(np.clip(-lowest / scale, 0, 255)))
    levels = np.clip(np.rint(values / scale) + np.float32(zero), 0, 255)
    return levels.astype(np.uint8), scale, zero


def integer_chain(workload: Workload, inputs: Mapping[str, Array]) -> Array:
    """Return the result of an `integer_convolution`, by integers and then float32 alone."""
    convolution = next(item for item in workload.operations if item.op_type == "ConvInteger")
    if convolution.inputs[0] == "x0":
        zero_ref, scale_ref = convolution.inputs[2], f"x{len(workload.inputs) - 1}"
        levels, zero, scale = inputs["x0"], int(inputs[zero_ref]), inputs[scale_ref]
    else:
        levels, scale, zero = measured_levels(inputs["x0"])
    weights = inputs["x1"].astype(np.int64)
    weights -= int(str(convolution.attributes.get("w_zero_point", 0)))
    sums = _sums(levels.astype(np.int64) - zero, weights, convolution)
    made = sums.astype(np.float32) * (np.float32(scale) * inputs["x2"])
    for item in workload.operations:
        if item.op_type == "Add":
            made = made + inputs[item.inputs[1]]
    return np.maximum(made, 0) if workload.operations[-1].op_type == "Relu" else made


def integer_sums(workload: Workload, inputs: Mapping[str, Array]) -> Array:
    """Return the sums of products of a convolution alone, with its bias: (N, O, ...), int64."""
    operation = workload.operations[0]
    x, w = inputs["x0"].astype(np.int64), inputs["x3"].astype(np.int64)
    if operation.attributes.get("channels_last"):
        x = np.moveaxis(x, -1, 1)
    x, w = x - int(inputs["x2"]), w - int(str(operation.attributes["w_zero_point"]))
    sums = _sums(x, w, operation)
    if operation.inputs[-1] == "x7" and len(operation.inputs) > 8:
        sums += inputs["x7"].reshape(-1, *[1] * (w.ndim - 2))
    return sums


def _sums(x: Array, w: Array, operation: Operation) -> Array:
    """Return the sums of products of a convolution of differences from zero points: (N, O, ...)."""
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
