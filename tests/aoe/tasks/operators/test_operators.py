"""What there is to tune in a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.engine.cpu import CPU, open_session
from support.engine.models import conv_net, make_model, matmul_net, slow_chain_net

from aoe.bank.operators import key_of
from aoe.graph.model_graph import ModelGraph
from aoe.graph.origins import Origins
from aoe.graph.regions import Partition
from aoe.ort.profile import ModelProfile, profile_model
from aoe.ort.static_shapes import infer_tensors
from aoe.target import Target
from aoe.tasks.operators.operators import (
    ChosenOperators,
    FoundOperators,
    find_operators,
    part_operators,
)
from aoe.tuner.operator_choice import OperatorChoice


def _profiled(
    model: onnx.ModelProto, scratch: Path, target: Target
) -> tuple[ModelGraph, ModelProfile]:
    proto = CPU.optimize(model, scratch / "o.onnx", threads=target.core_num)
    profile = profile_model(proto, scratch, open_session, threads=target.core_num, runs=3)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
    return graph, profile


def _found(
    model: onnx.ModelProto, scratch: Path, target: Target
) -> tuple[FoundOperators, ModelProfile]:
    graph, profile = _profiled(model, scratch, target)
    return find_operators(graph, profile), profile


def test_equal_places_are_one_operator(tmp_path: Path, target: Target) -> None:
    found, _ = _found(slow_chain_net(repeat=3), tmp_path, target)
    (operator,) = found.operators
    assert len(operator.regions) == 3
    assert len(set(operator.op_names)) == 3
    assert operator.op_name == operator.op_names[0]
    assert operator.key == key_of(operator.workload)


def test_share_is_the_part_of_the_model_s_time(tmp_path: Path, target: Target) -> None:
    found, profile = _found(slow_chain_net(repeat=2), tmp_path, target)
    total = sum(profile.node_us.values())
    for operator in found.operators:
        assert 0 < operator.share <= 1
        assert operator.default_us / total == operator.share


def test_largest_share_comes_first(tmp_path: Path, target: Target) -> None:
    found, _ = _found(conv_net(extent=48), tmp_path, target)
    shares = [operator.share for operator in found.operators]
    assert len(shares) > 2
    assert shares == sorted(shares, reverse=True)


def _silu_net() -> onnx.ModelProto:
    """Return convolutions with SiLU behind them, equal ones and, at the end, one without."""
    nodes, last = [], "x"
    for number in range(3):
        names = [f"{kind}{number}" for kind in ("c", "s", "m")]
        conv = helper.make_node("Conv", [last, "w"], [names[0]], names[0], pads=[1, 1, 1, 1])
        nodes += [
            conv,
            helper.make_node("Sigmoid", [names[0]], [names[1]], names[1]),
            helper.make_node("Mul", names[:2], [names[2]], names[2]),
        ]
        last = names[2]
    nodes.append(helper.make_node("Conv", [last, "w"], ["y"], "last", pads=[1, 1, 1, 1]))
    weights = {"w": np.random.default_rng(0).standard_normal((32, 32, 3, 3)).astype(np.float32)}
    return make_model(nodes, {"x": (1, 32, 40, 40)}, ["y"], weights=weights)


@pytest.mark.skipif(not CPU.channel_block(), reason="this CPU has no blocked layout")
def test_parts_of_fused_operators_nothing_was_found_for_are_tuned(
    tmp_path: Path, target: Target
) -> None:
    graph, profile = _profiled(_silu_net(), tmp_path, target)
    found = find_operators(graph, profile)
    assert {o.workload.op_type for o in found.fused} == {"convolution"}
    first, *_ = found.fused
    assert len({op.op_type for op in first.workload.operations}) > 1
    left = part_operators(graph, profile, found, first.regions)
    assert left.fused == ()
    alone = {index for region in first.regions for index in region.nodes}
    parts = [region for o in left.operators for region in o.regions if set(region.nodes) <= alone]
    assert sorted(index for region in parts for index in region.nodes) == sorted(alone)
    assert len(parts) == 2 * len(first.regions)
    others = {o.key for o in found.operators}
    assert others <= {o.key for o in left.operators}


def _expansion_net() -> onnx.ModelProto:
    """Return a pointwise convolution and a depthwise one behind it, both with a gate."""
    nodes, last = [], "x"
    depthwise = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 96}
    for number, attributes in enumerate(({"kernel_shape": [1, 1]}, depthwise)):
        names = [f"{kind}{number}" for kind in ("c", "s", "m")]
        conv = helper.make_node("Conv", [last, f"w{number}"], names[:1], names[0], **attributes)
        nodes += [
            conv,
            helper.make_node("HardSigmoid", [names[0]], [names[1]], names[1]),
            helper.make_node("Mul", names[:2], [names[2]], names[2]),
        ]
        last = names[2]
    rng = np.random.default_rng(0)
    shapes = {"w0": (96, 32, 1, 1), "w1": (96, 1, 3, 3)}
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()
    }
    return make_model(nodes, {"x": (1, 32, 28, 28)}, [last], weights=weights)


@pytest.mark.skipif(not CPU.channel_block(), reason="this CPU has no blocked layout")
def test_convolutions_that_are_not_won_together_are_tuned_each_with_its_chain(
    tmp_path: Path, target: Target
) -> None:
    graph, profile = _profiled(_expansion_net(), tmp_path, target)
    found = find_operators(graph, profile)
    (pair,) = found.fused
    assert pair.workload.op_type == "expanded_convolution"
    halves = part_operators(graph, profile, found, pair.regions)
    assert [one.workload.op_type for one in halves.fused] == ["convolution"] * 2
    whole = sorted(index for one in halves.fused for index in one.regions[0].nodes)
    assert whole == sorted(pair.regions[0].nodes)
    lost = [region for one in (pair, *halves.fused) for region in one.regions]
    rest = part_operators(graph, profile, found, lost)
    assert {one.key for one in rest.fused} == {one.key for one in halves.fused}
    assert {one.workload.op_type for one in rest.operators} >= {"elementwise"}


def test_parts_of_places_cut_before_are_not_cut_again(tmp_path: Path, target: Target) -> None:
    graph, profile = _profiled(_expansion_net(), tmp_path, target)
    found = find_operators(graph, profile)
    (pair,) = found.fused
    known: dict[tuple[int, ...], Partition] = {}
    halves = part_operators(graph, profile, found, pair.regions, known=known)
    assert {*known} == {region.nodes for region in pair.regions}
    before = dict(known)
    lost = [region for one in (pair, *halves.fused) for region in one.regions]
    rest = part_operators(graph, profile, found, lost, known=known)
    assert rest == part_operators(graph, profile, found, lost)
    assert all(known[nodes] is parts for nodes, parts in before.items())


def test_nothing_is_taken_apart_when_everything_was_won(tmp_path: Path, target: Target) -> None:
    graph, profile = _profiled(slow_chain_net(repeat=2), tmp_path, target)
    found = find_operators(graph, profile)
    assert part_operators(graph, profile, found, []).operators == found.operators


def test_reorders_give_no_operator_its_name(tmp_path: Path, target: Target) -> None:
    found, _ = _found(conv_net(extent=48), tmp_path, target)
    assert not [o.op_name for o in found.operators if o.op_name.startswith("Reorder")]


def test_tiny_workloads_are_left_alone_with_the_reason(tmp_path: Path, target: Target) -> None:
    nodes = [helper.make_node("Softplus", ["x"], ["y"], "tiny")]
    found, _ = _found(make_model(nodes, {"x": (1, 8)}, ["y"]), tmp_path, target)
    assert found.operators == ()
    (refusal,) = found.refusals
    assert (refusal.node, refusal.op_type) == ("tiny", "elementwise")
    assert "16 elements" in refusal.reason


def _small_chains(places: int) -> onnx.ModelProto:
    """Return chains of 5 nodes of 512 elements, each in front of a Hardmax."""
    nodes, read = [], "x"
    for at in range(places):
        for op_type in ("Sigmoid", "Neg", "Softplus", "Tanh", "Sin"):
            nodes.append(helper.make_node(op_type, [read], [f"{op_type}{at}"], f"{op_type}{at}"))
            read = f"{op_type}{at}"
        nodes.append(helper.make_node("Hardmax", [read], [f"h{at}"], f"h{at}"))  # has no kernel
        read = f"h{at}"
    return make_model(nodes, {"x": (1, 512)}, [read])


@pytest.mark.parametrize(("places", "is_tuned"), [(2, False), (4, True)])
def test_many_small_nodes_are_worth_a_kernel_where_few_are_not(
    places: int, is_tuned: bool, tmp_path: Path, target: Target
) -> None:
    """A node costs about a microsecond, however small its tensors are."""
    found, _ = _found(_small_chains(places), tmp_path, target)
    chains = [one for one in found.operators if one.workload.op_type == "elementwise"]
    assert bool(chains) == is_tuned
    assert all(len(one.regions) == places for one in chains)


def test_model_with_nothing_to_generate_has_no_operators(tmp_path: Path, target: Target) -> None:
    found, _ = _found(matmul_net(width=64), tmp_path, target)
    assert found.operators == ()


def test_same_model_gives_the_same_operators_whatever_its_times(
    tmp_path: Path, target: Target
) -> None:
    keys = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found, _ = _found(conv_net(extent=48), tmp_path / name, target)
        keys.append({operator.key for operator in found.operators})
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("choice", "some_are_left"),
    [
        (OperatorChoice(types=("Conv",)), True),
        (OperatorChoice(names=("*",)), False),
    ],
)
def test_operators_are_chosen_by_the_nodes_they_were_made_from(
    tmp_path: Path, target: Target, choice: OperatorChoice, some_are_left: bool
) -> None:
    model = conv_net(extent=48)
    graph, profile = _profiled(model, tmp_path, target)
    found = find_operators(graph, profile)
    chosen = ChosenOperators(choice, graph, model)
    operators = (*found.fused, *found.operators)
    taken = [one for one in operators if chosen(one)]
    assert taken and (len(taken) < len(operators)) is some_are_left
    assert chosen.strangers() == ()


def test_choice_knows_the_names_of_the_user_s_nodes(tmp_path: Path, target: Target) -> None:
    model = conv_net(extent=48)
    for number, node in enumerate(model.graph.node):
        node.name = f"mine/{number}"
    graph, profile = _profiled(model, tmp_path, target)
    found = find_operators(graph, profile)
    convolution = next(node.name for node in model.graph.node if node.op_type == "Conv")
    chosen = ChosenOperators(OperatorChoice(names=(convolution, "mine/x")), graph, model)
    taken = [one for one in (*found.fused, *found.operators) if chosen(one)]
    assert len(taken) == 1
    assert [text.split()[0] for text in chosen.strangers()] == ["mine/x"]


def test_operators_have_the_names_of_the_user_s_nodes(tmp_path: Path, target: Target) -> None:
    model = conv_net(extent=48)
    for number, node in enumerate(model.graph.node):
        node.name = f"mine/{number}"
    types = {node.name: node.op_type for node in model.graph.node}
    graph, profile = _profiled(model, tmp_path, target)
    found = find_operators(graph, profile, origins=Origins(model, graph.proto))
    for operator in (*found.fused, *found.operators):
        assert operator.op_name in operator.model_op_names
        assert set(operator.model_op_names) <= set(types)
    (convolution,) = (one for one in found.fused if "Conv" in map(types.get, one.model_op_names))
    assert types[convolution.op_name] == "Conv"
    assert len(convolution.model_op_names) > 1


def test_choice_knows_tensorflow_s_name_of_a_node_by_its_result(
    tmp_path: Path, target: Target
) -> None:
    model = conv_net(extent=48)
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    before, node.output[0], node.name = node.output[0], "dense/MatMul:0", "Conv__26"
    for reader in model.graph.node:
        reader.input[:] = [node.output[0] if name == before else name for name in reader.input]
    graph, profile = _profiled(model, tmp_path, target)
    found = find_operators(graph, profile)
    chosen = ChosenOperators(OperatorChoice(names=("dense/MatMul",)), graph, model)
    assert len([one for one in (*found.fused, *found.operators) if chosen(one)]) == 1
    assert chosen.strangers() == ()
