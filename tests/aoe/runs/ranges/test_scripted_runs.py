"""What runs over a range measure and compile; a script says how fast everything is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnxruntime.transformers.float16 import convert_float_to_float16
from support.engine.fakes import RecordingProgress
from support.engine.open_rows import parsed
from support.engine.scripted_runs import ScriptedRuns

from aoe.errors import AoeError
from aoe.om.file import read_manifest
from aoebank import Bank

_ROWS = "t = MatMul(x, w) u = Add(t, b) y = Relu(u)"
_ATTENTION = "s = com.microsoft.FusedMatMul <alpha = 0.25> (q, k) p = Softmax(s) y = MatMul(p, v)"


# `table[:, :n].expand(b, n, 64)` with `b, n = x.shape[:2]`, by PyTorch's TorchScript exporter.
_EXPANDED = """shape = Shape(x) b = Gather(shape, i0) n = Gather(shape, i1)
    part = Slice(table, i0, n, i1, i1) listed = Concat <axis = 0> (b, n, i64) rank = Shape(listed)
    ones = ConstantOfShape <value = int64[1] {1}> (rank)
    less = Constant <value = int64 {-1}> () kept = Mul(ones, less) keeps = Equal(listed, kept)
    told = Where(keeps, ones, listed) wide = Expand(part, told) h = Add(x, wide) """


def _runs(speedup: float) -> ScriptedRuns:
    return ScriptedRuns(
        candidate=lambda schedule: speedup,
        model=lambda baseline, tuned: 1.5 if baseline != tuned else 1.0,
    )


def _tune(runs: ScriptedRuns, model: onnx.ModelProto, folder: Path, **options: Any) -> list[str]:
    """Return the names of the kernels in the tuned model."""
    (folder / "bank").mkdir(exist_ok=True)
    onnx.save(model, folder / "model.onnx")
    given = {  # nothing that was compiled by a script is kept
        "bank": folder / "bank",
        "job_type": "opat",
        "trials": 2,
        "cache_mode": "disable",
        "output": folder / "out",
    }
    found = runs.tune(folder / "model.onnx", **{**given, **options})
    assert found.om_file is not None
    return [one.name for one in read_manifest(found.om_file).kernels]


def test_later_runs_measure_no_block_and_make_the_same_kernel(tmp_path: Path) -> None:
    model = parsed("float[N,S,64] x", _ROWS, weights="float[64,96] w, float[96] b")
    options = {"input_shape": "x:1~2,1~40,64"}
    first = _tune(_runs(2.0), model, tmp_path, **options)
    assert first
    noisy = _runs(0.99)  # so that the kernel promised nothing if it was measured
    assert _tune(noisy, model, tmp_path, **options) == first
    assert noisy.trials() == 0
    assert _tune(noisy, model, tmp_path, lookup_only=True, **options) == first


def test_blocks_are_records_like_any_other_and_hits_of_the_next_run(tmp_path: Path) -> None:
    body = """t = MatMul(x, w) u = Add(t, b) v = Relu(u) s = MatMul(v, z) r = Add(s, x)
    y = LayerNormalization(r, g)"""
    weights = "float[64,96] w, float[96] b, float[96,64] z, float[64] g"
    model = parsed("float[N,S,64] x", body, weights=weights)
    options = {"input_shape": "x:1~2,1~40,64"}
    first = _tune(_runs(2.0), model, tmp_path, **options)
    searched = _operators(tmp_path)
    usual = {"1 row", "4 rows", "16 rows", "64 rows"}
    own = {"6 rows", "80 rows"}  # those of the points, where they may pay
    names = {row["op_name"].rsplit(", ", 1)[1] for row in searched.values()}
    assert first and usual <= names <= usual | own
    assert {row["outcome"] for row in searched.values()} == {"add"}
    timed, told = _noted_blocks(tmp_path), RecordingProgress()
    assert set(timed) == searched.keys()
    # noise that would undo what an earlier run has kept, if it were measured
    noisy = _runs(0.99)
    again = _tune(noisy, model, tmp_path, progress=told, **options)
    found = _operators(tmp_path)
    assert found.keys() == searched.keys()
    assert {row["outcome"] for row in found.values()} == {"reserved"}
    assert (again, noisy.trials()) == (first, 0)
    counted = {int(text) for text in told.texts("plan")}
    assert max(counted) == len(found)
    assert not [text for _, text in told.events if text.startswith("dropped")]
    assert _noted_blocks(tmp_path) == timed  # none is measured again
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert len(summary["points"]) == 5


def _operators(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the operators of the last run by their keys."""
    summary = json.loads((folder / "out" / "summary.json").read_text())
    return {row["key"]: row for row in summary["operators"]}


