"""Models of newer opsets than the host computes, by hosts that lack some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator
from support.engine.cpu import open_session
from support.engine.models import Shape, make_model

from aoe.ort.newer_opsets import Refused, in_readable_opset
from aoe.ort.sessions import run_session, session_options

NEWEST = 28
SINCE = 24
MEANT_OTHERWISE = {
    "Attention": "windows of keys, whose default is none",
    "BitShift": "refused: shifts by all bits have a result",
    "Cast": "a mode of rounding to float8e8m0",
    "CastLike": "the same",
    "Mod": "floating-point numbers with fmod=0, which are an error before",
    "QuantizeLinear": "words on integers of 2 bits",
    "Range": "a type to sum up float16 in, which it does not take before",
    "SpaceToDepth": "an order of channels, whose default is the one it had",
}
"""Operators whose newer version differs in more than element types, and by what."""
LATER = [opset for opset in range(SINCE, NEWEST + 1) if opset <= defs.onnx_opset_version()]

pytestmark = pytest.mark.skipif(
    defs.onnx_opset_version() < NEWEST, reason="this release of onnx writes no newer opset"
)


def host(newest: int, *lacking: str) -> Refused:
    """Return a host that reads opsets up to a newest one, and has no kernel of some operators."""

    def refused(proto: onnx.ModelProto) -> str | None:
        (opset,) = (entry.version for entry in proto.opset_import if not entry.domain)
        if opset > newest:
            return ""
        since = (
            f"{node.op_type}({defs.get_schema(node.op_type, opset, '').since_version})"
            for node in proto.graph.node
            if not node.domain
        )
        return next((one for one in since if one in lacking), None)

    return refused


def one_node(
    op_type: str, *inputs: str, shape: Shape = (2, 4, 4, 4), opset: int = NEWEST, **attributes: Any
) -> onnx.ModelProto:
    """Return a model of one operator of the newest opset."""
    node = helper.make_node(op_type, [*inputs] or ["x"], ["y"], name="it", **attributes)
    given = dict.fromkeys(inputs or ["x"], shape)
    return make_model([node], given, ["y"], opset=opset, ir_version=13)


def results(proto: onnx.ModelProto, feed: dict[str, Any]) -> Any:
    """Return the first result by the reference of ONNX."""
    return np.asarray(ReferenceEvaluator(proto).run(None, feed)[0])  # type: ignore[index]


def opset_of(proto: onnx.ModelProto) -> int:
    return next(entry.version for entry in proto.opset_import if not entry.domain)


def test_operators_of_defaults_compute_the_same_in_the_opset_of_the_host() -> None:
    nodes = [
        helper.make_node("Celu", ["x"], ["a"], alpha=0.7),
        helper.make_node("SpaceToDepth", ["a"], ["b"], blocksize=2, mode="DCR"),
        helper.make_node("DepthToSpace", ["b"], ["c"], blocksize=2),
        helper.make_node("Cast", ["c"], ["d"], to=TensorProto.DOUBLE, round_mode="up"),
        helper.make_node("Cast", ["d"], ["e"], to=TensorProto.FLOAT),
        helper.make_node("ReduceLogSumExp", ["e"], ["f"], keepdims=1),
        helper.make_node("Swish", ["f"], ["y"], alpha=0.5),
    ]
    model = make_model(nodes, {"x": (1, 4, 6, 6)}, ["y"], opset=NEWEST, ir_version=13)
    before = model.SerializeToString()
    found = in_readable_opset(model, host(26, "Swish(24)"))
    assert found.proto is model and not found.problem  # no host: Swish is of no older version
    found = in_readable_opset(model, host(26))
    assert opset_of(found.proto) == 26 and "opset 28" in found.caveat and "26" in found.caveat
    assert model.SerializeToString() == before
    x = np.random.default_rng(0).standard_normal((1, 4, 6, 6)).astype(np.float32)
    expected = results(model, {"x": x})
    np.testing.assert_array_equal(expected, results(found.proto, {"x": x}))
    written = open_session(
        in_readable_opset(model, host(24)).proto.SerializeToString(),
        session_options(threads=1, optimize=False),
    )
    np.testing.assert_allclose(run_session(written, {"x": x})[0], expected, rtol=1e-5)


def test_model_the_host_computes_is_left_as_it_is() -> None:
    for opset, newest in ((NEWEST, NEWEST), (24, 20), (17, 99)):
        model = one_node("Relu", opset=opset)
        assert in_readable_opset(model, host(newest)).proto is model


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (one_node("SwiGLU", "x", "z"), "SwiGLU of version 28.*'it': opset 27 does not have it"),
        (one_node("SpaceToDepth", blocksize=2, mode="CRD"), "version 28.*without mode=CRD"),
        (one_node("BitShift", "x", "z", direction="LEFT"), "BitShift of version 28.*a shift by"),
        (
            one_node("Attention", "q", "k", "v", opset=25, left_window_size=2),
            "Attention of version 25.*opset 24 has it without left_window_size=2",
        ),
    ],
    ids=["SwiGLU", "SpaceToDepth", "BitShift", "Attention"],
)
def test_operator_no_older_opset_has_is_named_with_its_version(
    model: onnx.ModelProto, words: str
) -> None:
    found = in_readable_opset(model, host(24))
    assert found.proto is model
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found.problem)


def test_attributes_that_say_what_older_versions_do_are_left_out() -> None:
    model = one_node("Attention", "q", "k", "v", opset=25, left_window_size=-1, is_causal=1)
    (node,) = in_readable_opset(model, host(24)).proto.graph.node
    assert [attribute.name for attribute in node.attribute] == ["is_causal"]
    (node,) = in_readable_opset(one_node("Range", *"abc", stash_type=1), host(26)).proto.graph.node
    assert not node.attribute


def test_fault_of_another_operator_is_not_laid_on_a_new_one() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("BitShift", ["n", "n"], ["b"], direction="LEFT"),
    ]
    types = {"n": TensorProto.UINT8, "b": TensorProto.UINT8}
    model = make_model(
        nodes, {"x": (2,), "n": (2,)}, ["a", "b"], types=types, opset=NEWEST, ir_version=13
    )
    found = in_readable_opset(model, host(NEWEST, "Exp(13)"))
    assert found.proto is model and not found.problem and not found.caveat
    assert "BitShift" in in_readable_opset(model, host(NEWEST, "BitShift(28)")).problem


def test_operator_in_a_function_that_has_no_kernel_is_laid_on_the_function() -> None:
    model = one_node("SwiGLU", "x", "z")
    problem = in_readable_opset(model, lambda proto: "Swish(24)").problem
    assert problem.startswith("SwiGLU of version 28")


def test_nodes_of_branches_and_functions_are_looked_at_and_lowered() -> None:
    def branch(name: str, **attributes: Any) -> onnx.GraphProto:
        node = helper.make_node("SpaceToDepth", ["x"], [name], blocksize=2, **attributes)
        return helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info(name)])

    for mode, is_there in (("DCR", True), ("CRD", False)):
        node = helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("t"), else_branch=branch("e", mode=mode)
        )
        model = make_model(
            [node],
            {"c": (), "x": (1, 4, 4, 4)},
            ["y"],
            types={"c": TensorProto.BOOL},
            opset=NEWEST,
            ir_version=13,
        )
        found = in_readable_opset(model, host(26))
        assert (found.problem == "") == is_there
    body = [helper.make_node("Celu", ["a"], ["b"])]
    own = helper.make_function("own", "F", ["a"], ["b"], body, [helper.make_opsetid("", NEWEST)])
    call = helper.make_node("F", ["x"], ["y"], domain="own")
    model = make_model([call], {"x": (2,)}, ["y"], domains={"own": 1}, opset=NEWEST, ir_version=13)
    model.functions.append(own)
    lowered = in_readable_opset(model, host(26)).proto
    assert [one.version for one in lowered.functions[0].opset_import] == [26]


def _form(schema: defs.OpSchema) -> tuple[Any, ...]:
    inputs = [(one.name, str(one.option)) for one in schema.inputs]
    outputs = [(one.name, str(one.option)) for one in schema.outputs]
    attributes = {name: str(one.default_value) for name, one in schema.attributes.items()}
    return inputs, outputs, attributes, schema.doc


def test_newer_versions_differ_in_element_types_alone_or_are_known() -> None:
    """What this opset of ONNX changes has to be read before models of it are lowered."""
    assert LATER[-1] == NEWEST
    found = set()
    for schema in defs.get_all_schemas_with_history():
        name, since = schema.name, schema.since_version
        older = defs.has(name, since - 1, "") if since > SINCE and not schema.domain else False
        if older and _form(defs.get_schema(name, since - 1, "")) != _form(schema):
            found.add(name)
    assert found == MEANT_OTHERWISE.keys() - {"Cast", "CastLike"}  # theirs are of opset 24
