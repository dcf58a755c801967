"""Frozen graphs, SavedModels and Keras files: converted by a process that has TensorFlow."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx

from aoe.entry.input_shapes import fix_input_shapes
from aoe.entry.onnx_file import make_initializers_constant, read_onnx
from aoe.entry.outputs import cut_at_outputs
from aoe.entry.protocol import Entry, ImportedModel, ModelSource, digest_of, model_name
from aoe.errors import ModelImportError, ModelNotFoundError
from aoe.folders.scratch import ScratchFolder
from aoe.graph.model_graph import subgraphs
from aoe.graph.protos import refill
from aoe.settings import tensorflow_python

OPSET = 17
_INSTALL = (
    "pip install 'aoebank[tensorflow]', or name a Python that has tensorflow and tf2onnx: "
    "export AOE_TENSORFLOW_PYTHON=/path/to/python"
)
_FROZEN = ".pb"
_KINDS = "a frozen graph (.pb), a SavedModel (directory), or a Keras file (.keras, .h5)"


def load_tensorflow(source: ModelSource) -> ImportedModel:
    """Convert a model to ONNX and fix its input shapes.

    Inputs of frozen graphs may be called with or without `:0` in `source.shapes`.

    Raises:
        ModelNotFoundError: no such file.
        ModelImportError: no TensorFlow, not such a model, an operator that cannot be converted, or
            shapes stay open.
    """
    proto = _read(source)
    fix_input_shapes(proto, _named_as_in(proto, source.shapes), source.given)
    return _imported(source, proto)


def load_open_tensorflow(source: ModelSource) -> ImportedModel:
    """Convert a model to ONNX whose input shapes may stay open.

    Raises:
        ModelNotFoundError: no such file.
        ModelImportError: no TensorFlow, not such a model, or an operator that cannot be converted.
    """
    return _imported(source, _read(source))


def _read(source: ModelSource) -> onnx.ModelProto:
    where = f"--model={source.path}"
    _check_kind(source.path, where)
    python = tensorflow_python(source.env) or sys.executable
    with ScratchFolder("tensorflow") as folder:
        _run(python, source, folder, where)
        proto = _converted(folder / "model.onnx", where)
    if source.path.is_dir() or source.path.suffix.lower() != _FROZEN:  # else it is cut already
        cut_at_outputs(proto, source.output_nodes)
    return proto


def _imported(source: ModelSource, proto: onnx.ModelProto) -> ImportedModel:
    return ImportedModel(
        name=model_name(source.path.resolve().stem),
        path=source.path,
        sha256=digest_of(proto, f"--model={source.path}"),
        proto=proto,
    )


def _check_kind(path: Path, where: str) -> None:
    if not path.exists():
        raise ModelNotFoundError(where, "no such file")
    is_saved = path.is_dir() and (path / "saved_model.pb").is_file()
    if not is_saved and (path.is_dir() or path.suffix.lower() not in TENSORFLOW.suffixes):
        hint = "--framework=5" if path.suffix.lower() == ".onnx" else None
        raise ModelImportError(where, "not a TensorFlow model", expected=_KINDS, hint=hint)


def _run(python: str, source: ModelSource, folder: Path, where: str) -> None:
    """Let the converting process write `model.onnx`."""
    path = source.path.resolve()
    if path.is_file() and path.suffix != path.suffix.lower():
        # Keras knows its files by their endings, in small letters
        named = folder / f"model{path.suffix.lower()}"
        named.symlink_to(path)
        path = named
    request = {
        "path": str(path),
        "folder": str(folder),
        "opset": OPSET,
        "shapes": {name: list(shape) for name, shape in source.shapes.items()},
        "outputs": list(source.output_nodes),
    }
    (folder / "request.json").write_text(json.dumps(request))
    script = Path(__file__).with_name("converter.py")
    settings = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "PYTHONHASHSEED": "0"}
    try:
        done = subprocess.run(
            [python, str(script), str(folder / "request.json")],
            env={**source.env, **settings},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=False,
        )
    except OSError as error:
        raise ModelImportError(
            "AOE_TENSORFLOW_PYTHON", f"cannot be run: {error.strerror}", got=python, hint=_INSTALL
        ) from error
    answer = _answer(folder / "answer.json")
    if answer is None:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no word"]
        raise ModelImportError(
            where, f"the converting process ended with code {done.returncode}: {last[0][:300]}"
        )
    if "missing" in answer:
        raise ModelImportError(
            "--framework=3",
            f"{answer['missing']} {answer['problem']}",
            got=f"Python {python}",
            hint=_INSTALL,
        )
    if "problem" in answer:
        raise ModelImportError(where, str(answer["problem"]), hint=answer.get("hint"))


def _answer(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _converted(file: Path, where: str) -> onnx.ModelProto:
    """Return the converted model, refused by name if an operator has no counterpart in ONNX."""
    if file.is_file():
        graph = onnx.load(str(file), load_external_data=False).graph
        unknown = [
            node
            for node in graph.node
            if node.domain == "" and not onnx.defs.has(node.op_type, OPSET, "")
        ]
        if unknown:
            types = sorted({node.op_type for node in unknown})
            raise ModelImportError(
                f"{where}, node {unknown[0].name}",
                "an operator of TensorFlow without a counterpart in ONNX",
                got=", ".join(types[:8]),
                hint="leave it out of the graph that is exported",
            )
    try:
        proto = read_onnx(file)
    except ModelImportError as error:
        raise ModelImportError(where, f"tf2onnx made no valid model: {error.problem}") from error
    make_initializers_constant(proto)
    proto.graph.name = "tensorflow"  # else a path
    proto.graph.doc_string = proto.doc_string = ""
    _name_constants(proto.graph)
    return proto


def _name_constants(graph: onnx.GraphProto) -> None:
    """Name constants by the order they are read in, and put them into it.

    Of equal constants tf2onnx keeps one, another one in each run; the digest of a model must not
    depend on that.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    seen = [value.name for value in (*graph.input, *graph.output)]
    names = {name: name for name in seen if name in constants}
    for node in _nodes(graph):
        for position, read in enumerate(node.input):
            if read in constants:
                node.input[position] = names.setdefault(read, f"constant__{len(names)}")
    ordered = []
    for old, new in names.items():
        constants[old].name = new
        ordered.append(constants[old])
    found = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in ordered]
    refill(graph.initializer, found)


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from _nodes(inner)


def _named_as_in(
    proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Return shapes by the names the model has, which may add `:0` to the given names."""
    names = {value.name for value in proto.graph.input}
    return {
        name if name in names or f"{name}:0" not in names else f"{name}:0": shape
        for name, shape in shapes.items()
    }


TENSORFLOW = Entry(
    framework="TensorFlow",
    load=load_tensorflow,
    takes_output_nodes=True,
    suffixes=(_FROZEN, ".keras", ".h5", ".hdf5"),
    folder_file="saved_model.pb",
    load_open=load_open_tensorflow,
)
