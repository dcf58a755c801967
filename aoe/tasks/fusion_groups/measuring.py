"""Measures subgraphs with kernels for some of their nodes against the same without.

They are pieces of the optimised graph, run as written: layouts at the borders are the model's.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from aoe.bank.records.subgraph import FusionGroup, SubgraphStrategy
from aoe.execute.messages import ModelPart, TaskRunner
from aoe.execute.tasks import ComparisonTerms
from aoe.graph.regions import Region
from aoe.graph.rewrite import Replacement, rewrite
from aoe.measurement import Measurement, MeasurePolicy, Outcome
from aoe.ort.calibration import is_quantised
from aoe.ort.inputs import ModelInputs
from aoe.tasks.rewrites.measuring import measure_parts, write_segment
from aoe.tasks.rewrites.subgraphs import Subgraph

_BASELINE, _CANDIDATE = "piece.onnx", "scoped.onnx"


class FusionMeasurer:
    """Measures sets of fusion groups of one subgraph, at its first occurrence.

    Args:
        subgraph: The subgraph.
        kernels: Name of the kernel of each scope that may be asked for, in `library`.
        library: File of the kernels.
        runner: Measures.
        directory: Scratch directory, which is made.
        inputs: How inputs are made up.
        bytes_around: What one inference of the model reads and writes besides.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        kernels: Mapping[FusionGroup, str],
        library: Path,
        runner: TaskRunner,
        *,
        directory: Path,
        inputs: ModelInputs,
        bytes_around: int,
    ) -> None:
        self._subgraph = subgraph
        self._kernels = kernels
        self._library = library
        self._runner = runner
        self._directory = directory
        directory.mkdir()
        self._inputs = inputs
        self._terms = ComparisonTerms(bytes_around=bytes_around)
        self._baseline: ModelPart | None = None

    def measure(self, strategy: SubgraphStrategy, policy: MeasurePolicy) -> Measurement:
        """Return the measurement of a strategy; a failure of any kind is one too."""
        missing = [group for group in strategy.groups if group not in self._kernels]
        if missing:
            return Measurement.failure(Outcome.CONSTRAINTS, f"{missing[0]}: there is no kernel")
        graph = self._subgraph.segment.graph
        if self._baseline is None:
            self._baseline = self._written(graph.proto, _BASELINE)
            if is_quantised(graph.proto):
                self._terms = replace(self._terms, rounding=self._baseline)
        tuned = self._written(rewrite(graph, self._replacements(strategy)), _CANDIDATE)
        return measure_parts(
            self._runner,
            self._baseline,
            replace(tuned, library=self._library),
            policy,
            self._inputs,
            self._terms,
        )

    def close(self) -> None:
        """Remove its files."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _replacements(self, strategy: SubgraphStrategy) -> list[Replacement]:
        return [
            Replacement(region=self._in_piece(group), kernel=self._kernels[group])
            for group in strategy.groups
        ]

    def _in_piece(self, group: FusionGroup) -> Region:
        """Return the region of a kernel, its nodes counted within the subgraph."""
        region = self._subgraph.groups[group].regions[0]
        assert region is not None  # the first occurrence is where it was found
        return replace(region, nodes=group.nodes)

    def _written(self, proto: onnx.ModelProto, name: str) -> ModelPart:
        return replace(write_segment(proto, self._directory / name), optimize=False)
