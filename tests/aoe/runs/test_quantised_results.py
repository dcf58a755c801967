"""What a run says of the integers its kernels round otherwise than ONNX Runtime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from support.contracts.small_models import SmallModel
from support.engine.models import save_model
from support.engine.quantized import int8_model
from support.engine.scripted_runs import ScriptedRuns

import aoebank
from aoe import TuneResult
from aoe.measurement import RoundingSteps
from aoe.report.tuning import TuningReport, report_of
from aoebank import emit
from aoebank.reading.show import ShowReport

_STEPS = RoundingSteps(off=12, of=2160)


def _tuned(runs: ScriptedRuns, file: Path, root: Path, output: str) -> TuneResult:
    given: dict[str, Any] = {"bank": root / "bank", "trials": 1, "cache_mode": "disable"}
    return runs.tune(file, output=root / output, job_type="opat", **given)


def _of_levels(folder: Path) -> list[dict[str, Any]]:
    rows = json.loads((folder / "summary.json").read_text())["operators"]
    return [row for row in rows if row["one_step_off"] is not None]


def test_integers_one_step_off_are_told_in_every_result_and_by_later_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(rounding=_STEPS)
    found = _tuned(runs, file, tmp_path, "out")
    rows = _of_levels(tmp_path / "out")
    assert rows and all(row["one_step_off"] == {"count": 12, "of": 2160} for row in rows)
    sections = json.loads(next((tmp_path / "out").glob("aoe_result_opat_*.json")).read_text())
    modified = next(one for one in sections if "repo_modified_operators" in str(one))
    assert '"one_step_off": {"count": 12, "of": 2160}' in json.dumps(modified)
    details = "".join(one.read_text() for one in (tmp_path / "out" / "op_tuning").iterdir())
    assert '"one_step_off"' in details

    capsys.readouterr()
    emit(TuningReport(modes=tuple(map(report_of, found.modes))), as_json=False)
    screen = capsys.readouterr().out
    used = [row["op_name"] for row in rows if row["in_model"]]
    assert used
    for name in used[:4]:
        assert f"{name}: 12 of 2,160 values one step off" in screen

    emit(ShowReport(result=aoebank.show(rows[0]["key"], tmp_path / "bank")), as_json=False)
    assert "12 of 2,160 values one step off" in capsys.readouterr().out

    runs.rounding = None  # nothing is measured again: it is from the bank
    _tuned(runs, file, tmp_path, "again")
    again = {row["key"]: row["one_step_off"] for row in _of_levels(tmp_path / "again")}
    assert again == {row["key"]: row["one_step_off"] for row in rows}


def test_kernels_that_make_the_same_integers_are_counted_and_not_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = int8_model(tmp_path)
    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(rounding=RoundingSteps(off=0, of=2160))
    found = _tuned(runs, file, tmp_path, "out")
    assert all(row["one_step_off"]["count"] == 0 for row in _of_levels(tmp_path / "out"))
    emit(TuningReport(modes=tuple(map(report_of, found.modes))), as_json=False)
    assert "one step off" not in capsys.readouterr().out


def _decoder() -> onnx.ModelProto:
    """Return a step of U-Net in float32 whose result is quantised."""
    model = SmallModel()
    x, skip = model.input(1, 32, 24, 24), model.input(1, 32, 24, 24)
    up = model.op("Relu", model.conv(x, 32, 32))
    joined = model.op("Concat", model.conv(up, 32, 32), model.op("Relu", skip), axis=1)
    made = model.op("Relu", model.conv(joined, 64, 32, 3))
    parameters = model.constant(0.05), model.constant(np.array(3, np.int8))
    codes = model.op("QuantizeLinear", made, *parameters)
    return model.model(model.op("DequantizeLinear", codes, *parameters))


def test_rewrites_of_quantised_subgraphs_may_move_rounding_steps_unless_they_are_exact(
    tmp_path: Path,
) -> None:
    (tmp_path / "bank").mkdir()
    runs = ScriptedRuns(model=lambda baseline, tuned: 1.0)
    given: dict[str, Any] = {"bank": tmp_path / "bank", "trials": 6, "cache_mode": "disable"}
    for number, file in enumerate(
        (int8_model(tmp_path), save_model(_decoder(), tmp_path / "decoder.onnx"))
    ):
        runs.tune(file, output=tmp_path / str(number), job_type="sgat", **given)
    calls = [call for runner in runs.runners for call in runner.asked("compare_models")]
    parts = [call.arguments for call in calls]
    alone = [one for one in parts if one["baseline"].model.name == "subgraph.onnx"]
    for call in alone:
        rounds = call["terms"].tolerance > 0
        assert call["terms"].rounding == (call["baseline"] if rounds else None)
    assert {call["terms"].tolerance > 0 for call in alone} == {True, False}
