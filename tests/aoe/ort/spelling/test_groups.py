"""Group normalisation spelled out: the same numbers in fewer nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from support.engine.cpu import CPU, open_session

from aoe.ort.sessions import session_options
from aoe.ort.spelling.groups import spell_out_groups

SHAPE = (2, 12, 5, 7)
GROUPS = 4


def make(
    opset: int,
    shape: tuple[int | str, ...] = SHAPE,
    *,
    constant: bool = True,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """Return the Tanh of a normalised tensor; the Tanh of its input is a result, too."""
    rng = np.random.default_rng(1)
    size = SHAPE[1]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weights = [rng.standard_normal(size).astype(dtype) for _ in range(2)]
    nodes = [
        helper.make_node("Tanh", ["x"], ["y_joined"], "before"),  # a name that is wanted
        helper.make_node(
            "GroupNormalization", ["y_joined", "s", "b"], ["y"], "norm", num_groups=GROUPS
        ),
    ]
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    if not constant:
        inputs += [helper.make_tensor_value_info(n, kind, (size,)) for n in "sb"]
    graph = helper.make_graph(
        nodes,
        "net",
        inputs,
        [helper.make_tensor_value_info("y", kind, [f"y{i}" for i in range(len(shape))])],
        [numpy_helper.from_array(w, n) for w, n in zip(weights, "sb", strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def test_spelled_out_groups_make_the_same_numbers() -> None:
    model = make(21)
    spelled = spell_out_groups(model)
    onnx.checker.check_model(spelled, full_check=True)
    kinds = [node.op_type for node in spelled.graph.node]
    assert kinds == ["Tanh", "Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]
    assert spelled.graph.node[-1].name == "norm"
    x = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    session = open_session(spelled.SerializeToString(), session_options(threads=1, optimize=True))
    wanted = ReferenceEvaluator(model).run(None, {"x": x})[0]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


def test_groups_of_float16_stay_float16() -> None:
    spelled = spell_out_groups(make(21, kind=TensorProto.FLOAT16))
    onnx.checker.check_model(spelled, full_check=True)
    assert "InstanceNormalization" in [node.op_type for node in spelled.graph.node]
    x = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float16)
    session = open_session(spelled.SerializeToString(), session_options(threads=1, optimize=True))
    wanted = ReferenceEvaluator(make(21)).run(None, {"x": x.astype(np.float32)})[0]
    (found,) = session.run(None, {"x": x})
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=5e-3, atol=1e-2)


@pytest.mark.parametrize(
    "model",
    [make(18), make(21, ("n", 12, 5, 7)), make(21, (2, 12)), make(21, constant=False)],
    ids=["deprecated", "open shape", "no pixels", "computed scale"],
)
def test_what_cannot_be_spelled_out_stays(model: onnx.ModelProto) -> None:
    assert [n.op_type for n in spell_out_groups(model).graph.node] == [
        "Tanh",
        "GroupNormalization",
    ]


def test_model_without_groups_is_not_copied() -> None:
    model = make(21)
    del model.graph.node[1:]
    assert spell_out_groups(model) is model


def test_given_model_stays_as_it_is() -> None:
    model = make(21)
    before = model.SerializeToString()
    spell_out_groups(model)
    assert model.SerializeToString() == before


def test_optimised_graph_has_the_few_nodes(tmp_path: Path) -> None:
    found = CPU.optimize(make(21), tmp_path / "o.onnx", threads=1)
    assert "InstanceNormalization" in [node.op_type for node in found.graph.node]
    assert len(found.graph.node) < 10
