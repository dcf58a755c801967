"""Protobuf messages of ONNX: copies, lists filled anew, declared tensors, names not yet taken."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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


def without_field(message: Any, name: str) -> Any:
    """Return a copy of a message without one of its fields, which is not copied on the way."""
    copy = type(message)()
    for field, value in message.ListFields():
        if field.name == name:
            continue
        if hasattr(value, "extend"):
            getattr(copy, field.name).extend(value)
        elif field.message_type is not None:
            getattr(copy, field.name).CopyFrom(value)
        else:
            setattr(copy, field.name, value)
    return copy


# ---- Written messages, field by field ----

_VARINT, _LENGTH = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}
"""Kinds of fields. Source: Protocol Buffers, Encoding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenField:
    """A field of a written message."""

    number: int  # In its definition
    whole: memoryview  # All of it
    tag: memoryview  # Its beginning: number and kind
    value: memoryview  # Content of a text, bytes or a message; of others what follows the tag


def fields_of(data: memoryview) -> Iterator[WrittenField]:
    """Yield the fields of a written message in their order.

    Raises:
        ValueError: a field of a kind ONNX has none of.
    """
    begin = 0
    while begin < len(data):
        key, after = _read_varint(data, begin)
        value, kind = after, key & 7
        if kind == _VARINT:
            _, end = _read_varint(data, after)
        elif kind == _LENGTH:
            length, value = _read_varint(data, after)
            end = value + length
        elif kind in _FIXED_BYTES:
            end = after + _FIXED_BYTES[kind]
        else:
            raise ValueError(f"a field of kind {kind} (got it at byte {begin})")
        yield WrittenField(
            number=key >> 3, whole=data[begin:end], tag=data[begin:after], value=data[value:end]
        )
        begin = end


def with_length(field: WrittenField, parts: list[Any], size: int) -> tuple[list[Any], int]:
    """Return a field with another content in parts, and the size of all of it."""
    head = bytes(field.tag) + _varint(size)
    return [head, *parts], len(head) + size


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of any length, and where it ends."""
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _varint(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


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
