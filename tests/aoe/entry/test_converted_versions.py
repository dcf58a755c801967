"""Models that the version converter of ONNX has changed: refused or warned of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, version_converter
from support.commands import aoe_exit_code
from support.engine.models import make_model, save_model

from aoe.entry.onnx_file import load_onnx
from aoe.errors import ModelImportError

SHAPE = (1, 8, 4, 4)


def _groups(opset: int = 18, groups: int = 2, values: int = 2) -> onnx.ModelProto:
    weights = {name: np.ones(values, np.float32) for name in ("scale", "bias")}
    node = helper.make_node(
        "GroupNormalization", ["a", "scale", "bias"], ["y"], name="norm", num_groups=groups
    )
    nodes = [helper.make_node("Relu", ["x"], ["a"]), node]
    return make_model(nodes, {"x": SHAPE}, {"y": SHAPE}, weights=weights, opset=opset)


def test_group_normalisation_of_the_converter_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    converted = version_converter.convert_version(_groups(), 21)
    onnx.checker.check_model(converted, full_check=True)
    file = save_model(converted, tmp_path / "net.onnx")
    with pytest.raises(
        ModelImportError, match=r"Normalization norm: scale and bias are of its gro"
    ):
        load_onnx(file, {})
    assert aoe_exit_code(["plan", file]) == 3
    said = capsys.readouterr().err
    assert "(got 2 values, expected 8, one for each channel)" in said
    assert "hint: the version converter of ONNX leaves them as they were" in said


@pytest.mark.parametrize(
    "model", [_groups(), _groups(21, values=8), _groups(21, groups=8, values=8)]
)
def test_usual_group_normalisations_are_read(model: onnx.ModelProto, tmp_path: Path) -> None:
    assert not load_onnx(save_model(model, tmp_path / "net.onnx"), {}).caveat


def test_softmax_of_the_converter_is_told(tmp_path: Path) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], name="weights", axis=1)
    model = make_model([node], {"x": (2, 3, 4)}, {"y": (2, 3, 4)}, opset=13, ir_version=8)
    converted = version_converter.convert_version(model, 12)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    before, after = (
        ort.InferenceSession(one.SerializeToString()).run(None, {"x": x})[0]
        for one in (model, converted)
    )
    assert np.abs(before - after).max() > 0.1
    caveat = load_onnx(save_model(converted, tmp_path / "net.onnx"), {}).caveat
    assert caveat.startswith("Softmax weights of opset 12 is over axes 1 to 2 together, and along")
    assert not load_onnx(save_model(model, tmp_path / "net.onnx"), {}).caveat


@pytest.mark.parametrize(("shape", "axis"), [((2, 3), 1), ((2, 3, 1, 1), 1), ((2, 3, 4), -1)])
def test_softmax_over_one_axis_that_is_long_is_not_told(
    shape: tuple[int, ...], axis: int, tmp_path: Path
) -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=axis)
    model = make_model([node], {"x": shape}, {"y": shape}, opset=11, ir_version=6)
    assert not load_onnx(save_model(model, tmp_path / "net.onnx"), {}).caveat
