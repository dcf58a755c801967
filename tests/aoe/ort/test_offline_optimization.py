"""ONNX Runtime's own optimisation, of models with their weights inside and outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.contracts.small_models import SmallModel
from support.engine.models import conv_net, matmul_net

from aoe.device.registry import default_device
from aoe.graph.model_graph import attributes_of
from aoe.graph.weights import array_of, is_outside, laid_out, place_of
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
