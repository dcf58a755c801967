"""A run for several shapes is checked before the first, and shares its time limit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engine.models import conv_net, save_model

from aoe.errors import ModelImportError, OptionError
from aoe.ort.inputs import save_input_sets
from aoe.runs.cases.given import given_cases
from aoe.runs.cases.splitting import split_cases
from aoe.tuner.mode import ModeContext, OneOfMany, TuneSettings
from aoe.tuner.progress import SilentProgress

_NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a network whose batch is open."""
    return save_model(conv_net(batch="n"), tmp_path / "net.onnx")


def _context(model: Path, *, one_of_many: OneOfMany | None = None, **settings: Any) -> ModeContext:
    cases = {"shape_cases": ("image:1,3,12,12", "image:4,3,12,12")}
    return ModeContext(
        settings=TuneSettings(model=model, **(cases | settings)),
        env={},
        cwd=model.parent,
        progress=SilentProgress(),
        now=_NOW,
        one_of_many=one_of_many,
    )


def test_each_shape_is_a_run_of_its_own(model: Path) -> None:
    split = split_cases(_context(model))
    second = split.context(1, spent_s=0.0)
    assert second.settings.input_shape == "image:4,3,12,12"
    assert second.settings.shape_cases == ()
    assert second.one_of_many == OneOfMany(report="report_20260102030405678_2", case="case_2")
    assert split.model.proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_time_that_is_left_is_shared(model: Path) -> None:
    split = split_cases(_context(model, tuning_time_limit_s=100.0))
    limits = [split.context(at, spent_s=40.0 * at).settings.tuning_time_limit_s for at in (0, 1)]
    assert limits == [50.0, 60.0]


def test_shapes_of_a_log_share_time_by_what_their_calls_cost(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("10,image:1,3,12,12\n30,image:4,3,12,12\n")
    given = given_cases((), log=log)
    assert given["shape_cases"] == ("image:4,3,12,12", "image:1,3,12,12")
    split = split_cases(_context(model, tuning_time_limit_s=130.0, **given))
    limits = [split.context(at, spent_s=120.0 * at).settings.tuning_time_limit_s for at in (0, 1)]
    assert limits == [120.0, 10.0]


def test_log_and_shapes_exclude_each_other(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("10,x:1\n")
    assert given_cases((), log=log)["input_shape"] == "x:1"
    with pytest.raises(OptionError, match="given together with --input_shape"):
        given_cases(("x:1",), log=log)


def test_input_sets_go_to_the_shape_they_have(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    folder.mkdir()
    arrays = [{"image": np.zeros((batch, 3, 12, 12), np.float32)} for batch in (4, 1, 4)]
    sets = save_input_sets(arrays, folder)
    split = split_cases(_context(model, inputs=sets))
    assert split.inputs == ((sets[1],), (sets[0], sets[2]))
    assert split.context(0, spent_s=0.0).settings.inputs == (sets[1],)


def test_input_set_of_no_shape_is_refused(model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "sets"
    folder.mkdir()
    sets = save_input_sets({"image": np.zeros((2, 3, 12, 12), np.float32)}, folder)
    with pytest.raises(OptionError, match=r"none of the shapes .* \(got image \(2, 3, 12, 12\)"):
        split_cases(_context(model, inputs=sets))


@pytest.mark.parametrize(
    ("cases", "message"),
    [
        (("image:1,3,12,12", "picture:1,3,12,12"), "the model has no such input"),
        (("image:1,3,12,12", "image:1,4,12,12"), "has a fixed extent in the model"),
        (("image:1,3,12,12", ""), "its shape is not static"),
    ],
)
def test_the_second_shape_is_checked_before_the_first_is_tuned(
    model: Path, cases: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ModelImportError, match=message):
        split_cases(_context(model, shape_cases=cases))


def test_directories_and_other_frameworks_have_one_shape_at_a_time(model: Path) -> None:
    with pytest.raises(OptionError, match="several shapes are for one model"):
        split_cases(_context(model, one_of_many=OneOfMany(report="r", folder="net")))
    with pytest.raises(OptionError, match="Caffe models are tuned for one shape at a time"):
        split_cases(_context(model, framework=0))
