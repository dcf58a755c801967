"""The tuned model in one file: `.om`, a zip that any ONNX Runtime can run once unpacked.

Parts: `model.onnx` (kernels as custom nodes), `kernels.so` (their library), `fallback.onnx` (the
untuned model), `weights.bin` (data of both) and `manifest.json` (target, versions, sha256 of
each part, bank records). The same parts always give the same bytes. A signed one has
`manifest.json.sig`, too.

A model tuned for several shapes has `model_<n>.onnx` and `kernels_<n>.so` for each of them, one
`weights.bin` for all, and the model with open shapes as `fallback.onnx`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, Any

from aoe.errors import OfflineModelError, OutputError
from aoe.folders.whole_files import replaced
from aoe.om.archive import (
    MOST_MANIFEST_BYTES,
    MOST_SIGNATURE_BYTES,
    NAMESPACE,
    SIGNATURE,
    UNREADABLE,
    check_layout,
    check_signature,
    new_member,
    open_archive,
    read_member,
)
from aoe.workload import Precision
from aoebank import sign_data

MANIFEST = "manifest.json"
MODEL = "model.onnx"
FALLBACK = "fallback.onnx"
LIBRARY = "kernels.so"
WEIGHTS = "weights.bin"
PARTS = (MODEL, FALLBACK, WEIGHTS, LIBRARY)
SCHEMA = "aoe.om/1"
CASES_SCHEMA = "aoe.om/2"
"""Of a file with several shapes, which older readers do not know."""
_CASE_PART = re.compile(r"(model_\d{1,4}\.onnx|kernels_\d{1,4}\.so)")
_CHUNK_BYTES = 1 << 20

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_TEXT_BY_NAME = {"type": "object", "additionalProperties": _TEXT}
_PRECISION = {"enum": [precision.value for precision in Precision]}


def _object(optional: dict[str, Any], required: dict[str, Any]) -> dict[str, Any]:
    members = {**required, **optional}
    return {"type": "object", "required": list(required), "properties": members}


_KERNEL_TYPES = _object(
    {"precision": _PRECISION, "record": {"type": "object"}},
    {"name": _TEXT, "op_type": _TEXT, "key": _TEXT, "bank_file": _TEXT, "op_names": _TEXTS},
)
_SUBGRAPH_TYPES = _object(
    {"record": {"type": "object"}},
    {"graph_id": _TEXT, "strategy": _TEXT, "bank_file": _TEXT, "op_names": _TEXTS},
)
_SHAPES = {
    "type": "object",
    "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0}},
}
_TUNED_MEMBERS = {
    "precision": _PRECISION,
    "accuracy": _TEXT,
    "subgraphs": {"type": "array", "items": _SUBGRAPH_TYPES},
}
_CASE_TYPES = _object(
    _TUNED_MEMBERS,
    {
        "shapes": _SHAPES,
        "model_sha256": _TEXT,
        "cpu_features": _TEXTS,
        "kernels": {"type": "array", "items": _KERNEL_TYPES},
    },
)
_MANIFEST_TYPES = _object(
    {
        **_TUNED_MEMBERS,
        "cases": {"type": "array", "items": _CASE_TYPES},
        "operators": {"type": "array", "items": _object({}, {"path": _TEXT, "sha256": _TEXT})},
        "streams": {"type": "integer", "minimum": 1, "maximum": 1 << 16},
        "shape_range": _TEXT,
        "written_as": _TEXT,
    },
    {
        "name": _TEXT,
        "model_sha256": _TEXT,
        "soc_version": _TEXT,
        "core_num": {"type": "integer", "minimum": 1, "maximum": 1 << 16},
        "cpu_features": _TEXTS,
        "nchwc_block": {"type": "integer", "minimum": 0, "maximum": 1 << 16},
        "versions": _TEXT_BY_NAME,
        "kernels": {"type": "array", "items": _KERNEL_TYPES},
        "parts": {**_TEXT_BY_NAME, "required": [FALLBACK, WEIGHTS]},
    },
)
"""Members a manifest must hold (JSON Schema); anybody may have edited it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """A kernel in a tuned model: name, bank record, the nodes it computes, how precisely."""

    name: str
    op_type: str
    key: str
    bank_file: str
    op_names: tuple[str, ...]
    precision: Precision = Precision.FLOAT32
    # Workload, strategy and fingerprint, for a run that begins with this model; empty in older
    # ones.
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubgraphUse:
    """A subgraph in another form."""

    graph_id: str  # Its identity
    strategy: str  # What was done, in words
    bank_file: str  # Name of the bank file its record is in
    op_names: tuple[str, ...]  # The nodes at its ends
    # What the bank knows of it, as `subgraph_tuning/` has it; older files have none.
    record: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorLibrary:
    """A library of operators the model needs: where it was when the model was tuned, its sha256."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeCase:
    """A tuned model for one of the shapes an `.om` holds."""

    shapes: Mapping[str, tuple[int, ...]]  # Of every input of the model, by name
    model_sha256: str  # Digest of the untuned model, shapes fixed
    cpu_features: tuple[str, ...]  # What a CPU needs to run the kernels
    kernels: tuple[KernelUse, ...]  # In the order of the library's table
    precision: Precision = Precision.FLOAT32  # The lowest of its kernels
    accuracy: str = ""  # What the model was held to and what it reached, empty if nothing was asked
    subgraphs: tuple[SubgraphUse, ...] = ()  # Those in another form than the imported model has


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Manifest of an `.om` file."""

    name: str  # Model name
    model_sha256: str  # Digest of the untuned model, shapes fixed
    soc_version: str  # Target
    core_num: int  # Threads it was tuned for
    cpu_features: tuple[str, ...]  # What a CPU needs to run the kernels
    nchwc_block: int  # Block size of ONNX Runtime's layout in `model.onnx`
    versions: Mapping[str, str]  # Of aoe, halide, onnxruntime
    kernels: tuple[KernelUse, ...]  # In the order of the library's table
    parts: Mapping[str, str]  # sha256 of each part, by name
    precision: Precision = Precision.FLOAT32  # The lowest of its kernels
    accuracy: str = ""  # What the model was held to and what it reached, empty if nothing was asked
    subgraphs: tuple[SubgraphUse, ...] = ()  # Those in another form than the imported model has
    # What there is for each of several shapes; then there are no kernels and subgraphs of the file
    # itself, and its digest is that of the model with open shapes.
    cases: tuple[ShapeCase, ...] = ()
    # Libraries of operators the model needs, which are not in the file.
    operators: tuple[OperatorLibrary, ...] = ()
    # Callers it was tuned for, each with the threads of `core_num`; 1 where the latency of one run
    # was tuned.
    streams: int = 1
    # The shapes it was tuned for, as `--input_shape` says a range; else empty.
    shape_range: str = ""
    # In which form the model is written, in words; empty if that is the imported one.
    written_as: str = ""

    @property
    def kernel_count(self) -> int:
        """Number of kernels of all cases together."""
        return sum((len(case.kernels) for case in self.cases), len(self.kernels))


