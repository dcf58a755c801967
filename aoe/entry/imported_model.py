"""What an entry hands to the tuning layer."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from aoe.errors import ModelImportError
from aoe.folders.scratch import FolderHold
from aoe.graph.protos import copied
from aoe.graph.weights import contents_digest, is_outside, is_settled

MAX_BYTES = 2**31 - 1
"""Protobuf's limit for one message."""


def model_name(file_name: str) -> str:
    """Return a file name as text every file can hold: bytes that are no UTF-8 are replaced."""
    return file_name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedModel:
    """A model of any framework as ONNX, checked, with static input shapes.

    Attributes:
        name: Model name, used in file names.
        path: File the user gave.
        sha256: Digest of the model as it is tuned (shapes fixed), hexadecimal.
        proto: The ONNX model; inputs have static shapes, initializers that are none of them are
            constants.
        doubt: What the model says that is seldom meant; empty if there is nothing.
        hold: Keeps the folder its weights lie in, where that is a scratch folder.
    """

    name: str
    path: Path
    sha256: str
    proto: onnx.ModelProto
    doubt: str = ""
    hold: FolderHold | None = None


def digest_of(proto: onnx.ModelProto, where: str) -> str:
    """Return the sha256 of a model, hexadecimal; see `written_model`.

    Where weights lie outside does not matter: in their place stands the sha256 of what they are.
    """
    if not is_outside(proto):
        return hashlib.sha256(written_model(proto, where)).hexdigest()
    told = copied(proto)
    for tensor in told.graph.initializer:
        if is_settled(tensor):
            digest = contents_digest(tensor)
            tensor.ClearField("external_data")
            tensor.raw_data = digest
    return hashlib.sha256(written_model(told, where)).hexdigest()


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
