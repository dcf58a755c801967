"""Reshapes behind matrix products: moved where that changes nothing, left where it might."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.cpu import open_session
from support.engine.models import make_model

from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import partition
from aoe.graph.reshapes import sink_reshapes
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.sessions import random_feed, session_options
from aoe.ort.static_shapes import infer_tensors

RNG = np.random.default_rng(0)
WEIGHTS = {
    "w": RNG.standard_normal((8, 6)).astype(np.float32),
    "v": RNG.standard_normal((8, 6)).astype(np.float32),
    "bias": RNG.standard_normal(6).astype(np.float32),
    "half": np.array(0.5, np.float32),
    "lifted": np.full((1, 1, 1), 0.5, np.float32),
    "table": RNG.standard_normal((2, 5, 6)).astype(np.float32),
    "rows": np.array([10, 8], np.int64),
    "cube": np.array([2, 5, 6], np.int64),
    "inferred": np.array([2, -1, 6], np.int64),
    "flat_again": np.array([10, 6], np.int64),
    "square": RNG.standard_normal((6, 6)).astype(np.float32),
    "turned": np.array([2, 6, 5], np.int64),
}


def _node(op_type: str, inputs: str, result: str) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [result], result)


def _model(*behind: tuple[str, str, str], outputs: str = "y") -> onnx.ModelProto:
    """Return products `p` and `q` of rows of `x`, and nodes behind them."""
    nodes = [
        ("Reshape", "x rows", "flat"),
        ("Gemm", "flat w bias", "p"),
        ("MatMul", "flat v", "q"),
        *behind,
    ]
    return make_model(
        [_node(*node) for node in nodes],
        {"x": (2, 5, 8), "z": (2, 5, 6)},
        outputs.split(),
        weights=WEIGHTS,
    )


def _moved(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with reshapes moved, after checks that it computes the same bits."""
    found = onnx.ModelProto()
    found.CopyFrom(model)
    tensors = sink_reshapes(found, infer_tensors(found, open_session), fusible=FUSIBLE)
    assert tensors == infer_tensors(found, open_session)
    options = session_options(threads=1, optimize=False)
    before = open_session(model.SerializeToString(), options)
    after = open_session(found.SerializeToString(), options)
    feed = random_feed(before, 3)
    for old, new in zip(before.run(None, feed), after.run(None, feed), strict=True):
        np.testing.assert_array_equal(new, old)
    return found


def _reads_reshape(model: onnx.ModelProto, op_type: str) -> bool:
    reshaped = {node.output[0] for node in model.graph.node if node.op_type == "Reshape"}
    reader = next(node for node in model.graph.node if node.op_type == op_type)
    return any(name in reshaped for name in reader.input)


def _region_types(model: onnx.ModelProto) -> list[list[str]]:
    graph = ModelGraph(model, infer_tensors(model, open_session), block=16)
    parts = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    return [[graph.nodes[at].op_type for at in region.nodes] for region in parts.regions]


def test_activation_joins_its_product() -> None:
    model = _model(("Reshape", "p inferred", "r"), ("Sigmoid", "r", "s"), ("Mul", "s half", "y"))
    assert ["Gemm"] in _region_types(model)
    assert ["Gemm", "Sigmoid", "Mul"] in _region_types(_moved(model))


def test_activation_of_several_nodes_that_read_the_product_joins_it() -> None:
    """As exporters write GELU and SiLU: one part of it is multiplied with what it is made of."""
    model = _model(
        ("Reshape", "p cube", "r"),
        ("Erf", "r", "e"),
        ("Mul", "e half", "h"),
        ("Mul", "r h", "y"),
    )
    assert ["Gemm"] in _region_types(model)
    moved = _moved(model)
    assert ["Gemm", "Erf", "Mul", "Mul"] in _region_types(moved)
    assert [node.op_type for node in moved.graph.node].count("Reshape") == 2


def test_residual_is_read_on_rows() -> None:
    model = _moved(_model(("Reshape", "p cube", "r"), ("Add", "z r", "y")))
    assert ["Gemm", "Add"] in _region_types(model)
    assert [node.op_type for node in model.graph.node].count("Reshape") == 3


def test_residual_that_was_reshaped_is_read_as_it_was_before() -> None:
    model = _moved(
        _model(
            ("Reshape", "p cube", "r"),
            ("Add", "z r", "first"),
            ("Reshape", "q cube", "k"),
            ("Add", "first k", "second"),
            ("Mul", "first second", "y"),
        )
    )
    second = next(node for node in model.graph.node if node.name == "second")
    assert list(second.input) == ["first_rows", "q"]


def test_gate_of_two_products_is_computed_on_rows() -> None:
    model = _moved(
        _model(
            ("Reshape", "p cube", "r"),
            ("Sigmoid", "r", "s"),
            ("Reshape", "q cube", "k"),
            ("Mul", "s k", "y"),
        )
    )
    gate = next(node for node in model.graph.node if node.op_type == "Mul")
    assert set(gate.input) == {"s_rows", "q"}
    assert [node.op_type for node in model.graph.node].count("Reshape") == 2


def test_row_added_by_name_stays_a_row() -> None:
    model = _moved(_model(("Reshape", "q cube", "k"), ("Add", "k bias", "y")))
    assert not _reads_reshape(model, "Add")