def _noted_blocks(folder: Path) -> list[str]:
    """Return the keys of blocks whose times the bank of a run has, once for each note."""
    bank = Bank(folder / "bank")
    lines = (line for file in bank.iter_files() for line in bank.iter_provenance(file))
    return sorted(line.key for line in lines if line.search.get("method") == "blocks")


def test_float16_is_held_against_float32_at_each_shape_and_tuned_in_it(tmp_path: Path) -> None:
    model = parsed("float[N,S,64] x", _ROWS, weights="float[64,96] w, float[96] b")
    narrow = convert_float_to_float16(model)
    runs = _runs(2.0)
    options = {"input_shape": "x:1~2,1~40,64", "precision_mode": "force_fp32"}
    assert _tune(runs, narrow, tmp_path, **options)
    (runner,) = runs.runners
    shapes = [call.arguments["inputs"].shapes["x"] for call in runner.asked("run_model")]
    assert len(shapes) == 6 and shapes[:3] == shapes[3:]
    assert (shapes[0], shapes[2]) == ((1, 1, 64), (2, 40, 64))
    with pytest.raises(AoeError, match="is for fixed shapes") as caught:
        _tune(runs, narrow, tmp_path, **{**options, "precision_mode": "allow_fp32_to_bf16"})
    assert "--precision_mode" in str(caught.value)


def test_kernels_of_open_extents_are_compiled_together_before_they_are_measured(
    tmp_path: Path,
) -> None:
    model = parsed("float[N,3,Q,8] q, float[N,3,8,K] k, float[N,3,K,20] v", _ATTENTION)
    runs = _runs(2.0)
    kernels = _tune(
        runs, model, tmp_path, input_shape="q:1~2,3,1~40,8;k:1~2,3,8,1~50;v:1~2,3,1~50,20"
    )
    assert kernels
    (runner,) = runs.runners
    order = [
        len(call.arguments["kernels"]) if call.task == "compile_kernels" else 0
        for call in runner.calls
        if call.task == "compile_kernels" or "at" in call.arguments
    ]
    first, last = order.index(0), len(order) - order[::-1].index(0)
    assert order[first - 1] > 1 and not any(order[first:last])


def test_blocks_are_measured_amid_the_traffic_of_the_model_as_in_the_search(tmp_path: Path) -> None:
    """Of a second range the bank has the blocks, which are measured and not searched."""
    model = parsed("float[N,S,64] x", _ROWS, weights="float[64,96] w, float[96] b")
    for longest in (40, 39):
        runs = _runs(2.0)
        assert _tune(runs, model, tmp_path, input_shape=f"x:1~2,1~{longest},64")
        (runner,) = runs.runners
        traffic = [call.arguments["bytes_around"] for call in runner.asked("measure_candidates")]
        assert traffic and 0 not in traffic


def test_blocks_the_search_has_measured_are_not_measured_again(tmp_path: Path) -> None:
    model = parsed("float[N,S,64] x", _ROWS, weights="float[64,96] w, float[96] b")
    runs, options = _runs(2.0), {"input_shape": "x:1~2,1~40,64"}
    first = _tune(runs, model, tmp_path, **options)
    assert first
    (runner,) = runs.runners
    # a batch of two candidates and fresh pairs of the winner, of each block
    asked = [str(call.arguments["workload"]) for call in runner.asked("measure_candidates")]
    assert asked and max(map(asked.count, asked)) <= 2


def test_rows_behind_what_is_expanded_get_a_kernel(tmp_path: Path) -> None:
    weights = "float[64,96] w, float[96] b1, float[1,40,64] table"
    body = _EXPANDED + _ROWS.replace("x, w", "h, w").replace("t, b", "t, b1")
    model = parsed("float[N,S,64] x", body, weights=weights)
    assert _tune(_runs(2.0), model, tmp_path, input_shape="x:1~2,1~40,64")
