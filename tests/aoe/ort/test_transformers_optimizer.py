"""ONNX Runtime's offline optimiser for transformers as one more rule."""

from __future__ import annotations

import logging
import math
import os
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import onnx
import pytest
from onnx import TensorProto, helper
from support.contracts.rewrites import MakeModel, RewriteRuleTests, matches_of, view
from support.contracts.small_models import SmallModel
from support.engine.subgraphs import graph_of, results_of
from support.engine.transformers import decoder, encoder, random_transformer

from aoe.bank.records.subgraph import SubgraphStrategy
from aoe.device.cpu.device import Cpu
from aoe.errors import RunError
from aoe.execute.accuracy import compare_model_results
from aoe.graph.rewrites import offline
from aoe.graph.rewrites.protocol import RewriteMatch, RewriteRefusal, RewriteRule
from aoe.graph.subgraphs.boundary_tensors import cancel_at_boundaries
from aoe.graph.subgraphs.rewrite_candidates import rewrite_of, tolerance_of
from aoe.graph.subgraphs.splicing import Splice, splice
from aoe.ort.sessions import session_options
from aoe.ort.static_shapes import infer_tensors
from aoe.ort.transformers_optimizer import MODEL_TYPES, OFFLINE_RULE, TransformersOptimizer
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import RULES, find_subgraphs

NETWORKS = int(os.environ.get("AOE_FUZZ_TRANSFORMERS", "3"))
_STRATEGIES = 4


def fused_types(proto: onnx.ModelProto) -> set[str]:
    """Return the operators that all matches put in."""
    matches = matches_of(view(proto), OFFLINE_RULE)
    return {node.op_type for match in matches for node in match.edit.added}


def _is_attention(match: RewriteMatch) -> bool:
    return any(node.op_type == "Attention" for node in match.edit.added)


class TestOfflineRule(RewriteRuleTests):
    rule_name = OFFLINE_RULE.name
    matching: ClassVar[Mapping[str, MakeModel]] = {
        "encoder": encoder,
        "batch of two, spelled out": lambda: encoder(batch=2, heads=3, spelled=True),
        "decoder": decoder,
    }
    odd_values = False

    @property
    def rule(self) -> RewriteRule:
        return OFFLINE_RULE


@pytest.mark.parametrize("make", [encoder, decoder], ids=["encoder", "decoder"])
def test_attention_becomes_one_operator_with_joined_weights(make: MakeModel) -> None:
    (match,) = [m for m in matches_of(view(make()), OFFLINE_RULE) if _is_attention(m)]
    attention = next(node for node in match.edit.added if node.op_type == "Attention")
    assert attention.domain == "com.microsoft"
    heads = next(a.i for a in attention.attribute if a.name == "num_heads")
    assert heads == 2
    read = {tensor.name: tuple(tensor.dims) for tensor in match.edit.initializers}
    assert all(shape in {(8, 24), (24,)} for shape in read.values())


def test_attention_at_the_end_of_a_subgraph_is_found_without_what_follows() -> None:
    proto = encoder()
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    joins = [node for node in cut.graph.node if node.op_type == "Add"]
    residual = next(n for n in joins if not {t.name for t in cut.graph.initializer} & {*n.input})
    at = list(cut.graph.node).index(residual)
    del cut.graph.node[at + 1 :]
    cut.graph.output[0].name = residual.output[0]
    assert "Attention" in fused_types(cut)


def test_weights_that_are_no_constants_are_left_alone() -> None:
    assert "Attention" not in fused_types(encoder(constant_weights=False))


def test_refusals_name_what_onnxruntime_makes_by_itself() -> None:
    findings = OFFLINE_RULE.find(view(encoder(spelled=True)))
    whys = {one.why for one in findings if isinstance(one, RewriteRefusal)}
    assert any("by itself when it loads a model" in why for why in whys)


def test_shapes_need_no_sympy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sympy", None)
    assert TransformersOptimizer().why_unavailable() == ""
    assert "Attention" in fused_types(encoder())


