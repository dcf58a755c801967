"""Operators that the version converter of ONNX has left as they were, though their meaning changed.

Scale and bias of GroupNormalization are of channels since opset 21, of groups before: ONNX Runtime
refuses them for shapes inside of the function. Softmax, LogSoftmax and Hardmax are along one axis
since opset 13, and over all axes from theirs on before: nobody refuses those.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import onnx

from aoe.errors import ModelImportError
from aoe.graph.rewrites.matching import attribute
from aoe.graph.weights import without_initializers
from aoebank import plural

_OF_CHANNELS_SINCE, _ALONG_ONE_SINCE = 21, 13
_GROUPS = "GroupNormalization"
_SOFTMAX = frozenset({"Softmax", "LogSoftmax", "Hardmax"})


def check_converted(proto: onnx.ModelProto, where: str) -> str:
    """Return a warning about operators whose meaning a converter may have changed, empty if none.

    Args:
        proto: The model.
        where: What names it in messages.

    Raises:
        ModelImportError: a group normalisation has parameters of groups.
    """
    opset = max((one.version for one in proto.opset_import if not one.domain), default=0)
    types = {node.op_type for node in proto.graph.node if not node.domain}
    if opset >= _OF_CHANNELS_SINCE and _GROUPS in types:
        _check_groups(proto, where)
    if opset >= _ALONG_ONE_SINCE or not types & _SOFTMAX:
        return ""
    told = list(_over_several_axes(proto, opset))
    more = f", and {plural(len(told) - 1, 'further operator')}" if len(told) > 1 else ""
    return "" if not told else f"{told[0]}{more}: where one axis is meant, convert the model anew"


def _check_groups(proto: onnx.ModelProto, where: str) -> None:
    lengths = {tensor.name: prod(tensor.dims) for tensor in proto.graph.initializer}
    shapes: dict[str, tuple[int, ...]] | None = None
    for node in proto.graph.node:
        groups = attribute(node, "num_groups", 0) if node.op_type == _GROUPS else 0
        if not groups or lengths.get(node.input[1]) != groups:
            continue
        shapes = _shapes(proto) if shapes is None else shapes
        channels = (*shapes.get(node.input[0], ()), 0, 0)[1]
        if channels not in (0, groups):
            raise ModelImportError(
                f"{where}: {_GROUPS} {node.name or node.output[0]}",
                "scale and bias are of its groups, as before opset 21",
                got=plural(groups, "value"),
                expected=f"{channels}, one for each channel",
                hint="the version converter of ONNX leaves them as they were: tune the model of "
                "opset 18 itself, or repeat each value for the channels of its group",
            )


def _over_several_axes(proto: onnx.ModelProto, opset: int) -> Iterator[str]:
    """Yield what is said of each softmax over several axes that have more than one element."""
    shapes = _shapes(proto)
    for node in proto.graph.node:
        shape = shapes.get(node.input[0], ()) if node.op_type in _SOFTMAX else ()
        axis = attribute(node, "axis", 1)
        axis += len(shape) if axis < 0 else 0
        if len(shape) > axis + 1 and prod(shape[axis + 1 :]) > 1:
            last = len(shape) - 1
            yield (
                f"{node.op_type} {node.name or node.output[0]} of opset {opset} is over axes "
                f"{axis} to {last} together, and along axis {axis} alone since opset 13"
            )


def _shapes(proto: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Return shapes as far as they can be inferred, with 0 for open extents."""
    light = without_initializers(proto)
    for tensor in proto.graph.initializer:
        if prod(tensor.dims) and not tensor.external_data:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            light.graph.input.append(value)
    try:
        graph = onnx.shape_inference.infer_shapes(light).graph
    except onnx.shape_inference.InferenceError:  # ONNX Runtime says what is wrong with it
        return {}
    values = (*graph.input, *graph.value_info)
    tensors = {value.name: value.type.tensor_type for value in values}
    return {name: tuple(dim.dim_value for dim in one.shape.dim) for name, one in tensors.items()}
