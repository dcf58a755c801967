"""Both graphs on one page: every node once, what changed beside what it was."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx
import pytest
from onnx import helper
from support.engine.offline import make_manifest
from support.engine.profiles import make_operator_profile, make_profile
from support.engine.subgraphs import c2f_network, graph_of, random_network, vocoder_network

from aoe.graph.rewrites.registry import RULES
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of
from aoe.graph.subgraphs.splicing import Splice, splice
from aoe.om.file import KernelUse, SubgraphUse
from aoe.profiling.comparing import compare_profiles
from aoe.report.graphs import (
    AlignedNodes,
    Change,
    aligned,
    computed_tensors,
    render_graphs,
    times_of,
    times_text,
)
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import find_subgraphs
from aoe.workload import KERNEL_DOMAIN


def _tuned(imported: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[SubgraphUse, ...]]:
    """Return a model with every form that fits, and what its manifest says."""
    graph = graph_of(imported)
    splices, uses = [], []
    for subgraph in find_subgraphs(graph, RULES, uneven=False, blocked=False).subgraphs:
        choices = strategy_space(subgraph)
        if not choices.space.first_guesses:
            continue
        strategy = choices.strategy(choices.space.first_guesses[0])
        for segment in subgraph.occurrences:
            form = rewrite_of(segment, strategy, RULES)
            assert not isinstance(form, str)
            splices.append(Splice(segment=segment, rewrite=form))
        ends = tuple(segment.op_names[-1] for segment in subgraph.occurrences)
        uses.append(
            SubgraphUse(
                graph_id=subgraph.graph_id, strategy=str(strategy), bank_file="b", op_names=ends
            )
        )
    return splice(graph, splices), tuple(uses)


def _names(groups: Sequence[AlignedNodes], side: str) -> list[str]:
    return [node.output[0] for group in groups for node in getattr(group, side)]


@pytest.mark.parametrize(
    "imported", [c2f_network(2), vocoder_network(), *map(random_network, range(4))]
)
def test_every_node_is_in_one_group_and_in_order(imported: onnx.ModelProto) -> None:
    tuned, uses = _tuned(imported)
    formed = {name for use in uses for name in use.op_names}
    groups = aligned(imported.graph.node, tuned.graph.node, is_optimized=False, formed=formed)
    assert _names(groups, "before") == [node.output[0] for node in imported.graph.node]
    assert _names(groups, "after") == [node.output[0] for node in tuned.graph.node]
    page = render_graphs(make_manifest(subgraphs=uses), imported, tuned)
    assert page.count('<rect x="78"') == sum(
        len(group.before) + len(group.after) for group in groups if group.change is not Change.SAME
    )


def test_form_stands_beside_what_it_replaces_and_is_named() -> None:
    imported = c2f_network(2)
    tuned, uses = _tuned(imported)
    groups = aligned(imported.graph.node, tuned.graph.node, is_optimized=False)
    changed = [group for group in groups if group.change is Change.FORM]
    assert changed
    gone = {node.op_type for group in changed for node in group.before}
    assert "Split" in gone
    page = render_graphs(make_manifest(subgraphs=uses), imported, tuned)
    assert "<p>convolution-split</p>" in page
    assert "as they are" in page


def _chain(*ops: tuple[str, str, str], domain: str = "") -> onnx.ModelProto:
    nodes = [
        helper.make_node(op, [read], [made], f"n_{made}", domain="" if op.istitle() else domain)
        for op, read, made in ops
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [], []))


def test_kernel_stands_beside_the_nodes_it_computes() -> None:
    imported = _chain(("Relu", "x", "a"), ("Exp", "a", "b"), ("Neg", "b", "c"))
    tuned = _chain(("Relu", "x", "a"), ("k_1", "a", "c"), domain=KERNEL_DOMAIN)
    same, kernel = aligned(imported.graph.node, tuned.graph.node, is_optimized=True)
    assert same.change is Change.SAME
    assert (kernel.change, len(kernel.before)) == (Change.KERNEL, 2)
    use = KernelUse(name="k_1", op_type="chain", key="k", bank_file="b", op_names=("n_c",))
    page = render_graphs(make_manifest(kernels=(use,)), imported, tuned)
    assert "<p>kernel k_1</p>" in page and 'class="kernel"' in page


def test_blocked_tensor_leads_back_and_is_the_hosts_doing() -> None:
    imported = _chain(("Relu", "x", "a"), ("Exp", "a", "b"))
    tuned = _chain(("conv", "x", "a_nchwc"), ("Exp", "a_nchwc", "b"), domain="com.microsoft.nchwc")
    first, second = aligned(imported.graph.node, tuned.graph.node, is_optimized=True)
    assert (first.change, second.change) == (Change.HOST, Change.SAME)


def _named(op_type: str, read: str, made: str, name: str, domain: str = "") -> onnx.NodeProto:
    return helper.make_node(op_type, [read], [made], name, domain=domain)


def _branches() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return two chains that meet, and how ONNX Runtime and a kernel compute them."""
    nodes = [
        _named("Conv", "x", "a", "conv_a"),
        _named("Conv", "x", "b", "conv_b"),
        _named("Relu", "a", "c", "relu_c"),
        helper.make_node("Add", ["c", "b"], ["d"], "add_d"),
    ]
    blocked = "com.microsoft.nchwc"
    inner = helper.make_node("Conv", ["x0"], ["y"], "b_nchwc", domain=blocked)
    body = helper.make_function(
        KERNEL_DOMAIN, "k_1", ["x0"], ["y"], [inner], [helper.make_opsetid(blocked, 1)]
    )
    conv = _named("Conv", "x", "reorder_1", "a_nchwc", blocked)
    conv.attribute.append(helper.make_attribute("activation", "Relu"))
    kernel = _named("k_1", "x", "reorder_2", "b_nchwc_k_1", KERNEL_DOMAIN)
    tuned = [conv, kernel, helper.make_node("Add", ["reorder_1", "reorder_2"], ["d"], "add_d")]
    models = [helper.make_model(helper.make_graph(one, "g", [], [])) for one in (nodes, tuned)]
    models[1].functions.append(body)
    return models[0], models[1]


