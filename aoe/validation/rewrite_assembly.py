"""Puts a model together from other rewrites of its subgraphs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.execute.messages import ModelPart
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.half_precision import is_half_precision
from aoe.graph.subgraphs.adjacency_digest import adjacency_of_segment
from aoe.graph.subgraphs.boundary_tensors import InferTensors, cancel_at_boundaries
from aoe.graph.subgraphs.splicing import Splice, splice
from aoe.graph.weights import WeightStore, is_outside
from aoe.om.file import FALLBACK, MODEL, WEIGHTS
from aoe.tasks.rewrites.subgraphs import Subgraph

_WRITTEN = "written.onnx"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRewrite:
    """A subgraph rewritten by its strategy, at every occurrence in the model."""

    subgraph: Subgraph  # The subgraph
    strategy: SubgraphStrategy  # What is done with it
    splices: tuple[Splice, ...]  # Its rewrite at each occurrence where the strategy fits
    # Time it has proven, alone, to save in one run of the model, all occurrences together.
    gain_us: float

    @property
    def name(self) -> str:
        """Its identity and its first occurrence."""
        return f"subgraph {self.subgraph.graph_id} ({self.subgraph.op_name})"

    @property
    def kind(self) -> str:
        """The strategy in words: the same strategy elsewhere loses for the same reason."""
        return str(self.strategy)


class SubgraphAssembly:
    """The parts of a model with other rewrites of its subgraphs, in one directory.

    Args:
        directory: Directory to be made for the parts.
        original: The model without rewrites.
        graph: The same in the form rules read.
        infer: Tells shapes, where rewrites meet that undo each other.
        imported: The imported model, where `original` is another form of it.
    """

    def __init__(
        self,
        directory: Path,
        original: onnx.ModelProto,
        graph: ModelGraph,
        infer: InferTensors,
        imported: onnx.ModelProto | None = None,
    ) -> None:
        directory.mkdir()
        self.directory = directory
        self._original = original
        self._graph = graph
        self._infer = infer
        self._store = WeightStore(directory / WEIGHTS)
        self._start = FALLBACK if imported is None else _WRITTEN
        _write(self._store, original, directory / self._start)
        if imported is not None:
            _write(self._store, imported, directory / FALLBACK)

    def close(self) -> None:
        """Finish the weights file; no model can be added then."""
        self._store.close()

    @property
    def untuned(self) -> ModelPart:
        """The model without rewrites, for ONNX Runtime to optimise as it likes."""
        return self._part(self._start)

    @property
    def imported(self) -> ModelPart:
        """The imported model, likewise."""
        return self._part(FALLBACK)

    def proto_with(self, rewrites: Sequence[ChosenRewrite]) -> onnx.ModelProto:
        """Return the model with these rewrites."""
        return model_with(self._original, self._graph, self._infer, rewrites)

    def write_model(self, kernels: Sequence[ChosenRewrite], name: str = MODEL) -> ModelPart:
        """Write the model with these rewrites; its weights join those that are there."""
        if kernels:
            _write(self._store, self.proto_with(kernels), self.directory / name)
        else:
            shutil.copyfile(self.directory / self._start, self.directory / name)
        return self._part(name)

    def surroundings(self, rewrite: ChosenRewrite) -> frozenset[str]:
        """Return digests of what stands around the occurrences of a rewrite."""
        return frozenset(adjacency_of_segment(self._graph, one.segment) for one in rewrite.splices)

    def _part(self, name: str) -> ModelPart:
        return ModelPart(
            model=self.directory / name,
            optimize=True,
            is_large=is_outside(self._original),
            is_narrow=is_half_precision(self._original),
        )


def model_with(
    original: onnx.ModelProto,
    graph: ModelGraph,
    infer: InferTensors,
    rewrites: Sequence[ChosenRewrite],
) -> onnx.ModelProto:
    """Return a model with other rewrites of its subgraphs.

    Args:
        original: The model as it was imported, which it is without any rewrite.
        graph: The same in the form rules read.
        infer: Tells shapes, where rewrites meet that undo each other.
        rewrites: What is put in.
    """
    if not rewrites:
        return original
    made = splice(graph, [one for rewrite in rewrites for one in rewrite.splices])
    return cancel_at_boundaries(made, graph.proto, infer)


def write_parts(
    directory: Path, original: onnx.ModelProto, rewrite: onnx.ModelProto | None
) -> None:
    """Write the parts of a tuned model into a directory, which is made.

    Args:
        directory: The directory.
        original: The model as it was imported.
        rewrite: The tuned one; None for the imported one.
    """
    directory.mkdir()
    with WeightStore(directory / WEIGHTS) as store:
        _write(store, original, directory / FALLBACK)
        if rewrite is not None:
            _write(store, rewrite, directory / MODEL)
    if rewrite is None:
        shutil.copyfile(directory / FALLBACK, directory / MODEL)


def _write(store: WeightStore, proto: onnx.ModelProto, file: Path) -> None:
    file.write_bytes(store.externalize(proto).SerializeToString(deterministic=True))
