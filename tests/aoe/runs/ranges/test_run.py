"""A model tuned for a range of shapes: one file that computes every shape, of the range or not."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from support.commands import aoe_exit_code
from support.contracts.small_models import SmallModel
from support.documents import find_faults
from support.engine.fakes import RecordingProgress
from support.engine.open_rows import parsed

import aoe
from aoe.errors import AoeError
from aoe.om.file import read_manifest
from aoebank import Bank, Event
from aoebank.cli import main as aoebank_main

_RANGE = "x:1~2,1~40,64"
_BODY = """t = MatMul(x, w) u = Add(t, b) v = Relu(u) s = MatMul(v, z) r = Add(s, x)
y = LayerNormalization(r, g)"""
_WEIGHTS = "float[64,96] w, float[96] b, float[96,64] z, float[64] g"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "block.onnx"
    onnx.save(parsed("float[N,S,64] x", _BODY, weights=_WEIGHTS), file)
    return file


def _tune(model: Path, folder: Path, **options: Any) -> aoe.TuneResult:
    given = {"input_shape": _RANGE, "trials": 1, "accept_busy": True, "output": folder / "out"}
    (folder / "bank").mkdir(exist_ok=True)
    return aoe.tune(model, bank=folder / "bank", **{"job_type": "opat", **given, **options})


@pytest.fixture(scope="module")
def tuned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run: its bank, its tuned model, its summary."""
    folder = tmp_path_factory.mktemp("range")
    _tune(model, folder)
    return folder


def _summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "out" / "summary.json").read_text())
    return found


