"""Names a user knows, for nodes ONNX Runtime fused and renamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.cpu import CPU
from support.engine.models import make_model

from aoe.graph.origins import Origins

_KINDS = frozenset({"Conv", "MatMul", "Gemm"})


def _residual_net() -> onnx.ModelProto:
    """Return two branches of convolutions added up, with activations, and a classifier."""
    rng = np.random.default_rng(0)
    square = (16, 16, 3, 3)
    shapes = {"w0": square, "w1": square, "w2": (16, 16, 1, 1), "fc": (16, 4), "bias": (4,)}
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    pads = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], "/stem/Conv", pads=pads),
        helper.make_node("Relu", ["c0"], ["r0"], "/stem/Relu"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], "/main/Conv", pads=pads),
        helper.make_node("Conv", ["r0", "w2"], ["c2"], "/side/Conv"),
        helper.make_node("Add", ["c2", "c1"], ["sum"], "/Add"),
        helper.make_node("Relu", ["sum"], ["r1"], "/Relu"),
        helper.make_node("GlobalAveragePool", ["r1"], ["g"], "/pool"),
        helper.make_node("Flatten", ["g"], ["f"], "/flatten"),
        helper.make_node("MatMul", ["f", "fc"], ["m"], "/fc/MatMul"),
        helper.make_node("Add", ["m", "bias"], ["y"], "/fc/Add"),
    ]
    return make_model(nodes, {"x": (1, 16, 8, 8)}, ["y"], weights=weights)


def test_every_product_of_the_optimised_graph_is_found_by_its_own_name(tmp_path: Path) -> None:
    model = _residual_net()
    optimized = CPU.optimize(model, tmp_path / "o.onnx", threads=1)
    origins = Origins(model, optimized)
    dense = [node for node in optimized.graph.node if node.op_type in ("Conv", "Gemm", "FusedConv")]
    found = [origins.names(node, _KINDS) for node in dense]
    assert all(names[0] == node.name for names, node in zip(found, dense, strict=True))
    known = {"/stem/Conv", "/main/Conv", "/side/Conv", "/fc/MatMul"}
    assert [len(known & set(names)) for names in found] == [1] * 4
    assert known == known & {name for names in found for name in names}


@pytest.mark.parametrize("kinds", [frozenset({"LSTM"}), frozenset[str]()])
def test_node_without_an_origin_keeps_its_own_names(kinds: frozenset[str]) -> None:
    model = _residual_net()
    node = helper.make_node("Conv", ["r0", "w1"], ["sum"], "sum_nchwc")
    assert Origins(model, model).names(node, kinds) == ("sum_nchwc", "sum")


def _owned(model: onnx.ModelProto, optimized: onnx.ModelProto) -> dict[str, list[str]]:
    origins = Origins(model, optimized)
    found = {node.name: origins.fused(node) for node in optimized.graph.node}
    return {name: [origin.name for origin in nodes] for name, nodes in found.items()}


def test_every_imported_node_belongs_to_the_node_that_computes_it(tmp_path: Path) -> None:
    model = _residual_net()
    optimized = CPU.optimize(model, tmp_path / "o.onnx", threads=1)
    owned = _owned(model, optimized)
    names = [name for nodes in owned.values() for name in nodes]
    assert sorted(names) == sorted(node.name for node in model.graph.node)
    groups = [nodes for nodes in owned.values() if len(nodes) > 1]
    assert ["/stem/Conv", "/stem/Relu"] in groups
    assert ["/fc/MatMul", "/fc/Add"] in groups
    sums = next(nodes for nodes in groups if "/Add" in nodes)
    assert sums[-2:] == ["/Add", "/Relu"]
    assert sums[0] in ("/main/Conv", "/side/Conv")


def test_what_only_changes_the_layout_owns_nothing(tmp_path: Path) -> None:
    model = _residual_net()
    optimized = CPU.optimize(model, tmp_path / "o.onnx", threads=1)
    owned = _owned(model, optimized)
    reorders = [node.name for node in optimized.graph.node if "Reorder" in node.op_type]
    assert all(owned[name] == [] for name in reorders)


def test_what_was_computed_ahead_of_time_belongs_to_no_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], "turned"),
        helper.make_node("MatMul", ["x", "t"], ["y"], "product"),
    ]
    weights = {"w": np.ones((4, 8), np.float32)}
    model = make_model(nodes, {"x": (2, 8)}, ["y"], weights=weights)
    optimized = CPU.optimize(model, tmp_path / "o.onnx", threads=1)
    assert list(_owned(model, optimized).values()) == [["product"]]
