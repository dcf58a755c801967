"""Protobuf messages of ONNX: copies, lists filled anew, declared tensors, names not yet taken."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import onnx
from onnx import helper

M = TypeVar("M", onnx.ModelProto, onnx.NodeProto, onnx.TensorProto, onnx.ValueInfoProto)


class Typed(Protocol):
    """A tensor's type in NumPy's words, and its extents."""

    @property
    def dtype(self) -> Any: ...
    @property
    def shape(self) -> Sequence[int]: ...


def copied(message: M) -> M:
    """Return a copy that shares nothing with the message."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def refill(field: Any, items: Iterable[Any]) -> None:
    """Replace the elements of a repeated field; `items` may be elements of the field itself."""
    kept = list(items)
    del field[:]
    field.extend(kept)


def value_info(
    name: str, tensor: Typed, shape: Sequence[int | str] | None = None
) -> onnx.ValueInfoProto:
    """Declare a tensor of a name by the type of another one, and by its extents unless given."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype))
    return helper.make_tensor_value_info(name, kind, list(shape or tensor.shape))


def rename_tensors(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename inputs and outputs of a node, in place; a name that is not in `names` stays."""
    node.input[:] = [names.get(name, name) for name in node.input]
    node.output[:] = [names.get(name, name) for name in node.output]


def set_attribute(node: onnx.NodeProto, name: str, value: Any) -> None:
    """Give a node an attribute, in place of one of this name; None takes it away."""
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    refill(node.attribute, kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def free_name(wanted: str, *taken: Container[str]) -> str:
    """Return `wanted`, with the first free number from 2 behind it if it is taken."""
    name, number = wanted, 1
    while any(name in names for names in taken):
        number += 1
        name = f"{wanted}_{number}"
    return name
