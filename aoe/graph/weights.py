"""Weights kept once, outside the model files that share them.

Those of a large model are never read into it. It says where they lie: the name of their file is an
absolute path then, which no file of a model may hold, and nothing but `array_of`, a `WeightStore`
and a session (`aoe.ort.sessions.session_source`) reads them.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

INLINE_BYTES = 1 << 30
"""Weights in other files that are more than this, all together, stay outside the model."""
LAID_OUT_BYTES = 1 << 26
"""Models with more weights than this are optimised with these in a file beside them: in the model
they are copied half a dozen times on the way into ONNX Runtime and back."""
SMALL_BYTES = 1024
"""Tensors up to this size stay inside the model: shapes and scalars the runtime folds."""
_ALIGNMENT = 64
_CHUNK_BYTES = 1 << 22
_END_BYTES = 1 << 12
"""Of both ends of a tensor, by which equal ones are looked for."""


class DataPlace(NamedTuple):
    """Bytes `offset` to `offset + length` of a file, which hold the data of a tensor."""

    file: Path
    offset: int
    length: int


def stay_outside(data_bytes: int) -> bool:
    """True if so many bytes of weights are too many to be read into a model."""
    return data_bytes > INLINE_BYTES


def is_outside(proto: onnx.ModelProto) -> bool:
    """True if a model in memory has weights in other files."""
    return any(place_of(tensor) is not None for tensor in proto.graph.initializer)


def is_settled(tensor: TensorProto) -> bool:
    """True if the data of a tensor stays in its file, wherever its model goes."""
    return uses_external_data(tensor) and Path(_entries(tensor)["location"]).is_absolute()


def place_of(tensor: TensorProto) -> DataPlace | None:
    """Return file and offset of an external tensor, None for data in the model itself."""
    if not uses_external_data(tensor):
        return None
    where = _entries(tensor)
    return DataPlace(Path(where["location"]), int(where["offset"]), int(where["length"]))


_WIDTHS: dict[int, int] = {
    kind: helper.tensor_dtype_to_np_dtype(kind).itemsize
    for kind in (
        *(TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16),
        *(TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64),
    )
}
"""Bytes of an element, of types that fill whole bytes."""


def bytes_of(tensor: TensorProto) -> int:
    """Return the size of a tensor's data, as far as it is raw bytes or lies outside.

    That of raw bytes is what the shape says, which holds for every model that was read.
    """
    place = place_of(tensor)
    if place is not None:
        return place.length
    if not tensor.HasField("raw_data"):
        return 0
    width = _WIDTHS.get(tensor.data_type)
    # each look at `raw_data` copies it: 0.3 s of a run on BERT, which asks several times
    return len(tensor.raw_data) if width is None else math.prod(tensor.dims) * width


def array_of(tensor: TensorProto) -> np.ndarray[Any, Any]:
    """Return the values of a tensor; values outside of the model are mapped, not read."""
    place = place_of(tensor)
    if place is None:
        return numpy_helper.to_array(tensor)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    if place.length != math.prod(tensor.dims) * dtype.itemsize:  # several elements in a byte
        return numpy_helper.to_array(brought_in(tensor))
    data = np.memmap(place.file, np.uint8, "r", place.offset, (place.length,))
    return data.view(dtype).reshape(tuple(tensor.dims))


def brought_in(tensor: TensorProto) -> TensorProto:
    """Return a tensor that holds its data itself."""
    place = place_of(tensor)
    if place is None:
        return tensor
    data = b"".join(_chunks(place))
    return TensorProto(
        name=tensor.name, dims=tensor.dims, data_type=tensor.data_type, raw_data=data
    )


def load_written(file: Path, *, whole: bool = True) -> onnx.ModelProto:
    """Read a model file this engine or ONNX Runtime has written.

    Args:
        file: The file, its weights beside it.
        whole: False to leave these where they are; else they are read if they are few.
    """
    proto = onnx.load(str(file), load_external_data=False)
    outside = [tensor for tensor in proto.graph.initializer if uses_external_data(tensor)]
    if whole and not stay_outside(sum(int(_entries(tensor)["length"]) for tensor in outside)):
        load_external_data_for_model(proto, str(file.parent))
        return proto
    _settle_all(outside, file.parent)
    return proto


def laid_out(
    proto: onnx.ModelProto, file: Path, limit_bytes: int = LAID_OUT_BYTES
) -> onnx.ModelProto:
    """Return a model whose weights lie in a file, if they are many; else the model itself.

    Args:
        proto: The model.
        file: Is made for them, and has to be there as long as the model is.
        limit_bytes: Of weights that stay inside.
    """
    if is_outside(proto) or not has_many_weights(proto, limit_bytes):
        return proto
    with WeightStore(file) as store:
        return store.settled(proto)


def has_many_weights(proto: onnx.ModelProto, limit_bytes: int = LAID_OUT_BYTES) -> bool:
    """True if a model's weights take more than a limit by types and shapes; none is read."""
    declared_bytes = 0
    for tensor in proto.graph.initializer:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        declared_bytes += math.prod(tensor.dims) * int(dtype.itemsize)
    return declared_bytes > limit_bytes


def _settle_all(tensors: Iterable[TensorProto], folder: Path) -> None:
    """Settle tensors whose data lies in files of a folder, in place."""
    for tensor in tensors:
        where = _entries(tensor)
        settle(tensor, folder / where["location"], int(where["offset"]), int(where["length"]))


def settle(tensor: TensorProto, file: Path, offset: int, length: int) -> None:
    """Let the data of a tensor lie in a file, wherever its model goes, in place.

    Args:
        tensor: Of a model in memory.
        file: The file.
        offset: Where the data begins, in bytes.
        length: How many bytes it has.
    """
    tensor.CopyFrom(point_into(str(file.absolute()), tensor, offset, length))