def case_parts(number: int) -> tuple[str, str]:
    """Return the names of model and library of a case, counted from 0."""
    return f"model_{number + 1}.onnx", f"kernels_{number + 1}.so"


def write_offline_model(file: Path, directory: Path, manifest: Manifest) -> None:
    """Pack the parts in `directory` into `file`: whole and synced to disk, or not at all.

    Parts that do not exist are left out (a model without kernels has no library).

    Raises:
        OutputError: no permission, no space, not a directory.
    """
    known = [*PARTS, *(name for at in range(len(manifest.cases)) for name in case_parts(at))]
    parts = [name for name in known if (directory / name).exists()]
    digests = {name: digest_of(directory / name) for name in parts}
    members = asdict(manifest) | {"parts": digests}
    for name in ("cases", "operators", "shape_range", "written_as"):
        if not members[name]:
            del members[name]
    if manifest.streams == 1:
        del members["streams"]
    schema = CASES_SCHEMA if manifest.cases else SCHEMA
    text = json.dumps({"schema": schema, **members}, indent=1)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr(new_member(MANIFEST), text)
            for name in parts:
                with archive.open(new_member(name), "w", force_zip64=True) as sink:
                    _copy(directory / name, sink)
    except OSError as error:
        raise OutputError(str(file), f"cannot be written: {error.strerror or error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning of an `.om`: what it says about itself, and who says so."""

    manifest: Manifest  # Read and checked
    data: bytes  # Its bytes, which a signature is about
    signature: bytes | None  # In OpenSSH's form; None if the file is not signed


def read_manifest(file: Path, trusted: Path | None = None) -> Manifest:
    """Return the manifest of an `.om` file; nothing of the file is run.

    Args:
        file: The tuned model.
        trusted: File of allowed signers, one of whom has to have signed the file as it is: every
            part is read then. None for anybody.

    Raises:
        OfflineModelError: missing, not an `.om` file, of an unknown version, not signed by one of
            them, or changed since.
    """
    return read_head(file).manifest if trusted is None else read_signed(file, trusted)[0].manifest


def read_signed(file: Path, trusted: Path) -> tuple[Head, str]:
    """Return the head of an `.om` file and who signed it, after a check of all that is in it.

    Args:
        file: The tuned model.
        trusted: File of allowed signers, one of whom has to have signed the file.

    Raises:
        OfflineModelError: as `read_manifest`.
    """
    head, signer = _signed_head(file, trusted)
    for name in head.manifest.parts:
        for _ in _checked(file, head.manifest, name):
            pass
    return head, signer


def _signed_head(file: Path, trusted: Path) -> tuple[Head, str]:
    """Return the head of an `.om` file and its signer; the parts are still to be checked."""
    head = read_head(file)
    signer = check_signature(file, head.data, head.signature, trusted)
    try:
        check_layout(file)
    except UNREADABLE as error:
        raise OfflineModelError(str(file), f"changed while it was read: {error}") from error
    return head, signer


def read_head(file: Path) -> Head:
    """Return the manifest of an `.om` file with its signature, which is not checked.

    Raises:
        OfflineModelError: missing, not an `.om` file, or of an unknown version.
    """
    if not file.exists():
        raise OfflineModelError(str(file), "no such file")
    signature = None
    try:
        with open_archive(file) as archive:
            names = archive.namelist()
            data = read_member(archive, file, MANIFEST, MOST_MANIFEST_BYTES)
            if SIGNATURE in names:
                signature = read_member(archive, file, SIGNATURE, MOST_SIGNATURE_BYTES)
        value = json.loads(data)
    except UNREADABLE as error:
        raise OfflineModelError(
            str(file),
            f"not a tuned model of this engine: {error}",
            hint="an .om file is written by `aoe --model=...`",
        ) from error
    manifest = _parse_manifest(file, value)
    _check_names(file, manifest, names)
    return Head(manifest=manifest, data=data, signature=signature)


def sign_offline_model(file: Path, key: Path, output: Path) -> Head:
    """Write a tuned model with a signature of its manifest, which replaces one that is there.

    Every part is checked on the way: what is signed is whole.

    Args:
        file: The tuned model.
        key: Private key of OpenSSH, or the public one of a key an agent holds.
        output: Where the signed one goes; may be the same file.

    Raises:
        OfflineModelError: it is not a tuned model, or a part is damaged.
        OutputError: no permission, no space, not a directory.
        AoebankError: the key cannot sign.
    """
    head = read_head(file)
    signature = sign_data(head.data, key, NAMESPACE)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with replaced(output) as temporary, zipfile.ZipFile(temporary, "w") as archive:
            archive.writestr(new_member(MANIFEST), head.data)
            archive.writestr(new_member(SIGNATURE), signature)
            for name in head.manifest.parts:
                with archive.open(new_member(name), "w", force_zip64=True) as sink:
                    for chunk in _checked(file, head.manifest, name):
                        sink.write(chunk)
    except OSError as error:
        raise OutputError(str(output), f"cannot be written: {error.strerror or error}") from error
    return replace(head, signature=signature)


def _check_names(file: Path, manifest: Manifest, names: Iterable[str]) -> None:
    """Refuse parts this version does not know, and members the manifest has no digest of.

    `unzip` would unpack either of them, a name that leads out of its folder too.
    """
    for name in (*manifest.parts, *sorted({*names} - {*manifest.parts, MANIFEST, SIGNATURE})):
        is_known = name in PARTS or _CASE_PART.fullmatch(name) is not None
        if not is_known or name not in manifest.parts:
            raise OfflineModelError(
                str(file),
                "unknown part" if not is_known else "a part its manifest does not name",
                got=repr(name)[:80],
                hint="copy the file again, or tune the model again",
            )


def _parse_manifest(file: Path, value: Mapping[str, Any]) -> Manifest:
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema not in (SCHEMA, CASES_SCHEMA):
        raise OfflineModelError(
            str(file), "unknown version", got=schema, expected=f"{SCHEMA} or {CASES_SCHEMA}"
        )
    _check_types(file, value)
    parsed = {
        **_parse_tuned(value),
        "core_num": int(value["core_num"]),  # 2.0 is an integer in JSON
        "nchwc_block": int(value["nchwc_block"]),
        "cases": tuple(map(_parse_case, value.get("cases", ()))),
        "operators": tuple(
            OperatorLibrary(**_known(OperatorLibrary, item)) for item in value.get("operators", ())
        ),
    }
    manifest = Manifest(**{**_known(Manifest, value), **parsed})
    needed = [case_parts(at)[0] for at in range(len(manifest.cases))] or [MODEL]
    missing = [name for name in needed if name not in manifest.parts]
    if missing:
        raise OfflineModelError(
            str(file),
            f"its manifest is incomplete: /parts: {missing[0]!r} is a required property",
            hint="copy the file again, or tune the model again",
        )
    return manifest


def _parse_case(value: Mapping[str, Any]) -> ShapeCase:
    shapes = {name: tuple(map(int, shape)) for name, shape in value["shapes"].items()}
    return ShapeCase(**{**_known(ShapeCase, value), **_parse_tuned(value), "shapes": shapes})


def _parse_tuned(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members a file and its cases have in common."""
    kernels = tuple(
        KernelUse(
            **{
                **_known(KernelUse, kernel),
                "op_names": tuple(kernel["op_names"]),
                "precision": _precision(kernel),
            }
        )
        for kernel in value["kernels"]
    )
    subgraphs = tuple(
        SubgraphUse(**{**_known(SubgraphUse, item), "op_names": tuple(item["op_names"])})
        for item in value.get("subgraphs", ())
    )
    return {
        "kernels": kernels,
        "subgraphs": subgraphs,
        "cpu_features": tuple(value["cpu_features"]),
        "precision": _precision(value),
    }


def _check_types(file: Path, value: Mapping[str, Any]) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(_MANIFEST_TYPES).iter_errors(value))
    if error is None:
        return
    problem = "incomplete" if error.validator == "required" else "wrong"
    place = "/".join(map(str, error.absolute_path))
    raise OfflineModelError(
        str(file),
        f"its manifest is {problem}: /{place}: {error.message}"[:300],
        hint="copy the file again, or tune the model again",
    )


def _known(kind: type, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members a class has; a later version may have written more."""
    names = {field.name for field in fields(kind)}
    return {name: item for name, item in value.items() if name in names}


def _precision(value: Mapping[str, Any]) -> Precision:
    """Return the precision a manifest names; older ones name none."""
    return Precision(value.get("precision", Precision.FLOAT32))


def unpack(file: Path, directory: Path, trusted: Path | None = None) -> Manifest:
    """Unpack an `.om` file and check every part against the manifest.

    Args:
        file: The tuned model.
        directory: Where its parts go.
        trusted: See `read_manifest`.

    Raises:
        OfflineModelError: a part is missing or damaged, or nobody trusted has signed the file.
    """
    head = read_head(file) if trusted is None else _signed_head(file, trusted)[0]
    manifest = head.manifest
    directory.mkdir(parents=True, exist_ok=True)
    for name in manifest.parts:
        unpack_part(file, manifest, name, directory)
    return manifest


def unpack_part(file: Path, manifest: Manifest, name: str, directory: Path) -> None:
    """Unpack one part and check it against the manifest.

    Raises:
        OfflineModelError: it is missing or damaged.
        OutputError: the directory cannot take it.
    """
    try:
        with open(directory / name, "wb", opener=_open_own) as sink:
            for chunk in _checked(file, manifest, name):
                sink.write(chunk)
    except OSError as error:
        raise OutputError(
            str(directory / name), f"cannot be written: {error.strerror or error}"
        ) from error


def _checked(file: Path, manifest: Manifest, name: str) -> Iterator[bytes]:
    """Yield a part in chunks, and raise at its end if it is not what the manifest says."""
    digest = hashlib.sha256()
    for chunk in _chunks(file, name):
        digest.update(chunk)
        yield chunk
    found = digest.hexdigest()
    if found != manifest.parts[name]:
        raise OfflineModelError(
            f"{file}:{name}",
            "damaged part",
            got=f"sha256 {found}",
            expected=manifest.parts[name],
            hint="copy the file again, or tune the model again",
        )


def _open_own(file: str, flags: int) -> int:
    """Open a file no group may write to, whatever the umask is: a cache may keep it."""
    return os.open(file, flags, 0o644)


def _copy(file: Path, sink: IO[bytes]) -> None:
    with file.open("rb") as source:
        shutil.copyfileobj(source, sink, _CHUNK_BYTES)


def _chunks(file: Path, name: str) -> Iterator[bytes]:
    try:
        with open_archive(file) as archive, archive.open(name) as source:
            while chunk := source.read(_CHUNK_BYTES):
                yield chunk
    except UNREADABLE as error:
        raise OfflineModelError(f"{file}:{name}", f"damaged part: {error}") from error


def digest_of(file: Path) -> str:
    """Return the sha256 of a file in hexadecimal digits."""
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
