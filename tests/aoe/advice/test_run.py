"""From a model file to advice: the profile is real, comparisons are scripted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from support.contracts.small_models import SmallModel
from support.engine.fakes import ScriptedRunner
from support.engine.models import conv_net
from support.engine.profiles import PEAK, make_operator_profile, make_profile

from aoe.advice.causes import Cause
from aoe.advice.proposals import Proposal
from aoe.advice.run import ModelAdvice, advise_file, rank_proposals
from aoe.advice.trying import TrialVerdict
from aoe.execute.messages import ModelPart
from aoe.profiling.figures import ProfiledModel
from aoe.profiling.probe import ProbedPeak
from aoe.profiling.run import ProfileSettings, profile_subject


def _profile(*arguments: Any) -> ProfiledModel:
    """Let every operator take as long and lose as much, whatever it did here."""
    found = profile_subject(*arguments, find_peak=lambda *_: ProbedPeak(peak=PEAK))
    times = {"median_us": 100.0, "roofline_us": 10.0}
    return replace(found, operators=tuple(replace(one, **times) for one in found.operators))


def _planted() -> onnx.ModelProto:
    small = SmallModel()
    x = small.op("Pow", small.input(1, 16, 32, 32), small.constant(3.0))
    x = small.conv(small.silu(small.conv(x, 16, 30, 3)), 30, 16, 3)
    scales = small.constant(np.array([1, 1, 1.95, 1.95], np.float32))
    return small.model(small.op("Resize", x, "", scales, mode="linear"))


def _advise(
    folder: Path, script: Callable[[ModelPart, ModelPart], float], **how: Any
) -> ModelAdvice:
    runner = ScriptedRunner(model=script, drift=0.0)
    file = folder / "net.onnx"
    file.write_bytes(_planted().SerializeToString())
    settings = ProfileSettings(
        model=file, runs=1, threads=1, sweeps=False, counts=False, fusion=True, env=os.environ
    )
    return advise_file(settings, profile_of=_profile, open_runner=lambda *_: runner, **how)


def test_every_planted_problem_is_tried_and_gains_are_claimed_as_measured(tmp_path: Path) -> None:
    def script(baseline: ModelPart, tuned: ModelPart) -> float:
        nodes = onnx.load(str(tuned.model)).graph.node
        return 1.3 if all(node.op_type != "Pow" for node in nodes) else 0.99

    advice = _advise(tmp_path, script)
    tried = {one.action: one for one in advice.tried}
    planted = {"power-as-product", "activation-relu", "activation-hard-swish", "integer-resize"}
    assert {*planted, "channels-to-a-block"} <= set(tried)
    gains = [one.action for one in advice.tried if one.verdict is TrialVerdict.GAIN]
    assert gains == ["power-as-product"]
    assert tried["integer-resize"].needs_retraining
    assert advice.not_tried == ()
    causes = {found.cause for one in advice.low for found in one.causes}
    assert Cause.UNALIGNED in causes


def test_where_nothing_is_faster_nothing_is_claimed(tmp_path: Path) -> None:
    advice = _advise(tmp_path, lambda *_: 0.99, most=2)
    assert len(advice.tried) == 2
    assert len(advice.not_tried) >= 3
    assert all(one.verdict is TrialVerdict.NO_GAIN for one in advice.tried)


def test_nothing_is_tried_when_that_is_asked_for(tmp_path: Path) -> None:
    advice = _advise(tmp_path, lambda *_: 2.0, most=0)
    assert advice.tried == ()


def test_doubts_are_warnings_as_those_of_a_profile(tmp_path: Path) -> None:
    file, said = tmp_path / "net.onnx", list[str]()
    file.write_bytes(_planted().SerializeToString())
    settings = ProfileSettings(
        model=file, runs=1, threads=1, sweeps=False, counts=False, fusion=True, env=os.environ
    )
    peak = ProbedPeak(peak=PEAK, quiet=False)
    busy = partial(profile_subject, find_peak=lambda *_: peak)
    advise_file(settings, most=0, on_event=said.append, profile_of=busy)
    assert "warning: the machine was busy while its best was measured: " in "\n".join(said)


def test_edits_of_a_tuned_model_are_those_of_the_model_inside(tuned_net: Any) -> None:
    settings = ProfileSettings(
        model=tuned_net.file, runs=1, sweeps=False, counts=False, fusion=True, env=os.environ
    )
    advice = advise_file(settings, most=0, profile_of=_profile)
    assert advice.of_untuned
    names = {node.name for node in conv_net().graph.node}
    assert advice.worth_tuning
    assert names.issuperset(advice.worth_tuning)


def test_copy_is_really_compared_in_another_process(tmp_path: Path) -> None:
    small = SmallModel()
    file = tmp_path / "net.onnx"
    model = small.model(small.op("Pow", small.input(64, 64), small.constant(3.0)))
    file.write_bytes(model.SerializeToString())
    settings = ProfileSettings(
        model=file, runs=1, threads=1, sweeps=False, counts=False, env=os.environ
    )
    (tried,) = advise_file(settings, actions=["power-as-product"], profile_of=_profile).tried
    assert tried.action == "power-as-product"
    assert tried.verdict is not TrialVerdict.FAILED, tried.reason
    assert tried.estimate is not None


def _proposal(action: str, *names: str) -> Proposal:
    return Proposal(
        action=action,
        what="",
        op_names=names,
        edited=onnx.ModelProto(),
        needs_retraining=False,
    )


def test_proposals_come_by_the_lost_time_they_are_about() -> None:
    profile = make_profile(
        make_operator_profile("a", median_us=500.0, roofline_us=100.0),
        make_operator_profile("b", median_us=900.0, roofline_us=100.0),
        make_operator_profile("c", median_us=2.0, roofline_us=1.0),
    )
    ranked = rank_proposals(
        [_proposal("x", "a"), _proposal("y", "a", "b"), _proposal("z", "c")], profile
    )
    assert [(one.action, room_us) for one, room_us in ranked] == [("y", 1200.0), ("x", 400.0)]


def test_action_asked_for_by_name_is_tried_where_nothing_is_lost() -> None:
    profile = make_profile(make_operator_profile("a", median_us=100.0, roofline_us=110.0))
    assert rank_proposals([_proposal("x", "a")], profile) == []
    ((found, room_us),) = rank_proposals([_proposal("x", "a")], profile, least_share=0.0)
    assert (found.action, room_us) == ("x", 0.0)