def _entries(tensor: TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def contents_digest(tensor: TensorProto) -> bytes:
    """Return the sha256 of the data of a tensor that lies outside."""
    place = place_of(tensor)
    assert place is not None
    return _digest_of(_chunks(place))


def share_places(proto: onnx.ModelProto, original: onnx.ModelProto) -> None:
    """Let equal weights of two models lie where they do in the original, in place.

    Args:
        proto: A model made from the original, its weights outside.
        original: The original, its weights outside too.
    """
    given = {
        tensor.name: (tensor, place)
        for tensor in original.graph.initializer
        if (place := place_of(tensor)) is not None
    }
    others = []
    for tensor in filter(is_settled, proto.graph.initializer):
        _, namesake = given.get(tensor.name, (None, None))
        if namesake is not None and _hold_the_same(place_of(tensor), namesake):
            settle(tensor, *namesake)
        else:
            others.append(tensor)
    lengths = {bytes_of(tensor) for tensor in others}
    known = {
        contents_digest(tensor): place
        for tensor, place in given.values()
        if place.length in lengths
    }
    for tensor in others:
        found = known.get(contents_digest(tensor)) if known else None
        if found is not None:
            settle(tensor, *found)


def _hold_the_same(one: DataPlace | None, other: DataPlace) -> bool:
    """True if two places hold the same bytes."""
    if one is None or one.length != other.length:
        return False
    return all(left == right for left, right in zip(_chunks(one), _chunks(other), strict=True))


def _digest_of(chunks: Iterable[bytes]) -> bytes:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()


def _ends_of(place: DataPlace) -> tuple[bytes, bytes]:
    """Return the first and the last bytes of data, as far as there are so many."""
    size = min(place.length, _END_BYTES)
    with place.file.open("rb") as source:
        source.seek(place.offset)
        first = source.read(size)
        source.seek(place.offset + place.length - size)
        return first, source.read(size)


def _slices(data: bytes) -> Iterator[bytes]:
    """Yield data in the chunks of `_chunks`."""
    return (data[at : at + _CHUNK_BYTES] for at in range(0, len(data), _CHUNK_BYTES))


def _chunks(place: DataPlace) -> Iterator[bytes]:
    with place.file.open("rb") as source:
        source.seek(place.offset)
        left = place.length
        while left and (chunk := source.read(min(left, _CHUNK_BYTES))):
            left -= len(chunk)
            yield chunk
    if left:
        raise OSError(f"{place.file} ends before the weights in it do")


class WeightStore:
    """A file of tensor data that several ONNX models point into; equal data is stored once.

    Data of one length with the same ends is compared byte by byte, which costs nothing where none
    is equal; to hash all of BERT's 265 MB takes 0.3 s of a core.

    Args:
        file: The data file; models refer to it by name, so they live in the same directory.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._stored_at: defaultdict[tuple[int, bytes, bytes], list[DataPlace]]
        self._stored_at = defaultdict(list)
        self._taken: dict[DataPlace, DataPlace] = {}
        self._sink: BinaryIO = file.open("wb")

    def __enter__(self) -> WeightStore:
        return self

    def __exit__(self, *_: object) -> None:
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

    def take(self, tensors: Iterable[TensorProto]) -> tuple[TensorProto, ...]:
        """Return tensors of a model that is made with weights of the store, in it as well."""
        moved = tuple(map(self._moved, tensors))
        self._sink.flush()
        return moved

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

    def settled(self, proto: onnx.ModelProto) -> onnx.ModelProto:
        """Return a copy of `proto` whose larger initializers are in the store, wherever it goes."""
        light = self.externalize(proto)
        _settle_all(filter(uses_external_data, light.graph.initializer), self.file.parent)
        return light

    def _adopted(self, tensor: TensorProto, folder: Path) -> TensorProto:
        if tensor.data_location != TensorProto.EXTERNAL:
            return tensor
        place = place_of(tensor)
        assert place is not None
        return self._pointed(tensor, self._copied(place._replace(file=folder / place.file)))

    def _moved(self, tensor: TensorProto) -> TensorProto:
        place = place_of(tensor)
        if place is not None:
            return self._pointed(tensor, self._copied(place))
        data = tensor.raw_data
        if not data and tensor.data_type != TensorProto.STRING:
            data = numpy_helper.from_array(numpy_helper.to_array(tensor)).raw_data
        if len(data) <= SMALL_BYTES:
            return tensor
        ends = data[:_END_BYTES], data[-_END_BYTES:]
        return self._pointed(tensor, self._stored(len(data), ends, lambda: _slices(data)))

    def _pointed(self, tensor: TensorProto, place: DataPlace) -> TensorProto:
        return point_into(self.file.name, tensor, place.offset, place.length)

    def _copied(self, place: DataPlace) -> DataPlace:
        """Return where another file's data is in this one; it is copied once."""
        if place.file == self.file.absolute():  # settled here before
            return place
        if place not in self._taken:
            ends = _ends_of(place)
            self._taken[place] = self._stored(place.length, ends, partial(_chunks, place))
        return self._taken[place]

    def _stored(
        self,
        length: int,
        ends: tuple[bytes, bytes],
        read: Callable[[], Iterable[bytes]],
    ) -> DataPlace:
        known = self._stored_at[length, *ends]
        if known:
            self._sink.flush()
        for place in known:
            if all(map(operator.eq, _chunks(place), read())):
                return place
        self._sink.write(bytes(-self._sink.tell() % _ALIGNMENT))
        place = DataPlace(self.file, self._sink.tell(), length)
        for chunk in read():
            self._sink.write(chunk)
        known.append(place)
        return place


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
