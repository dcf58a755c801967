"""The canonical form: whatever order and names ONNX Runtime leaves, equal graphs come out equal."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from support.engine.cpu import open_session
from support.engine.models import conv_net, if_net, make_model

from aoe.graph.model_graph import names_read, subgraphs
from aoe.ort.offline_optimization import make_canonical
from aoe.ort.sessions import random_feed, session_options

X = {"x": (1, 16, 8, 8)}


def _branches_net() -> onnx.ModelProto:
    """Return convolutions side by side, each with two readers in the plain layout."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((16, 16, 3, 3)).astype(np.float32) for i in range(5)}
    nodes = []
    for i in range(5):
        nodes += [
            helper.make_node("Conv", ["x", f"w{i}"], [f"c{i}"], pads=[1, 1, 1, 1]),
            helper.make_node("Elu", [f"c{i}"], [f"e{i}"]),
            helper.make_node("CumSum", [f"c{i}", "axis"], [f"s{i}"]),
            helper.make_node("Add", [f"e{i}", f"s{i}"], [f"a{i}"]),
        ]
    nodes.append(helper.make_node("Sum", [f"a{i}" for i in range(5)], ["y"]))
    return make_model(nodes, X, ["y"], weights=weights | {"axis": np.array(1, np.int64)})


def _nested_net() -> onnx.ModelProto:
    """Return an If whose branches hold convolutions, one with a name of the main graph."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((16, 16, 3, 3)).astype(np.float32)}
    branches = {}
    for branch in ("then_branch", "else_branch"):
        inner = [
            helper.make_node("Conv", ["c", "w"], [f"{branch}_c"], "conv", pads=[1, 1, 1, 1]),
            helper.make_node("Elu", [f"{branch}_c"], [f"{branch}_y"], "elu"),
        ]
        result = helper.make_tensor_value_info(f"{branch}_y", TensorProto.FLOAT, None)
        branches[branch] = helper.make_graph(inner, branch, [], [result])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("If", ["flag"], ["i"], "choice", **branches),
        helper.make_node("Add", ["i", "c"], ["y"], "elu"),
    ]
    types = {"flag": TensorProto.BOOL}
    return make_model(nodes, X | {"flag": ()}, ["y"], weights=weights, types=types)


def _nameless_net() -> onnx.ModelProto:
    """Return nodes without names between two transposes, which ONNX Runtime cancels."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[0, 2, 3, 1]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Softsign", ["b"], ["c"]),
        helper.make_node("Elu", ["c"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["e"]),
        helper.make_node("Transpose", ["e"], ["y"], perm=[0, 3, 1, 2]),
    ]
    return make_model(nodes, X, ["y"])


NETS: dict[str, Callable[[], onnx.ModelProto]] = {
    "conv_net": conv_net,
    "branches": _branches_net,
    "nested": _nested_net,
    "if": if_net,
    "nameless": _nameless_net,
}


