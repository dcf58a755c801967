"""Whole runs that are held to an accuracy: what is too harmful goes back, and everybody is told."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.engine.models import make_model, save_model
from support.engine.scripted_runs import ScriptedRuns

import aoe
from aoe import TuneResult
from aoe.execute.messages import ModelPart
from aoe.kernels.algorithms import precision_of
from aoe.om.file import read_manifest
from aoe.report.tuning import TuningReport, report_of
from aoe.target import InstructionSet, Target
from aoe.workload import Precision, workload_from_json
from aoebank import emit

_HARM = {"a": 0.004, "b": 0.2, "c": 0.03, "y": 0.001}
"""How far the model is off where this product is rounded."""
_ROWS = 512
_WIDTHS = (128, 112, 96, 80, 64)


def _products() -> onnx.ModelProto:
    """Return four different matrix products, one after another."""
    names = ["x", *_HARM]
    rng = np.random.default_rng(0)
    weights = {
        f"w{at}": rng.standard_normal((_WIDTHS[at], _WIDTHS[at + 1])).astype(np.float32)
        for at in range(len(_HARM))
    }
    nodes = [
        helper.make_node("MatMul", [names[at], f"w{at}"], [names[at + 1]], f"to_{names[at + 1]}")
        for at in range(len(_HARM))
    ]
    return make_model(nodes, {"x": [_ROWS, _WIDTHS[0]]}, ["y"], weights=weights)


def _lower_kernels(runs: ScriptedRuns) -> set[str]:
    """Return the names of the kernels below float32 that were compiled."""
    return {
        name
        for runner in runs.runners
        for call in runner.asked("compile_kernels")
        for name, workload, _ in call.arguments["kernels"]
        if workload_from_json(workload).precision.is_lower
    }


@pytest.fixture
def runs() -> ScriptedRuns:
    """Runs on a CPU with bfloat16: rounded kernels are the fastest, and each does its harm."""

    def rounds(target: Target) -> Target:
        rounded = InstructionSet(cpu_features=("avx512_bf16",))
        return replace(target, bf16_dot=rounded, bf16_tiles=None)

    runs = ScriptedRuns(target=rounds)
    runs.candidate = lambda schedule: 3.0 if precision_of(schedule.algorithm).is_lower else 2.0

    def results(part: ModelPart) -> list[Any]:
        lower = _lower_kernels(runs)
        nodes = onnx.load(str(part.model), load_external_data=False).graph.node
        error = sum(_HARM[node.output[0]] for node in nodes if node.op_type in lower)
        return [np.array([1 + error, 1.0], np.float32)]

    runs.results = results
    return runs


def _tune(
    runs: ScriptedRuns,
    root: Path,
    accuracy: str,
    mode: str = "allow_mix_precision_bf16",
    **options: Any,
) -> TuneResult:
    file = save_model(_products(), root / "net.onnx")
    return runs.tune(
        file,
        output=root / "out",
        bank=root / "bank",
        precision_mode=mode,
        accuracy=accuracy,
        trials=2,
        cache_mode="disable",
        **options,
    )


def _screen(result: TuneResult, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    emit(TuningReport(modes=tuple(map(report_of, result.modes))), as_json=False)
    return capsys.readouterr().out


def _precisions(result: TuneResult) -> Counter[Precision]:
    assert result.om_file is not None
    return Counter(kernel.precision for kernel in read_manifest(result.om_file).kernels)


@pytest.mark.parametrize(
    ("bound", "back", "error"),
    [
        ("0.5", [], 0.235),
        ("0.05", ["to_b"], 0.035),
        ("0.02", ["to_b", "to_c"], 0.005),
        ("0.0001", ["to_a", "to_b", "to_c", "to_y"], 0.0),
    ],
)
def test_the_most_harmful_go_back_to_float32_until_the_bound_holds(
    runs: ScriptedRuns,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    bound: str,
    back: list[str],
    error: float,
) -> None:
    result = _tune(runs, tmp_path, f"max_relative<={bound}")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    accuracy = summary["accuracy"]
    assert accuracy["holds"] and accuracy["made_up_inputs"]
    assert accuracy["value"] == pytest.approx(error, abs=1e-6)
    roll_back = {row["kernel"] for row in accuracy["kernels"] if row["put_back"]}
    assert len(roll_back) == len(back)
    assert roll_back <= _lower_kernels(runs)
    found = _precisions(result)
    assert found == Counter({Precision.BFLOAT16: 4 - len(back), Precision.FLOAT32: len(back)})
    lowest = "bfloat16" if len(back) < 4 else "float32"
    assert summary["precision"] == lowest
    screen = _screen(result, capsys)
    assert "accuracy against speed, max_relative" in screen
    rows = [line for line in screen.splitlines() if line.rstrip().endswith("put back")]
    assert sorted(row.split()[0] for row in rows) == back
    if back:
        assert f"{len(back)} of 4 kernels put back to keep it: max_relative was 0.235" in screen
    assert ("(bfloat16)" in screen.splitlines()[-2]) is (lowest == "bfloat16")


def test_second_run_makes_the_same_trade_and_the_same_bytes(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    first = _tune(runs, tmp_path, "max_relative<=0.05")
    assert first.om_file is not None
    before = first.om_file.read_bytes()
    assert runs.trials() > 0
    again = _tune(runs, tmp_path, "max_relative<=0.05")
    assert runs.trials() == 0
    assert again.om_file is not None and again.om_file.read_bytes() == before


def test_narrower_bound_takes_back_what_an_earlier_run_kept(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    assert _precisions(_tune(runs, tmp_path, "max_relative<=0.5"))[Precision.BFLOAT16] == 4
    assert _precisions(_tune(runs, tmp_path, "max_relative<=0.02"))[Precision.BFLOAT16] == 2
    assert _precisions(_tune(runs, tmp_path, "max_relative<=0.05"))[Precision.BFLOAT16] == 3


def test_metric_of_the_user_on_real_inputs_decides(runs: ScriptedRuns, tmp_path: Path) -> None:
    (tmp_path / "metric.py").write_text(
        "def off(reference, results):\n"
        "    assert len(reference) == len(results) == 2\n"
        "    return max(abs(b[0] - a[0]).max() for a, b in zip(reference, results))\n"
    )
    sets = tmp_path / "sets"
    sets.mkdir()
    for number in range(2):
        np.savez(sets / f"{number}.npz", x=np.full((_ROWS, _WIDTHS[0]), number, np.float32))
    _tune(runs, tmp_path, f"{tmp_path / 'metric.py'}:off<=0.05", calibration=sets)
    accuracy = json.loads((tmp_path / "out" / "summary.json").read_text())["accuracy"]
    assert not accuracy["made_up_inputs"]
    assert sum(row["put_back"] for row in accuracy["kernels"]) == 1
    assert accuracy["constraint"].endswith(":off <= 0.05")


@pytest.fixture
def hosted_runs(runs: ScriptedRuns) -> ScriptedRuns:
    """Runs on a CPU without instructions for bfloat16 and for products of 8 bits."""
    none = dict.fromkeys(("bf16_dot", "bf16_tiles", "int8_dot", "int8_tiles", "int8_sums"))
    runs.target = lambda target: replace(target, **none)

    def results(part: ModelPart) -> list[Any]:
        nodes = onnx.load(str(part.model), load_external_data=False).graph.node
        error = sum(_HARM[node.output[0]] for node in nodes if node.op_type == _HOSTED)
        return [np.array([1 + error, 1.0], np.float32)]

    runs.results = results
    return runs


_HOSTED = "DynamicQuantizeMatMul"
_MODE = "allow_mix_precision_int8"


def test_cpu_without_int8_instructions_gets_onnx_runtime_s_own_operators(
    hosted_runs: ScriptedRuns, tmp_path: Path
) -> None:
    result = _tune(hosted_runs, tmp_path, "max_relative<=0.5", _MODE)
    assert _precisions(result) == Counter({Precision.INT8: 4})
    assert _lower_kernels(hosted_runs) == set(), "there is nothing to compile"
    assert result.om_file is not None
    with zipfile.ZipFile(result.om_file) as parts:
        assert "kernels.so" not in parts.namelist()
        proto = onnx.load_model_from_string(parts.read("model.onnx"))
    assert [node.op_type for node in proto.graph.node] == [_HOSTED] * 4
    manifest = read_manifest(result.om_file)
    assert not [name for name in manifest.cpu_features if "vnni" in name]
    assert {kernel.op_type for kernel in manifest.kernels} == {"matmul"}
    x = np.random.default_rng(1).standard_normal((_ROWS, _WIDTHS[0])).astype(np.float32)
    (found,) = aoe.load(result.om_file).run(None, {"x": x})
    exact = x
    for tensor in _products().graph.initializer:
        exact = exact @ numpy_helper.to_array(tensor)
    assert 0 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < 0.06


def test_operators_of_onnx_runtime_go_back_and_leave_no_weights_behind(
    hosted_runs: ScriptedRuns, tmp_path: Path
) -> None:
    result = _tune(hosted_runs, tmp_path, "max_relative<=0.05", _MODE)
    assert _precisions(result) == Counter({Precision.INT8: 3, Precision.FLOAT32: 1})
    assert result.om_file is not None
    before = result.om_file.read_bytes()
    with zipfile.ZipFile(result.om_file) as parts:
        size = len(parts.read("weights.bin"))
    products = [_WIDTHS[at] * _WIDTHS[at + 1] for at in range(len(_HARM))]
    quantised = [number for number, name in zip(products, _HARM, strict=True) if name != "b"]
    assert size < 4 * sum(products) + sum(quantised) + 1024
    again = _tune(hosted_runs, tmp_path, "max_relative<=0.05", _MODE)
    assert again.om_file is not None and again.om_file.read_bytes() == before


def test_products_of_tokens_stay_products_where_they_may_be_quantised(
    hosted_runs: ScriptedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[onnx.ModelProto] = []
    monkeypatch.setattr(
        "aoe.ort.offline_optimization.write_tokens_as_images",
        lambda proto: asked.append(proto) or proto,
    )
    assert _tune(hosted_runs, tmp_path, "max_relative<=0.5", _MODE).om_file is not None
    assert not asked
