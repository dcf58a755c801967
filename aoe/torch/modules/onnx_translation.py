"""From a traced PyTorch program to a lean ONNX model with telling names."""

from __future__ import annotations

import ast
import io
import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import Any, TextIO

import onnx
import torch

from aoe.errors import EngineNotInstalledError

_SCOPES = "pkg.torch.onnx.name_scopes"
"""Key of the exporter's note on the modules a node comes from. Source: torch.onnx, _core.py."""
_NOISY = ("torch.onnx", "torch.export", "torch._export", "torch.fx", "torch._dynamo", "onnxscript")


def translate(
    program: torch.export.ExportedProgram,
    input_names: Sequence[str],
    result_dtypes: Sequence[torch.dtype],
) -> onnx.ModelProto:
    """Return a program as ONNX; nodes are named `<module>/<operator>`.

    Results have the element types they have in PyTorch: the exporter computes some operators of
    float16 (sum, cumsum, amax) in float32 and leaves their results so.

    Uses the exporter that is based on `torch.export`: the older TorchScript-based one is
    deprecated. Source: torch.onnx.export, `dynamo`.

    Raises:
        EngineNotInstalledError: onnxscript is not there.
        torch.onnx.OnnxExporterError: an operator has no ONNX counterpart.
    """
    try:
        with quiet_exporter():
            import onnxscript  # noqa: F401
    except ImportError as error:
        raise EngineNotInstalledError(
            "onnxscript",
            "not installed, and PyTorch needs it to write ONNX",
            hint="pip install 'aoebank[torch]'",
        ) from error
    with quiet_exporter():
        exported: Any = torch.onnx.export(
            program, dynamo=True, verbose=False, input_names=[f"in_{name}" for name in input_names]
        )
        proto: onnx.ModelProto = exported.model_proto
    _name_nodes(proto)
    _keep_dtypes(proto, result_dtypes)
    _make_outputs_distinct(proto)
    _drop_notes(proto)
    return proto


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Keep PyTorch's exporter from logging, warning and printing about its own affairs."""
    loggers = [
        logging.getLogger(name)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith(_NOISY)
    ]
    levels = [logger.level for logger in loggers]
    others = _OtherThreads(sys.stderr)
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL + 1)
        with warnings.catch_warnings(), redirect_stderr(others):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class _OtherThreads(io.TextIOBase):
    """Passes on what other threads write; after a failure the exporter prints whole graphs."""

    def __init__(self, sink: TextIO) -> None:
        super().__init__()
        self._sink = sink
        self._thread = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() != self._thread:
            self._sink.write(text)
        return len(text)


def _name_nodes(proto: onnx.ModelProto) -> None:
    taken: set[str] = set()
    for number, node in enumerate(proto.graph.node):
        notes = {prop.key: prop.value for prop in node.metadata_props}
        scopes = _scopes(notes.get(_SCOPES, ""))
        module = next((s for s in reversed(scopes[:-1]) if s), "").removeprefix("module")
        name = f"{module.lstrip('.')}/{scopes[-1] if scopes else node.op_type}".lstrip("/")
        node.name = f"{name}.{node.op_type}" if name in taken else name
        if node.name in taken:
            node.name = f"{name}.{node.op_type}.{number}"
        taken.add(node.name)


def _scopes(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []


def _keep_dtypes(proto: onnx.ModelProto, dtypes: Sequence[torch.dtype]) -> None:
    graph = proto.graph
    for number, (value, dtype) in enumerate(zip(graph.output, dtypes, strict=True)):
        wanted = onnx.helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=dtype).numpy().dtype)
        if value.type.tensor_type.elem_type != wanted:
            cast = f"result_{number}"
            node = onnx.helper.make_node("Cast", [value.name], [cast], name=cast, to=wanted)
            graph.node.append(node)
            value.name, value.type.tensor_type.elem_type = cast, wanted


def _make_outputs_distinct(proto: onnx.ModelProto) -> None:
    """Give every output a node of its own: some are weights, inputs or other outputs."""
    graph = proto.graph
    taken = {tensor.name for tensor in graph.initializer} | {value.name for value in graph.input}
    for number, value in enumerate(graph.output):
        if value.name in taken:
            copied = f"out_{number}"
            node = onnx.helper.make_node("Identity", [value.name], [copied], name=copied)
            graph.node.append(node)
            value.name = copied
        taken.add(value.name)


def _drop_notes(proto: onnx.ModelProto) -> None:
    """Take out stack traces, paths and versions: equal modules make equal models."""
    for holder in (proto, proto.graph, *proto.graph.node, *proto.functions):
        del holder.metadata_props[:]
        holder.doc_string = ""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        del value.metadata_props[:]
    for function in proto.functions:
        for node in function.node:
            del node.metadata_props[:]
            node.doc_string = ""
