"""Rows and columns of images through a network, as expressions in the open extents of its inputs.

ONNX Runtime's inference knows batch and channels of a convolution's result, and loses the names of
its rows and columns. They follow from those of the image it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from aoe.graph.extents import OpenShape
from aoe.graph.model_graph import attributes_of
from aoe.graph.weights import array_of, place_of
from aoe.operators import (
    BLOCKED_CONVOLUTION,
    OPERATORS,
    REORDER_INPUT,
    OperatorKind,
    is_reorder,
    op_key,
)
from aoe.operators.extents import Extent, image_extents
from aoe.workload import AttributeValue, Operation

PartialShape = Sequence[Extent | None]
"""Extents of a tensor; None for one of which nothing is known."""
_RANKS = range(3, 6)
_SCALES = 2
"""Position of the scales of a Resize. Source: ONNX, Resize."""


def follow_images(
    graph: onnx.GraphProto, shapes: Mapping[str, PartialShape]
) -> dict[str, OpenShape]:
    """Return the shapes of images of one to three dimensions that are not known as a whole.

    Args:
        graph: In topological order.
        shapes: Of its tensors, as far as they are known.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    known, found = dict(shapes), dict[str, OpenShape]()
    for node in graph.node:
        shape = known.get(node.output[0], ()) if node.output else ()
        if None not in shape and shape:
            continue
        made = _image(node, shape, known, constants)
        if made is not None:
            known[node.output[0]] = found[node.output[0]] = made
    return found


def _image(
    node: onnx.NodeProto,
    shape: PartialShape,
    known: Mapping[str, PartialShape],
    constants: Mapping[str, onnx.TensorProto],
) -> OpenShape | None:
    """Return the shape of an image a node makes, None if it does not follow."""
    images = [known.get(name, ()) for name in node.input if name and name not in constants]
    if not images or any(len(one) != len(images[0]) or None in one for one in images):
        return None
    first = tuple(extent for extent in images[0] if extent is not None)
    if len(first) not in _RANKS:
        return None
    batch: Extent | None = first[0]
    operation = _operation(node, constants)
    facts = OPERATORS.get(op_key(operation))
    is_chained = facts is not None and facts.kind is OperatorKind.ELEMENTWISE
    inner: PartialShape | None
    if is_chained and op_key(operation) != BLOCKED_CONVOLUTION:
        batch, *inner = _broadcast([(image[0], *image[2:]) for image in images]) or (None,)
    elif is_reorder(operation) and operation.attributes.get("channels_last", 0):
        return _reordered(operation, first, shape)
    elif is_reorder(operation):
        inner = first[2:]
    elif op_key(operation) == ("", "Concat"):  # it fails where images are not of one size
        is_of_channels = operation.attributes.get("axis") in (1, 1 - len(first))
        inner = first[2:] if is_of_channels else None
    else:
        inner = image_extents(operation, first[2:], _kernel(node, known, constants))
    channels = shape[1] if len(shape) == len(first) else None
    made = [one for one in (batch, channels, *(inner or ())) if one is not None]
    return tuple(made) if len(made) == len(first) else None


def _reordered(operation: Operation, given: OpenShape, made: PartialShape) -> OpenShape | None:
    """Return the shape behind a reorder that puts channels last, or gets them there.

    Args:
        operation: The reorder.
        given: Shape of what it reads.
        made: Of its result, as far as it is known.
    """
    batch, *inner = given
    if op_key(operation) == REORDER_INPUT:
        channels = made[1] if len(made) == len(given) else None  # whole blocks of them
        return (batch, channels, *inner[:-1]) if isinstance(channels, int) else None
    count = operation.attributes.get("channels")
    return (batch, *inner[1:], count) if isinstance(count, int) else None


def _broadcast(images: Sequence[PartialShape]) -> PartialShape | None:
    """Return extents of images that are broadcast, None where that is not certain."""
    found = []
    for extents in zip(*images, strict=True):
        distinct = set(extents) - {1} or {1}
        if len(distinct) > 1:
            return None
        found.append(distinct.pop())
    return tuple(found)


def _kernel(
    node: onnx.NodeProto,
    known: Mapping[str, PartialShape],
    constants: Mapping[str, onnx.TensorProto],
) -> tuple[int, ...]:
    """Return the extents of weights but channels; none where there are none, or an open one."""
    if node.op_type not in ("Conv", "FusedConv", "ConvTranspose") or len(node.input) < 2:
        return ()
    weights = constants.get(node.input[1])
    shape = known.get(node.input[1], ()) if weights is None else weights.dims
    kernel = tuple(extent for extent in shape[2:] if isinstance(extent, int))
    return kernel if len(kernel) == len(shape[2:]) else ()


def _operation(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> Operation:
    """Return a node as an operation; scales of a Resize that are constants are an attribute."""
    attributes: dict[str, AttributeValue] = {
        name: value
        for name, value in attributes_of(node).items()
        if isinstance(value, float | int | str | tuple)
    }
    at = 1 if node.op_type == "Upsample" else _SCALES
    scales = constants.get(node.input[at]) if len(node.input) > at else None
    if node.op_type in ("Resize", "Upsample") and scales is not None and place_of(scales) is None:
        attributes["scales"] = tuple(float(one) for one in array_of(scales).reshape(-1))
    return Operation(
        op_type=node.op_type, domain=node.domain, inputs=(), output="t0", attributes=attributes
    )