def test_what_stands_in_the_way_of_loading_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("onnxruntime.transformers.optimizer", "onnxruntime.transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    why = TransformersOptimizer().why_unavailable()
    assert why.startswith("onnxruntime.transformers cannot be loaded: ")
    (finding,) = OFFLINE_RULE.find(view(encoder()))
    assert isinstance(finding, RewriteRefusal) and finding.why == why


def test_model_it_cannot_stand_has_no_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    assert TransformersOptimizer().why_unavailable() == ""  # loads it, quietly
    import onnxruntime.transformers.optimizer as optimizer

    def fail(*arguments: object) -> None:
        raise KeyError("no such node")

    monkeypatch.setattr(optimizer, "optimize_by_fusion", fail)
    assert list(TransformersOptimizer().fused(encoder(), heads=2, width=8)) == []


def test_nothing_it_says_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    before = logging.root.manager.disable
    assert len(list(TransformersOptimizer().fused(decoder(), heads=2, width=8))) == len(MODEL_TYPES)
    assert capfd.readouterr() == ("", "")
    assert logging.root.manager.disable == before


# ---- what is known of ONNX Runtime ----


Inputs = Mapping[str, tuple[tuple[int, ...], int] | None]
_F, _I32, _I64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
_ROWS: tuple[tuple[int, ...], int] = ((1, 4, 8), _F)
_WIDTH: tuple[tuple[int, ...], int] = ((8,), _F)
_NODES: Mapping[str, tuple[Inputs, Mapping[str, int], int]] = {
    "Attention": ({"x": _ROWS, "w": ((8, 24), _F), "b": ((24,), _F)}, {"num_heads": 2}, 1),
    "BiasGelu": ({"x": _ROWS, "b": _WIDTH}, {}, 1),
    "EmbedLayerNormalization": (
        {
            "ids": ((1, 4), _I32),
            "segments": None,
            "words": ((9, 8), _F),
            "places": ((9, 8), _F),
            "kinds": None,
            "scale": _WIDTH,
            "bias": _WIDTH,
        },
        {},
        2,
    ),
    "FastGelu": ({"x": _ROWS}, {}, 1),
    "FusedMatMul": ({"x": _ROWS, "y": ((1, 8, 4), _F)}, {}, 1),
    "Gelu": ({"x": _ROWS}, {}, 1),
    "GroupQueryAttention": (
        {
            "query": _ROWS,
            "key": _ROWS,
            "value": _ROWS,
            "past key": None,
            "past value": None,
            "lengths": ((1,), _I32),
            "length": ((1,), _I32),
        },
        {"num_heads": 1, "kv_num_heads": 1},
        3,
    ),
    "MultiHeadAttention": (
        {"query": _ROWS, "key": _ROWS, "value": _ROWS},
        {"num_heads": 2},
        1,
    ),
    "QuickGelu": ({"x": _ROWS}, {}, 1),
    "RotaryEmbedding": (
        {"x": _ROWS, "at": ((1, 4), _I64), "cos": ((9, 4), _F), "sin": ((9, 4), _F)},
        {},
        1,
    ),
    "SkipLayerNormalization": ({"x": _ROWS, "skip": _ROWS, "scale": _WIDTH}, {}, 1),
    "SkipSimplifiedLayerNormalization": ({"x": _ROWS, "skip": _ROWS, "scale": _WIDTH}, {}, 1),
}
"""A node of each operator: type and shape of its inputs, None for one that is left out; attributes;
results."""


def test_operators_with_a_kernel_on_a_cpu_are_loaded() -> None:
    assert set(_NODES) == offline.ON_CPU
    refused = {name: why for name in _NODES if (why := _refusal(name, *_NODES[name]))}
    assert refused == {}


def test_operator_for_graphics_cards_has_none() -> None:
    assert "has no kernel of BiasSplitGelu" in _refusal(
        "BiasSplitGelu", {"x": _ROWS, "b": _WIDTH}, {}, 1
    )


def _refusal(op_type: str, inputs: Inputs, attributes: Mapping[str, int], results: int) -> str:
    """Return why ONNX Runtime does not load a node, the empty string if it does."""
    given = {name: value for name, value in inputs.items() if value is not None}
    names = [name if name in given else "" for name in inputs]
    made = [f"made {number}" for number in range(results)]
    node = helper.make_node(op_type, names, made, domain="com.microsoft", **attributes)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, kind, shape) for n, (shape, kind) in given.items()],
        [helper.make_empty_tensor_value_info(made[0])],
    )
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    try:
        Cpu().open_session(proto.SerializeToString(), session_options(threads=1, optimize=False))
    except RunError as error:
        return str(error)
    return ""


def _activated(kind: str) -> onnx.ModelProto:
    """Return a product, its bias and an activation, spelled out."""
    model = SmallModel()
    made = model.op("MatMul", model.input(1, 6, 16), model.weight(16, 16))
    if kind != "Gelu":
        made = model.op("Add", made, model.weight(16))
    if kind == "QuickGelu":
        scaled = model.op("Mul", made, model.constant(1.702))
        return model.model(model.op("Mul", made, model.op("Sigmoid", scaled)))
    erf = model.op("Erf", model.op("Div", made, model.constant(math.sqrt(2))))
    made = model.op("Mul", made, model.op("Add", erf, model.constant(1.0)))
    return model.model(model.op("Mul", made, model.constant(0.5)))


