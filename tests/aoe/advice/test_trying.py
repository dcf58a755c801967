"""What is claimed of scripted comparisons."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import onnx
import pytest
from support.contracts.small_models import SmallModel
from support.engine.fakes import ScriptedRunner, make_target

from aoe.advice.actions import ACTIONS
from aoe.advice.proposals import Proposal
from aoe.advice.threads import thread_policy, try_threads
from aoe.advice.trying import (
    ActionTrials,
    TrialVerdict,
    TriedAction,
    verdict_of,
    with_shared,
    without_shared,
)
from aoe.device.registry import default_device
from aoe.errors import RunError
from aoe.execute.idle_gate import QuietPairs
from aoe.execute.messages import ModelPart
from aoe.execute.runner import Runner
from aoe.graph.model_graph import ModelGraph
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.weights import settle
from aoe.measurement import CpuUse, MeasurePolicy, Outcome, SpeedupEstimate
from aoe.ort.inputs import ModelInputs, parse_inputs
from aoe.ort.static_shapes import infer_tensors
from benchmarks.planted_models import PLANTED

Script = Callable[[ModelPart, ModelPart], float | Outcome | RunError]


def _try(
    script: Script, folder: Path, *, retraining: bool = False, given_share: float = 1.0
) -> tuple[TriedAction, int]:
    small = SmallModel()
    model = small.model(small.op("Relu", small.input(4, 4)))
    runner = ScriptedRunner(model=script, drift=0.0, given_share=given_share)
    policy = MeasurePolicy(pairs_min=12, pairs_max=24, threads=2)
    trials = ActionTrials(model, cast(Runner, runner), policy, ModelInputs(), folder)
    proposal = Proposal(
        action="a", what="b", op_names=("Relu_0",), edited=model, needs_retraining=retraining
    )
    tried = trials.try_proposal(proposal, 5.0)
    trials.close()
    assert runner.restarts == len(runner.asked("compare_models"))
    return tried, runner.restarts


def test_gain_is_claimed_when_two_processes_show_it(tmp_path: Path) -> None:
    tried, processes = _try(lambda *_: 1.5, tmp_path)
    assert tried.verdict is TrialVerdict.GAIN
    assert tried.estimate is not None
    assert tried.estimate.low == pytest.approx(1.5, rel=0.05)
    assert processes == 2


def test_large_model_is_tried_in_one_process(tmp_path: Path) -> None:
    """Its samples load it anew: no process has a place in memory of its own."""
    small = SmallModel()
    model = small.model(small.op("MatMul", small.input(4, 16), small.weight(16, 16)))
    (tensor,) = model.graph.initializer
    (tmp_path / "w").write_bytes(tensor.raw_data)
    settle(tensor, tmp_path / "w", 0, len(tensor.raw_data))
    runner = ScriptedRunner(model=lambda *_: 1.5, drift=0.0)
    policy = MeasurePolicy(pairs_min=12, pairs_max=24, threads=2)
    trials = ActionTrials(model, cast(Runner, runner), policy, ModelInputs(), tmp_path)
    proposal = Proposal(
        action="a",
        what="b",
        op_names=("MatMul_0",),
        edited=model,
        needs_retraining=False,
        baseline=model,
    )
    proposal = without_shared(proposal, {tensor.name: tensor})
    assert trials.try_proposal(proposal, 5.0).verdict is TrialVerdict.GAIN
    trials.close()
    assert runner.restarts == 1
    (asked,) = runner.asked("compare_models")
    assert asked.arguments["baseline"].is_large and asked.arguments["tuned"].is_large


def test_baseline_of_its_own_is_what_a_copy_is_compared_with(tmp_path: Path) -> None:
    def batches(part: ModelPart) -> int:
        value = onnx.load(str(part.model)).graph.input[0]
        return int(value.type.tensor_type.shape.dim[0].dim_value)

    small = SmallModel()
    model = small.model(small.op("Relu", small.input(4, 4)))
    (larger_batch,) = (action for action in ACTIONS if action.name == "larger-batch")
    (proposal,) = larger_batch.propose(ModelGraph(prepared(model), {}, block=16), make_target())
    compared: list[tuple[int, int]] = []

    def script(baseline: ModelPart, tuned: ModelPart) -> float:
        compared.append((batches(baseline), batches(tuned)))
        return 0.9

    runner = ScriptedRunner(model=script, drift=0.0)
    policy = MeasurePolicy(pairs_min=12, pairs_max=24, threads=2)
    given = parse_inputs(["x0:x.npy"])
    trials = ActionTrials(model, cast(Runner, runner), policy, ModelInputs(sets=given), tmp_path)
    trials.try_proposal(proposal, 5.0)
    trials.close()
    assert compared == [(16, 16)]
    (asked,) = runner.asked("compare_models")
    assert asked.arguments["inputs"].sets == ()


def test_gain_one_process_shows_alone_is_not_claimed(tmp_path: Path) -> None:
    speeds = iter([1.2, 0.98])
    tried, processes = _try(lambda *_: next(speeds), tmp_path)
    assert (tried.verdict, processes) == (TrialVerdict.NO_GAIN, 2)
    assert tried.estimate is not None
    assert tried.estimate.median < 1.0


@pytest.mark.parametrize("speed", [0.7, 0.99])
def test_what_is_not_faster_is_tried_once_and_not_claimed(speed: float, tmp_path: Path) -> None:
    tried, processes = _try(lambda *_: speed, tmp_path)
    assert (tried.verdict, processes) == (TrialVerdict.NO_GAIN, 1)


def test_busy_machine_claims_nothing(tmp_path: Path) -> None:
    tried, processes = _try(lambda *_: 1.5, tmp_path, given_share=0.5)
    assert (tried.verdict, processes) == (TrialVerdict.BUSY, 1)


def test_other_results_are_a_failure_unless_retraining_is_needed(tmp_path: Path) -> None:
    tried, _ = _try(lambda *_: Outcome.CORRECTNESS, tmp_path)
    assert (tried.verdict, tried.estimate) == (TrialVerdict.FAILED, None)
    assert "2 instead of 1" in tried.reason
    marked, _ = _try(lambda *_: Outcome.CORRECTNESS, tmp_path, retraining=True)
    assert (marked.verdict, marked.needs_retraining) == (TrialVerdict.NO_GAIN, True)


def test_copy_that_does_not_run_is_a_failure(tmp_path: Path) -> None:
    tried, _ = _try(lambda *_: RunError("m", "cannot load"), tmp_path)
    assert (tried.verdict, tried.reason) == (TrialVerdict.FAILED, "m: cannot load")


@pytest.mark.parametrize(
    ("fewer_us", "verdict"), [(50, TrialVerdict.GAIN), (100, TrialVerdict.NO_GAIN)]
)
def test_fewer_threads_are_claimed_when_they_are_faster(
    fewer_us: int, verdict: TrialVerdict
) -> None:
    now_s = [0.0]
    opened: list[int] = []

    def open_run(threads: int) -> Callable[[], object]:
        opened.append(threads)

        def run() -> None:
            now_s[0] += (fewer_us if threads == 1 else 100) / 1e6

        return run

    pairs = QuietPairs(usage=lambda: CpuUse(wall_s=0.0, cpu_s=0.0, waited_s=0.0))
    policy = thread_policy(2, accept_busy=True)
    tried = try_threads(open_run, pairs, policy, fewer=1, room_us=1.0, clock=lambda: now_s[0])
    assert tried.verdict is verdict
    assert set(opened) == {1, 2}
    assert "--aicore_num=1" in tried.what


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.02, 1.7, TrialVerdict.GAIN),
        (0.881, 1.715, TrialVerdict.UNDECIDED),
        (0.98, 1.005, TrialVerdict.NO_GAIN),
    ],
)
def test_interval_on_both_sides_of_what_is_worth_it_decides_nothing(
    low: float, high: float, verdict: TrialVerdict
) -> None:
    estimate = SpeedupEstimate(median=(low + high) / 2, low=low, high=high, pairs=40, coverage=0.96)
    assert verdict_of(estimate, is_quiet=True) is verdict


# ---- Copies share the weights of the model they are copies of ----


@pytest.mark.parametrize("name", ["odd-channels", "instance-norm", "constant", "single-rows"])
def test_copy_is_the_same_again_with_the_weights_it_shared(name: str) -> None:
    model = prepared(PLANTED[name].build())
    graph = ModelGraph(model, infer_tensors(model, default_device().open_session), block=16)
    proposals = [one for action in ACTIONS for one in action.propose(graph, make_target())]
    assert proposals
    for proposal in proposals:
        light = without_shared(proposal, graph.initializers)
        for whole, less in (
            (proposal.edited, light.edited),
            (proposal.baseline, light.baseline),
        ):
            if whole is None or less is None:
                assert whole is less
                continue
            restored = with_shared(less, graph.initializers)
            assert list(restored.graph.node) == list(whole.graph.node)
            constants = {tensor.name: tensor for tensor in restored.graph.initializer}
            assert constants == {tensor.name: tensor for tensor in whole.graph.initializer}


def test_copy_lacks_what_it_shares() -> None:
    model = prepared(PLANTED["single-rows"].build())
    graph = ModelGraph(model, {}, block=16)
    (proposal,) = [
        one
        for action in ACTIONS
        for one in action.propose(graph, make_target())
        if one.action == "larger-batch"
    ]
    light = without_shared(proposal, graph.initializers)
    assert not light.edited.graph.initializer
    assert light.edited.ByteSize() < model.ByteSize() / 100
