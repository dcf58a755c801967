"""Root mean square normalisations in other parts: those ONNX Runtime joins, the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.engine.cpu import open_session
from support.engine.models import make_model

from aoe.ort.offline_optimization import optimize_offline
from aoe.ort.sessions import session_options
from aoe.ort.spelling.roots import spell_roots

SHAPE = (2, 5, 24)
KNOWN = ["Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul"]


def make(
    *,
    square: str = "Mul",
    inverse: bool = True,
    swapped: bool = False,
    opset: int = 18,
    axis: int = -1,
    scaled: bool = True,
    divided: str = "x",
    element: type[np.floating] = np.float32,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """Return x / sqrt(mean square + epsilon), scaled, in parts."""
    rng = np.random.default_rng(1)
    weights = {
        "two": np.array(2, element),
        "eps": np.array(1e-3, element),
        "s": rng.standard_normal(SHAPE[-1]).astype(element),
    }
    if opset >= 18:
        weights["axes"] = np.array([axis], np.int64)
    mean = ["q", "axes"] if opset >= 18 else ["q"]
    attributes = {} if opset >= 18 else {"axes": [axis]}
    factors = ["i", divided] if swapped else [divided, "i"]
    result = "n" if scaled else "y"
    nodes = [
        helper.make_node(square, ["x", "x" if square == "Mul" else "two"], ["q"], "q"),
        helper.make_node("ReduceMean", mean, ["m"], "m", **attributes),
        helper.make_node("Add", ["m", "eps"], ["a"], "a"),
        helper.make_node("Sqrt", ["a"], ["r"], "r"),
    ]
    if inverse:
        nodes.append(helper.make_node("Reciprocal", ["r"], ["i"], "i"))
        nodes.append(helper.make_node("Mul", factors, [result], "n"))
    else:
        nodes.append(helper.make_node("Div", [divided, "r"], [result], "n"))
    if scaled:
        nodes.append(helper.make_node("Mul", ["s", "n"], ["y"], "y"))
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(element))
    names = dict.fromkeys((*outputs, "x", "z"), kind)
    inputs = {"x": SHAPE} | ({"z": SHAPE} if divided == "z" else {})
    return make_model(nodes, inputs, outputs, weights=weights, opset=opset, types=names)


def _kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    "model",
    [
        make(),
        make(square="Pow"),
        make(inverse=False),
        make(swapped=True, opset=17),
    ],
    ids=["PyTorch's, a product", "PyTorch's, a power", "a quotient", "the other way round"],
)
def test_parts_are_joined_and_make_the_same_numbers(model: onnx.ModelProto, tmp_path: Path) -> None:
    spelled = spell_roots(model)
    assert _kinds(spelled) == KNOWN
    assert [node.name for node in spelled.graph.node] == [*"qmarny"]
    optimized = optimize_offline(model, tmp_path / "optimized.onnx", open_session, threads=1)
    assert _kinds(optimized) == ["SimplifiedLayerNormalization"]
    x = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    x[0, 0], x[0, 1, 3], x[1, 2, 0] = 0, np.inf, np.nan
    session = open_session(spelled.SerializeToString(), session_options(threads=1, optimize=True))
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [
        make(square="Pow", inverse=False),
        make(axis=1),
        make(scaled=False),
        make(divided="z"),
        make(element=np.float64),
        *(make(outputs=("y", name)) for name in "qri"),
    ],
    ids=["as it is joined", "another axis", "no scale", "another dividend", "float64", *"qri"],
)
def test_other_parts_are_left_alone(model: onnx.ModelProto) -> None:
    assert spell_roots(model) is model


def test_default_that_may_be_overridden_is_no_constant() -> None:
    model = make()
    model.graph.input.append(helper.make_tensor_value_info("eps", TensorProto.FLOAT, []))
    assert spell_roots(model) is model
