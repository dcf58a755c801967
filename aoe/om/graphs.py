"""The graphs in a tuned model, without their weights, to be looked at."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from aoe.errors import OfflineModelError
from aoe.folders.scratch import ScratchFolder
from aoe.om.file import FALLBACK, MODEL, Manifest, case_parts, unpack_part


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


def _load(file: Path, part: Path) -> onnx.ModelProto:
    try:
        return onnx.load(part, load_external_data=False)
    except DecodeError as error:
        raise OfflineModelError(f"{file}:{part.name}", f"no ONNX model: {error}") from error
