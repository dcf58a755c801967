"""`aoe.tune` with several shapes: one bank, one result file, one tuned model."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engine.fakes import RecordingProgress
from support.engine.models import conv_net, save_model
from support.engine.scripted_runs import ScriptedRuns, evenly_profiled

import aoe
from aoe.errors import TurnTimeoutError
from aoe.om.file import read_manifest
from aoe.report.tuning import CasesReport
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
