"""Kernels in a model: one node each, with the operators they replace as the way back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from support.engine.built_kernels import linked
from support.engine.cpu import CPU, open_session
from support.engine.graphs import BLOCK, meaning
from support.engine.models import (
    compress_net,
    conv_net,
    excited_net,
    if_net,
    make_model,
    slow_chain_net,
)
from support.engine.offline import first_guess, regions_of, view_of

from aoe.device.toolchain import Toolchain
from aoe.graph.model_graph import ModelGraph, TensorInfo
from aoe.graph.regions import Region, partition
from aoe.graph.rewrite import Replacement, inline_kernels, prune_opsets, rewrite
from aoe.kernels.registry import anchors, classify
from aoe.ort.sessions import random_feed, session_options
from aoe.target import Target
from aoe.workload import KERNEL_DOMAIN, NCHWC_DOMAIN

X = {"x": (1, 16, 4, 4)}


def _view(model: onnx.ModelProto, shape: tuple[int, ...] = (1, 16, 4, 4)) -> ModelGraph:
    made = [name for node in model.graph.node for name in node.output]
    info = TensorInfo(dtype="float32", shape=shape)
    return ModelGraph(model, dict.fromkeys(made, info), block=BLOCK)


def _run(model: onnx.ModelProto, library: Path | None = None) -> list[np.ndarray]:  # type: ignore[type-arg]
    options = session_options(threads=2, optimize=False, library=library)
    session = open_session(model.SerializeToString(), options)
    return list(session.run(None, random_feed(session, 7)))


def _with_kernels(
    graph: ModelGraph,
    target: Target,
    toolchain: Toolchain,
    folder: Path,
    regions: Sequence[Region] = (),
) -> tuple[onnx.ModelProto, Path]:
    """Return the model with the first guess of every region in it, and their library."""
    replacements, sources = [], {}
    for region in regions or regions_of(graph):
        source = first_guess(region, target)
        sources[source.name] = source
        replacements.append(Replacement(region=region, kernel=source.name))
    library = linked(
        list(sources.values()), target=target, toolchain=toolchain, file=folder / "kernels.so"
    )
    return rewrite(graph, replacements), library


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory, target: Target) -> ModelGraph:
    """Return a small conv net as ONNX Runtime optimises it here."""
    return view_of(conv_net(), tmp_path_factory.mktemp("optimized"), target)


# ---- the whole way, with ONNX Runtime ----


def test_conv_net_offers_blocked_and_plain_regions(optimized: ModelGraph) -> None:
    regions = regions_of(optimized)
    assert {region.workload.op_type for region in regions} >= {"lrn"}
    computed = {op.op_type for region in regions for op in region.workload.operations}
    assert {"LRN", "PRelu"} <= computed
    if CPU.channel_block():
        assert any(region.workload.blocked for region in regions)


def test_without_a_library_the_function_bodies_give_the_same_bits(optimized: ModelGraph) -> None:
    replacements = [
        Replacement(region=region, kernel=f"kernel_{i}")
        for i, region in enumerate(regions_of(optimized))
    ]
    tuned = rewrite(optimized, replacements)
    assert sum(node.domain == KERNEL_DOMAIN for node in tuned.graph.node) == len(replacements)
    onnx.checker.check_model(tuned)
    for found, expected in zip(_run(tuned), _run(optimized.proto), strict=True):
        assert np.array_equal(found, expected)


def test_with_the_library_its_kernels_give_the_same_results(
    optimized: ModelGraph, target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    tuned, library = _with_kernels(optimized, target, toolchain, tmp_path)
    for found, expected in zip(_run(tuned, library), _run(optimized.proto), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("channels", [32, pytest.param(72, marks=pytest.mark.slow)])
def test_convolution_with_its_gate_gives_the_same_results(
    channels: int, target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    if not CPU.channel_block():
        pytest.skip("this CPU has no blocked layout")
    net = excited_net(channels=channels)
    graph = view_of(net, tmp_path, target)
    fed = [one for one in regions_of(graph) if one.workload.op_type == "convolution"]
    assert any("Mul" in [op.op_type for op in one.workload.operations[:-1]] for one in fed)
    tuned, library = _with_kernels(graph, target, toolchain, tmp_path)
    (found,), (bodies,), (expected,) = _run(tuned, library), _run(tuned), _run(graph.proto)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.array_equal(bodies, expected)


def test_places_of_the_largest_are_int64_with_the_library_and_without(
    tmp_path: Path, target: Target, toolchain: Toolchain
) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["turned"], perm=[0, 3, 1, 2]),
        helper.make_node("ArgMax", ["turned"], ["y"], axis=1, keepdims=0),
    ]
    model = make_model(
        nodes, {"x": (1, 20, 30, 40)}, {"y": (1, 20, 30)}, types={"y": TensorProto.INT64}
    )
    graph = view_of(model, tmp_path, target)
    tuned, library = _with_kernels(graph, target, toolchain, tmp_path)
    assert any(node.op_type.startswith("arg_extremes") for node in tuned.graph.node)
    (expected,), (fallback,), (found,) = _run(model), _run(tuned), _run(tuned, library)
    assert found.dtype == fallback.dtype == expected.dtype == np.int64
    assert np.array_equal(fallback, expected)
    assert np.array_equal(found, expected)


def test_shapes_that_depend_on_data_may_differ_from_run_to_run(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    graph = view_of(compress_net(), tmp_path, target)
    tuned, library = _with_kernels(graph, target, toolchain, tmp_path)
    options = session_options(threads=2, optimize=False, library=library)
    session = open_session(tuned.SerializeToString(), options)
    plain = open_session(
        compress_net().SerializeToString(), session_options(threads=2, optimize=True)
    )
    feed = random_feed(plain, 0)
    for rows in (0, 1, 7, 16):
        feed["keep"] = np.arange(16) < rows
        (found,), (expected,) = session.run(None, feed), plain.run(None, feed)
        assert found.shape == (1, 8, rows, 16)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def _spoiling_net() -> onnx.ModelProto:
    """Return operators ONNX Runtime computes in place, all around those that get kernels."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "before"),
        helper.make_node("LRN", ["a"], ["b"], "lrn", size=3),
        helper.make_node("Neg", ["b"], ["c"], "behind"),
        helper.make_node("Sqrt", ["a"], ["d"], "input_again"),
        helper.make_node("Softmax", ["d"], ["e"], "softmax", axis=1),
        helper.make_node("Add", ["e", "c"], ["f"], "into_either"),
        helper.make_node("InstanceNormalization", ["f", "s", "s"], ["g"], "norm"),
        helper.make_node("Sigmoid", ["f"], ["h"], "input_last"),
        helper.make_node("Mul", ["g", "h"], ["i"], "product"),
        helper.make_node("ReduceMean", ["i"], ["j"], "mean", axes=[2, 3]),
        helper.make_node("Sub", ["i", "j"], ["y"], "end"),
    ]
    weights = {"s": np.linspace(0.5, 2, 24, dtype=np.float32)}
    return make_model(nodes, {"x": (2, 24, 9, 7)}, ["y", "b"], weights=weights)


