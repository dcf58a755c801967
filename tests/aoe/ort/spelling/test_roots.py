"""Normalisations by a root mean square as PyTorch writes them: one operator, the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from support.engine.cpu import CPU, open_session

from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import partition
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.sessions import session_options
from aoe.ort.spelling.roots import join_root_means
from aoe.ort.static_shapes import infer_tensors
from aoe.testing.small_models import SmallModel

SHAPE = (2, 64, 256)


def make(
    *,
    opset: int = 18,
    square: str = "Pow",
    root: str = "Reciprocal",
    axis: int = -1,
    scaled: bool = True,
    read: str = "",
) -> onnx.ModelProto:
    model = SmallModel(opset=opset)
    x = model.input(*SHAPE)
    squared = model.op("Pow", x, model.constant(2.0)) if square == "Pow" else model.op("Mul", x, x)
    if opset < 18:
        mean = model.op("ReduceMean", squared, axes=[axis])
    else:
        mean = model.op("ReduceMean", squared, model.constant([axis]))
    deviation = model.op("Sqrt", model.op("Add", mean, model.constant(1e-3)))
    if root == "Reciprocal":
        made = model.op("Mul", x, model.op("Reciprocal", deviation))
    else:
        made = model.op("Div", x, deviation)
    if scaled:
        made = model.op("Mul", model.weight(SHAPE[-1]), made)
    made = model.op("Neg", made)
    return model.model(model.op("Add", made, deviation) if read else made)


def _optimised(proto: onnx.ModelProto, folder: Path) -> ModelGraph:
    found = CPU.optimize(proto, folder / "optimised.onnx", threads=1)
    return ModelGraph(found, infer_tensors(found, open_session), block=CPU.channel_block())


@pytest.mark.parametrize("opset", [13, 17, 18, 23])
def test_product_with_the_reciprocal_becomes_one_operator_and_the_same_numbers(
    opset: int, tmp_path: Path
) -> None:
    model = make(opset=opset)
    joined = join_root_means(model)
    onnx.checker.check_model(joined, full_check=True)
    kinds = [node.op_type for node in _optimised(model, tmp_path).nodes]
    assert kinds == ["SimplifiedLayerNormalization", "Neg"]
    x = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    session = open_session(joined.SerializeToString(), session_options(threads=1, optimize=True))
    (name,) = (value.name for value in session.get_inputs())
    wanted = ReferenceEvaluator(model).run(None, {name: x})[0]
    np.testing.assert_allclose(session.run(None, {name: x})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model",
    [make(square="Mul"), make(scaled=False), make(root="Div", scaled=False)],
    ids=["a product for the square", "no scale", "divided, no scale"],
)
def test_other_ways_to_write_it_are_one_operator_too(
    model: onnx.ModelProto, tmp_path: Path
) -> None:
    assert _optimised(model, tmp_path).nodes[0].op_type == "SimplifiedLayerNormalization"


def test_result_keeps_the_name_of_its_node() -> None:
    model = make()
    scaled = next(node.name for node in reversed(model.graph.node) if node.op_type == "Mul")
    assert scaled in {node.name for node in join_root_means(model).graph.node}


@pytest.mark.parametrize(
    "model",
    [make(root="Div"), make(axis=1), make(read="deviation")],
    ids=["fused as it is", "another axis", "a root that is needed"],
)
def test_what_is_something_else_stays(model: onnx.ModelProto) -> None:
    assert join_root_means(model) is model


def test_all_of_it_is_one_kernel_with_what_follows(tmp_path: Path) -> None:
    graph = _optimised(make(), tmp_path)
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    (region,) = cut.regions
    kinds = [operation.op_type for operation in region.workload.operations]
    assert kinds == ["SimplifiedLayerNormalization", "Neg"]
