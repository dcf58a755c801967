"""What there is to tune in a model."""

from __future__ import annotations

from pathlib import Path

from onnx import helper
from support.engine.cpu import CPU, open_session
from support.engine.models import conv_net, make_model, matmul_net, slow_chain_net

from aoe.bank.operators import key_of
from aoe.graph.model_graph import ModelGraph
from aoe.ort.profile import ModelProfile, profile_model
from aoe.ort.static_shapes import infer_tensors
from aoe.target import Target
from aoe.tuning.opat.operators import FoundOperators, find_operators


def _found(model: object, scratch: Path, target: Target) -> tuple[FoundOperators, ModelProfile]:
    proto = CPU.optimize(model, scratch / "o.onnx", threads=target.core_num)  # type: ignore[arg-type]
    profile = profile_model(proto, scratch, open_session, threads=target.core_num, runs=3)
    graph = ModelGraph(proto, infer_tensors(proto, open_session), block=CPU.channel_block())
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
