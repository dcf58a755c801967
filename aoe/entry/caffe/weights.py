"""Caffemodel: the weights by layer name, read through protobuf.

Source of the field numbers: `caffe.proto` of BVLC/caffe. Only what holds weights is described; all
else in the file is passed over. `data` is declared as bytes: packed floats look the same in the
file, and NumPy takes them as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from aoe.errors import ModelImportError

Array = np.ndarray[Any, Any]

_KINDS = descriptor_pb2.FieldDescriptorProto
_INT32, _INT64 = _KINDS.TYPE_INT32, _KINDS.TYPE_INT64
_BYTES, _MESSAGE = _KINDS.TYPE_BYTES, _KINDS.TYPE_MESSAGE
_OLD_SHAPE = ("num", "channels", "height", "width")
_OLDEST = "oldest"

_MESSAGES: dict[str, dict[str, tuple[int, int, str]]] = {
    "BlobShape": {"dim": (1, _INT64, "*")},
    "BlobProto": {
        **{name: (number, _INT32, "") for number, name in enumerate(_OLD_SHAPE, start=1)},
        "data": (5, _BYTES, "*"),
        "shape": (7, _MESSAGE, "BlobShape"),
        "double_data": (8, _BYTES, "*"),
    },
    "LayerParameter": {"name": (1, _BYTES, ""), "blobs": (7, _MESSAGE, "*BlobProto")},
    "V1LayerParameter": {
        _OLDEST: (1, _BYTES, ""),
        "name": (4, _BYTES, ""),
        "blobs": (6, _MESSAGE, "*BlobProto"),
    },
    "NetParameter": {
        "layers": (2, _MESSAGE, "*V1LayerParameter"),
        "layer": (100, _MESSAGE, "*LayerParameter"),
    },
}
"""Number, type, and `*` for repeated with the type of the message, by message and field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlob:
    """An array of a caffemodel."""

    shape: tuple[int, ...]  # As it is written
    values: Array  # float32, one axis

    def shaped(self, shape: tuple[int, ...]) -> Array | None:
        """Return the values in a shape, None if this blob has another one.

        Leading extents of 1 do not count: the old form filled shapes up with them.
        """
        if _without_ones(self.shape) != _without_ones(shape):
            return None
        return self.values.reshape(shape)


def parse_weights(content: bytes, place: str) -> Mapping[str, tuple[StoredBlob, ...]]:
    """Return the blobs of a caffemodel by layer name; layers without any are left out.

    Args:
        content: The whole file.
        place: What errors call it.

    Raises:
        ModelImportError: not a caffemodel, truncated, of the oldest form, or a blob is damaged.
    """
    net = _message_class()()
    try:
        net.ParseFromString(content)
    except DecodeError as error:
        raise ModelImportError(place, "not a caffemodel, or a truncated one") from error
    if not net.layer and not net.layers:
        raise ModelImportError(place, "not a caffemodel: no layer in it")
    found: dict[str, tuple[StoredBlob, ...]] = {}
    for layer in (*net.layers, *net.layer):
        name = layer.name.decode("utf-8", "replace")
        if layer.DESCRIPTOR.name == "V1LayerParameter" and layer.HasField(_OLDEST):
            raise ModelImportError(
                place,
                "layers of the oldest form (V0) cannot be read",
                hint="Caffe's upgrade_net_proto_binary brings the file up to date",
            )
        if layer.blobs:  # of several of a name Caffe loads each, so the last one stays
            found[name] = tuple(
                _blob(blob, f"{place}, layer {name}, blob {number}")
                for number, blob in enumerate(layer.blobs)
            )
    return found


def is_caffemodel(content: bytes) -> bool:
    """True if bytes are a caffemodel, for messages about files that were mixed up."""
    try:
        net = _message_class().FromString(content)
    except DecodeError:
        return False
    return any(layer.blobs for layer in (*net.layer, *net.layers))


def _blob(blob: Any, place: str) -> StoredBlob:
    is_old = not blob.HasField("shape") and any(map(blob.HasField, _OLD_SHAPE))
    shape = tuple(blob.shape.dim) if not is_old else tuple(getattr(blob, n) for n in _OLD_SHAPE)
    chunks = [*_values(blob, place)]
    values = chunks[0] if len(chunks) == 1 else np.concatenate([_NONE, *chunks])
    if min(shape, default=0) < 0 or math.prod(shape) != values.size:
        raise ModelImportError(
            place,
            "another number of values than its shape has",
            got=values.size,
            expected=f"{math.prod(shape)} for shape {list(shape[:8])}",
            hint="the file is truncated or damaged; get it again",
        )
    return StoredBlob(shape=shape, values=values)


_NONE = np.empty(0, np.float32)


def _values(blob: Any, place: str) -> Iterator[Array]:
    for name, kind in (("data", "<f4"), ("double_data", "<f8")):
        for chunk in getattr(blob, name):
            if len(chunk) % np.dtype(kind).itemsize:
                raise ModelImportError(place, f"{name} ends within a number, so it is damaged")
            with np.errstate(over="ignore"):
                yield np.frombuffer(chunk, kind).astype(np.float32, copy=False)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    first = next((place for place, extent in enumerate(shape) if extent != 1), len(shape))
    return shape[first:]


@cache
def _message_class() -> Any:
    """Return the class of `NetParameter`, as far as it is described above."""
    file = descriptor_pb2.FileDescriptorProto(
        name="aoe/caffe.proto", package="aoe.caffe", syntax="proto2"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, more) in fields.items():
            repeated = _KINDS.LABEL_REPEATED if more.startswith("*") else _KINDS.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, type=kind, label=repeated)
            if kind == _MESSAGE:
                added.type_name = f".aoe.caffe.{more.removeprefix('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("aoe.caffe.NetParameter"))
