"""Interface of an entry: the model source it is asked for, the imported model it answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from aoe.errors import ModelImportError, OptionError
from aoe.folders.scratch import FolderHold
from aoe.graph.protos import copied, fields_of, with_length, without_field
from aoe.graph.weights import SMALL_BYTES, bytes_of, contents_digest, is_outside, is_settled

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet


MAX_BYTES = 2**31 - 1
"""Protobuf's limit for one message."""


def model_name(file_name: str) -> str:
    """Return a file name as text every file can hold: bytes that are no UTF-8 are replaced."""
    return file_name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model of any framework as ONNX, checked, with static input shapes."""

    name: str  # Model name, used in file names
    path: Path  # File the user gave
    sha256: str  # Digest of the model as it is tuned (shapes fixed), hexadecimal
    # The ONNX model; inputs have static shapes, initializers that are none of them are constants.
    proto: onnx.ModelProto
    caveat: str = ""  # What the model says that is seldom meant; empty if there is nothing
    # Keeps the folder its weights lie in, where that is a scratch folder.
    hold: FolderHold | None = None


def digest_of(proto: onnx.ModelProto, where: str) -> str:
    """Return the sha256 of a model, hexadecimal; see `written_model`.

    Where weights lie outside does not matter: in their place stands the sha256 of what they are.
    """
    if not is_outside(proto):
        return _digest_in_parts(proto, where)
    told = copied(proto)
    for tensor in told.graph.initializer:
        if is_settled(tensor):
            digest = contents_digest(tensor)
            tensor.ClearField("external_data")
            tensor.raw_data = digest
    return hashlib.sha256(written_model(told, where)).hexdigest()


_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
"""Fields of a ModelProto, a GraphProto and a TensorProto. Source: onnx.proto."""


def _digest_in_parts(proto: onnx.ModelProto, where: str) -> str:
    """Return the sha256 of `written_model`, whose bytes are never in memory all at once.

    To write them Protobuf holds them twice, beside the model: 800 MB for the 265 MB of a BERT, the
    peak of its run. So the model is written with its large weights empty, and they are put in.
    """
    weights = proto.graph.initializer
    sizes = [bytes_of(tensor) for tensor in weights]
    light = without_field(proto, "graph")
    light.graph.CopyFrom(without_field(proto.graph, "initializer"))
    for tensor, size in zip(weights, sizes, strict=True):
        if size > SMALL_BYTES:
            tensor = without_field(tensor, "raw_data")
            tensor.raw_data = b""
        light.graph.initializer.append(tensor)
    numbers = iter(range(len(weights)))

    def grown(data: memoryview, at: Sequence[int]) -> tuple[list[bytes | memoryview | int], int]:
        """Return a message of light in parts, and its size; a number stands for a weight."""
        parts: list[bytes | memoryview | int] = []
        size = 0
        number = next(numbers) if at == [_GRAPH, _INITIALIZER] else -1
        for one in fields_of(data):
            inner: tuple[list[bytes | memoryview | int], int] = ([one.whole], len(one.whole))
            here = [*at, one.number]
            if here in ([_GRAPH], [_GRAPH, _INITIALIZER]):
                inner = with_length(one, *grown(one.value, here))
            elif here == [_GRAPH, _INITIALIZER, _RAW_DATA] and sizes[number] > SMALL_BYTES:
                inner = with_length(one, [number], sizes[number])
            parts += inner[0]
            size += inner[1]
        return parts, size

    parts, size = grown(memoryview(written_model(light, where)), [])
    if size > MAX_BYTES:
        written_model(proto, where)  # which says that it is too large
    digest = hashlib.sha256()
    for part in parts:
        content = weights[part].raw_data if isinstance(part, int) else part
        if isinstance(part, int) and len(content) != sizes[part]:  # another than its shape says
            return hashlib.sha256(written_model(proto, where)).hexdigest()
        digest.update(content)
    return digest.hexdigest()


def written_model(proto: onnx.ModelProto, where: str) -> bytes:
    """Return the bytes of a model, the same for equal models.

    Raises:
        ModelImportError: it is too large to be written.
    """
    try:
        written: bytes = proto.SerializeToString(deterministic=True)
    except EncodeError as error:
        raise ModelImportError(
            where, "the model with its weights is too large", expected=f"at most {MAX_BYTES} bytes"
        ) from error
    return written


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model as the user names it."""

    path: Path  # Its file, or a directory of several graphs
    # Shapes by input name; the names are the input nodes of formats without a list.
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # Arrays the model will be run on; shapes that stay open are those of the arrays.
    given: InputSet | None = None
    weight: Path | None = None  # Second file with the weights, for formats that keep them apart
    # Results that are the outputs, as `node:0` or by their own names; empty for those the model
    # names itself.
    output_nodes: tuple[str, ...] = ()
    # The process's environment, for entries that run a program.
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Reads the models of one framework."""

    framework: str  # Name of the framework, for messages
    # Returns the model as ONNX; raises `ModelImportError` on what it cannot read.
    load: Callable[[ModelSource], ImportedModel]
    takes_weight: bool = False  # Whether it reads a second file
    takes_output_nodes: bool = False  # Whether it can be told which results are the outputs
    # How its files end, in lower case: by these they are found in a directory.
    suffixes: tuple[str, ...] = ()
    weight_suffix: str = ""  # How the second file ends, whose name is that of the first otherwise
    folder_file: str = ""  # File that makes the directory it lies in a model, where such there are
    # Returns the model with the shapes it has itself, open ones too; None where reading it takes
    # static ones, so that it cannot be tuned for several.
    load_open: Callable[[ModelSource], ImportedModel] | None = None

    def load_with_open_extents(self, source: ModelSource, got: object) -> ImportedModel:
        """Return the model with the shapes it has itself; see `load_open`.

        Args:
            source: The model.
            got: The shapes that are asked for.

        Raises:
            OptionError: models of its kind are read with fixed shapes.
            AoeError: it cannot be read.
        """
        if self.load_open is None:
            raise OptionError(
                "--input_shape",
                f"{self.framework} models are tuned for one shape at a time",
                got=got,
                hint="tune once for each shape, they share the bank; or convert the model to ONNX",
            )
        return self.load_open(source)
