"""What was measured decides what is tried first, and nothing else."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from support.engine.subgraphs import NetworkBuilder, graph_of

from aoe.bank.records.subgraph import AppliedRule, SubgraphStrategy
from aoe.graph.rewrites.registry import RULES
from aoe.tasks.rewrites.experience import Experience
from aoe.tasks.rewrites.space import StrategySpace, strategy_space
from aoe.tasks.rewrites.subgraphs import find_subgraphs

_GATE, _MEAN = "gate-into-weights@1", "mean-to-global-pool@1"


def _strategy(*rules: str, chunks: tuple[int, ...] = ()) -> SubgraphStrategy:
    applied = tuple(AppliedRule(rule=rule, version=1, nodes=(at,)) for at, rule in enumerate(rules))
    return SubgraphStrategy(rewrites=applied, chunks=chunks)


def _space() -> StrategySpace:
    """Return the strategies of a piece where two rules match."""
    rules = {name: RULES[name] for name in ("gate-into-weights", "mean-to-global-pool")}
    net = NetworkBuilder()
    x = net.conv("x", 4, 16)
    gate = net.node("Sigmoid", [net.conv(net.mean(x), 16, 16, 1)])
    x = net.conv(net.node("Mul", [x, gate]), 16, 16, 1)
    graph = graph_of(net.model("x", 4, 8, [x]))
    (subgraph,) = find_subgraphs(graph, rules, uneven=False, blocked=False).subgraphs
    assert len({applied.rule for applied in subgraph.matches}) == 2
    return strategy_space(subgraph)


def test_effects_of_rules_are_told_apart_from_what_was_measured_together() -> None:
    rng = random.Random(0)
    true = {"a@1": 0.10, "b@1": -0.05, "c@1": 0.0}
    measured = []
    for _ in range(200):
        words = [word for word in true if rng.random() < 0.5]
        if words:
            log = sum(true[word] for word in words) + rng.gauss(0, 0.01)
            measured.append((", ".join(words), math.exp(log)))
    found = Experience.of(measured)
    for word, effect in true.items():
        assert found.effects[word] == pytest.approx(effect, abs=0.01)
    assert found.expected_speedup(_strategy("a", "b")) == pytest.approx(math.exp(0.05), abs=0.02)


def test_one_measurement_is_believed_by_half() -> None:
    found = Experience.of([("a@1", math.exp(0.2))])
    assert found.effects["a@1"] == pytest.approx(0.1)


def test_nothing_is_expected_without_measurements() -> None:
    choices = _space()
    assert Experience().expected_speedup(_strategy("a")) == 1.0
    assert Experience.of([]) == Experience()
    assert Experience().ordered(choices) is choices


def test_counts_pieces_and_defaults_are_read_from_the_words_of_records() -> None:
    strategy = _strategy("a", "a", chunks=(2, 2, 2))
    assert str(strategy) == "2 x a@1, batch in 2+2+2"
    found = Experience.of([(str(strategy), 1.5), ("as it is", 1.0)])
    assert set(found.effects) == {"a@1", "batch in"}
    assert found.effects["a@1"] == pytest.approx(found.effects["batch in"])


def test_what_has_lost_comes_last_and_what_has_won_first() -> None:
    choices = _space()
    for winner, loser in ((_GATE, _MEAN), (_MEAN, _GATE)):
        experience = Experience.of([(winner, 1.3), (loser, 0.8)] * 20)
        ordered = experience.ordered(choices)
        tried = [str(ordered.strategy(guess)) for guess in ordered.space.first_guesses]
        assert tried[0] == winner
        assert tried[-1] == loser
        old = {str(choices.strategy(guess)) for guess in choices.space.first_guesses}
        assert old <= set(tried)
        assert ordered.space.knobs == choices.space.knobs


def test_what_should_help_becomes_a_guess_where_it_was_none() -> None:
    choices = _space()
    alone = replace(choices.space, first_guesses=choices.space.first_guesses[:1])
    experience = Experience.of([(_GATE, 1.3), (_MEAN, 0.8)] * 20)
    ordered = experience.ordered(replace(choices, space=alone))
    tried = [str(ordered.strategy(guess)) for guess in ordered.space.first_guesses]
    assert tried == [_GATE, f"{_GATE}, {_MEAN}"]
