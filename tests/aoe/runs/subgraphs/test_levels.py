"""Which rewrite rules are tried: by default those that win, all of them at O1; records stay."""

from __future__ import annotations

from pathlib import Path

import onnx
from support.engine.subgraph_runs import Run
from support.engine.subgraphs import NetworkBuilder, graph_of

from aoe.execute.messages import ModelPart
from aoe.graph.rewrites.registry import ONLY_AT_O1
from aoe.tasks.rewrites.experience import kinds_in
from aoe.tasks.rewrites.space import strategy_space
from aoe.tasks.rewrites.subgraphs import RULES, Subgraph, find_subgraphs, untried_rules
from aoe.tuner.mode import OptimizationLevel
from aoe.tuner.parts import EngineParts

_RULE = "mean-to-global-pool"


def _subgraph(level: OptimizationLevel) -> Subgraph:
    untried = untried_rules(EngineParts(), level)
    rules = {_RULE: RULES[_RULE]}
    net = NetworkBuilder()
    graph = graph_of(net.model("x", 4, 8, [net.conv(net.mean(net.conv("x", 4, 16)), 16, 16, 1)]))
    found = find_subgraphs(graph, rules, uneven=False, blocked=False, untried=untried)
    (subgraph,) = found.subgraphs
    return subgraph


def test_rule_that_never_wins_is_tried_at_o1_only() -> None:
    assert _RULE in ONLY_AT_O1
    by_default, at_o1 = map(_subgraph, (OptimizationLevel.O2, OptimizationLevel.O1))
    assert {one.rule for one in at_o1.matches} == {_RULE} and not at_o1.only_recorded
    assert {one.rule for one in by_default.only_recorded} == {_RULE} and not by_default.matches
    assert strategy_space(at_o1).space.knobs and not strategy_space(by_default).space.knobs
    assert kinds_in(at_o1) and not kinds_in(by_default)


def test_level_does_not_change_what_a_subgraph_is() -> None:
    by_default, at_o1 = map(_subgraph, (OptimizationLevel.O2, OptimizationLevel.O1))
    assert by_default.graph_id == at_o1.graph_id
    assert by_default.options != at_o1.options  # a search at O2 proves nothing about O1
    assert by_default.has_options  # its record may name the rule


def test_rules_that_are_kept_out_are_rules_and_those_a_run_is_given_are_tried() -> None:
    assert set(RULES) > ONLY_AT_O1
    given = EngineParts(rules={_RULE: RULES[_RULE]})
    assert untried_rules(given, OptimizationLevel.O2) == frozenset()
    assert untried_rules(EngineParts(), OptimizationLevel.O1) == frozenset()
    assert untried_rules(EngineParts(), OptimizationLevel.O2) == ONLY_AT_O1


def _pools(baseline: ModelPart, tuned: ModelPart) -> float:
    """Return a speed-up where a mean was made a global pooling."""

    def means(part: ModelPart) -> int:
        nodes = onnx.load(part.model, load_external_data=False).graph.node
        return sum(node.op_type == "ReduceMean" for node in nodes)

    return float(1.3 ** (means(baseline) - means(tuned)))


def test_record_of_a_rule_that_is_not_tried_is_used(tmp_path: Path) -> None:
    run = Run(tmp_path, rules=None)
    run.script = _pools
    first = run.tune(tune_optimization_level=OptimizationLevel.O2)
    assert not first.used_ids
    searched = run.tune(tune_optimization_level=OptimizationLevel.O1)
    (used,) = searched.used_ids
    strategies = {one.subgraph.graph_id: str(one.strategy) for one in searched.subgraphs}
    assert _RULE in strategies[used]
    again = run.tune(tune_optimization_level=OptimizationLevel.O2)
    assert again.used_ids == {used}
    assert not any(one.trials for one in again.subgraphs)
