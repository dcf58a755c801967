"""What another program made of a model, region by region."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper
from support.contracts.rewrites import view
from support.contracts.small_models import SmallModel

from aoe.graph.rewrites.differences import differences


def chain() -> onnx.ModelProto:
    """Five operators, each of the one before."""
    model = SmallModel()
    x = model.input(2, 3)
    for op_type in ("Relu", "Neg", "Abs", "Tanh", "Exp"):
        x = model.op(op_type, x)
    return model.model(x)


def changed(proto: onnx.ModelProto) -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(proto)
    return model


def test_equal_models_do_not_differ_whatever_nodes_are_called() -> None:
    other = changed(chain())
    other.graph.node[2].name = "another"
    assert differences(view(chain()), other) == []


def test_regions_with_a_tensor_of_one_name_between_them_are_apart() -> None:
    other = changed(chain())
    other.graph.node[1].op_type = "Sin"
    other.graph.node[3].op_type = "Cos"
    found = differences(view(chain()), other)
    assert [one.removed for one in found] == [(1,), (3,)]
    assert [[node.op_type for node in one.added] for one in found] == [["Sin"], ["Cos"]]


def test_what_has_lost_the_tensor_between_is_one_region() -> None:
    other = changed(chain())
    del other.graph.node[1]
    other.graph.node[1].CopyFrom(helper.make_node("Sin", ["t0_0"], ["t2_0"], "both"))
    (found,) = differences(view(chain()), other)
    assert found.removed == (1, 2)
    assert [node.name for node in found.added] == ["both"]


def test_tensor_of_another_name_joins_who_makes_it_and_who_reads_it() -> None:
    other = changed(chain())
    other.graph.node[1].output[0] = other.graph.node[2].input[0] = "renamed"
    (found,) = differences(view(chain()), other)
    assert found.removed == (1, 2)
    assert len(found.added) == 2


def test_constants_are_new_or_have_other_values() -> None:
    model = SmallModel()
    x = model.op("Add", model.op("Mul", model.input(2), model.constant(2.0)), model.constant(3.0))
    proto = model.model(x)
    other = changed(proto)
    other.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.float32(4.0), "c1"))
    (found,) = differences(view(proto), other)
    assert found.removed == (1,)
    assert [tensor.name for tensor in found.constants] == ["c1"]
    assert numpy_helper.to_array(found.constants[0]) == 4.0


def test_what_only_the_copy_had_is_no_difference() -> None:
    proto = chain()
    other = changed(proto)
    other.graph.node.append(helper.make_node("Neg", ["t4_0"], ["extra"], "extra"))
    assert differences(view(proto), other) == []
    other.graph.node[4].CopyFrom(helper.make_node("Sin", ["t3_0"], ["t4_0"], "last"))
    other.graph.node[5].input[0] = "made"
    other.graph.node[4].output.append("made")
    assert len(differences(view(proto), other)) == 1
    assert differences(view(proto), other, apart_from={"extra"}) == []
