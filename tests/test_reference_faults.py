"""The table of docs/kernels.md of what `onnx.reference` is no oracle for, with numbers.

Each case is computed by ONNX Runtime, by the reference and by NumPy in float64. When a release of
onnx mends one, its test fails: the row of the page and of `support.reference_faults` can go.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from support.engine.cpu import open_session
from support.engine.models import make_model
from support.reference_faults import misjudged

from aoe.ort.sessions import run_session, session_options

Array = np.ndarray[Any, Any]
_PAGE = Path(__file__).parents[1] / "docs" / "kernels.md"
_RNG = np.random.default_rng(0)
_X = _RNG.standard_normal((2, 3, 4)).astype(np.float32)
_IMAGE = _RNG.standard_normal((1, 6, 7, 7)).astype(np.float32)
_Q, _K = (_RNG.standard_normal((1, 1, rows, 4)).astype(np.float32) for rows in (2, 3))
_LINE = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)


def one(
    op_type: str,
    opset: int,
    feed: dict[str, Array],
    exact: Array,
    *,
    results: tuple[str, ...] = ("y",),
    weights: dict[str, Array] | None = None,
    inputs: tuple[str, ...] = (),
    **said: Any,
) -> tuple[onnx.ModelProto, dict[str, Array], Array]:
    """Return a model of one operator, what it is computed of, and its last result in float64."""
    node = helper.make_node(op_type, [*(inputs or feed)], [*results], **said)
    shapes = {name: array.shape for name, array in feed.items()}
    names = [name for name in results if name]
    model = make_model([node], shapes, names, weights=weights, opset=opset, ir_version=10)
    return model, feed, exact


def _normalized() -> Array:
    squares = np.pad(_IMAGE.astype(np.float64) ** 2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    normal: Array = _IMAGE / (1 + 0.5 / 3 * total) ** 0.75
    return normal


def _pooled(of: Callable[[Array], float]) -> Array:
    """Return windows of 3 in steps of 3, the last of a single row or column."""
    made = np.empty((1, 6, 3, 3))
    for row, column in np.ndindex(3, 3):
        window = _IMAGE[:, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        made[0, :, row, column] = [of(part.astype(np.float64)) for part in window[0]]
    return made


def _flat_softmax() -> Array:
    rows = np.exp(_X.reshape(2, 12).astype(np.float64))
    made: Array = (rows / rows.sum(axis=1, keepdims=True)).reshape(_X.shape)
    return made


def _flat_hardmax() -> Array:
    rows = _X.reshape(2, 12)
    made: Array = (rows == rows.max(axis=1, keepdims=True)).astype(np.float64).reshape(_X.shape)
    return made


def _aligned() -> Array:
    """Return 7 elements as 8: both ends are those of the line, and ties go down."""
    places = np.ceil(np.arange(8) * (6 / 7) - 0.5)
    made: Array = places.reshape(1, 1, 1, 8)
    return made


_POOL: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [3, 3], "ceil_mode": 1}
CASES = {
    "LRN": one("LRN", 13, {"x": _IMAGE}, _normalized(), size=3, alpha=0.5, beta=0.75, bias=1.0),
    "AveragePool": one("AveragePool", 19, {"x": _IMAGE}, _pooled(lambda x: x.mean()), **_POOL),
    "LpPool": one(
        "LpPool", 18, {"x": _IMAGE}, _pooled(lambda x: float(np.sqrt((x**2).sum()))), **_POOL
    ),
    "Softmax": one("Softmax", 12, {"x": _X}, _flat_softmax(), axis=1),
    "LogSoftmax": one("LogSoftmax", 12, {"x": _X}, np.log(_flat_softmax()), axis=1),
    "Hardmax": one("Hardmax", 12, {"x": _X}, _flat_hardmax(), axis=1),
    "Attention": one(
        "Attention",
        23,
        {"q": _Q, "k": _K, "v": _K},
        (_Q.astype(np.float64) @ _K.swapaxes(2, 3)) / 2,
        results=("y", "", "", "scores"),
        softcap=2.0,
        qk_matmul_output_mode=0,
    ),
    "Resize": one(
        "Resize",
        19,
        {"x": _LINE},
        _aligned(),
        inputs=("x", "", "scales"),
        weights={"scales": np.array([1, 1, 1, 1.25], np.float32)},
        mode="nearest",
        nearest_mode="round_prefer_floor",
        coordinate_transformation_mode="align_corners",
    ),
    "LpNormalization": one(
        "LpNormalization",
        22,
        {"x": _X},
        _X / np.abs(_X.astype(np.float64)).sum(axis=-1, keepdims=True),
        p=1,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_reference_is_wrong_where_the_page_says_so(name: str) -> None:
    model, feed, exact = CASES[name]
    assert misjudged(model) == name
    assert f"| `{name}`" in _PAGE.read_text(encoding="utf-8")
    options = session_options(threads=1, optimize=False)
    found = run_session(open_session(model.SerializeToString(), options), feed)[-1]
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-6)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        evaluated = np.asarray(ReferenceEvaluator(model).run(None, feed)[-1])  # type: ignore[index]
    assert evaluated.shape != exact.shape or np.abs(evaluated - exact).max() > 1e-3


def test_usual_models_are_judged_by_the_reference() -> None:
    for node in (
        helper.make_node("Softmax", ["x"], ["y"], axis=1),
        helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3]),
        helper.make_node("Resize", ["x", "", "s"], ["y"], mode="linear"),
    ):
        assert not misjudged(make_model([node], {"x": (2, 3, 4)}, ["y"]))
