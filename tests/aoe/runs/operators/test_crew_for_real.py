"""A small network, tuned on two worker processes of this machine, for real."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from support.engine.fakes import RecordingProgress
from support.engine.models import conv_net, save_model

import aoe
from aoe.ort.inputs import ModelInputs
from aoe.ort.sessions import run_session
from aoe.results.files import RepoOutcome
from aoe.runs.operators.result import OpatResult
from aoe.runs.run import tune_with
from aoe.tuner.mode import TuneSettings


@pytest.mark.slow
def test_two_workers_tune_a_whole_model(tmp_path: Path) -> None:
    save_model(conv_net(), tmp_path / "net.onnx")
    (tmp_path / "bank").mkdir()
    progress = RecordingProgress()
    result = tune_with(
        TuneSettings(
            model=tmp_path / "net.onnx",
            output=tmp_path / "out",
            core_num=1,
            accept_busy=True,
            trials=1,
            workers="2",
        ),
        env={
            "PATH": os.environ["PATH"],
            "TUNE_BANK_PATH": str(tmp_path / "bank"),
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        cwd=tmp_path,
        progress=progress,
        now=datetime.now(UTC),
    )
    joined = [text for text in progress.texts("step") if " measures, on " in text]
    assert [text.split()[1] for text in sorted(joined)] == ["local1", "local2"]
    found = result.get(OpatResult)
    assert found.operators
    for one in found.operators:  # what was won is noise's, that it was tried is not
        assert one.outcome in (RepoOutcome.ADD, RepoOutcome.UNSATISFIED)
        assert one.search is not None and one.search.trials
        assert all(trial.measurement.detail == "" for trial in one.search.trials)
    om = tmp_path / "out" / "net_tune.om"
    tuned = aoe.load(om)
    feed = ModelInputs().first(tuned.session)
    (actual,) = run_session(tuned.session, feed)
    assert np.isfinite(actual).all()
