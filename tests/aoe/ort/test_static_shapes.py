"""Shapes proven for every run: what depends on data has none, whatever one run shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.contracts.networks import shipped_network
from support.engine.cpu import CPU, open_session
from support.engine.models import compress_net, conv_net, make_model
from support.engine.offline import view_of

from aoe.graph.model_graph import TensorInfo
from aoe.graph.regions import partition
from aoe.kernels.registry import FUSIBLE, anchors, classify
from aoe.ort.sessions import random_feed, session_options
from aoe.ort.static_shapes import infer_tensors
from aoe.target import Target

SHAPE = (4, 8)
FLAG = {"flag": []}
INT, BOOL = TensorProto.INT64, TensorProto.BOOL
Nodes = Sequence[onnx.NodeProto]


def _float32(*shape: int) -> TensorInfo:
    return TensorInfo(dtype="float32", shape=shape)


def _branch(name: str, *nodes: onnx.NodeProto, claims: Sequence[int] | None) -> onnx.GraphProto:
    result = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, claims)
    return helper.make_graph(list(nodes), name, [], [result])


def _if(*, claims: Sequence[int] | None, same: bool = False) -> onnx.NodeProto:
    whole = helper.make_node("Abs", ["x"], ["whole"])
    other = helper.make_node("Neg", ["x"], ["other"])
    part = helper.make_node("ReduceMax", ["x"], ["part"], keepdims=0)
    return helper.make_node(
        "If",
        ["flag"],
        ["t"],
        then_branch=_branch("then", whole, claims=claims),
        else_branch=_branch("else", other if same else part, claims=claims),
    )


def _node(op_type: str, *inputs: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), ["t"], **attributes)


def test_conv_net_has_every_shape_a_run_shows(tmp_path: Path) -> None:
    optimized = CPU.optimize(conv_net(), tmp_path / "o.onnx", threads=1)
    made = [name for node in optimized.graph.node for name in node.output if name]
    proven = infer_tensors(optimized, open_session)
    assert proven == _shown(optimized, made)
    assert proven.keys() == set(made)


@pytest.mark.parametrize("name", ["densenet121", "shufflenet"])
def test_network_of_fixed_shapes_loses_none(name: str, tmp_path: Path) -> None:
    optimized = CPU.optimize(shipped_network(name), tmp_path / "o.onnx", threads=1)
    made = {name for node in optimized.graph.node for name in node.output if name}
    assert infer_tensors(optimized, open_session).keys() == made


def _shown(model: onnx.ModelProto, names: Sequence[str]) -> dict[str, TensorInfo]:
    """Return type and shape of tensors as one run of the model shows them."""
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    session = open_session(asked.SerializeToString(), session_options(threads=1, optimize=False))
    results = session.run(None, random_feed(session, 0))
    return {
        name: TensorInfo(dtype=result.dtype.name, shape=result.shape)
        for name, result in zip(names, results, strict=True)
    }


_DEPENDENT: dict[str, Callable[[], onnx.NodeProto]] = {
    "compress": lambda: _node("Compress", "x", "keep", axis=0),
    "slice": lambda: _node("Slice", "x", "one", "ends"),
    "expand": lambda: _node("Expand", "row", "ends"),
    "reshape": lambda: _node("Reshape", "x", "ends"),
    "nonzero": lambda: _node("NonZero", "x"),
    "range": lambda: _node("ConstantOfShape", "ends"),
    "if": lambda: _if(claims=None),
}


@pytest.mark.parametrize("kind", _DEPENDENT)
def test_shape_that_depends_on_data_is_not_proven(kind: str) -> None:
    inputs = {"x": SHAPE, "row": [1, 8], "keep": [4], "one": [2], "ends": [2], **FLAG}
    types = {"keep": BOOL, "one": INT, "ends": INT, "flag": BOOL, "t": INT}
    nodes = [
        helper.make_node("Exp", ["x"], ["before"]),
        _DEPENDENT[kind](),
        helper.make_node("Identity", ["t"], ["after"]),
    ]
    model = make_model(nodes, inputs, ["before", "after"], types=types | {"after": INT})
    for value in model.graph.output:  # types follow from the operators
        value.ClearField("type")
    assert infer_tensors(model, open_session) == {"before": _float32(*SHAPE)}


def test_branches_of_one_shape_prove_it() -> None:
    model = make_model(
        [_if(claims=None, same=True)], {"x": SHAPE} | FLAG, ["t"], types={"flag": BOOL}
    )
    assert infer_tensors(model, open_session) == {"t": _float32(*SHAPE)}


def test_claims_of_the_file_prove_nothing() -> None:
    nodes = [
        _if(claims=SHAPE),
        helper.make_node("Compress", ["x", "keep"], ["c"], axis=0),
        helper.make_node("Exp", ["c"], ["y"]),
    ]
    inputs = {"x": SHAPE, "keep": [4], **FLAG}
    types = {"flag": BOOL, "keep": BOOL}
    model = make_model(nodes, inputs, {"t": SHAPE, "y": SHAPE}, types=types)
    claim = helper.make_tensor_value_info("c", TensorProto.FLOAT, SHAPE)
    model.graph.value_info.append(claim)
    assert infer_tensors(model, open_session) == {}


def test_scalar_is_told_from_a_tensor_without_shape() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["scalar"], keepdims=0),
        _if(claims=None),
        helper.make_node("SequenceConstruct", ["x"], ["list"]),
        helper.make_node("ConcatFromSequence", ["list"], ["joined"], axis=0),
    ]
    model = make_model(nodes, {"x": SHAPE} | FLAG, ["scalar"], types={"flag": BOOL})
    found = infer_tensors(model, open_session)
    assert found["scalar"] == _float32()
    assert found.keys() & {"t", "list", "joined"} == set()


def test_constants_that_are_shapes_prove_what_they_shape() -> None:
    many = np.ones(200, np.int64)  # more bytes than what is left out of weights
    nodes = [
        helper.make_node("Split", ["x", "parts"], [f"p{i}" for i in range(200)], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["r"]),
        helper.make_node("Mul", ["x", "heavy"], ["m"]),
    ]
    weights = {"parts": many, "flat": np.array([-1], np.int64), "heavy": np.ones(3, np.float32)}
    weights["heavy"] = np.ones((200, 3), np.float32)
    model = make_model(nodes, {"x": (200, 3)}, ["r", "m"], weights=weights)
    found = infer_tensors(model, open_session)
    assert {found.pop(f"p{i}") for i in range(200)} == {_float32(1, 3)}
    assert found == {"r": _float32(600), "m": _float32(200, 3)}


def test_types_are_spelled_as_numpy_does() -> None:
    kinds = {
        "f": TensorProto.FLOAT,
        "d": TensorProto.DOUBLE,
        "h": TensorProto.FLOAT16,
        "i": TensorProto.INT64,
        "j": TensorProto.INT32,
        "u": TensorProto.UINT8,
        "b": TensorProto.BOOL,
    }
    nodes = [helper.make_node("Cast", ["x"], [name], name, to=kind) for name, kind in kinds.items()]
    model = make_model(nodes, {"x": [2, 3]}, list(kinds), types=kinds)
    assert {name: info.dtype for name, info in infer_tensors(model, open_session).items()} == {
        "f": "float32",
        "d": "float64",
        "h": "float16",
        "i": "int64",
        "j": "int32",
        "u": "uint8",
        "b": "bool",
    }


def test_omitted_results_do_not_shift_the_shapes_of_the_others() -> None:
    """An LSTM without its first result."""
    hidden, features = 4, 3
    weights = {
        "w": np.ones((1, 4 * hidden, features), np.float32),
        "r": np.ones((1, 4 * hidden, hidden), np.float32),
    }
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "h", "c"], "lstm", hidden_size=hidden)
    model = make_model([node], {"x": [5, 2, features]}, ["h"], weights=weights)
    assert infer_tensors(model, open_session) == dict.fromkeys("hc", _float32(1, 2, hidden))


def test_region_ends_where_shapes_begin_to_depend_on_data(tmp_path: Path, target: Target) -> None:
    graph = view_of(compress_net(), tmp_path, target)
    cut = partition(graph, fusible=FUSIBLE, anchors=anchors(), classify=classify)
    (region,) = cut.regions
    names = {graph.nodes[index].name for index in region.nodes}
    assert names == {"softplus_first", "tanh_first", "mul_first"}
    assert any("may differ from run to run" in refusal.reason for refusal in cut.refusals)


def test_default_that_may_be_overridden_proves_nothing() -> None:
    weights = {"shape": np.array([8, 4], np.int64)}
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    types = {"shape": INT}
    model = make_model([node], {"x": SHAPE, "shape": [2]}, ["y"], weights=weights, types=types)
    assert infer_tensors(model, open_session) == {}
    del model.graph.input[1]
    assert infer_tensors(model, open_session) == {"y": _float32(8, 4)}


def test_graph_without_nodes_has_no_results() -> None:
    assert infer_tensors(make_model([], {"x": SHAPE}, ["x"]), open_session) == {}
