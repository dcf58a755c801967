"""Tries actions: an edited copy against the model, in pairs, before anything is said of a gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import onnx

from aoe.advice.proposals import Proposal, model_of
from aoe.errors import RunError, first_line
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.execute.tasks import ModelComparison
from aoe.graph.model_graph import names_read, own_names
from aoe.graph.protos import copied
from aoe.graph.weights import WeightStore, is_outside
from aoe.measurement import Measurement, MeasurePolicy, SpeedupEstimate, accepts, estimate_speedup
from aoe.ort.inputs import ModelInputs

# ---- Copies of a model without the weights they share with it ----
# A dozen of them fit into memory so.

Weights = Mapping[str, onnx.TensorProto]


def without_shared(proposal: Proposal, own: Weights) -> Proposal:
    """Return a proposal whose models lack the constants that are as in the model itself.

    Args:
        proposal: As an action makes it.
        own: Constants of the model, by name.
    """
    baseline = proposal.baseline
    return replace(
        proposal,
        edited=_stripped(proposal.edited, own),
        baseline=None if baseline is None else _stripped(baseline, own),
    )


def with_shared(proto: onnx.ModelProto, own: Weights) -> onnx.ModelProto:
    """Return a copy with the constants its nodes read and nobody makes, as the model has them."""
    model = copied(proto)
    read = {name for node in proto.graph.node for name in names_read(node)}
    read.update(value.name for value in proto.graph.output)
    missing = read - own_names(proto.graph)
    model.graph.initializer.extend(tensor for name, tensor in own.items() if name in missing)
    return model


def _stripped(proto: onnx.ModelProto, own: Weights) -> onnx.ModelProto:
    graph = proto.graph
    light = onnx.GraphProto(
        name=graph.name,
        node=graph.node,
        input=graph.input,
        output=graph.output,
        sparse_initializer=graph.sparse_initializer,
        initializer=[tensor for tensor in graph.initializer if own.get(tensor.name) != tensor],
    )
    return model_of(light, proto)


_TIMEOUT_S = 600.0
_PROCESSES = 2
"""Where the weights of a session come to lie decides a few percent of its speed, and stays the same
in its process: a gain has to show in each of so many. A large model is loaded anew for each other
sample, so that one will do."""
_WORTH = 1.01
"""Nobody changes a model for less, and less was seen of a change that gains nothing: a larger batch
of a U-Net, 1.005 at least in two processes, 0.93 in six others."""


class TrialVerdict(StrEnum):
    """Result of trying an action."""

    GAIN = "gain"
    NO_GAIN = "no-gain"
    UNDECIDED = "undecided"
    """The interval holds gains that are worth it, and none at all."""
    FAILED = "failed"
    """It does not run, or does not compute what it should."""
    BUSY = "busy"
    """The machine was too busy to tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedAction:
    """An action and the result of trying it."""

    action: str  # Its name
    what: str  # What becomes what
    op_names: tuple[str, ...] = ()  # Nodes it is about
    needs_retraining: bool = False  # True if the model computes something else with it
    room_us: float  # What the operators it is about lose
    # Of the whole model; of several processes the one whose lower bound is lowest. None where it
    # could not be measured.
    estimate: SpeedupEstimate | None
    reason: str = ""  # Why it failed; empty otherwise
    verdict: TrialVerdict  # What that means


class ActionTrials:
    """Compares edited copies with the model.

    Args:
        proto: The model; copies may lack constants that are as here.
        runner: Measures.
        policy: How many pairs.
        inputs: What both are run on.
        directory: Existing scratch folder.
    """

    def __init__(
        self,
        proto: onnx.ModelProto,
        runner: Runner,
        policy: MeasurePolicy,
        inputs: ModelInputs,
        directory: Path,
    ) -> None:
        self._runner = runner
        self._policy = policy
        self._inputs = inputs
        self._directory = directory
        self._own = {tensor.name: tensor for tensor in proto.graph.initializer}
        self._store = WeightStore(directory / "weights.bin")
        self._processes = 1 if is_outside(proto) else _PROCESSES
        self._baseline = self._written(proto, "model.onnx")

    def close(self) -> None:
        """Finish the file of weights."""
        self._store.close()

    def try_proposal(self, proposal: Proposal, room_us: float) -> TriedAction:
        """Return the result of trying an action; a failure of any kind is a result, too."""
        edited = self._written(proposal.edited, "edited.onnx")
        baseline, inputs = self._baseline, self._inputs
        if proposal.baseline is not None:
            baseline = self._written(proposal.baseline, "baseline.onnx")
            inputs = replace(inputs, sets=())  # given ones are of other shapes
        found: list[Measurement] = []
        try:
            while len(found) < self._processes and all(map(_shows_gain, found)):
                self._runner.restart()
                comparison = self._compared(baseline, edited, inputs)
                measurement = comparison.measurement
                if not measurement.is_correct and not proposal.needs_retraining:
                    return _tried(proposal, room_us, [], comparison.deviation.detail)
                found.append(measurement)
        except RunError as error:
            return _tried(proposal, room_us, [], first_line(error))
        return _tried(proposal, room_us, found, "")

    def _compared(
        self, baseline: ModelPart, edited: ModelPart, inputs: ModelInputs
    ) -> ModelComparison:
        found: ModelComparison = self._runner.call(
            "compare_models",
            timeout_s=_TIMEOUT_S,
            baseline=baseline,
            tuned=edited,
            policy=self._policy,
            inputs=inputs,
        )
        return found

    def _written(self, proto: onnx.ModelProto, name: str) -> ModelPart:
        file = self._directory / name
        whole = with_shared(proto, self._own)
        file.write_bytes(self._store.externalize(whole).SerializeToString())
        return ModelPart(model=file, is_large=is_outside(whole))


def _shows_gain(measurement: Measurement) -> bool:
    return measurement.counts and accepts(estimate_speedup(measurement), _WORTH)


def _tried(
    proposal: Proposal, room_us: float, found: list[Measurement], reason: str
) -> TriedAction:
    estimates = [estimate_speedup(one) for one in found]
    estimate = min(estimates, key=lambda one: one.low, default=None)
    return TriedAction(
        action=proposal.action,
        what=proposal.what,
        op_names=proposal.op_names,
        needs_retraining=proposal.needs_retraining,
        room_us=room_us,
        estimate=estimate,
        reason=reason,
        verdict=TrialVerdict.FAILED
        if estimate is None
        else verdict_of(estimate, is_quiet=all(one.counts for one in found)),
    )


def verdict_of(estimate: SpeedupEstimate, *, is_quiet: bool) -> TrialVerdict:
    """Return the verdict of an estimate; on a busy machine there is none."""
    if not is_quiet:
        return TrialVerdict.BUSY
    if accepts(estimate, _WORTH):
        return TrialVerdict.GAIN
    return TrialVerdict.UNDECIDED if estimate.high > _WORTH else TrialVerdict.NO_GAIN
