"""Convolutions that read single elements: all axes of an image are one, so rows are long."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from aoe.operators import Shape, facts_of, integers, op_key
from aoe.operators.products import TRANSPOSED_CONVOLUTION
from aoe.workload import AttributeValue, Layout, Operation, TensorSpec, Workload


def in_one_axis(workload: Workload, product: Operation) -> Workload:
    """Return a workload whose images have one axis, the same one where they need several.

    Args:
        workload: A convolution of plain tensors, and the chain behind it.
        product: The convolution.
    """
    axes = len(workload.output.shape) - 2
    if axes < 2 or not _reads_single_elements(product, workload, axes):
        return workload
    of_channels = _parameters(workload)
    image = workload.output.shape[2:]
    inputs = []
    for number, spec in enumerate(workload.inputs):
        shape = spec.shape if f"x{number}" in of_channels else _merged(spec.shape, image)
        if shape is None or spec.layout is not Layout.PLAIN:
            return workload
        inputs.append(replace(spec, shape=shape))
    operations = tuple(
        _without_axes(item) if item is product else item for item in workload.operations
    )
    shape = (*workload.output.shape[:2], prod(image))
    output = TensorSpec(shape=shape, constant=workload.output.constant)
    return replace(workload, inputs=tuple(inputs), operations=operations, output=output)


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


def _merged(shape: Shape, image: Shape) -> Shape | None:
    """Return a shape that broadcasts as before, the axes of the image merged; None if none does."""
    axes = len(image)
    inner = (1,) * (axes - len(shape)) + shape[-axes:]
    if not shape:
        return shape
    if all(extent == 1 for extent in inner):
        return *shape[:-axes], 1
    return (*shape[:-axes], prod(image)) if inner == image else None


def _without_axes(product: Operation) -> Operation:
    moves: dict[str, tuple[int, ...]] = {
        "kernel_shape": (1,),
        "pads": (0, 0),
        "strides": (1,),
        "dilations": (1,),
    }
    attributes: dict[str, AttributeValue] = {**product.attributes, **moves}
    return replace(product, attributes=attributes)
