from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.contracts.rewrites import read_elsewhere, view
from support.contracts.small_models import SmallModel

from aoe.graph.rewrites.editing import apply_edits, choose_disjoint
from aoe.graph.rewrites.preparation import prepared
from aoe.graph.rewrites.protocol import Edit, RewriteMatch
from aoe.graph.rewrites.registry import RULES


def chain() -> onnx.ModelProto:
    model = SmallModel()
    x = model.input(2, 3)
    made = model.op("Relu", model.op("Mul", x, model.constant(2.0)))
    return model.model(model.op("Neg", made))


def node(op_type: str, inputs: str, output: str, domain: str = "") -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), [output], f"new_{output}", domain=domain)


def test_added_nodes_stand_where_the_removed_ones_stood() -> None:
    edited = apply_edits(chain(), [Edit(removed=(1,), added=(node("Abs", "t0_0", "t1_0"),))])
    assert [n.op_type for n in edited.graph.node] == ["Mul", "Abs", "Neg"]


def test_added_nodes_may_come_in_any_order() -> None:
    added = (node("Abs", "made", "t1_0"), node("Relu", "t0_0", "made"))
    edited = apply_edits(chain(), [Edit(removed=(1,), added=added)])
    assert [n.op_type for n in edited.graph.node] == ["Mul", "Relu", "Abs", "Neg"]


def test_constants_nobody_reads_are_left_out() -> None:
    edited = apply_edits(chain(), [Edit(removed=(0,), added=(node("Abs", "x0", "t0_0"),))])
    assert not edited.graph.initializer


def test_a_constant_may_take_the_place_of_a_result() -> None:
    value = numpy_helper.from_array(numpy_helper.to_array(chain().graph.initializer[0]), "t1_0")
    edited = apply_edits(chain(), [Edit(removed=(0, 1), added=(), initializers=(value,))])
    assert [n.op_type for n in edited.graph.node] == ["Neg"]


def test_equal_constants_of_several_edits_are_one() -> None:
    two = numpy_helper.from_array(np.array(2, np.float32), "two")
    edits = [
        Edit(removed=(at,), added=(node("Mul", f"{read} two", f"t{at}_0"),), initializers=(two,))
        for at, read in enumerate(("x0", "t0_0"))
    ]
    edited = apply_edits(chain(), edits)
    assert [tensor.name for tensor in edited.graph.initializer] == ["two"]


def test_aliases_reach_readers_inside_an_if() -> None:
    proto = read_elsewhere(chain(), "t1_0", inside_if=True)
    edited = apply_edits(proto, [Edit(removed=(1,), added=(), aliases=(("t1_0", "t0_0"),))])
    branch = edited.graph.node[-1].attribute[0].g
    assert branch.node[0].input[0] == "t0_0"
    assert edited.graph.node[1].input[0] == "t0_0"


def test_claims_about_what_is_gone_are_dropped() -> None:
    proto = chain()
    for name in ("t0_0", "t1_0"):
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3))
        proto.graph.value_info.append(value)
    edited = apply_edits(proto, [Edit(removed=(1,), added=(node("Abs", "t0_0", "t1_0"),))])
    assert [value.name for value in edited.graph.value_info] == ["t0_0"]


def test_domains_are_imported_once_they_are_needed() -> None:
    added = (node("Gelu", "t0_0", "t1_0", "com.microsoft"),)
    edited = apply_edits(chain(), [Edit(removed=(1,), added=added)])
    assert {entry.domain: entry.version for entry in edited.opset_import}["com.microsoft"] == 1


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ([Edit(removed=(1,), added=())], "made by no node: t1_0"),
        ([Edit(removed=(2,), added=())], "result of the model"),
        ([Edit(removed=(1,), added=(node("Abs", "t1_0", "t1_0"),))], "its own result"),
        ([Edit(removed=(1,), added=(node("Abs", "x0", "t0_0"),))], "made twice: t0_0"),
        ([Edit(removed=(1,), added=(node("Abs", "t0_0", "t1_0"),))] * 2, "must not share"),
    ],
)
def test_edits_that_cannot_be_are_said(edits: list[Edit], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        apply_edits(chain(), edits)


def test_matches_that_share_a_node_are_chosen_once() -> None:
    edits = [Edit(removed=removed, added=()) for removed in ((0, 1), (1, 2), (2,))]
    matches = [RewriteMatch(rule="r", nodes=(), edit=edit) for edit in edits]
    assert choose_disjoint(view(chain()), matches) == [matches[0], matches[2]]


def test_a_match_that_reads_what_another_takes_away_is_not_chosen_with_it() -> None:
    taking = Edit(removed=(0, 1), added=(node("Abs", "x0", "t1_0"),))
    reading = Edit(removed=(2,), added=(node("Neg", "t0_0", "t2_0"),))
    matches = [RewriteMatch(rule="r", nodes=(), edit=edit) for edit in (taking, reading)]
    assert choose_disjoint(view(chain()), matches) == matches[:1]
    assert choose_disjoint(view(chain()), matches[::-1]) == matches[1:]


def test_constant_nodes_become_initializers_and_nodes_get_names() -> None:
    proto = chain()
    value = helper.make_node("Constant", [], ["two"], value_float=2.0)
    proto.graph.node.insert(0, value)
    proto.graph.node[1].input[1] = "two"
    for made in proto.graph.node[1:3]:
        made.name = "twice"
    ready = prepared(proto)
    assert [n.name for n in ready.graph.node] == ["twice", "twice_2", "Neg_2"]
    assert {tensor.name for tensor in ready.graph.initializer} == {"c0", "two"}
    assert proto.graph.node[0].op_type == "Constant"


def test_rules_say_what_they_do() -> None:
    for name, rule in RULES.items():
        assert name == rule.name
        assert rule.what and not rule.what.endswith(".")
        assert rule.needs and not rule.needs.endswith(".")
