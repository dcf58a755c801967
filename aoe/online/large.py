"""Models of several GiB: while one is looked up, no session of it takes memory for its weights.

A session of such a model is opened as it is written, nothing optimised and nothing packed: its
weights are mapped from their files, and no page of them is read. It knows the inputs and says what
is wrong with a call. Whoever computes is opened when it is known who that is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from aoe.entry.external_weights import external_tensors, stored_bytes, weight_locations
from aoe.entry.onnx_file import as_host_reads, read_onnx
from aoe.entry.protocol import written_model
from aoe.errors import ModelImportError
from aoe.graph.weights import is_outside, stay_outside
from aoe.ort.custom_operators import register_operators
from aoe.ort.sessions import NO_PACKING, session_options

if TYPE_CHECKING:
    import onnxruntime as ort


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFiles:
    """Files of weights a model has besides its own file."""

    files: tuple[Path, ...] = ()  # Where weights lie, in the order of their names
    is_large: bool = False  # True if there is to be memory for them once


def structure_of(model: str | bytes | os.PathLike[str]) -> onnx.ModelProto | None:
    """Return a model whose weights in other files are not read; None where it cannot be read.

    What is wrong with it is said by ONNX Runtime.
    """
    try:
        if isinstance(model, bytes):
            return onnx.load_model_from_string(model)
        return onnx.load(str(model), format="protobuf", load_external_data=False)
    except (OSError, DecodeError):  # not there, no model, or of ONNX Runtime's own format
        return None


def readable_content(model: str | bytes | os.PathLike[str]) -> bytes | None:
    """Return a model ONNX Runtime refuses in an opset and IR version it computes.

    None where it cannot be read, or its weights are too large to be read into memory.

    Args:
        model: Content or file.

    Raises:
        ModelImportError: an operator has no older version that means the same.
    """
    where = "model" if isinstance(model, bytes) else str(model)
    try:
        if isinstance(model, bytes):
            proto = onnx.load_model_from_string(model)
        else:
            proto = read_onnx(Path(model))
    except (ModelImportError, DecodeError):  # ONNX Runtime has said what is wrong with it
        return None
    readable = as_host_reads(proto, where).proto
    return None if is_outside(readable) else written_model(readable, where)


def weight_files(proto: onnx.ModelProto | None, file: Path) -> WeightFiles:
    """Return the files of the weights of a model in a file."""
    if proto is None:
        return WeightFiles()
    return WeightFiles(
        files=tuple(file.parent / place for place in weight_locations(proto)),
        is_large=_are_large(external_tensors(proto), file),
    )


def _are_large(outside: Sequence[onnx.TensorProto], model: Path) -> bool:
    try:
        return stay_outside(sum(stored_bytes(tensor, model) for tensor in outside))
    except ModelImportError:
        return False


def may_wait(options: ort.SessionOptions | None) -> bool:
    """True if nobody misses the session of the model itself before it is needed."""
    return options is None or not (options.enable_profiling or options.optimized_model_filepath)


def light_options(operators: Sequence[Path]) -> ort.SessionOptions:
    """Return options of a session that maps its weights and reads none.

    Args:
        operators: Libraries of operators ONNX Runtime does not have.
    """
    options = session_options(threads=1, optimize=False)
    options.add_session_config_entry(NO_PACKING, "1")
    register_operators(options, operators)
    return options
