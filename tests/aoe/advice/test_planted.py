"""Models with one planted problem each: it is found, and what helps is tried.

Times are scripted; `benchmarks/advice.py` takes real ones.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine.cpu import TwoCoreCpu
from support.engine.fakes import ScriptedRunner
from support.engine.profiles import PEAK
from support.tiers import few_every_day

from aoe.advice.actions import ACTION_NAMES, ACTIONS
from aoe.advice.causes import Cause
from aoe.advice.run import advise_file
from aoe.advice.threads import THREADS_ACTION
from aoe.profiling.figures import ProfiledModel
from aoe.profiling.probe import ProbedPeak
from aoe.profiling.run import ProfileSettings, profile_subject
from aoe.profiling.subject import ProfileSubject
from benchmarks.planted_models import PLANTED


def _profile(subject: ProfileSubject, *arguments: Any) -> ProfiledModel:
    """Let every operator take as long, lose as much, and be fastest with one of two threads."""
    subject = replace(subject, device=TwoCoreCpu())
    found = profile_subject(subject, *arguments, find_peak=lambda *_: ProbedPeak(peak=PEAK))
    times = {
        "median_us": 100.0,
        "roofline_us": 10.0,
        "us_by_threads": {1: 50.0, found.threads: 100.0},
    }
    return replace(found, operators=tuple(replace(one, **times) for one in found.operators))


@pytest.mark.parametrize("name", few_every_day(PLANTED, 8))
def test_problem_is_found_and_what_helps_is_tried(name: str, tmp_path: Path) -> None:
    planted = PLANTED[name]
    file = tmp_path / "net.onnx"
    file.write_bytes(planted.build().SerializeToString())
    settings = ProfileSettings(
        model=file, runs=1, threads=2, sweeps=False, counts=False, fusion=True, env=os.environ
    )
    runner = ScriptedRunner(model=lambda *_: 0.99, drift=0.0)
    advice = advise_file(
        settings,
        actions=[planted.action or "no such action"],
        profile_of=_profile,
        open_runner=lambda *_: runner,  # type: ignore[arg-type,return-value]
    )
    found = {
        one.cause
        for low in advice.low
        for one in low.causes
        if low.operator.op_type == planted.op_type or not planted.op_type
    }
    assert planted.cause is None or planted.cause in found
    if planted.action != THREADS_ACTION:
        assert [one.action for one in advice.tried] == [planted.action] * bool(planted.action)


def test_every_cause_and_every_action_is_planted() -> None:
    assert {planted.cause for planted in PLANTED.values()} >= set(Cause)
    rewrites = {"equal-rewrites", "power-as-product", "convolution-split"}
    planted = {one.action for one in PLANTED.values() if one.action} - rewrites
    assert planted == {action.name for action in ACTIONS} - rewrites | {THREADS_ACTION}
    assert planted < ACTION_NAMES
