"""Weights kept once, outside the model files that share them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import onnx
from onnx import TensorProto, numpy_helper

_SMALL_BYTES = 1024
"""Tensors up to this size stay inside the model: shapes and scalars the runtime folds."""
_ALIGNMENT = 64


class WeightStore:
    """A file of tensor data that several ONNX models point into; equal data is stored once.

    Args:
        file: The data file; models refer to it by name, so they live in the same directory.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._offsets: dict[bytes, tuple[int, int]] = {}
        self._sink: BinaryIO = file.open("wb")

    def __enter__(self) -> WeightStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Finish the data file."""
        self._sink.close()

    def externalize(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        """Return a copy of `proto` whose larger initializers point into the store."""
        light = onnx.ModelProto()
        weights = list(proto.graph.initializer)
        light.CopyFrom(without_initializers(proto))
        for tensor in weights:
            light.graph.initializer.append(self._moved(tensor))
        self._sink.flush()
        return light

    def adopt(self, proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
        """Return a copy of a model of another store, whose weights are in this one then.

        Args:
            proto: As `externalize` has made it.
            folder: Where the other store has its file.
        """
        light = without_initializers(proto)
        for tensor in proto.graph.initializer:
            light.graph.initializer.append(self._adopted(tensor, folder))
        self._sink.flush()
        return light

    def _adopted(self, tensor: TensorProto, folder: Path) -> TensorProto:
        if tensor.data_location != TensorProto.EXTERNAL:
            return tensor
        where = {entry.key: entry.value for entry in tensor.external_data}
        with (folder / where["location"]).open("rb") as source:
            source.seek(int(where["offset"]))
            data = source.read(int(where["length"]))
        return point_into(self.file.name, tensor, *self._place(data))

    def _moved(self, tensor: TensorProto) -> TensorProto:
        data = tensor.raw_data
        if not data and tensor.data_type != TensorProto.STRING:
            data = numpy_helper.to_array(tensor).tobytes()
        if len(data) <= _SMALL_BYTES:
            return tensor
        offset, length = self._place(data)
        return point_into(self.file.name, tensor, offset, length)

    def _place(self, data: bytes) -> tuple[int, int]:
        digest = hashlib.sha256(data).digest()
        if digest not in self._offsets:
            self._sink.write(bytes(-self._sink.tell() % _ALIGNMENT))
            self._offsets[digest] = (self._sink.tell(), len(data))
            self._sink.write(data)
        return self._offsets[digest]


def point_into(location: str, tensor: TensorProto, offset: int, length: int) -> TensorProto:
    """Return a tensor of the same name, type and shape whose data lies in a file.

    Args:
        location: Name of the file, beside the model.
        tensor: The tensor with its data.
        offset: Where the data begins, in bytes.
        length: How many bytes it has.
    """
    moved = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
    moved.data_location = TensorProto.EXTERNAL
    where = {"location": location, "offset": str(offset), "length": str(length)}
    for key, value in where.items():
        moved.external_data.add(key=key, value=value)
    return moved


def without_initializers(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of `proto` without initializers, without copying them on the way."""
    bare = onnx.ModelProto()
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        if proto.HasField(name):
            setattr(bare, name, getattr(proto, name))
    if proto.doc_string:
        bare.doc_string = proto.doc_string
    bare.opset_import.extend(proto.opset_import)
    bare.metadata_props.extend(proto.metadata_props)
    bare.functions.extend(proto.functions)
    graph = proto.graph
    bare.graph.name = graph.name
    bare.graph.node.extend(graph.node)
    bare.graph.input.extend(graph.input)
    bare.graph.output.extend(graph.output)
    bare.graph.value_info.extend(graph.value_info)
    bare.graph.sparse_initializer.extend(graph.sparse_initializer)
    bare.graph.quantization_annotation.extend(graph.quantization_annotation)
    return bare
