"""What is taken over of what an offline optimiser makes, and what is refused; the optimiser is a
fake here, ONNX Runtime's own has its test in tests/aoe/ort."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support.contracts.rewrites import view
from support.contracts.small_models import SmallModel
from support.engine.transformers import encoder

from aoe.graph.rewrites.offline import OFFLINE, differences, offline_rule
from aoe.graph.rewrites.protocol import Finding, RewriteMatch, RewriteRefusal

Change = Callable[[onnx.ModelProto], None]


class FakeOptimizer:
    """Does with copies of a model what it is told."""

    def __init__(self, *changes: Change, why: str = "") -> None:
        self._changes = changes
        self._why = why
        self.asked: list[tuple[onnx.ModelProto, int, int]] = []

    def why_unavailable(self) -> str:
        return self._why

    def fused(self, proto: onnx.ModelProto, *, heads: int, width: int) -> Iterator[onnx.ModelProto]:
        self.asked.append((proto, heads, width))
        for change in self._changes:
            made = onnx.ModelProto()
            made.CopyFrom(proto)
            change(made)
            yield made


def softmax_as(
    op_type: str, domain: str = "com.microsoft", outputs: tuple[str, ...] = ()
) -> Change:
    """Return a change that puts another operator in the place of the Softmax."""

    def change(model: onnx.ModelProto) -> None:
        (node,) = (node for node in model.graph.node if node.op_type == "Softmax")
        made = helper.make_node(op_type, node.input, [*node.output, *outputs], "new", domain=domain)
        node.CopyFrom(made)

    return change


def found(optimizer: FakeOptimizer, proto: onnx.ModelProto | None = None) -> list[Finding]:
    return list(offline_rule(optimizer).find(view(proto or encoder())))


def why_of(optimizer: FakeOptimizer, proto: onnx.ModelProto | None = None) -> str:
    (finding,) = found(optimizer, proto)
    assert isinstance(finding, RewriteRefusal) and finding.rule == OFFLINE
    return finding.why


def test_region_becomes_a_match() -> None:
    (match,) = found(FakeOptimizer(softmax_as("Attention")))
    assert isinstance(match, RewriteMatch)
    assert [node.op_type for node in match.edit.added] == ["Attention"]
    assert match.nodes[0].startswith("Softmax_")


def test_same_of_two_kinds_is_found_once_and_the_first_counts() -> None:
    changes = [softmax_as(name) for name in ("Attention", "Attention", "MultiHeadAttention")]
    (match,) = found(FakeOptimizer(*changes))
    assert isinstance(match, RewriteMatch)
    assert match.edit.added[0].op_type == "Attention"


def test_operator_without_a_kernel_here_is_refused() -> None:
    why = why_of(FakeOptimizer(softmax_as("GroupNorm")))
    assert why == "ONNX Runtime has no kernel for GroupNorm on a CPU"


def test_what_onnxruntime_makes_by_itself_is_refused() -> None:
    assert "makes QuickGelu of it by itself" in why_of(FakeOptimizer(softmax_as("QuickGelu")))


def test_result_that_is_left_out_is_refused() -> None:
    why = why_of(FakeOptimizer(softmax_as("GroupQueryAttention", outputs=("", "third"))))
    assert why == "what it makes leaves out results of GroupQueryAttention"


def test_several_results_are_taken_over() -> None:
    (match,) = found(FakeOptimizer(softmax_as("GroupQueryAttention", outputs=("second",))))
    assert isinstance(match, RewriteMatch)
    (node,) = match.edit.added
    assert len(node.output) == 2 and node.output[1] != "second"


def test_tensor_nobody_makes_is_refused() -> None:
    def change(model: onnx.ModelProto) -> None:
        softmax_as("Attention")(model)
        next(node for node in model.graph.node if node.name == "new").input.append("nowhere")

    assert why_of(FakeOptimizer(change)) == "what it makes reads nowhere, which is not there"


def test_optimizer_that_cannot_be_loaded_is_told_with_the_reason() -> None:
    why = "onnxruntime.transformers cannot be loaded: No module named 'torch'"
    optimizer = FakeOptimizer(softmax_as("Attention"), why=why)
    assert why_of(optimizer) == why
    assert optimizer.asked == []


def test_large_graph_is_left_alone() -> None:
    optimizer = FakeOptimizer(softmax_as("Attention"))
    (finding,) = offline_rule(optimizer, nodes_max=3).find(view(encoder()))
    assert isinstance(finding, RewriteRefusal)
    assert "nodes are too many, it takes up to 3" in finding.why
    assert optimizer.asked == []


def test_graph_without_attention_is_not_shown_to_it() -> None:
    model = SmallModel()
    proto = model.model(model.op("Relu", model.op("MatMul", model.input(2, 3), model.weight(3, 4))))
    optimizer = FakeOptimizer()
    assert found(optimizer, proto) == [] and optimizer.asked == []


def test_optimizer_is_told_heads_shapes_and_sees_results_normalised() -> None:
    optimizer = FakeOptimizer()
    proto = encoder(heads=3, size=4)
    before = proto.SerializeToString(deterministic=True)
    assert found(optimizer, proto) == []
    ((shown, heads, width),) = optimizer.asked
    assert (heads, width) == (3, 12)
    assert shown.graph.node[-1].op_type == "LayerNormalization"
    assert [value.name for value in shown.graph.output] == list(shown.graph.node[-1].output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in shown.graph.value_info}
    assert set(kinds.values()) == {TensorProto.FLOAT}
    assert proto.SerializeToString(deterministic=True) == before


def test_what_it_does_to_the_normalised_results_is_no_match() -> None:
    def change(model: onnx.ModelProto) -> None:
        last, before = model.graph.node[-1], model.graph.node[-2]
        names = [*before.input, *last.input[1:]]
        made = helper.make_node("Attention", names, last.output, "new", domain="com.microsoft")
        del model.graph.node[-2:]
        model.graph.node.append(made)

    assert found(FakeOptimizer(change)) == []


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