def test_what_is_computed_together_stands_together_though_tensors_have_other_names() -> None:
    imported, tuned = _branches()
    groups = aligned(
        imported.graph.node,
        tuned.graph.node,
        is_optimized=True,
        computed=computed_tensors(imported, tuned),
    )
    found = [([n.name for n in one.before], [n.name for n in one.after]) for one in groups]
    assert found == [
        (["conv_a", "relu_c"], ["a_nchwc"]),
        (["conv_b"], ["b_nchwc_k_1"]),
        (["add_d"], ["add_d"]),
    ]
    use = KernelUse(name="k_1", op_type="chain", key="k", bank_file="b", op_names=("b",))
    page = render_graphs(make_manifest(kernels=(use,)), imported, tuned)
    assert ">b_nchwc</tspan>" in page  # nothing is said twice


def test_page_needs_nothing_from_outside_and_names_stay_text() -> None:
    hostile = "\"><script>alert(1)</script>&amp;'<!--]]>"
    imported = _chain(("Relu", "x", hostile), ("Exp", hostile, "b"))
    tuned = _chain(("Relu", "x", f"{hostile}2"), ("Neg", f"{hostile}2", "b"))
    page = render_graphs(make_manifest(name=hostile), imported, tuned)
    assert not re.findall(r"url\(|@import|https?://|<script>alert|<!--", page)
    assert page.count("<script") == 1
    assert "prefers-color-scheme: dark" in page


def test_times_stand_with_the_nodes_they_are_of() -> None:
    """What ONNX Runtime adds belongs to no node of the user's and is in the whole only."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "Relu_1"),
        helper.make_node("Conv", ["a", "w"], ["b"], "Conv_2"),
        helper.make_node("Sigmoid", ["b"], ["y"], "Sigmoid_3"),
    ]
    kernel = helper.make_node("conv_1", ["a", "w"], ["y"], "kernel_1", domain=KERNEL_DOMAIN)
    before = (
        make_operator_profile("Relu_1", op_names=("Relu_1",), median_us=1.0),
        make_operator_profile("Conv_2", op_names=("Conv_2",), median_us=20.0),
        make_operator_profile("Sigmoid_3", op_names=("Sigmoid_3",), median_us=10.0),
        make_operator_profile("reorder", op_names=(), median_us=7.0),
    )
    after = (
        make_operator_profile("Relu_1", op_names=("Relu_1",), median_us=2.0),
        make_operator_profile("kernel_1", op_names=("Conv_2", "Sigmoid_3"), median_us=15.0),
    )
    groups = aligned(nodes, [nodes[0], kernel], is_optimized=True)
    compared = compare_profiles(make_profile(*before), make_profile(*after))
    assert times_of(groups, compared) == {0: (1.0, 2.0), 1: (30.0, 15.0)}
    assert times_text((30.0, 1500.0)) == "30.0 us → 1.50 ms"


def test_page_has_times_only_where_they_were_taken() -> None:
    relu = helper.make_node("Relu", ["x"], ["y"], "Relu_1")
    model = helper.make_model(helper.make_graph([relu], "g", [], []))
    profile = make_profile(make_operator_profile("Relu_1", median_us=4.0))
    compared = compare_profiles(profile, profile)
    assert "1 as they are: 1 Relu; 4.0 us → 4.0 us" in render_graphs(
        make_manifest(), model, model, compared
    )
    assert "→" not in render_graphs(make_manifest(), model, model).partition("<main>")[2]


@pytest.mark.parametrize("length", [3, 30, 37, 200])
def test_names_however_long_stay_in_their_box(length: int) -> None:
    node = helper.make_node("K" * length, ["x"], ["y"], name="n" * length, domain="com.others")
    model = helper.make_model(helper.make_graph([node], "g", [], []))
    other = _chain(("Relu", "x", "y"))
    page = render_graphs(make_manifest(), model, other)
    drawn = page.partition('aria-label="imported nodes"')[2].partition("</svg>")[0]
    operator, name = re.findall(r"<tspan[^>]*>([^<]*)</tspan>", drawn)
    assert len(operator) + len(name) <= 44
    assert operator.endswith("KKK") and name.endswith("nnn")
    assert f"others:{'K' * length}(x)" in drawn  # its title has all of it
