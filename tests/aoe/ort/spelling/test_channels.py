"""Normalisations of channels that are written in parts: one operator, the same numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.engine.cpu import CPU, open_session

from aoe.graph.model_graph import ModelGraph
from aoe.graph.regions import partition
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.sessions import session_options
from aoe.ort.spelling.channels import join_channel_parts
from aoe.ort.static_shapes import infer_tensors

SHAPE = (2, 6, 5, 7)
JOINED = ["Transpose", "LayerNormalization", "Transpose"]


def make(
    *,
    opset: int = 18,
    shape: tuple[int | str, ...] = SHAPE,
    axis: int = 1,
    twice: bool = False,
    squares: str = "Pow",
    affine: bool = True,
    constant: bool = True,
    outputs: tuple[str, ...] = ("y",),
) -> onnx.ModelProto:
    """Return (x - mean) / sqrt(mean square + epsilon), scaled by channels, in parts."""
    rng = np.random.default_rng(1)
    wide = (SHAPE[1], *(1,) * (len(shape) - 2))
    weights = {name: rng.standard_normal(wide).astype(np.float32) for name in "sb"}
    constants = {"two": np.float32(2), "eps": np.array([1e-3], np.float32)}
    constants |= {"axes": np.array([axis], np.int64)} if opset >= 18 else {}
    mean = {"axes": [axis]} if opset < 18 else {}
    axes = ["axes"] if opset >= 18 else []
    made = [
        helper.make_node("ReduceMean", ["x", *axes], ["u"], "mean", **mean),
        helper.make_node("Sub", ["x", "u"], ["d"], "d"),
        helper.make_node("Sub", ["x", "u"], ["e"], "e"),
        helper.make_node("Pow", ["d", "two"], ["q"], "q")
        if squares == "Pow"
        else helper.make_node("Mul", ["d", "d"], ["q"], "q"),
        helper.make_node("ReduceMean", ["q", *axes], ["v"], "mean_square", **mean),
        helper.make_node("Add", ["v", "eps"], ["a"], "a"),
        helper.make_node("Sqrt", ["a"], ["r"], "r"),
        helper.make_node("Div", ["e" if twice else "d", "r"], ["n" if affine else "y"], "divided"),
    ]
    if not twice:
        del made[2]
    if affine:
        made += [
            helper.make_node("Mul", ["s", "n"], ["m"], "scaled"),
            helper.make_node("Add", ["m", "b"], ["y"], "added"),
        ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if not constant:
        inputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, wide) for n in "sb"]
    stored = constants | (weights if constant else {})
    graph = helper.make_graph(
        made,
        "net",
        inputs,
        [
            helper.make_tensor_value_info(
                name, TensorProto.FLOAT, [f"{name}{at}" for at in range(len(shape))]
            )
            for name in outputs
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _kinds(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    "model",
    [
        make(),
        make(opset=17, squares="Mul"),
        make(twice=True),
        make(affine=False),
        make(shape=(3, 6, 9)),
    ],
    ids=["PyTorch's", "axes as an attribute", "deviation twice", "no scale", "lines"],
)
def test_joined_parts_make_the_same_numbers(model: onnx.ModelProto) -> None:
    joined = join_channel_parts(model)
    onnx.checker.check_model(joined, full_check=True)
    assert _kinds(joined) == JOINED
    assert joined.graph.node[-1].name == model.graph.node[-1].name
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    session = open_session(joined.SerializeToString(), session_options(threads=1, optimize=True))
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_computed_scale_stays_behind_what_is_joined() -> None:
    joined = join_channel_parts(make(constant=False))
    assert _kinds(joined) == [*JOINED, "Mul", "Add"]


def test_means_of_another_size_are_joined_where_channels_are_known() -> None:
    assert _kinds(join_channel_parts(make(shape=("n", 6, "h", "w")))) == JOINED


@pytest.mark.parametrize(
    "model",
    [
        make(opset=16),
        make(axis=2),
        make(shape=(2, "c", 5, 7)),
        make(shape=(2, 6), affine=False),
        make(outputs=("y", "u")),
    ],
    ids=["older operators", "another axis", "open channels", "no pixels", "a mean that is needed"],
)
def test_what_is_something_else_stays(model: onnx.ModelProto) -> None:
    assert join_channel_parts(model) is model


def test_optimised_graph_has_one_kernel_for_all_parts(tmp_path: Path) -> None:
    proto = CPU.optimize(make(), tmp_path / "optimised.onnx", threads=1)
    tensors = infer_tensors(proto, open_session)
    graph = ModelGraph(proto, tensors, block=CPU.channel_block())
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    (region,) = cut.regions
    assert [operation.op_type for operation in region.workload.operations] == JOINED
