"""The graphs in a tuned model, to be looked at or run."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx.checker import ValidationError
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from aoe.errors import OfflineModelError
from aoe.folders.scratch import ScratchFolder
from aoe.graph.weights import load_written
from aoe.om.file import FALLBACK, MODEL, WEIGHTS, Manifest, case_parts, unpack_part


def graphs_of(file: Path, manifest: Manifest) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return the imported and the tuned graph of an `.om`; of several shapes, the first one's.

    Args:
        file: The tuned model.
        manifest: Its own.

    Raises:
        OfflineModelError: a part is missing or damaged.
    """
    tuned = case_parts(0)[0] if manifest.cases else MODEL
    with ScratchFolder("graphs") as folder:
        for name in (FALLBACK, tuned):
            unpack_part(file, manifest, name, folder)
        before, after = (_load(file, folder / name) for name in (FALLBACK, tuned))
    return before, after


def load_part(file: Path, part: Path) -> onnx.ModelProto:
    """Return a graph of an `.om` with its weights.

    Args:
        file: The tuned model, for messages.
        part: The graph, unpacked, its weights beside it.

    Raises:
        OfflineModelError: it is no model, or has weights in another file than that of the `.om`.
    """
    proto = _load(file, part)
    try:
        for tensor in filter(uses_external_data, proto.graph.initializer):
            location = ExternalDataInfo(tensor).location
            if location != WEIGHTS:
                raise OfflineModelError(
                    f"{file}:{part.name}",
                    f"the weights of {tensor.name} are elsewhere",
                    got=location,
                    expected=WEIGHTS,
                )
        return load_written(part)
    except (KeyError, ValueError, OSError, ValidationError) as error:
        raise OfflineModelError(f"{file}:{part.name}", f"no weights: {error}") from error


def _load(file: Path, part: Path) -> onnx.ModelProto:
    try:
        return onnx.load(part, load_external_data=False)
    except DecodeError as error:
        raise OfflineModelError(f"{file}:{part.name}", f"no ONNX model: {error}") from error
