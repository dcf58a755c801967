"""Measures rewrites of one subgraph against ONNX Runtime's own, in the worker process.

Both stand between the adjacent nodes the subgraph has in the model, and what rewrites leave at the
borders is joined with these as in the whole model.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import onnx

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.errors import RunError
from aoe.execute.messages import ModelPart, TaskRunner, failure_of
from aoe.execute.tasks import ComparisonTerms, ModelComparison
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.protocol import RewriteRule
from aoe.graph.subgraphs.adjacent_nodes import with_adjacent_nodes
from aoe.graph.subgraphs.boundary_tensors import InferTensors, cancel_at_boundaries
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of, tolerance_of
from aoe.graph.weights import WeightStore, is_outside
from aoe.measurement import Measurement, MeasurePolicy, Outcome
from aoe.ort.calibration import is_quantised
from aoe.ort.inputs import ModelInputs
from aoe.tasks.rewrites.subgraphs import Subgraph

_TIMEOUT_S = 120.0
_BASELINE, _CANDIDATE = "subgraph.onnx", "candidate.onnx"


class RewriteMeasurer:
    """Measures rewrite candidates of one subgraph.

    Args:
        subgraph: The subgraph; its first occurrence is measured, with the weights and adjacent
            nodes it has there.
        whole: The imported model.
        rules: By name.
        runner: Measures.
        directory: Scratch directory, which is made.
        seed: Of the inputs.
        bytes_around: What one inference of the model reads and writes besides.
        infer: Tells shapes, where a rewrite and a neighbour undo each other.
    """

    def __init__(
        self,
        subgraph: Subgraph,
        whole: ModelGraph,
        rules: Mapping[str, RewriteRule],
        runner: TaskRunner,
        *,
        directory: Path,
        seed: int,
        bytes_around: int,
        infer: InferTensors,
    ) -> None:
        self._place = with_adjacent_nodes(whole, subgraph.segment)
        self._infer = infer
        self._rules = rules
        self._runner = runner
        self._directory = directory
        directory.mkdir()
        self._inputs = ModelInputs(seed=seed)
        self._bytes_around = bytes_around
        self._is_written = False

    def measure(self, strategy: SubgraphStrategy, policy: MeasurePolicy) -> Measurement:
        """Return the measurement of a strategy; a failure of any kind is one too."""
        rewrite = rewrite_of(self._place.segment, strategy, self._rules)
        if isinstance(rewrite, str):
            return Measurement.failure(Outcome.CONSTRAINTS, rewrite)
        try:
            rewrite = cancel_at_boundaries(
                self._place.with_rewrite(rewrite), self._place.proto, self._infer
            )
        except (RunError, ValueError) as error:  # no model ONNX Runtime loads: the rewrite is out
            return Measurement.failure(Outcome.CONSTRAINTS, f"no valid model: {error}")
        tolerance, baseline = tolerance_of(strategy, self._rules), self._baseline()
        # what rounds to integers may round otherwise, unless the rules promise equal bits
        rounds = bool(tolerance) and is_quantised(self._place.proto)
        terms = ComparisonTerms(
            tolerance=tolerance,
            rounding=baseline if rounds else None,
            bytes_around=self._bytes_around,
        )
        tuned = self._written(rewrite, _CANDIDATE)
        return measure_parts(self._runner, baseline, tuned, policy, self._inputs, terms)

    def close(self) -> None:
        """Remove its files."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def _baseline(self) -> ModelPart:
        if not self._is_written:
            self._written(self._place.proto, _BASELINE)
            self._is_written = True
        return ModelPart(model=self._directory / _BASELINE)

    def _written(self, proto: onnx.ModelProto, name: str) -> ModelPart:
        return write_segment(proto, self._directory / name)


def measure_parts(
    runner: TaskRunner,
    baseline: ModelPart,
    tuned: ModelPart,
    policy: MeasurePolicy,
    inputs: ModelInputs,
    terms: ComparisonTerms,
) -> Measurement:
    """Return the measurement of a part against another; a failure of any kind is one too."""
    try:
        found: ModelComparison = runner.call(
            "compare_models",
            timeout_s=_TIMEOUT_S,
            baseline=baseline,
            tuned=tuned,
            policy=policy,
            inputs=inputs,
            terms=terms,
        )
    except RunError as error:
        return failure_of(error)
    if not found.measurement.is_correct:
        return Measurement.failure(Outcome.CORRECTNESS, found.deviation.detail)
    return found.measurement


def write_segment(proto: onnx.ModelProto, file: Path) -> ModelPart:
    """Write a part of a model; weights that are outside of it come to lie beside the file."""
    weights = file.with_suffix(".weights") if is_outside(proto) else None
    if weights is not None:
        weights.unlink(missing_ok=True)  # never in place: a session may have it mapped
        with WeightStore(weights) as store:
            proto = store.externalize(proto)
    file.write_bytes(proto.SerializeToString())
    return ModelPart(model=file, weights=weights)
