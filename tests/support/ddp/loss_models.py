"""ONNX models that end in a loss, as an exporter writes them for training."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from support.engine.models import make_model

WIDTHS = (8, 16, 4)


def skip_without_converter() -> None:
    """Skip a test where there is no `onnx2torch`, or its torchvision was made for another torch."""
    try:
        import onnx2torch  # noqa: F401
    except (ImportError, RuntimeError, AttributeError) as error:
        pytest.skip(f"onnx2torch cannot be imported: {error}")


def make_loss_model(
    *, names: tuple[str, str] = ("first", "last"), opset: int = 17
) -> onnx.ModelProto:
    """Return two linear layers and cross entropy; outputs `loss` and `scores`.

    Args:
        names: Of the layers.
        opset: Of the operators.
    """
    first, last = names
    rng = np.random.default_rng(0)
    arrays = {
        f"{first}.weight": rng.standard_normal(WIDTHS[1::-1]),
        f"{first}.bias": rng.standard_normal(WIDTHS[1]),
        f"{last}.weight": rng.standard_normal((WIDTHS[1], WIDTHS[2])),
        f"{last}.scale": rng.standard_normal(WIDTHS[2]),
    }
    nodes = [
        helper.make_node("Gemm", ["input", f"{first}.weight", f"{first}.bias"], ["a"], transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", f"{last}.weight"], ["c"]),
        helper.make_node("Mul", ["c", f"{last}.scale"], ["scores"]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["scores", "label"], ["loss"]),
    ]
    return make_model(
        nodes,
        {"input": ["n", WIDTHS[0]], "label": ["n"]},
        {"loss": [], "scores": ["n", WIDTHS[2]]},
        weights={name: value.astype(np.float32) for name, value in arrays.items()},
        opset=opset,
        ir_version=10,
        types={"label": TensorProto.INT64},
    )
