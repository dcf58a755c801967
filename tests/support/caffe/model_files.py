"""Networks as values, and the two files Caffe would have of them: text and wire format by hand."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Param = Mapping[str, Any]


class Word(str):
    """A value that is written without quotes."""


@dataclass(frozen=True, kw_only=True)
class TestLayer:
    """A layer: its fields as in the prototxt, and its weights."""

    __test__ = False
    type: str
    name: str
    bottoms: tuple[str, ...] = ()
    tops: tuple[str, ...] = ()
    param_name: str = ""
    param: Param = field(default_factory=dict)
    more: Param = field(default_factory=dict)
    blobs: tuple[Array, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TestNet:
    """A network with its weights."""

    __test__ = False
    inputs: Mapping[str, tuple[int, ...]]
    layers: tuple[TestLayer, ...]


def prototxt(net: TestNet) -> str:
    """Return a network as text, its inputs as layers of type Input."""
    lines = ['name: "net"']
    for name, shape in net.inputs.items():
        param = {"input_param": {"shape": {"dim": list(shape)}}}
        fields: dict[str, Any] = {"name": name, "type": "Input", "top": [name], **param}
        lines += ["layer {", *_lines(fields, 1), "}"]
    for layer in net.layers:
        lines += ["layer {", *_lines(fields_of(layer), 1), "}"]
    return "\n".join(lines) + "\n"


def fields_of(layer: TestLayer) -> dict[str, Any]:
    """Return the fields of a layer in the order people write them."""
    fields: dict[str, Any] = {"name": layer.name, "type": layer.type}
    fields["bottom"], fields["top"] = list(layer.bottoms), list(layer.tops)
    fields |= layer.more
    if layer.param_name:
        fields[layer.param_name] = layer.param
    return fields


def message(fields: Param) -> str:
    """Return a message as text, without the braces around it."""
    return "\n".join(_lines(fields, 0)) + "\n"


def _lines(fields: Param, depth: int) -> list[str]:
    lines = []
    indent = "  " * depth
    for name, value in fields.items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Mapping):
                lines += [f"{indent}{name} {{", *_lines(item, depth + 1), indent + "}"]
            else:
                lines.append(f"{indent}{name}: {_written(item)}")
    return lines


def _written(value: object) -> str:
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else repr(value)


def caffemodel(net: TestNet, **options: Any) -> bytes:
    """Return the weights of a network in Caffe's wire format, see `stored`."""
    return stored({layer.name: layer.blobs for layer in net.layers if layer.blobs}, **options)


def stored(
    blobs: Mapping[str, Sequence[Array]],
    *,
    old_layers: bool = False,
    old_shapes: bool = False,
    doubles: bool = False,
) -> bytes:
    """Return arrays by layer name in Caffe's wire format.

    Args:
        blobs: Arrays by layer name.
        old_layers: As `layers` of the form before 2015.
        old_shapes: With num, channels, height and width.
        doubles: As float64.
    """
    net, name, blob = (2, 4, 6) if old_layers else (100, 1, 7)
    out = b""
    for layer, arrays in blobs.items():
        inside = chunk(name, layer.encode())
        for array in arrays:
            inside += chunk(blob, blob_bytes(array, old_shapes=old_shapes, doubles=doubles))
        out += chunk(net, inside)
    return out


def blob_bytes(array: Array, *, old_shapes: bool = False, doubles: bool = False) -> bytes:
    """Return one array as a BlobProto."""
    values = array.ravel().astype("<f8" if doubles else "<f4").tobytes()
    data = chunk(8 if doubles else 5, values)
    if old_shapes:
        shape = (1,) * (4 - array.ndim) + array.shape
        return b"".join(varint(n << 3) + varint(e) for n, e in enumerate(shape, start=1)) + data
    return data + chunk(7, chunk(1, b"".join(varint(extent) for extent in array.shape)))


def chunk(number: int, content: bytes) -> bytes:
    """Return a length-delimited field."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    """Return an unsigned integer in protobuf's variable length."""
    out = b""
    while value > 127:
        out += struct.pack("B", value & 127 | 128)
        value >>= 7
    return out + struct.pack("B", value)


def write_net(net: TestNet, folder: Path, **options: Any) -> tuple[Path, Path]:
    """Write both files; return the prototxt and the caffemodel."""
    text, weights = folder / "net.prototxt", folder / "net.caffemodel"
    text.write_text(prototxt(net))
    weights.write_bytes(caffemodel(net, **options))
    return text, weights
