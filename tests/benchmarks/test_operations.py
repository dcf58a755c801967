"""Multiply-adds are counted as they are on paper; the roof is a positive figure."""

from __future__ import annotations

import shutil
from pathlib import Path

import onnx
import pytest
from comparison.operations import FmaRoof, multiply_adds
from onnx import helper
from support.engine.models import make_model

Shape = list[int]


def _model(
    op_type: str, inputs: list[Shape], output: Shape, **attributes: object
) -> onnx.ModelProto:
    shapes = {f"x{index}": shape for index, shape in enumerate(inputs)}
    node = helper.make_node(op_type, [*shapes], ["y"], **attributes)
    return make_model([node], shapes, {"y": output})


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (_model("Conv", [[1, 3, 8, 8], [16, 3, 3, 3]], [1, 16, 8, 8]), 16 * 64 * 27),
        (_model("Conv", [[1, 8, 9], [8, 1, 5]], [1, 8, 9], group=8), 8 * 9 * 5),
        (_model("ConvTranspose", [[1, 4, 5, 5], [4, 6, 2, 2]], [1, 6, 10, 10]), 100 * 24),
        (_model("Gemm", [[7, 3], [7, 5]], [3, 5], transA=1), 3 * 5 * 7),
        (_model("MatMul", [[2, 4, 9, 6], [6, 8]], [2, 4, 9, 8]), 2 * 4 * 9 * 6 * 8),
        (_model("LSTM", [[11, 1, 3], [2, 20, 3], [2, 20, 5]], [11, 2, 1, 5]), 11 * 2 * 20 * 8),
        (_model("Relu", [[5]], [5]), 0),
    ],
    ids=["conv", "depthwise", "transposed", "gemm", "matmul", "lstm", "relu"],
)
def test_multiply_adds_are_those_on_paper(model: onnx.ModelProto, expected: int) -> None:
    assert multiply_adds(model) == expected


def test_open_shape_is_named() -> None:
    model = _model("MatMul", [[2, 3], [3, 4]], [2, 4])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(ValueError, match=r"MatMul .*input 0 has no static shape"):
        multiply_adds(model)


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_roof_is_measured(tmp_path: Path) -> None:
    assert FmaRoof(tmp_path).measure(1) > 1e6