def test_kernels_stand_between_operators_that_write_in_place(
    target: Target, toolchain: Toolchain, tmp_path: Path
) -> None:
    graph = view_of(_spoiling_net(), tmp_path, target)
    alone = partition(graph, fusible=frozenset(), anchors=anchors(), classify=classify).regions
    assert {region.workload.op_type for region in alone} == {
        *("lrn", "softmax", "instance_normalization", "reductions"),
    }
    tuned, library = _with_kernels(graph, target, toolchain, tmp_path, alone)
    options = session_options(threads=2, optimize=False, library=library)
    session = open_session(tuned.SerializeToString(), options)
    plain = open_session(
        _spoiling_net().SerializeToString(), session_options(threads=2, optimize=False)
    )
    feeds = [random_feed(plain, seed) for seed in (0, 1)]
    wanted = [plain.run(None, feed) for feed in feeds]
    for number in (0, 1, 0, 0, 1):
        given = {name: array.copy() for name, array in feeds[number].items()}
        for found, expected in zip(session.run(None, given), wanted[number], strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        for name, array in given.items():
            assert np.array_equal(array, feeds[number][name]), "an input of the user was written to"


def test_equal_regions_share_one_function(tmp_path: Path, target: Target) -> None:
    graph = view_of(slow_chain_net(repeat=3), tmp_path, target)
    regions = [region for region in regions_of(graph) if len(region.workload.operations) >= 3]
    assert len(regions) == 3
    assert all(region.workload == regions[0].workload for region in regions)
    tuned = rewrite(graph, [Replacement(region=region, kernel="same") for region in regions])
    assert [function.name for function in tuned.functions] == ["same"]
    for found, expected in zip(_run(tuned), _run(graph.proto), strict=True):
        assert np.array_equal(found, expected)


def test_result_that_is_a_graph_output_keeps_its_name_and_its_one_declaration() -> None:
    graph = _view(make_model([helper.make_node("Exp", ["x"], ["y"], "n")], X, {"y": X["x"]}))
    tuned = rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")])
    assert [value.name for value in tuned.graph.output] == ["y"]
    onnx.checker.check_model(tuned)
    assert np.array_equal(_run(tuned)[0], _run(graph.proto)[0])


# ---- what is in the model file ----


def test_no_replacement_leaves_the_meaning_alone() -> None:
    graph = _view(make_model([helper.make_node("Exp", ["x"], ["y"], "n")], X, ["y"]))
    tuned = rewrite(graph, [])
    assert meaning(tuned) == meaning(graph.proto)
    assert not tuned.functions


def test_the_original_is_not_touched() -> None:
    graph = _view(make_model([helper.make_node("Exp", ["x"], ["y"], "n")], X, ["y"]))
    before = graph.proto.SerializeToString()
    rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")])
    assert graph.proto.SerializeToString() == before


def test_scalars_move_into_the_function_and_unused_initializers_go() -> None:
    nodes = [
        helper.make_node("Mul", ["x", "half"], ["a"], "m"),
        helper.make_node("Exp", ["a"], ["y"], "e"),
    ]
    weights = {"half": np.full((), 0.5, np.float32), "unused": np.ones(4, np.float32)}
    graph = _view(make_model(nodes, X, ["y"], weights=weights))
    tuned = rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")])
    assert not tuned.graph.initializer
    assert list(tuned.graph.node[0].input) == ["x"]
    assert meaning(tuned) == meaning(graph.proto)


def test_initializer_that_is_a_graph_output_stays() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"], "e")]
    model = make_model(nodes, X, ["y", "w"], weights={"w": np.ones(4, np.float32)})
    tuned = rewrite(_view(model), [])
    assert [tensor.name for tensor in tuned.graph.initializer] == ["w"]


def test_default_of_an_input_stays_though_nobody_reads_it() -> None:
    """Without it the input would have to be given."""
    nodes = [helper.make_node("Exp", ["x"], ["y"], "e")]
    weights = {"unused": np.ones(4, np.float32)}
    model = make_model(nodes, X | {"unused": (4,)}, ["y"], weights=weights)
    tuned = rewrite(_view(model), [])
    assert [tensor.name for tensor in tuned.graph.initializer] == ["unused"]


def test_names_used_in_branches_stay_alive() -> None:
    model = if_net()
    graph = _view(model, (16, 16))
    regions = regions_of(graph)
    assert regions
    tuned = rewrite(graph, [Replacement(region=r, kernel=f"k{i}") for i, r in enumerate(regions)])
    feed = {"x": np.ones((16, 16), np.float32), "flag": np.array(True)}
    options = session_options(threads=1, optimize=False)
    results = [
        open_session(proto.SerializeToString(), options).run(None, feed)[0]
        for proto in (tuned, model)
    ]
    assert np.array_equal(*results)


def test_node_read_inside_a_branch_only_stays() -> None:
    branch = helper.make_graph(
        [helper.make_node("Abs", ["t"], ["b"])],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], "product"),
        helper.make_node("If", ["f"], ["y"], "choice", then_branch=branch, else_branch=branch),
    ]
    weights = {"w": np.ones((4, 4), np.float32)}
    model = make_model(nodes, {**X, "f": ()}, ["y"], weights=weights)
    tuned = rewrite(_view(model), [])
    assert [node.name for node in tuned.graph.node] == ["product", "choice"]
    assert [tensor.name for tensor in tuned.graph.initializer] == ["w"]