@pytest.mark.parametrize(
    ("behind", "outputs", "op_type"),
    [
        ([("Reshape", "p cube", "r"), ("Sigmoid", "r", "y")], "y r", "Sigmoid"),
        (
            [("Reshape", "p cube", "r"), ("Sigmoid", "r", "a"), ("Softmax", "r", "y")],
            "y a",
            "Sigmoid",
        ),
        ([("Reshape", "p cube", "r"), ("Add", "r lifted", "y")], "y", "Add"),
        ([("Reshape", "p cube", "r"), ("Add", "r table", "y")], "y", "Add"),
        ([("Reshape", "x turned8", "r"), ("Sigmoid", "r", "y")], "y", "Sigmoid"),
        ([("Reshape", "p cube", "r"), ("Softmax", "r", "y")], "y", "Softmax"),
    ],
    ids=["result", "two readers", "other rank", "constant", "no product", "not element-wise"],
)
def test_where_it_might_change_something_it_stays(
    behind: list[tuple[str, str, str]], outputs: str, op_type: str
) -> None:
    model = _model(*behind, outputs=outputs)
    turned = onnx.numpy_helper.from_array(np.array([2, 8, 5], np.int64), "turned8")
    model.graph.initializer.append(turned)
    assert _reads_reshape(_moved(model), op_type)


def test_rows_of_another_length_take_no_bias() -> None:
    model = _model(("Reshape", "p turned", "r"), ("Add", "r five", "y"))
    five = onnx.numpy_helper.from_array(np.arange(5, dtype=np.float32), "five")
    model.graph.initializer.append(five)
    assert _reads_reshape(_moved(model), "Add")


def _windows(images: int, *, mask: tuple[int, ...], shown: str = "y") -> onnx.ModelProto:
    """Return attention in windows of 5 tokens; its mask has a dimension more, as in PyTorch."""
    nodes = [
        ("MatMul", "x k", "scores"),
        ("Add", "scores bias", "biased"),
        ("Reshape", "biased by_image", "apart"),
        ("Add", "apart mask", "masked"),
        ("Reshape", "masked by_window", "again"),
        ("Softmax", "again", "weights"),
        ("MatMul", "weights v", "y"),
    ]
    windows, heads = 4 * images, 3
    values = {
        "bias": RNG.standard_normal((heads, 5, 5)).astype(np.float32),
        "mask": RNG.standard_normal(mask).astype(np.float32),
        "by_image": np.array([images, 4, heads, 5, 5], np.int64),
        "by_window": np.array([windows, heads, 5, 5], np.int64),
    }
    inputs = dict.fromkeys(("x", "v"), (windows, heads, 5, 8))
    inputs["k"] = (windows, heads, 8, 5)
    return make_model([_node(*node) for node in nodes], inputs, shown.split(), weights=values)


@pytest.mark.parametrize("mask", [(1, 4, 1, 5, 5), (1, 4, 3, 5, 5), (1, 1, 3, 1, 5)])
def test_mask_of_windows_is_part_of_their_attention(mask: tuple[int, ...]) -> None:
    found = _moved(_windows(1, mask=mask))
    assert _region_types(found) == [["MatMul", "Add", "Add", "Softmax", "MatMul"]]
    shapes = {item.name: tuple(item.dims) for item in found.graph.initializer}
    assert mask[1:] in shapes.values()
    assert "mask" not in shapes


@pytest.mark.parametrize("mask", [(4, 1, 5, 5), (3, 1, 5), (5,)])
def test_mask_of_windows_that_is_no_larger_than_the_scores_is_read_as_it_is(
    mask: tuple[int, ...],
) -> None:
    found = _moved(_windows(1, mask=mask))
    assert _region_types(found) == [["MatMul", "Add", "Add", "Softmax", "MatMul"]]
    assert "mask" in {item.name for item in found.graph.initializer}


def test_mask_that_something_else_reads_keeps_its_shape_there() -> None:
    model = _windows(1, mask=(1, 4, 1, 5, 5), shown="y z")
    model.graph.node.append(_node("Relu", "mask", "z"))
    found = _moved(model)
    assert ["MatMul", "Add", "Add", "Softmax", "MatMul"] in _region_types(found)
    assert "mask" in {item.name for item in found.graph.initializer}


def test_mask_of_several_images_stays_between_its_reshapes() -> None:
    """Windows of several images share the mask: no dimension of it can go."""
    found = _moved(_windows(2, mask=(1, 4, 1, 5, 5)))
    assert [node.op_type for node in found.graph.node].count("Reshape") == 2


def _between_two_products(outputs: str) -> onnx.ModelProto:
    return _model(
        ("Relu", "p", "a"),
        ("Reshape", "a cube", "b"),
        ("Reshape", "b flat_again", "c"),
        ("MatMul", "c square", "y"),
        outputs=outputs,
    )


def test_reshapes_between_two_products_go() -> None:
    found = _moved(_between_two_products("y"))
    assert "Reshape" not in [node.op_type for node in found.graph.node[1:]]


def test_shape_between_two_products_that_is_a_result_stays() -> None:
    found = _moved(_between_two_products("y b"))
    assert [node.op_type for node in found.graph.node].count("Reshape") == 2
