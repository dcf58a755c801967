"""Writes the dump that `aoe --model_path=DUMP` tunes; `aoe.entry.torch_dump` reads it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch

from aoe.entry.torch_dump import DUMP_FILE, SCHEMA, read_dump
from aoe.errors import OutputError
from aoe.graph.weights import WeightStore
from aoe.results.files import write_json


class DumpWriter:
    """Adds graphs and operators to a dump; on disk it is complete after every `write`.

    A directory that holds a dump already is continued.

    Args:
        directory: Made if it is missing.

    Raises:
        ModelImportError: the directory holds a dump of another version.
        OutputError: it cannot be made or written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if (directory / DUMP_FILE).exists():
                known = read_dump(directory, str(directory))
                self._graphs: list[dict[str, Any]] = list(known["graphs"])
                self._operators: list[dict[str, Any]] = list(known["operators"])
            else:
                self._graphs, self._operators = [], []
            self._store: WeightStore | None = None
        except OSError as error:
            raise _unwritable(directory, error) from error

    def add_graph(self, proto: onnx.ModelProto, *, module: str, call: str) -> str:
        """Write a graph unless the dump has it; return its file name.

        Args:
            proto: The graph.
            module: Class of the module, or the operator, it was made of.
            call: The tensors and values it was called with, in words.
        """
        digest = hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
        for graph in self._graphs:
            if graph["sha256"] == digest:
                return str(graph["file"])
        stem = re.sub(r"\W+", "_", module).strip("_").lower() or "graph"
        file = self.directory / f"{stem}_{len(self._graphs)}.onnx"
        try:
            if self._store is None:
                self._store = WeightStore(self.directory / f"weights_{len(self._graphs)}.bin")
            file.write_bytes(self._store.externalize(proto).SerializeToString(deterministic=True))
        except OSError as error:
            raise _unwritable(file, error) from error
        entry = {"file": file.name, "module": module, "call": call, "count": 0, "sha256": digest}
        self._graphs.append(entry)
        return file.name

    @property
    def has_graphs(self) -> bool:
        """True if the dump holds a graph to tune."""
        return bool(self._graphs)

    def count(self, file: str, times: int = 1) -> None:
        """Note more calls of a graph; nothing for the empty name."""
        for graph in self._graphs:
            if graph["file"] == file:
                graph["count"] += times

    def write(self, operators: Iterable[Mapping[str, Any]]) -> None:
        """Write `dump.json`: operators it had when it was opened, and the given ones."""
        document = {
            "schema": SCHEMA,
            "torch": torch.__version__,
            "graphs": self._graphs,
            "operators": [*self._operators, *operators],
        }
        write_json(self.directory / DUMP_FILE, document)

    def close(self) -> None:
        """Finish the file of weights."""
        if self._store is not None:
            self._store.close()


def _unwritable(path: Path, error: OSError) -> OutputError:
    return OutputError(str(path), f"cannot be written: {error.strerror or error}")