@pytest.mark.parametrize(
    "shape", [(1, 1), (2, 40), (1, 7), (2, 13), (1, 31), (3, 40), (2, 257), (1, 0), (5, 1)]
)
def test_every_shape_is_computed_within_the_range_and_beyond(
    model: Path, tuned: Path, shape: tuple[int, int]
) -> None:
    x = np.random.default_rng(3).standard_normal((*shape, 64)).astype(np.float32)
    session = aoe.load(tuned / "out" / "block_tune.om")
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    found = session.run(None, {"x": x})[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_summary_and_tuned_model_say_the_range(tuned: Path) -> None:
    summary = _summary(tuned)
    assert summary["shape_range"] == _RANGE
    assert read_manifest(tuned / "out" / "block_tune.om").shape_range == _RANGE
    shapes = [point["shapes"] for point in summary["points"]]
    rows = ["1,1", "1,3", "1,6", "1,15", "2,40"]
    assert shapes in ([], [f"x:{one},64" for one in rows])  # none where nothing is kept


def test_rows_that_a_model_cuts_into_windows_stay_whole_windows(tmp_path: Path) -> None:
    model = SmallModel()
    windows = model.op("Reshape", model.input(1, 64, 64), model.constant([-1, 16, 64]))
    made = model.op("Relu", model.op("MatMul", windows, model.weight(64, 64)))
    proto = model.model(model.op("Reshape", made, model.constant([1, -1, 64])))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "S"
    file = tmp_path / "windows.onnx"
    onnx.save(proto, file)
    _tune(file, tmp_path, input_shape="x0:1,16~128,64")
    shapes = [point["shapes"] for point in _summary(tmp_path)["points"]]
    assert shapes in ([], [f"x0:1,{rows},64" for rows in (16, 32, 64, 128)])


def test_look_up_places_the_kernels_of_the_bank_without_measuring(
    model: Path, tuned: Path, tmp_path: Path
) -> None:
    found = _tune(model, tuned, output=tmp_path / "found", lookup_only=True)
    assert found.om_file is not None
    x = np.random.default_rng(5).standard_normal((2, 23, 64)).astype(np.float32)
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    actual = aoe.load(found.om_file).run(None, {"x": x})[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    summary = json.loads(_text(found))
    assert summary["points"] == [] and summary["pairs"] == 0


def test_calls_of_a_log_outside_of_the_range_are_counted(
    model: Path, tuned: Path, tmp_path: Path
) -> None:
    log, told = tmp_path / "log.csv", RecordingProgress()
    log.write_text("5,x:2,9,64\n900,x:9,9,64\n")
    options = {"shapes_from": log, "lookup_only": True, "progress": told}
    _tune(model, tuned, output=tmp_path / "out", **options)
    assert any("900 of 905 calls lie outside" in text for text in told.texts("warn"))


def _planned(model: Path, shape: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = ["plan", model, f"--input_shape={shape}", "--trials=1", "--json"]
    assert aoe_exit_code(words) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert find_faults(found) == []
    return found


def test_plan_counts_blocks_and_names_the_ranges_that_hold_a_shape(
    model: Path,
    tuned: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TUNE_BANK_PATH", str(tuned / "bank"))
    planned = _planned(model, _RANGE, capsys)
    rows = _summary(tuned)["operators"]
    kinds = {one["key"]: one["kind"] for one in planned["operators"]}
    # blocks of frequent shapes are known when the others have been measured
    usual = {row["key"] for row in rows if not row["op_name"].endswith((", 6 rows", ", 80 rows"))}
    assert kinds.keys() == usual
    added = {row["key"] for row in rows if row["outcome"] == "add"}
    assert {kinds[key] for key in added & usual} <= {"reused"}
    assert planned["ranges"] == []
    assert _planned(model, "x:1,7,64", capsys)["ranges"] == [_RANGE]
    assert _planned(model, "x:3,7,64", capsys)["ranges"] == []


@pytest.mark.parametrize(("shape", "is_held"), [("x:1,7,64", True), ("x:3,7,64", False)])
def test_look_up_of_a_shape_says_which_range_holds_it(
    model: Path, tuned: Path, tmp_path: Path, shape: str, is_held: bool
) -> None:
    told = RecordingProgress()
    options = {"input_shape": shape, "lookup_only": True, "progress": told}
    _tune(model, tuned, output=tmp_path / "out", **options)
    assert any(f"--input_shape='{_RANGE}'" in text for _, text in told.events) is is_held


@pytest.mark.parametrize("shape", [(2, 40, 64), (3, 171, 64)])
def test_look_up_of_a_fixed_shape_is_answered_by_the_blocks_of_a_range(
    model: Path,
    tuned: Path,
    tmp_path: Path,
    shape: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = f"x:{','.join(map(str, shape))}"
    found = _tune(model, tuned, input_shape=text, lookup_only=True, output=tmp_path / "out")
    rows = {row["key"]: row for row in json.loads(_text(found))["operators"]}
    told = f"in the bank for a range that holds it, block over {_RANGE}"
    answered = {key for key, row in rows.items() if row["reason"].startswith(told)}
    has_records = any(row["outcome"] == "add" for row in _summary(tuned)["operators"])
    assert bool(answered) is has_records
    assert {rows[key]["outcome"] for key in answered} <= {"reserved"}
    assert found.om_file is not None
    assert {one.key for one in read_manifest(found.om_file).kernels} == answered
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    expected = ort.InferenceSession(model).run(None, {"x": x})[0]
    actual = aoe.load(found.om_file).run(None, {"x": x})[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    monkeypatch.setenv("TUNE_BANK_PATH", str(tuned / "bank"))
    planned = {one["key"]: one for one in _planned(model, text, capsys)["operators"]}
    assert all(planned[key]["kind"] == "retuned" for key in answered)
    assert all(planned[key]["reason"] == told for key in answered)


def _aoebank(*words: object) -> int | str | None:
    with pytest.raises(SystemExit) as stop:
        sys.exit(aoebank_main([str(word) for word in words]))
    return stop.value.code


def test_every_verb_of_a_bank_takes_the_bank_of_a_range(
    tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bank, merged = tuned / "bank", tmp_path / "merged"
    other = copytree(bank, tmp_path / "other")
    records = sum(row["outcome"] == "add" for row in _summary(tuned)["operators"])
    assert _aoebank("validate", bank) == 0
    assert _aoebank("stale", bank) == 0
    assert _aoebank("diff", bank, other) == 0
    assert _aoebank("merge", bank, other, "-o", merged) == 0
    assert _aoebank("diff", bank, merged) == 0
    capsys.readouterr()
    assert _aoebank("show", *Bank(merged).iter_files()) == 0
    assert f"model block over {_RANGE}" in capsys.readouterr().out or not records
    assert aoe_exit_code(["verify", merged, "--sample=1", "--dry-run", "--json"]) in (0, 1)
    verified = json.loads(capsys.readouterr().out)
    assert len(verified["records"]) + verified["left"] == records
    assert all(one["op_names"][0].endswith((" row", " rows")) for one in verified["records"])


def _note(folder: Path, event: Event, search: dict[str, Any]) -> None:
    """Note in the bank of a run what the model has made of the kernels of all its blocks."""
    bank = Bank(folder / "bank")
    for file in tuple(bank.iter_files()):
        last = {line.key: line for line in bank.iter_provenance(file)}
        bank.append_provenance(
            file, [replace(line, event=event, search=search) for line in last.values()]
        )


def test_verdict_is_remembered_for_the_model_over_that_range_alone(
    model: Path, tuned: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    copytree(tuned, folder)
    _note(folder, Event.DROPPED, {"reason": "it is wrong"})
    has_records = any(row["outcome"] == "add" for row in _summary(tuned)["operators"])
    for shape_range, has_kernels in ((_RANGE, False), ("x:1~2,1~39,64", has_records)):
        found = _tune(model, folder, input_shape=shape_range, lookup_only=True)
        assert found.om_file is not None
        assert bool(read_manifest(found.om_file).kernels) is has_kernels


def _text(result: aoe.TuneResult) -> str:
    assert result.om_file is not None
    return (result.om_file.parent / "summary.json").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"job_type": "sgat"}, "fixed shapes"),
        ({"workers": "1"}, "--workers"),
        ({"target_metric": "throughput"}, "target_metric"),
        ({"accuracy": "cosine>=0.99"}, "--accuracy"),
        ({"input_shape": "x:1~2,1~40,63"}, "fixed extent"),
        ({"input_shape": "z:1~2"}, "no such input"),
        ({"input_shape": ["x:1~2,1~40,64", "x:1,1,64"]}, "alone"),
    ],
)
def test_what_a_range_cannot_have_is_refused(
    model: Path, tmp_path: Path, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(AoeError, match=told):
        _tune(model, tmp_path, **options)
