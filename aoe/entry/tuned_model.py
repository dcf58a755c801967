"""A tuned model, to be tuned again (`--om`): the untuned model in it, with its shapes.

Nothing else of the file is looked at: kernels and forms come from the bank, or are found anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from aoe.entry.input_shapes import fix_input_shapes
from aoe.entry.onnx_file import load_onnx, load_open_onnx
from aoe.entry.protocol import Entry, ImportedModel, ModelSource
from aoe.errors import OfflineModelError, called
from aoe.folders.scratch import FolderHold, ScratchFolder
from aoe.graph.weights import is_outside
from aoe.om.cases import input_shapes
from aoe.om.file import FALLBACK, MANIFEST, WEIGHTS, Manifest, read_manifest, unpack_part
from aoe.workload import shapes_text

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet

SUFFIX = ".om"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def load_tuned_model(source: ModelSource) -> ImportedModel:
    """Return the untuned model of an `.om` file, under the name and digest it was tuned under.

    Records and verdicts of a bank are found again by these.

    Raises:
        OfflineModelError: no such file, not a tuned model, its manifest makes no sense, or a part
            is not what the manifest says.
        ModelImportError: what is in it is no model, or shapes do not fit it.
    """
    manifest, model = _untuned(source, lambda file: load_onnx(file, source.shapes, source.given))
    shapes = input_shapes(model.proto)
    known = {shapes_text(case.shapes): case.model_sha256 for case in manifest.cases}
    sha256 = known.get(shapes_text(shapes), model.sha256 if known else manifest.model_sha256)
    return replace(model, name=manifest.name, path=source.path, sha256=sha256)


def load_open_tuned_model(source: ModelSource) -> ImportedModel:
    """Return the untuned model of an `.om` file, its shapes open where they are in it.

    Raises:
        OfflineModelError: as `load_tuned_model`.
    """
    manifest, model = _untuned(source, load_open_onnx)
    return replace(model, name=manifest.name, path=source.path, sha256=manifest.model_sha256)


def check_shapes(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], given: InputSet | None = None
) -> None:
    """Refuse shapes that the untuned model of an unpacked file cannot have.

    Args:
        folder: Where its parts are.
        shapes: By input name; none are right.
        given: Arrays the model will be run on.

    Raises:
        ModelImportError: an unknown name, another rank or extent, or an input that stays open.
        RunError: an array cannot be read.
    """
    if shapes:
        proto = onnx.load(str(folder / FALLBACK), load_external_data=False)
        fix_input_shapes(proto, shapes, given)


def _untuned(
    source: ModelSource, load: Callable[[Path], ImportedModel]
) -> tuple[Manifest, ImportedModel]:
    manifest = read_manifest(source.path)
    _check_identity(source.path, manifest)
    folder = ScratchFolder("om")
    hold = FolderHold(folder)
    for part in (FALLBACK, WEIGHTS):
        unpack_part(source.path, manifest, part, folder.path)
    file = folder.path / FALLBACK
    with called(f"--om={source.path}:{FALLBACK}", f"--model={file}"):
        model = load(file)
    return manifest, replace(model, hold=hold) if is_outside(model.proto) else model


def _check_identity(file: Path, manifest: Manifest) -> None:
    """Refuse a name that is no part of a path, and a digest that is none.

    Raises:
        OfflineModelError: the manifest has one of them.
    """
    name, digest = manifest.name, manifest.model_sha256
    if not name or Path(name).name != name:
        problem, got, expected = "the name of the model is none", name, "a file name"
    elif _DIGEST.fullmatch(digest) is None:
        problem, got, expected = "the digest of the model is none", digest, "64 hexadecimal digits"
    else:
        return
    raise OfflineModelError(
        f"{file}:{MANIFEST}",
        problem,
        got=repr(got)[:80],
        expected=expected,
        hint="give the untuned model with --model",
    )


TUNED_MODEL = Entry(
    framework="a tuned model", load=load_tuned_model, load_open=load_open_tuned_model
)