def test_omitted_optional_input_is_still_omitted_in_the_function() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"], "c")
    model = make_model([node], X, ["y"], weights={"high": np.full((), 0.5, np.float32)})
    graph = _view(model)
    tuned = rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")])
    clip = next(n for n in tuned.functions[0].node if n.op_type == "Clip")
    assert clip.input[1] == ""
    assert np.array_equal(_run(tuned)[0], _run(model)[0])


def test_imports_nobody_uses_are_pruned_and_onnx_s_own_stays() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"], "e")]
    model = make_model(nodes, X, ["y"], domains={NCHWC_DOMAIN: 1, "com.microsoft": 1})
    prune_opsets(model)
    assert [entry.domain for entry in model.opset_import] == [""]


def test_imports_used_inside_branches_and_functions_stay() -> None:
    branch = helper.make_graph(
        [helper.make_node("Gelu", ["x"], ["b"], domain="com.microsoft")],
        "branch",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )
    nodes = [helper.make_node("If", ["f"], ["y"], "i", then_branch=branch, else_branch=branch)]
    domains = {"com.microsoft": 1, "inner": 1, "outer": 1, "unused": 1}
    model = make_model(nodes, {**X, "f": ()}, ["y"], domains=domains)
    body = [helper.make_node("Any", ["a"], ["b"], domain="inner")]
    opsets = [helper.make_opsetid("inner", 1)]
    model.functions.append(helper.make_function("outer", "F", ["a"], ["b"], body, opsets))
    prune_opsets(model)
    assert {entry.domain for entry in model.opset_import} == {"", "com.microsoft", "inner"}


