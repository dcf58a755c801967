"""ONNX Runtime's own optimisation, of models with their weights inside and outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from support.contracts.small_models import SmallModel
from support.engine.cpu import open_session
from support.engine.models import conv_net, make_model, matmul_net, save_model

from aoe.device.registry import default_device
from aoe.graph.model_graph import attributes_of
from aoe.graph.weights import array_of, is_outside, laid_out, place_of
from aoe.ort.offline_optimization import with_functions_in_place
from aoe.ort.sessions import session_options
from aoe.workload import NCHWC_DOMAIN


def _optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    folder.mkdir()
    return default_device().optimize(model, folder / "optimized.onnx", threads=1)


@pytest.mark.parametrize("model", [conv_net(), matmul_net(width=64)], ids=["conv", "matmul"])
def test_model_whose_weights_are_laid_into_a_file_is_optimised_alike(
    model: onnx.ModelProto, tmp_path: Path
) -> None:
    laid = laid_out(model, tmp_path / "weights.bin", limit_bytes=1000)
    inside, outside = _optimized(model, tmp_path / "in"), _optimized(laid, tmp_path / "out")
    assert not is_outside(inside) and is_outside(laid) and is_outside(outside)
    assert list(inside.graph.node) == list(outside.graph.node)
    for one, other in zip(inside.graph.initializer, outside.graph.initializer, strict=True):
        assert one.name == other.name
        np.testing.assert_array_equal(array_of(one), array_of(other))


def test_weights_that_stay_as_they_were_are_read_where_they_were(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    laid = laid_out(matmul_net(width=64), file, limit_bytes=1000)
    optimized = _optimized(laid, tmp_path / "out")
    files = {place.file for t in optimized.graph.initializer if (place := place_of(t))}
    assert files == {file.absolute()}
    assert not (tmp_path / "out" / "optimized.onnx.weights").exists()


def test_model_of_few_weights_stays_as_it_is(tmp_path: Path) -> None:
    model = conv_net()
    assert laid_out(model, tmp_path / "weights.bin") is model
    assert not (tmp_path / "weights.bin").exists()


@pytest.mark.parametrize(("side", "written"), [(3, True), (1, False)])
def test_filters_in_groups_say_their_extents_where_the_model_does_not(
    side: int, *, written: bool, tmp_path: Path
) -> None:
    if not default_device().channel_block():
        pytest.skip("no blocked layout on this CPU")
    model = SmallModel()
    x = model.input(1, 32, 8, 8)
    weights = model.weight(32, 1, side, side)
    proto = model.model(model.op("Conv", x, weights, group=32, pads=[side // 2] * 4))
    (node,) = (n for n in _optimized(proto, tmp_path / "out").graph.node if n.op_type == "Conv")
    assert node.domain == NCHWC_DOMAIN
    assert attributes_of(node).get("kernel_shape") == ((side, side) if written else None)


@pytest.mark.parametrize("form", QuantFormat, ids=str)
def test_quantised_network_of_nodes_without_names_computes_the_same(
    form: QuantFormat, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((16, 3, 3, 3), np.float32),
        "v": rng.standard_normal((16, 10), np.float32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "v"], ["y"]),
    ]
    inputs = [{"x": rng.standard_normal((1, 3, 8, 8), np.float32)}]
    file, reader = tmp_path / "net.onnx", _Reader(inputs)
    save_model(make_model(nodes, {"x": (1, 3, 8, 8)}, {"y": (1, 10)}, weights=weights), file)
    quantize_static(str(file), str(file), reader, quant_format=form)
    model = onnx.load(str(file))
    optimized = _optimized(model, tmp_path / "out")
    results = [
        open_session(proto.SerializeToString(), session_options(threads=1, optimize=optimize))
        for proto, optimize in ((model, True), (optimized, False))
    ]
    first, second = (session.run(None, inputs[0])[0] for session in results)
    np.testing.assert_array_equal(first, second)


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, inputs: list[dict[str, Any]]) -> None:
        self._inputs = iter(inputs)

    def get_next(self) -> dict[str, Any] | None:
        return next(self._inputs, None)


def _types(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("outside", [False, True])
def test_functions_of_operators_are_optimised_to_the_end(outside: bool, tmp_path: Path) -> None:
    """ONNX Runtime itself leaves Cast, Mul, Sigmoid and Mul of a Swish in what it saves."""
    weights = {"w": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)}
    nodes = [
        helper.make_node("Swish", ["x"], ["s"], alpha=0.7),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    model = make_model(nodes, {"x": (8, 64)}, {"y": (8, 64)}, weights=weights, opset=24)
    if outside:
        model = laid_out(model, tmp_path / "weights.bin", limit_bytes=1000)
    optimized = _optimized(model, tmp_path / "out")
    assert _types(optimized) == ["QuickGelu", "MatMul"]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["optimized.onnx"]
    if outside:
        places = {place.file for t in optimized.graph.initializer if (place := place_of(t))}
        assert places == {(tmp_path / "weights.bin").absolute()}
        return
    session = open_session(
        optimized.SerializeToString(), session_options(threads=1, optimize=False)
    )
    x = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    swish = x / (1 + np.exp(-0.7 * x.astype(np.float64)))
    np.testing.assert_allclose(
        session.run(None, {"x": x})[0], swish @ weights["w"], rtol=1e-4, atol=1e-4
    )


def test_functions_stand_in_the_place_of_operators_without_a_kernel(tmp_path: Path) -> None:
    model = make_model(
        [helper.make_node("Swish", ["x"], ["a"]), helper.make_node("Relu", ["a"], ["y"])],
        {"x": (2, 8)},
        {"y": (2, 8)},
        opset=24,
    )
    file = tmp_path / "written.onnx"
    found, counts = with_functions_in_place(model, file, open_session)
    assert counts == {"Swish": 1} and not file.exists()
    assert _types(found) == ["Cast", "Mul", "Sigmoid", "Mul", "Relu"]
    onnx.checker.check_model(found)
    for plain in (conv_net(), found):
        assert with_functions_in_place(plain, file, open_session) == (plain, {})
