"""Models whose optimised form in ONNX Runtime computes something else: computed right, and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.engine.models import make_model

import aoe

Array = np.ndarray[Any, Any]
DEPTH, COLUMNS, BLOCK = 64, 48, 32


def block_wise() -> onnx.ModelProto:
    """Return a product by weights of 4 bits, a scale for each block along axis 0.

    ONNX Runtime's optimised form rounds its activations to 8 bits
    (findings/onnxruntime_int4_rounds_activations.sh).
    """
    rng = np.random.default_rng(0)
    levels = rng.integers(-8, 8, (DEPTH, COLUMNS))
    scales = rng.random((DEPTH // BLOCK, COLUMNS), np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0, block_size=BLOCK),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    model = make_model(nodes, {"x": [40, DEPTH]}, {"y": [40, COLUMNS]}, opset=21)
    model.graph.initializer.extend(
        [
            helper.make_tensor("q", TensorProto.INT4, levels.shape, levels.ravel().tolist()),
            numpy_helper.from_array(scales, "s"),
        ]
    )
    model.ir_version = 10
    return model


def _run(model: onnx.ModelProto, x: Array, level: ort.GraphOptimizationLevel) -> Array:
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    found: Array = ort.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0]
    return found


def _error(found: Any, meant: Array) -> float:
    return float(np.abs(np.asarray(found) - meant).max() / np.abs(meant).max())


def _tuned(root: Path, **options: Any) -> tuple[aoe.TuneResult, str]:
    onnx.save(block_wise(), str(root / "net.onnx"))
    (root / "bank").mkdir(exist_ok=True)
    told: list[str] = []
    found = aoe.tune(
        root / "net.onnx",
        bank=root / "bank",
        output=root / "out",
        aicore_num=1,
        trials=1,
        tuning_time_limit=30,
        accept_busy=True,
        progress=lambda event: told.append(event.text),
        **options,
    )
    return found, "\n".join(told)


def test_model_is_computed_right_where_onnx_runtimes_optimised_form_is_not(tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((40, DEPTH), np.float32)
    levels = ort.GraphOptimizationLevel
    meant = _run(block_wise(), x, levels.ORT_DISABLE_ALL)
    assert _error(_run(block_wise(), x, levels.ORT_ENABLE_ALL), meant) > 1e-3
    found, told = _tuned(tmp_path, strict_fp32=True)
    assert found.om_file is not None
    assert _error(aoe.load(found.om_file).run(None, {"x": x})[0], meant) < 1e-5
    assert "ONNX Runtime's optimised form of the model computes something else" in told
    assert "all optimisations but 8-bit activations of MatMulNBits" in told
    mode: Any = found.modes[-1]
    assert "8-bit activations of MatMulNBits" in mode.summary()["baseline"]

    again, told = _tuned(tmp_path, strict_fp32=True)  # as the bank knows by now
    assert "holding ONNX Runtime's optimised form" not in told
    assert "all optimisations but 8-bit activations of MatMulNBits" in told
    assert again.om_file is not None
    assert _error(aoe.load(again.om_file).run(None, {"x": x})[0], meant) < 1e-5


@pytest.mark.parametrize(
    "options", [{}, {"precision_mode": "allow_mix_precision_int8", "accuracy": "cosine>=0.99"}]
)
def test_rows_in_8_bits_stay_unless_float32_is_asked_for(
    tmp_path: Path, options: dict[str, str]
) -> None:
    """They are what a deployed file runs with, and three times as fast."""
    found, told = _tuned(tmp_path, **options)
    assert "computes something else" not in told
    mode: Any = found.modes[-1]
    assert "8-bit activations" not in mode.summary()["baseline"]


def test_looking_up_finds_out_and_remembers_nothing(tmp_path: Path) -> None:
    found, told = _tuned(tmp_path, strict_fp32=True, lookup_only=True)
    assert "all optimisations but 8-bit activations of MatMulNBits" in told
    assert found.om_file is not None and not any((tmp_path / "bank").rglob("*.json"))