def test_long_name_of_onnx_s_own_domain_is_not_pruned() -> None:
    model = make_model([helper.make_node("Exp", ["x"], ["y"], domain="ai.onnx")], X, ["y"])
    model.opset_import[0].domain = "ai.onnx"
    prune_opsets(model)
    assert [entry.domain for entry in model.opset_import] == ["ai.onnx"]


def test_import_onnxruntime_made_up_for_the_kernels_is_replaced() -> None:
    """It writes one once a kernel library was registered in the process."""
    nodes = [helper.make_node("Exp", ["x"], ["y"], "e")]
    graph = _view(make_model(nodes, X, ["y"], domains={KERNEL_DOMAIN: 1000}))
    tuned = rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")])
    found = [(entry.domain, entry.version) for entry in tuned.opset_import]
    assert sorted(found) == [("", 17), (KERNEL_DOMAIN, 1)]


def test_file_format_knows_functions() -> None:
    nodes = [helper.make_node("Exp", ["x"], ["y"], "e")]
    graph = _view(make_model(nodes, X, ["y"], opset=13, ir_version=4))
    assert rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")]).ir_version == 8


def test_onnxruntime_finds_the_reason_when_a_kernel_has_neither_library_nor_body() -> None:
    graph = _view(make_model([helper.make_node("Exp", ["x"], ["y"], "n")], X, ["y"]))
    tuned = rewrite(graph, [Replacement(region=regions_of(graph)[0], kernel="k")])
    del tuned.functions[:]
    with pytest.raises(Exception, match="aoe:k"):
        ort.InferenceSession(tuned.SerializeToString(), providers=["CPUExecutionProvider"])


# ---- the way back ----


def test_kernels_taken_apart_are_the_operators_by_their_names(
    tmp_path: Path, target: Target
) -> None:
    graph = view_of(slow_chain_net(), tmp_path, target)
    replacements = [
        Replacement(region=region, kernel=first_guess(region, target).name)
        for region in regions_of(graph)
    ]
    assert replacements
    tuned = rewrite(graph, replacements)
    inlined = inline_kernels(tuned)
    assert not [node for node in inlined.proto.graph.node if node.domain == KERNEL_DOMAIN]
    names = {node.name for node in inlined.proto.graph.node if node.op_type != "Constant"}
    assert names == {node.name for node in graph.nodes}
    assert set(inlined.parts) == {node.name for node in tuned.graph.node}
    kernel = next(node for node in tuned.graph.node if node.domain == KERNEL_DOMAIN)
    parts = [inlined.proto.graph.node[index] for index in inlined.parts[kernel.name]]
    assert parts[-1].output == kernel.output
    for expected, found in zip(_run(graph.proto), _run(inlined.proto), strict=True):
        assert np.array_equal(expected, found)


def test_node_two_kernels_compute_has_its_name_once() -> None:
    inner = helper.make_node("Neg", ["x0"], ["y"], name="k_0")
    opsets = [helper.make_opsetid("", 17)]
    functions = [
        helper.make_function(KERNEL_DOMAIN, name, ["x0"], ["y"], [inner], opsets)
        for name in ("k", "l")
    ]
    nodes = [
        helper.make_node(name, ["x"], [result], name, doc_string="computes shared", domain="aoe")
        for name, result in (("k", "a"), ("l", "b"))
    ]
    model = make_model(nodes, X, ["a", "b"], domains={KERNEL_DOMAIN: 1})
    model.functions.extend(functions)
    names = [node.name for node in inline_kernels(model).proto.graph.node]
    assert names == ["shared", "l/y"]
