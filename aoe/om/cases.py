"""Several shapes of a model in one `.om`: put together from one for each, and told apart again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import onnx

from aoe.errors import OfflineModelError, OptionError
from aoe.folders.scratch import FolderHold
from aoe.graph.weights import WeightStore
from aoe.om.file import (
    FALLBACK,
    LIBRARY,
    MODEL,
    WEIGHTS,
    Manifest,
    ShapeCase,
    case_parts,
    unpack,
    write_offline_model,
)
from aoe.workload import Precision, shapes_text
from aoebank import plural

Shapes = Mapping[str, tuple[int, ...]]
_OF_A_CASE = tuple(one.name for one in fields(ShapeCase) if one.name != "shapes")
"""Members a manifest has for each case, and for the file itself where it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenModel:
    """The model all cases are of."""

    proto: onnx.ModelProto  # With open shapes
    sha256: str  # Its digest, hexadecimal
    # Keeps the folder its weights lie in, where that is a scratch folder.
    hold: FolderHold | None = None


def join_cases(file: Path, files: Sequence[Path], model: OpenModel, scratch: Path) -> Manifest:
    """Write one `.om` of several that hold the same model for other shapes.

    Weights that are equal are stored once, those of the model with open shapes too.

    Args:
        file: The `.om` to write.
        files: An `.om` for each shape, of one target.
        model: What computes all other shapes.
        scratch: Empty directory.

    Returns:
        What the file says about itself.

    Raises:
        OfflineModelError: one of `files` is damaged.
        OutputError: no permission, no space, not a directory.
    """
    together = scratch / "together"
    together.mkdir()
    found: list[tuple[Manifest, Shapes]] = []
    with WeightStore(together / WEIGHTS) as store:
        _write(store.externalize(model.proto), together / FALLBACK)
        for number, one in enumerate(files):
            parts = scratch / str(number)
            manifest = unpack(one, parts)
            shapes = input_shapes(_read(parts / FALLBACK))
            tuned, library = case_parts(number)
            _write(store.adopt(_read(parts / MODEL), parts), together / tuned)
            if (parts / LIBRARY).exists():
                (parts / LIBRARY).replace(together / library)
            (parts / WEIGHTS).unlink()  # the largest part; it is in the store now
            found.append((manifest, shapes))
    joined = _joined(found, model)
    write_offline_model(file, together, joined)
    return joined


def find_case(manifest: Manifest, shapes: Shapes) -> int | None:
    """Return the number of the case for inputs of the given shapes, None if there is none."""
    for number, case in enumerate(manifest.cases):
        if all(shapes.get(name) == shape for name, shape in case.shapes.items()):
            return number
    return None


def case_manifest(manifest: Manifest, number: int) -> Manifest:
    """Return the manifest of one case, as an `.om` of that case alone would have it."""
    case = manifest.cases[number]
    return replace(manifest, cases=(), **{name: getattr(case, name) for name in _OF_A_CASE})


def asked_case(file: Path, manifest: Manifest, shapes: Shapes) -> int:
    """Return the number of the case with the given shapes; other inputs are as in the first case.

    Raises:
        OptionError: the file has no such shapes.
    """
    number = find_case(manifest, {**manifest.cases[0].shapes, **shapes})
    if number is None:
        raise OptionError(
            "--input_shape",
            f"{file} has no kernels for these shapes",
            got=shapes_text(shapes),
            expected=cases_text(manifest),
        )
    return number


def take_out(directory: Path, manifest: Manifest, number: int) -> Manifest:
    """Reduce unpacked parts of several shapes to one shape, in place: its names, its fall-back.

    Returns:
        The manifest of that case.
    """
    model, library = case_parts(number)
    (directory / model).replace(directory / MODEL)
    if (directory / library).exists():
        (directory / library).replace(directory / LIBRARY)
    fallback = _read(directory / FALLBACK)
    for value in fallback.graph.input:
        shape = manifest.cases[number].shapes.get(value.name, ())
        for dim, extent in zip(value.type.tensor_type.shape.dim, shape, strict=False):
            dim.dim_value = extent
    _write(fallback, directory / FALLBACK)
    return case_manifest(manifest, number)


def cases_text(manifest: Manifest) -> str:
    """Return the shapes a file holds, for messages."""
    return " or ".join(shapes_text(case.shapes) for case in manifest.cases)


def input_shapes(proto: onnx.ModelProto) -> Shapes:
    """Return the shapes of what a caller has to give: no input with a default."""
    defaults = {tensor.name for tensor in proto.graph.initializer}
    return {
        value.name: tuple(int(dim.dim_value) for dim in value.type.tensor_type.shape.dim)
        for value in proto.graph.input
        if value.name not in defaults
    }


def _joined(found: Sequence[tuple[Manifest, Shapes]], model: OpenModel) -> Manifest:
    first = found[0][0]
    for manifest, _ in found:
        if manifest.soc_version != first.soc_version or manifest.core_num != first.core_num:
            raise OfflineModelError(
                manifest.name,
                "tuned for another target",
                got=f"{manifest.soc_version}, {plural(manifest.core_num, 'thread')}",
                expected=f"{first.soc_version}, {plural(first.core_num, 'thread')}",
            )
    lower = [manifest.precision for manifest, _ in found if manifest.precision.is_lower]
    cases = tuple(
        ShapeCase(shapes=dict(shapes), **{name: getattr(manifest, name) for name in _OF_A_CASE})
        for manifest, shapes in found
    )
    forms = {manifest.written_as for manifest, _ in found}
    return replace(
        first,
        model_sha256=model.sha256,
        written_as=first.written_as if len(forms) == 1 else "",
        cpu_features=tuple(dict.fromkeys(name for case in cases for name in case.cpu_features)),
        kernels=(),
        subgraphs=(),
        precision=max(lower, key=lambda precision: precision.rank, default=Precision.FLOAT32),
        accuracy="",
        cases=cases,
        parts={},
    )


def _read(file: Path) -> onnx.ModelProto:
    return onnx.load(os.fspath(file), load_external_data=False)


def _write(proto: onnx.ModelProto, file: Path) -> None:
    file.write_bytes(proto.SerializeToString(deterministic=True))