def _optimized(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    """Return what ONNX Runtime writes, as it is."""
    options = session_options(threads=1, optimize=True)
    options.optimized_model_filepath = str(folder / "raw.onnx")
    open_session(model.SerializeToString(), options)
    return onnx.load(str(folder / "raw.onnx"))


def _canonical(model: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    make_canonical(made, original)
    return made


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def _names(graph: onnx.GraphProto) -> set[str]:
    found = set()
    for part in _graphs(graph):
        found |= {value.name for value in (*part.input, *part.output, *part.initializer)}
        found |= {name for node in part.node for name in (*node.input, *node.output)}
    return found


def _disturbed(model: onnx.ModelProto, original: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return an equal model as another run might write it."""
    rng = random.Random(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    own = sorted(_names(made.graph) - _names(original.graph) - {""})
    numbers = rng.sample(range(10 * len(own)), len(own))
    new = {
        name: f"{name.split('_token_')[0]}_token_{n}" for name, n in zip(own, numbers, strict=True)
    }
    for graph in _graphs(made.graph):
        for value in (*graph.input, *graph.output, *graph.initializer):
            value.name = new.get(value.name, value.name)
        for node in graph.node:
            node.input[:] = [new.get(name, name) for name in node.input]
            node.output[:] = [new.get(name, name) for name in node.output]
            rng.shuffle(order := list(node.attribute))
            _replace(node.attribute, order)
    for graph in _graphs(made.graph):
        _replace(graph.node, _another_order(list(graph.node), rng))
        rng.shuffle(order := list(graph.initializer))
        _replace(graph.initializer, order)
    return made


def _replace(field, values) -> None:  # type: ignore[no-untyped-def]
    copies = []
    for value in values:
        copies.append(type(value)())
        copies[-1].CopyFrom(value)
    del field[:]
    field.extend(copies)


def _another_order(nodes: list[onnx.NodeProto], rng: random.Random) -> list[onnx.NodeProto]:
    """Return a random one of the topological orders."""
    made = {name for node in nodes for name in node.output}
    order: list[onnx.NodeProto] = []
    while nodes:
        ready = [node for node in nodes if not made.intersection(names_read(node))]
        node = rng.choice(ready)
        nodes.remove(node)
        made.difference_update(node.output)
        order.append(node)
    return order


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[onnx.ModelProto, ...]]:
    """Return each net as it was given and as ONNX Runtime writes it."""
    folder = tmp_path_factory.mktemp("raw")
    return {name: (made := make(), _optimized(made, folder)) for name, make in NETS.items()}


@pytest.mark.parametrize("net", NETS)
@given(seed=st.integers(0, 2**32))
def test_order_and_numbers_of_names_do_not_show(
    net: str, seed: int, pairs: dict[str, tuple[onnx.ModelProto, ...]]
) -> None:
    original, optimized = pairs[net]
    expected = _canonical(optimized, original)
    found = _canonical(_disturbed(optimized, original, seed), original)
    assert found.SerializeToString(deterministic=True) == (
        expected.SerializeToString(deterministic=True)
    )


@pytest.mark.parametrize("net", NETS)
def test_it_computes_the_same_bits(net: str, pairs: dict[str, tuple[onnx.ModelProto, ...]]) -> None:
    original, optimized = pairs[net]
    disturbed = _canonical(_disturbed(optimized, original, 1), original)
    options = session_options(threads=1, optimize=False)
    first, second = (
        open_session(model.SerializeToString(), options) for model in (optimized, disturbed)
    )
    for flag in (True, False):
        feed = random_feed(first, 0)
        feed |= {"flag": np.array(flag)} if "flag" in feed else {}
        for left, right in zip(first.run(None, feed), second.run(None, feed), strict=True):
            assert np.array_equal(left, right)


@pytest.mark.parametrize("net", NETS)
def test_it_is_its_own_canonical_form(
    net: str, pairs: dict[str, tuple[onnx.ModelProto, ...]]
) -> None:
    original, optimized = pairs[net]
    once = _canonical(optimized, original)
    names = [node.name for node in once.graph.node]
    assert [node.name for node in _canonical(once, original).graph.node] == names


def test_what_is_called_after_a_nameless_node_is_named_by_its_operator(
    pairs: dict[str, tuple[onnx.ModelProto, ...]],
) -> None:
    original, optimized = pairs["nameless"]
    assert any(name.startswith("_token_") for name in _names(optimized.graph))
    graph = _canonical(optimized, original).graph
    assert [node.output[0] for node in graph.node] == [
        *("Tanh_result", "Softsign_result", "Elu_result", "y")
    ]
    assert [node.name for node in graph.node] == [
        *("Tanh_x", "Softsign_Tanh_result", "Elu_Softsign_result", "Add_Softsign_result")
    ]


def test_nodes_inside_an_if_are_named_apart_from_those_outside(
    pairs: dict[str, tuple[onnx.ModelProto, ...]],
) -> None:
    graph = _canonical(pairs["nested"][1], pairs["nested"][0]).graph
    names = [node.name for part in _graphs(graph) for node in part.node]
    assert len(set(names)) == len(names)
    assert {"choice", "elu"} <= {node.name for node in graph.node}


def test_given_names_stay_though_another_node_is_named_alike() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "x"], ["a"]),
        helper.make_node("MatMul", ["x", "a"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["c"], name="same"),
        helper.make_node("MatMul", ["c", "a"], ["y"], name="MatMul_x"),
        helper.make_node("MatMul", ["c", "b"], ["z"], name="same"),
    ]
    model = make_model(nodes, {"x": [4, 4]}, ["y", "z"])
    names = [node.name for node in _canonical(model, model).graph.node]
    assert names == ["MatMul_x_2", "MatMul_x_3", "same", "MatMul_x", "same_2"]


def test_name_with_a_number_of_the_model_s_own_stays() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["h_token_3"], "n_token_1")]
    nodes.append(helper.make_node("Exp", ["h_token_3"], ["y"], "n"))
    model = make_model(nodes, {"x": [4]}, ["y"])
    canonical = _canonical(model, model)
    assert [node.name for node in canonical.graph.node] == ["n_token_1", "n"]
    assert canonical.graph.node[0].output[0] == "h_token_3"


def test_nodes_nobody_needs_keep_their_place_behind_the_others() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["unused"], "n0"),
        helper.make_node("Exp", ["x"], ["y"], "n1"),
        helper.make_node("Abs", ["unused"], ["unused2"], "n2"),
    ]
    model = make_model(nodes, {"x": [4]}, ["y"])
    assert [node.name for node in _canonical(model, model).graph.node] == ["n1", "n0", "n2"]


def test_long_chain_needs_no_deep_stack() -> None:
    length = 3000
    nodes = [helper.make_node("Exp", [f"t{i}"], [f"t{i + 1}"]) for i in range(length)]
    model = make_model(list(reversed(nodes)), {"t0": [4]}, [f"t{length}"])
    found = _canonical(model, model).graph.node
    assert [node.output[0] for node in found] == [f"t{i + 1}" for i in range(length)]
