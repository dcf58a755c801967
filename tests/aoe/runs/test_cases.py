"""`aoe.tune` with several shapes: one bank, one result file, one tuned model."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engine.fakes import RecordingProgress
from support.engine.models import conv_net, save_model
from support.engine.scripted_runs import ScriptedRuns, evenly_profiled

import aoe
from aoe.errors import ModelImportError, OptionError, TurnTimeoutError
from aoe.om.file import read_manifest
from aoe.ort.inputs import save_input_sets
from aoe.report.tuning import CasesReport
from aoe.runs.cases import split_cases
from aoe.runs.given_cases import given_cases
from aoe.tuner.mode import ModeContext, OneOfMany, TuneSettings
from aoe.tuner.progress import SilentProgress
from aoebank import emit


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, aoe.TuneResult]:
    """Return the results of a run for two batches that looks up in an empty bank."""
    root = tmp_path_factory.mktemp("cases")
    (root / "bank").mkdir()
    model = save_model(conv_net(batch="n"), root / "net.onnx")
    result = ScriptedRuns().tune(
        model,
        input_shape=["image:1,3,12,12", {"image": (2, 3, 12, 12)}],
        bank=root / "bank",
        output=root / "out",
        core_num=min(2, os.cpu_count() or 1),
        lookup_only=True,
        accept_busy=True,
    )
    return root / "out", result


def test_one_tuned_model_is_left(tuned: tuple[Path, aoe.TuneResult]) -> None:
    output, result = tuned
    assert [file.relative_to(output) for file in output.rglob("*.om")] == [Path("net_tune.om")]
    assert result.om_file == output / "net_tune.om"
    shapes = [case.shapes for case in read_manifest(result.om_file).cases]
    assert shapes == [{"image": (1, 3, 12, 12)}, {"image": (2, 3, 12, 12)}]


def test_each_shape_has_its_report_and_folder(tuned: tuple[Path, aoe.TuneResult]) -> None:
    output, result = tuned
    (file,) = output.glob("aoe_result_opat_*.json")
    assert list(json.loads(file.read_text())) == [case.report for case in result.cases]
    assert [case.shapes for case in result.cases] == ["image:1,3,12,12", "image:2,3,12,12"]
    assert sorted(path.parent.name for path in output.glob("*/summary.json")) == [
        "case_1",
        "case_2",
    ]
    assert result.speedup == 1.0 and all(
        mode.om_file == result.om_file for case in result.cases for mode in case.modes
    )


def test_the_tuned_model_runs_each_shape(tuned: tuple[Path, aoe.TuneResult]) -> None:
    _, result = tuned
    assert result.om_file is not None
    model = aoe.load(result.om_file)
    for batch in (1, 2):
        found = model.run(None, {"image": np.zeros((batch, 3, 12, 12), np.float32)})
        assert found[0].shape == (batch, 10)


def test_a_tuned_model_is_tuned_again_for_the_shapes_it_holds(
    tuned: tuple[Path, aoe.TuneResult], tmp_path: Path
) -> None:
    _, result = tuned
    assert result.om_file is not None
    (tmp_path / "bank").mkdir()
    again = ScriptedRuns().tune(
        result.om_file,
        framework=None,
        bank=tmp_path / "bank",
        output=tmp_path / "again",
        core_num=min(2, os.cpu_count() or 1),
        lookup_only=True,
    )
    assert again.om_file is not None
    before, after = read_manifest(result.om_file), read_manifest(again.om_file)
    assert after.cases == before.cases and after.model_sha256 == before.model_sha256


@pytest.mark.parametrize("done", [0, 1])
def test_shapes_that_are_done_are_joined_where_the_limit_ends_in_a_later_one(
    tmp_path: Path, done: int
) -> None:
    profiled: list[int] = []

    def profile(model: Any, *given: Any, **how: Any) -> Any:
        if len(profiled) == done:
            raise TurnTimeoutError("time limit", "it was over before the cores were free")
        profiled.append(len(profiled))
        return evenly_profiled(model)

    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(parts={"profile_model": profile})
    runs.candidate = lambda schedule: 0.5  # nothing is kept, so nothing else is profiled
    progress = RecordingProgress()
    asked: dict[str, Any] = {
        "input_shape": [f"image:{batch},3,12,12" for batch in (1, 2, 3)],
        "bank": tmp_path / "bank",
        "output": tmp_path / "out",
        "tuning_time_limit_s": 1000.0,
        "trials": 1,
        "progress": progress,
    }
    model = save_model(conv_net(batch="n"), tmp_path / "net.onnx")
    if not done:
        with pytest.raises(TurnTimeoutError):
            runs.tune(model, **asked)
        return
    result = runs.tune(model, **asked)
    assert [case.shapes for case in result.cases] == ["image:1,3,12,12"]
    assert result.om_file is not None
    assert [case.shapes for case in read_manifest(result.om_file).cases] == [
        {"image": (1, 3, 12, 12)}
    ]
    (told,) = (text for text in progress.texts("warn") if "time limit" in text)
    assert "2 shapes" in told and "image:2,3,12,12; image:3,3,12,12" in told


def test_shapes_of_a_log_are_tuned_by_their_calls_and_weighted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bank").mkdir()
    (tmp_path / "log.csv").write_text("5,image:2,3,12,12\n90,image:1,3,12,12\n")
    result = ScriptedRuns().tune(
        save_model(conv_net(batch="n"), tmp_path / "net.onnx"),
        shapes_from=tmp_path / "log.csv",
        bank=tmp_path / "bank",
        output=tmp_path / "out",
        core_num=1,
        lookup_only=True,
        accept_busy=True,
    )
    assert [(case.shapes, case.count) for case in result.cases] == [
        ("image:1,3,12,12", 90),
        ("image:2,3,12,12", 5),
    ]
    assert result.weighted_speedup == 1.0
    document = CasesReport(result=result).document()
    assert document["weighted_speedup"] == 1.0
    assert [case["count"] for case in document["cases"]] == [90, 5]
    emit(CasesReport(result=result), as_json=False, no_color=True)
    assert "all these calls together: 1.000x" in capsys.readouterr().out


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


@pytest.mark.parametrize("text", ["image:4~4,3,12~12,12", "x~y:4,3"])
def test_range_whose_ends_are_the_same_is_one_shape(text: str) -> None:
    given = given_cases((text,))
    assert given["input_shape"] == text.replace("4~4", "4").replace("12~12", "12")
    assert given["shape_range"] is None


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
