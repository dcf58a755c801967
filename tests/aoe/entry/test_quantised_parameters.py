"""Quantised models no quantiser should have written: named, and refused or computed as before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.commands import aoe_exit_code
from support.engine.quantized import SHAPE, Graph, int8_model
from support.engine.scripted_runs import ScriptedRuns

import aoe

_CHANNELS = 8


@pytest.fixture(autouse=True)
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bank").mkdir()
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "bank"))


def _conv(
    *,
    scale: float = 0.05,
    zero: str = "int8",
    weight_scale: Any = 0.02,
    weight_zero: Any = 0,
    weight_zero_type: str = "int8",
    **axis: int,
) -> onnx.ModelProto:
    """Return a quantised convolution of 8 channels, by QuantizeLinear and DequantizeLinear."""
    graph = Graph()
    codes = np.random.default_rng(0).integers(-100, 100, (_CHANNELS, 4, 3, 3))
    parameters = graph.constant(scale), graph.constant(3, zero)
    x = graph.add("DequantizeLinear", graph.add("QuantizeLinear", "x", *parameters), *parameters)
    weights = graph.add(
        "DequantizeLinear",
        graph.constant(codes, "int8"),
        graph.constant(weight_scale),
        graph.constant(weight_zero, weight_zero_type),
        **axis,
    )
    return _with_output(graph, _levels(graph, _product(graph, x, weights)))


def _product(graph: Graph, x: str, weights: str) -> str:
    return graph.add("Conv", x, weights, kernel_shape=[3, 3], pads=[1] * 4)


def _levels(graph: Graph, x: str) -> str:
    return graph.dequantized(graph.quantized(x, 0.1, 0), 0.1, 0)


_MADE = (1, _CHANNELS, *SHAPE[2:])


def _with_output(graph: Graph, name: str, made: tuple[int, ...] = _MADE) -> onnx.ModelProto:
    model = graph.model(name)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.FLOAT, made))
    return model


def _sums() -> onnx.ModelProto:
    """Return a product of integers, whose sums have a zero point of 0 of their own type."""
    graph = Graph()
    codes = np.random.default_rng(0).integers(-100, 100, (SHAPE[3], _CHANNELS))
    sums = graph.add("MatMulInteger", graph.quantized("x", 0.1, 0), graph.constant(codes, "int8"))
    parameters = graph.constant(0.002), graph.constant(0, "int32")
    made = (*SHAPE[:3], _CHANNELS)
    return _with_output(graph, graph.add("DequantizeLinear", sums, *parameters), made)


def _blocks(scale: float) -> onnx.ModelProto:
    """Return a product by weights of 4 bits in blocks, the first of which has another scale."""
    graph = Graph()
    scales = np.full((_CHANNELS, 1), 0.05)
    scales[0] = scale
    x = graph.add("Flatten", "x", axis=3)
    codes = np.random.default_rng(0).integers(0, 256, (_CHANNELS, 1, 8))
    weights = graph.constant(codes, "uint8"), graph.constant(scales)
    parameters = {"K": SHAPE[3], "N": _CHANNELS, "bits": 4, "block_size": 16}
    name = graph.add("MatMulNBits", x, *weights, domain="com.microsoft", **parameters)
    return _with_output(graph, name, (SHAPE[1] * SHAPE[2], _CHANNELS))


def _pooled(scale: float) -> onnx.ModelProto:
    graph = Graph()
    codes, points = graph.quantized("x"), (graph.constant(0.05), graph.constant(3, "int8"))
    made = graph.constant(scale), graph.constant(0, "int8")
    operands = (codes, *points, *made)
    name = graph.add("QLinearSigmoid", *operands, domain="com.microsoft")
    return _with_output(graph, graph.dequantized(name, 0.1, 0), SHAPE)


def _activations_of(kind: int) -> onnx.ModelProto:
    """Return a convolution of activations of another type, by weights of int8."""
    graph = Graph(opset=21)
    graph.constants.append(helper.make_tensor("zero", kind, [], [0]))
    scale = graph.constant(0.05)
    x = graph.add(
        "DequantizeLinear", graph.add("QuantizeLinear", "x", scale, "zero"), scale, "zero"
    )
    codes = np.random.default_rng(0).integers(-100, 100, (_CHANNELS, 4, 3, 3))
    weights = graph.dequantized(graph.constant(codes, "int8"), 0.02, 0)
    return _with_output(graph, _product(graph, x, weights))


def _run(model: onnx.ModelProto) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray[Any, Any] = session.run(None, {"x": x})[0]
    return found


def _command(model: onnx.ModelProto, root: Path, *options: str) -> int:
    """Tune a file by the command, measured by a script in which nothing is faster."""
    onnx.save(model, str(root / "net.onnx"))
    runs = ScriptedRuns(model=lambda baseline, tuned: 1.0, candidate=lambda schedule: 0.5)
    words = [
        *(f"--model={root / 'net.onnx'}", "--framework=5", "--job_type=2"),
        *(f"--output={root / 'out'}", *options),
    ]
    return aoe_exit_code(words, runs.engine)


_PER_CHANNEL = {"weight_scale": [0.02] * _CHANNELS, "weight_zero": [0] * _CHANNELS}
_NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: _conv(scale=0.0),
            (
                "QuantizeLinear QuantizeLinear_0_0: a scale stands for no distance of numbers "
                "(got 0, expected finite numbers other than 0)"
            ),
        ),
        (lambda: _conv(scale=_NAN), "(got nan, expected finite numbers other than 0)"),
        (
            lambda: _conv(**_PER_CHANNEL | {"weight_scale": [0.02] * 6 + [_NAN, 0.0]}, axis=0),
            (
                "DequantizeLinear DequantizeLinear_2_0: a scale stands for no distance of numbers "
                "(got nan in 2 of 8 values"
            ),
        ),
        (lambda: _conv(**_PER_CHANNEL, axis=9), "axis is out of range (got 9, expected -4 to 3)"),
        (lambda: _conv(**_PER_CHANNEL, axis=-5), "(got -5, expected -4 to 3)"),
        (
            lambda: _conv(**_PER_CHANNEL, axis=1),
            "the scale does not go with axis 1 (got 8 values, expected 4, one for each part)",
        ),
        (
            lambda: _conv(weight_scale=[0.02] * _CHANNELS, axis=0),
            (
                "scale and zero point are not for the same parts of the tensor (got a scale of "
                "shape [8], a zero point of [], expected equal shapes)"
            ),
        ),
        (
            lambda: _blocks(_NAN),
            (
                "MatMulNBits_1_0: a scale stands for no distance of numbers "
                "(got nan in 1 of 8 values, expected finite numbers)"
            ),
        ),
        (lambda: _pooled(0.0), "QLinearSigmoid_1_0: a scale stands for no distance of numbers"),
        (lambda: _activations_of(TensorProto.INT16), "1 tensor of int16: there is no kernel"),
        (lambda: _activations_of(TensorProto.UINT16), "1 tensor of uint16: there is no kernel"),
        (lambda: _activations_of(TensorProto.INT4), "1 tensor of int4: there is no kernel"),
        (lambda: _activations_of(TensorProto.FLOAT8E4M3FN), "1 tensor of float8e4m3fn: there is"),
    ],
)
def test_odd_parameters_are_told_and_computed_by_onnx_runtime_as_before(
    make: Callable[[], onnx.ModelProto],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = make()
    assert _command(model, tmp_path) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"{told}" in said and "warning: " in said
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    found = aoe.load(next((tmp_path / "out").glob("*.om"))).run(None, {"x": x})[0]
    np.testing.assert_array_equal(np.asarray(found), _run(model))


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: _conv(weight_zero_type="uint8"),
            (
                "DequantizeLinear DequantizeLinear_2_0: the zero point has another type than the "
                "integers (got uint8, expected int8)"
            ),
        ),
        (
            lambda: _conv(zero="int32"),
            (
                "QuantizeLinear QuantizeLinear_0_0: the zero point has a type that no tensor is "
                "quantised to (got int32, expected uint8 or int8"
            ),
        ),
    ],
)
def test_zero_points_of_another_type_are_refused_with_the_way_out(
    make: Callable[[], onnx.ModelProto],
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _command(make(), tmp_path) == 3
    said = " ".join(capsys.readouterr().err.split())
    assert f"{tmp_path / 'net.onnx'}: {told}" in said and "hint: " in said


def test_what_a_quantiser_writes_is_told_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(onnx.load(str(int8_model(tmp_path))), tmp_path) == 0
    assert _command(_blocks(0.0), tmp_path) == 0  # a block of zeros
    assert _command(_sums(), tmp_path) == 0
    assert "warning" not in capsys.readouterr().err


# ---- inputs of --calibration ----


def _float_net() -> onnx.ModelProto:
    graph = Graph()
    weights = graph.constant(np.random.default_rng(0).normal(size=(_CHANNELS, 4, 3, 3)))
    return _with_output(graph, _product(graph, "x", weights))


_GOOD = np.zeros(SHAPE, np.float32)


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"x": np.zeros((1, 4, 6, 7), np.float32)}, "another shape (got (1, 4, 6, 7), expected"),
        ({"x": np.zeros(SHAPE)}, "another element type (got float64, expected float32)"),
        ({"x": np.full(SHAPE, np.nan, np.float32)}, "has NaN, from which no range can be taken"),
        ({"y": _GOOD}, "the model has no such input (got y, expected ['x'])"),
        ({}, "no arrays there"),
        (None, "no such directory"),
    ],
    ids=["shape", "type", "NaN", "name", "empty", "missing"],
)
def test_calibration_data_that_does_not_fit_is_refused(
    arrays: dict[str, Any] | None,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "sets"
    if arrays is not None:
        (folder / "first").mkdir(parents=True)
    for name, array in (arrays or {}).items():
        np.save(folder / "first" / f"{name}.npy", array)
    options = ("--precision_mode=allow_mix_precision_int8", f"--calibration={folder}")
    assert _command(_float_net(), tmp_path, *options) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert told in said and str(folder) in said
