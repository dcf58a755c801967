"""The dump of `aoe.torch.set_aoe` (`--model_path`): graphs of PyTorch modules, tuned together.

A dump is a directory: `dump.json` (schema `aoe.torch_dump/1`) lists ONNX files beside it, which
share files of weights. Here they become one model of unconnected parts, so that a workload that
occurs in several of them is tuned once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import onnx

from aoe.entry.onnx_file import load_onnx
from aoe.entry.protocol import MAX_BYTES, Entry, ImportedModel, digest_of, model_name
from aoe.errors import ModelImportError, ModelNotFoundError

SCHEMA = "aoe.torch_dump/1"
DUMP_FILE = "dump.json"
_HINT = "collect one with aoe.torch.set_aoe(DIR)"


def load_torch_dump(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ImportedModel:
    """Read a dump and put its graphs side by side in one model.

    Raises:
        ModelNotFoundError: no such directory, or no dump in it.
        ModelImportError: damaged, of an unknown version, empty, with a graph that cannot be
            read, or too large for one model.
    """
    where = f"--model_path={path}"
    if shapes:
        raise ModelImportError(
            "--input_shape", "a dump has the shapes it was collected with", got=", ".join(shapes)
        )
    files = _graph_files(path, where)
    if not files:
        raise ModelImportError(where, "no graph in the dump, so there is nothing to tune")
    proto = onnx.ModelProto()
    for number, file in enumerate(files):
        _add(proto, load_onnx(path / file, {}).proto, number, where)
    return ImportedModel(
        name=model_name(path.resolve().name),
        path=path,
        sha256=digest_of(proto, where),
        proto=proto,
    )


def read_dump(path: Path, where: str) -> dict[str, Any]:
    """Return the content of `dump.json`.

    Raises:
        ModelNotFoundError: it is not there.
        ModelImportError: it is not a dump of a known version.
    """
    try:
        value = json.loads((path / DUMP_FILE).read_bytes())
    except FileNotFoundError as error:
        missing = "no such directory" if not path.exists() else f"has no {DUMP_FILE}"
        raise ModelNotFoundError(where, missing, hint=_HINT) from error
    except NotADirectoryError as error:
        raise ModelImportError(where, "not a directory", hint=_HINT) from error
    except (OSError, ValueError, RecursionError) as error:
        raise ModelImportError(where, f"{DUMP_FILE} cannot be read: {error}") from error
    schema = value.get("schema") if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise ModelImportError(where, "unknown version of a dump", got=schema, expected=SCHEMA)
    found: dict[str, Any] = value
    return found


def _graph_files(path: Path, where: str) -> list[str]:
    value = read_dump(path, where)
    try:
        files = [str(graph["file"]) for graph in value["graphs"]]
    except (KeyError, TypeError) as error:
        raise ModelImportError(where, f"{DUMP_FILE} is incomplete: {error!r}") from error
    for file in files:
        if len(PurePosixPath(file).parts) != 1 or file in (".", ".."):
            raise ModelImportError(where, "a graph lies outside the dump", got=file)
    return files


def _add(whole: onnx.ModelProto, part: onnx.ModelProto, number: int, where: str) -> None:
    """Add a graph to the model; its names get a prefix, so that nothing meets."""
    if whole.ByteSize() + part.ByteSize() > MAX_BYTES:
        raise ModelImportError(
            where,
            "the graphs with their weights are too large for one model",
            hint="collect fewer modules into one dump",
        )
    onnx.compose.add_prefix(part, f"g{number}/", inplace=True)
    _add_opsets(whole, part, where)
    whole.ir_version = max(whole.ir_version, part.ir_version)
    whole.graph.name = "dump"
    known = {(function.domain, function.name) for function in whole.functions}
    whole.functions.extend(f for f in part.functions if (f.domain, f.name) not in known)
    for field in ("node", "initializer", "input", "output", "value_info"):
        getattr(whole.graph, field).extend(getattr(part.graph, field))


def _add_opsets(whole: onnx.ModelProto, part: onnx.ModelProto, where: str) -> None:
    known = {opset.domain: opset.version for opset in whole.opset_import}
    for opset in part.opset_import:
        if opset.domain not in known:
            whole.opset_import.append(opset)
        elif known[opset.domain] != opset.version:
            raise ModelImportError(
                where,
                "graphs of several opsets, from several versions of PyTorch",
                got=opset.version,
                expected=known[opset.domain],
                hint="collect the dump again",
            )


TORCH_DUMP = Entry(
    framework="PyTorch",
    load=lambda source: load_torch_dump(source.path, source.shapes),
    folder_file=DUMP_FILE,
)
