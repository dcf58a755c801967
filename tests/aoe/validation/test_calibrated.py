"""Float32 models in integers, with ranges from the inputs of `--calibration`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from support.engine.models import make_model, save_model
from support.engine.quantised import blockwise
from support.engine.scripted_runs import ScriptedRuns

import aoe
import aoebank
from aoe import TuneResult
from aoe.execute.messages import ModelPart
from aoe.graph.workload_model import workload_model
from aoe.om.file import read_manifest
from aoe.ort.calibration import CalibratedQuantizer, QuantizedReach, is_quantised
from aoe.report.tuning import TuningReport, report_of
from aoe.tuner.precision.settings import Listing, MixLists
from aoe.validation.calibrated import allowed as allowed_products
from aoe.workload import Precision
from aoebank import emit

_NAMES = ("first", "second", "third")
_SHAPE = (1, 8, 12, 12)


def _net() -> onnx.ModelProto:
    """Return three convolutions, the last two around a residual."""
    rng = np.random.default_rng(0)
    weights = {
        f"w{at}": (rng.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32) for at in range(3)
    }

    def conv(at: int, read: str, made: str) -> onnx.NodeProto:
        return helper.make_node("Conv", [read, f"w{at}"], [made], _NAMES[at], pads=[1, 1, 1, 1])

    nodes = [
        conv(0, "x", "a"),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        conv(1, "b", "c"),
        helper.make_node("Add", ["b", "c"], ["d"], "add"),
        conv(2, "d", "y"),
    ]
    return make_model(nodes, {"x": _SHAPE}, ["y"], weights=weights)


def _feeds(count: int = 3) -> list[dict[str, np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal(_SHAPE).astype(np.float32)} for _ in range(count)]


def _quantizer(folder: Path, *, reduce_range: bool = False) -> CalibratedQuantizer:
    return CalibratedQuantizer(_net(), folder, _feeds(), reduce_range=reduce_range)


def _in_integers(proto: onnx.ModelProto) -> set[str]:
    """Return the names of the convolutions that read what is dequantised."""
    made = {name: node.op_type for node in proto.graph.node for name in node.output}
    return {
        node.name
        for node in proto.graph.node
        if node.op_type == "Conv" and made.get(node.input[1]) == "DequantizeLinear"
    }


def _run(proto: onnx.ModelProto, feed: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray[Any, Any] = session.run(None, dict(feed))[0]
    return found


@pytest.mark.parametrize("reach", list(QuantizedReach))
def test_products_that_are_asked_for_are_in_integers_and_nearly_the_same(
    tmp_path: Path, reach: QuantizedReach
) -> None:
    quantizer = _quantizer(tmp_path)
    assert quantizer.products == _NAMES
    for chosen in (_NAMES, ("second",)):
        proto = quantizer.quantised(chosen, reach)
        assert _in_integers(proto) == set(chosen)
        expected, found = (_run(one, _feeds()[0]).ravel() for one in (_net(), proto))
        cosine = expected @ found / np.linalg.norm(expected) / np.linalg.norm(found)
        assert 0.999 < cosine < 1


def test_weights_have_seven_bits_where_sums_would_overflow(tmp_path: Path) -> None:
    proto = _quantizer(tmp_path, reduce_range=True).quantised(_NAMES, QuantizedReach.PRODUCTS)
    levels = [
        onnx.numpy_helper.to_array(one)
        for one in proto.graph.initializer
        if one.data_type == onnx.TensorProto.INT8 and len(one.dims) == 4
    ]
    assert len(levels) == 3 and all(abs(one.astype(int)).max() <= 64 for one in levels)


@pytest.mark.parametrize(
    ("listings", "allowed"),
    [
        ({}, _NAMES),
        ({"second": Listing.DENIED}, ("first", "third")),
        ({"Conv": Listing.DENIED, "third": Listing.ALLOWED}, ("third",)),
        ({"first": Listing.DENIED, "second": Listing.FOLLOWS}, ("third",)),
        ({"second": Listing.FOLLOWS}, _NAMES),
    ],
)
def test_lists_of_operators_count(
    tmp_path: Path, listings: dict[str, Listing], allowed: tuple[str, ...]
) -> None:
    assert allowed_products(_quantizer(tmp_path), MixLists(listings=listings)) == allowed


@pytest.mark.parametrize(("alpha", "beta"), [(1, 0.5), (2, 1), (0.5, 3), (1, 0)])
def test_factors_of_a_gemm_hold_in_integers(tmp_path: Path, alpha: float, beta: float) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 8)).astype(np.float32),
        "b": rng.standard_normal(8).astype(np.float32) * 20,
    }
    gemm = helper.make_node(
        "Gemm", ["x", "w", "b"], ["y"], "gemm", alpha=float(alpha), beta=float(beta)
    )
    net = make_model([gemm], {"x": (6, 16)}, ["y"], weights=weights)
    feed = {"x": rng.standard_normal((6, 16)).astype(np.float32)}
    quantizer = CalibratedQuantizer(net, tmp_path, [feed], reduce_range=False)
    expected = _run(net, feed)
    for reach in QuantizedReach:
        found = _run(quantizer.quantised(["gemm"], reach), feed)
        assert np.abs(found - expected).max() < 0.02 * np.abs(expected).max()


@pytest.mark.parametrize(("low", "high"), [(1, 6), (-6, -1), (0, 6)])
def test_limits_of_a_clip_hold_in_integers(tmp_path: Path, low: float, high: float) -> None:
    proto = _net()
    at = [node.op_type for node in proto.graph.node].index("Relu")
    proto.graph.node[at].op_type = "Clip"
    proto.graph.node[at].input.extend(["low", "high"])
    for name, value in (("low", low), ("high", high)):
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(np.array(value, np.float32), name)
        )
    quantizer = CalibratedQuantizer(proto, tmp_path, _feeds(), reduce_range=False)
    expected = _run(proto, _feeds()[0])
    found = _run(quantizer.quantised(_NAMES, QuantizedReach.ALL), _feeds()[0])
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_quantised_models_are_known(tmp_path: Path) -> None:
    assert not is_quantised(_net())
    assert is_quantised(_quantizer(tmp_path).quantised(_NAMES, QuantizedReach.ALL))
    for level in (0, 4):  # that rounds rows to 8 bits, or leaves them float32
        proto = workload_model(blockwise((2,), 32, 16, level=level), seed=0)
        assert is_quantised(proto) == bool(level)


# ---- whole runs ----


@pytest.fixture
def runs() -> ScriptedRuns:
    """Runs in which integers are three times as fast, and the second convolution needs float32."""
    runs = ScriptedRuns()
    runs.model = lambda baseline, tuned: 3.0 if tuned.precision is Precision.INT8 else 1.5

    def results(part: ModelPart) -> list[Any]:
        proto = onnx.load(str(part.model), load_external_data=False)
        error = 0.2 * ("second" in _in_integers(proto)) + 0.001 * bool(_in_integers(proto))
        return [np.array([1 + error, 1.0], np.float32)]

    runs.results = results
    return runs


def _tune(runs: ScriptedRuns, root: Path, **options: Any) -> TuneResult:
    given = {
        "precision_mode": "allow_mix_precision_int8",
        "accuracy": "max_relative<=0.05",
        "calibration": _feeds(),
        "trials": 2,
        "cache_mode": "disable",
    }
    root.mkdir(exist_ok=True)
    file = save_model(_net(), root / "net.onnx")
    return runs.tune(file, output=root / "out", bank=root / "bank", **(given | options))


def _summary(root: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "out" / "summary.json").read_text())
    return found


def test_what_is_inaccurate_in_integers_goes_back_and_the_rest_is_tuned(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _tune(runs, tmp_path)
    summary = _summary(tmp_path)
    rows = summary["calibration"]
    assert [row["reach"] for row in rows][:2] == ["all operators", "products"]
    assert rows[0]["inaccurate"] == ["second"] and rows[0]["speedup"] == pytest.approx(3, rel=0.05)
    assert rows[0]["accuracy"] == pytest.approx(0.001, abs=1e-5)
    assert summary["precision"] == "int8"
    assert summary["improvement_percent"] == pytest.approx(200, rel=0.05)
    assert result.om_file is not None
    assert read_manifest(result.om_file).precision is Precision.INT8
    capsys.readouterr()
    emit(TuningReport(modes=tuple(map(report_of, result.modes))), as_json=False)
    screen = capsys.readouterr().out
    assert "the model in integers, written by ONNX Runtime's quantiser" in screen
    assert "2 of 3" in screen and "(int8)" in screen


def test_tuned_model_in_integers_runs_with_the_untuned_one_to_fall_back_on(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    runs.candidate = lambda schedule: 0.5  # no kernels, which nothing here has compiled
    om_file = _tune(runs, tmp_path).om_file
    assert om_file is not None
    feed = _feeds()[0]
    found = np.asarray(aoe.load(om_file).run(None, feed)[0])
    expected = _run(_net(), feed)
    assert 0 < np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize(
    "options",
    [
        {"calibration": None},
        {"precision_mode": "allow_mix_precision_bf16"},
    ],
)
def test_integers_have_to_be_asked_for(
    runs: ScriptedRuns, tmp_path: Path, options: dict[str, Any]
) -> None:
    _tune(runs, tmp_path, **options)
    assert _summary(tmp_path)["calibration"] is None


def test_float32_stays_where_integers_are_slower_or_too_inaccurate(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path / "exact", accuracy="max_relative<=0.0001")
    summary = _summary(tmp_path / "exact")
    assert summary["calibration"] == [] and summary["precision"] == "float32"
    runs.model = lambda baseline, tuned: 0.9 if tuned.precision is Precision.INT8 else 1.5
    _tune(runs, tmp_path / "slow")
    summary = _summary(tmp_path / "slow")
    assert summary["calibration"][0]["speedup"] == pytest.approx(0.9, rel=0.05)
    assert summary["precision"] == "float32"


def test_float32_stays_where_noise_makes_integers_faster(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    """Half of all comparisons of equal models have a median above 1."""
    runs.candidate = lambda schedule: 0.5
    runs.model = lambda baseline, tuned: 1.00001 if tuned.precision is Precision.INT8 else 1.0
    _tune(runs, tmp_path)
    summary = _summary(tmp_path)
    assert any(row["speedup"] > 1 for row in summary["calibration"])
    assert summary["precision"] == "float32"


def test_model_the_quantiser_refuses_is_told_and_tuned_as_it_is(
    runs: ScriptedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("no such node")

    monkeypatch.setattr("onnxruntime.quantization.quant_pre_process", refuse)
    warned: list[str] = []
    _tune(runs, tmp_path, progress=lambda event: warned.append(event.text))
    assert any("the model is not calibrated" in one and "no such node" in one for one in warned)
    assert _summary(tmp_path)["precision"] == "float32"


def test_calibration_works_with_real_measurements(tmp_path: Path) -> None:
    file = save_model(_net(), tmp_path / "net.onnx")
    aoe.tune(
        file,
        output=tmp_path / "out",
        bank=tmp_path / "bank",
        precision_mode="allow_mix_precision_int8",
        calibration=_feeds(),
        trials=1,
        accept_busy=True,
        tuning_time_limit=30,
    )
    rows = _summary(tmp_path)["calibration"]
    assert rows and all(row["accuracy"] >= 0.999 for row in rows)
    assert all(row["speedup"] is None or row["speedup"] > 0 for row in rows)  # None: no time left


# ---- choices of earlier runs ----


def _called(runs: ScriptedRuns, task: str) -> int:
    """Return how often a task was asked for since the last call."""
    count = sum(len(runner.asked(task)) for runner in runs.runners)
    runs.runners.clear()
    return count


def _told(root: Path, runs: ScriptedRuns, **options: Any) -> str:
    """Tune once more, into another folder; return what was told meanwhile."""
    told: list[str] = []
    _tune(runs, root, progress=lambda event: told.append(event.text), **options)
    return "\n".join(told)


def test_later_run_takes_the_choice_of_the_bank(
    runs: ScriptedRuns, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _tune(runs, tmp_path)
    first, models_run = _summary(tmp_path), _called(runs, "run_model")
    result = _tune(runs, tmp_path)
    again = _summary(tmp_path)
    assert again["calibration"] == first["calibration"]
    assert (first["calibration_from_bank"], again["calibration_from_bank"]) == (False, True)
    assert again["precision"] == "int8"
    # of the untuned model and of the form, to check its accuracy, and those of the whole model
    assert _called(runs, "run_model") <= models_run - 3
    capsys.readouterr()
    emit(TuningReport(modes=tuple(map(report_of, result.modes))), as_json=False)
    assert "without kernels (measured by an earlier run: all figures):" in " ".join(
        capsys.readouterr().out.split()
    )
    found = aoebank.validate(tmp_path / "bank").findings
    assert {one.code for one in found} == {"AB401"}  # its record has no time, which is a note


def test_float32_that_stayed_stays_without_a_run(runs: ScriptedRuns, tmp_path: Path) -> None:
    _tune(runs, tmp_path, accuracy="max_relative<=0.0001")
    runs.runners.clear()
    told = _told(tmp_path, runs, accuracy="max_relative<=0.0001")
    assert "float32 stays, as in the bank" in told
    assert _summary(tmp_path)["calibration"] == []


@pytest.mark.parametrize(
    "changed",
    [
        {"calibration": _feeds(2)},
        {"accuracy": "max_relative<=0.06"},
        {"repeat_tune": True},
    ],
    ids=["inputs", "accuracy", "REPEAT_TUNE"],
)
def test_choice_is_made_anew_for_other_inputs_and_bounds(
    runs: ScriptedRuns, tmp_path: Path, changed: dict[str, Any]
) -> None:
    _tune(runs, tmp_path)
    _tune(runs, tmp_path, **changed)
    assert not _summary(tmp_path)["calibration_from_bank"]


def test_choice_that_does_not_hold_any_more_is_made_anew(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path)
    results = runs.results
    runs.results = lambda part: (
        [np.array([1.3, 1.0], np.float32)]
        if "third" in _in_integers(onnx.load(str(part.model), load_external_data=False))
        else results(part)
    )
    told = _told(tmp_path, runs)
    assert "the choice in the bank does not hold here" in told
    assert "third" in _summary(tmp_path)["calibration"][0]["inaccurate"]


def test_choice_of_an_earlier_result_is_taken_and_is_in_the_bank_then(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path / "first")
    shutil.copytree(tmp_path / "first" / "out", tmp_path / "earlier")
    for options in ({"base_result": tmp_path / "earlier"}, {}):
        _tune(runs, tmp_path / "second", **options)
        assert _summary(tmp_path / "second")["calibration_from_bank"]


def test_compiling_takes_the_choice_of_the_bank_and_makes_none(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path, lookup_only=True)
    assert _summary(tmp_path)["calibration"] is None
    _tune(runs, tmp_path)
    _tune(runs, tmp_path, lookup_only=True)
    assert _summary(tmp_path)["precision"] == "int8"


def test_looking_up_remembers_no_choice_of_an_earlier_result(
    runs: ScriptedRuns, tmp_path: Path
) -> None:
    _tune(runs, tmp_path / "first")
    _tune(runs, tmp_path / "second", base_result=tmp_path / "first" / "out", lookup_only=True)
    summary = _summary(tmp_path / "second")
    assert (summary["precision"], summary["calibration_from_bank"]) == ("int8", True)
    assert not any((tmp_path / "second" / "bank").rglob("*.json"))
    found = _tune(
        runs, tmp_path / "third", base_result=tmp_path / "second" / "out", lookup_only=True
    )
    assert found.om_file is not None  # the choice went with the results
    assert _summary(tmp_path / "third")["calibration_from_bank"]


def test_damaged_choice_counts_as_none(runs: ScriptedRuns, tmp_path: Path) -> None:
    _tune(runs, tmp_path)
    (file,) = (tmp_path / "bank").rglob("*_calibration.json")
    text = file.read_text()
    no_float = f'"speedup": 1{"0" * 400}, "was": '
    for old, new in (
        ("all operators", "some"),
        ('"chosen": ', '"chosen": 9'),
        ('"speedup": ', no_float),
    ):
        assert old in text
        file.write_text(text.replace(old, new))
        _tune(runs, tmp_path)
        assert not _summary(tmp_path)["calibration_from_bank"]
