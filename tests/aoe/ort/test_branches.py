"""Branches of an If for other shapes than the fixed one: they stay open, the rest is tuned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from support.engine.models import make_model, save_model

from aoe.entry.onnx_file import load_onnx
from aoe.ort.branches import free_branches

SHAPES = {"x": (1, 8, 6), "is_long": ()}
Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def _branch(name: str, columns: int) -> onnx.GraphProto:
    """Return a branch that multiplies by so many rows, in a branch of its own."""
    weights = helper.make_tensor(
        f"{name}_w", TensorProto.FLOAT, [columns, 2], list(range(2 * columns))
    )
    product = helper.make_node("MatMul", ["seen", f"{name}_w"], [f"{name}_product"])
    output = helper.make_tensor_value_info(f"{name}_product", TensorProto.FLOAT, None)
    return helper.make_graph([product], name, [], [output], [weights])


def two_models() -> onnx.ModelProto:
    """Return Exp and a model for six columns or one for three."""
    nodes = [
        helper.make_node("Exp", ["x"], ["seen"], name="exp"),
        helper.make_node(
            "If",
            ["is_long"],
            ["y"],
            name="which",
            then_branch=_branch("long", 6),
            else_branch=_branch("short", 3),
        ),
    ]
    inputs = {"x": [1, 8, "columns"], "is_long": []}
    return make_model(nodes, inputs, ["y"], types={"is_long": TensorProto.BOOL})


def _run(proto: onnx.ModelProto, columns: int, is_long: bool) -> Array:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    x = np.linspace(0, 1, 8 * columns, dtype=np.float32).reshape(1, 8, columns)
    (result,) = session.run(None, {"x": x, "is_long": np.array(is_long)})
    return np.asarray(result)


def _loops(graphs: Sequence[onnx.GraphProto]) -> dict[str, int]:
    return {graph.name: sum(node.op_type == "Loop" for node in graph.node) for graph in graphs}


def test_branch_for_another_shape_stays_open(tmp_path: Path) -> None:
    save_model(two_models(), tmp_path / "m.onnx")
    imported = load_onnx(tmp_path / "m.onnx", SHAPES)
    branches = [attribute.g for attribute in imported.proto.graph.node[1].attribute]
    assert _loops(branches) == {"long": 0, "short": 1}
    assert imported.caveat.startswith("branches of which are for other shapes")
    assert np.array_equal(_run(imported.proto, 6, True), _run(two_models(), 6, True))


def test_branch_that_was_freed_computes_as_before() -> None:
    tried = []

    def opens(proto: onnx.ModelProto) -> bool:
        """Say that nothing can be opened but what is as it was written, or freed throughout."""
        tried.append(proto)
        loops = _loops([attribute.g for attribute in proto.graph.node[1].attribute])
        return len(tried) == 2 or all(loops.values())

    freed = free_branches(two_models(), two_models(), opens)
    assert freed.nodes == ("which",)
    for columns, is_long in ((6, True), (3, False)):
        expected = _run(two_models(), columns, is_long)
        assert np.array_equal(_run(freed.proto, columns, is_long), expected)


def test_model_that_opens_or_never_did_is_left_alone() -> None:
    proto = two_models()
    for answer in (True, False):
        freed = free_branches(proto, proto, lambda tried, answer=answer: answer)  # type: ignore[misc]
        assert freed.proto is proto and freed.caveat == ""