def root_mean_square() -> onnx.ModelProto:
    """Return a normalisation by the root of the mean square."""
    model = SmallModel()
    x = model.op("Neg", model.input(1, 6, 16))
    square = model.op("Pow", x, model.constant(2.0))
    mean = model.op("Add", model.op("ReduceMean", square, axes=[-1]), model.constant(1e-5))
    made = model.op("Div", x, model.op("Sqrt", mean))
    return model.model(model.op("Mul", made, model.positive(16)))


_OWN: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "Gelu": lambda: _activated("Gelu"),
    "QuickGelu": lambda: _activated("QuickGelu"),
    "SimplifiedLayerNormalization": root_mean_square,
    "LayerNormalization": lambda: encoder(spelled=True),
    "SkipLayerNormalization": lambda: encoder(spelled=True),
}


@pytest.mark.parametrize("op_type", list(_OWN))
def test_onnxruntime_makes_it_by_itself(op_type: str, tmp_path: Path) -> None:
    assert op_type in offline.MADE_ANYWAY
    optimized = Cpu().optimize(_OWN[op_type](), tmp_path / "optimized.onnx", threads=1)
    assert op_type in {node.op_type for node in optimized.graph.node}


# ---- random transformers, cut into subgraphs as in a run ----


@pytest.mark.parametrize("seed", range(NETWORKS))
def test_every_form_of_a_random_transformer_computes_the_same(seed: int) -> None:
    _check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(NETWORKS, 300))
def test_every_form_of_300_random_transformers_computes_the_same(seed: int) -> None:
    _check(seed)


def test_random_transformers_hold_what_the_rule_is_about() -> None:
    applied = [matches_of(view(random_transformer(seed)), OFFLINE_RULE) for seed in range(6)]
    assert all(applied)


def _check(seed: int) -> None:
    """Hold forms against their subgraph, and the last of each in the whole against the model."""
    proto, rng = random_transformer(seed), random.Random(seed)
    graph = graph_of(proto)
    last: dict[str, Splice] = {}
    for subgraph in find_subgraphs(graph, RULES, uneven=False, blocked=False).subgraphs:
        choices = strategy_space(subgraph)
        drawn = [c for c, _ in zip(choices.space.draw(rng), range(_STRATEGIES), strict=False)]
        offered = {choices.strategy(c) for c in (*choices.space.first_guesses, *drawn)}
        own = [a for a in subgraph.matches if a.rule == OFFLINE_RULE.name]
        offered |= {SubgraphStrategy(rewrites=(applied,)) for applied in own}
        for strategy in sorted(offered, key=str):
            form = rewrite_of(subgraph.segment, strategy, RULES)
            assert not isinstance(form, str) or strategy.chunks, form
            if isinstance(form, str):
                continue
            onnx.checker.check_model(form)
            assert _alike(subgraph.segment.proto, form, tolerance_of(strategy, RULES)), str(
                strategy
            )
            last[subgraph.graph_id] = Splice(segment=subgraph.segment, rewrite=form)
    whole = splice(graph, list(last.values()))
    whole = cancel_at_boundaries(
        whole, graph.proto, lambda model: infer_tensors(model, Cpu().open_session)
    )
    onnx.checker.check_model(whole)
    assert _alike(proto, whole, 1e-3)


def _alike(one: onnx.ModelProto, other: onnx.ModelProto, tolerance: float) -> bool:
    found = compare_model_results(results_of(one), results_of(other), tolerance=tolerance)
    return found.acceptable


def test_wrong_guess_of_the_optimizer_is_a_form_that_computes_something_else() -> None:
    proto = encoder(divisor=3.0)
    subgraphs = find_subgraphs(
        graph_of(proto), {OFFLINE_RULE.name: OFFLINE_RULE}, uneven=False, blocked=False
    ).subgraphs
    found = [(one, a) for one in subgraphs for a, m in one.matches.items() if _is_attention(m)]
    ((own, applied),) = found
    form = rewrite_of(own.segment, SubgraphStrategy(rewrites=(applied,)), RULES)
    assert not isinstance(form, str)
    assert not _alike(own.segment.proto, form, OFFLINE_RULE.tolerance)
