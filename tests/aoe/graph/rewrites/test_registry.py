"""All rules together, on random networks."""

from __future__ import annotations

import random

import onnx
import pytest
from support.contracts.networks import shipped_network
from support.contracts.rewrites import assert_equal, feed_of, matches_of, run_model, view
from support.contracts.small_models import SmallModel

from aoe.graph.rewrites.always import ALWAYS, EXTENTS_RULE, TOKENS_RULE
from aoe.graph.rewrites.editing import apply_edits, choose_disjoint
from aoe.graph.rewrites.inexact import INEXACT
from aoe.graph.rewrites.protocol import RuleUse
from aoe.graph.rewrites.registry import RULES

SIZE = 6
TOLERANCE = 1e-3
"""Of a whole network, as `aoe.execute.accuracy` has it."""

Value = tuple[str, int]


class RandomNetwork:
    """A network of what rules are about, drawn step by step."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._model = SmallModel(opset=18, seed=seed)
        self._values: list[Value] = [(self._model.input(1, 8, SIZE, SIZE), 8)]

    def make(self, steps: int) -> onnx.ModelProto:
        """Return a model of so many steps, each of some nodes."""
        steps_there_are = (
            *(self._conv, self._conv, self._unary, self._join, self._split, self._gate),
            *(self._sum, self._norm, self._shuffle, self._power, self._turn, self._idle),
        )
        for _ in range(steps):
            self._values += self._rng.choice(steps_there_are)(self._draw())
        outputs = dict.fromkeys(name for name, _ in self._values[-3:])
        return self._model.model(*outputs)

    def _draw(self) -> Value:
        return self._rng.choice(self._values[-3:])

    def _conv(self, value: Value) -> list[Value]:
        name, channels = value
        after = self._rng.choice([8, 12, 16])
        if self._rng.random() < 0.2:
            return [(self._model.conv(name, channels, channels, 3, group=channels), channels)]
        return [(self._model.conv(name, channels, after, self._rng.choice([1, 1, 3])), after)]

    def _unary(self, value: Value) -> list[Value]:
        name, channels = value
        made = self._rng.choice(["Relu", "Tanh", "silu", "Mul"])
        if made == "silu":
            return [(self._model.silu(name), channels)]
        if made == "Mul":
            return [(self._model.op("Mul", name, self._model.positive(channels, 1, 1)), channels)]
        return [(self._model.op(made, name), channels)]

    def _join(self, value: Value) -> list[Value]:
        other = self._draw()
        joined = self._model.op("Concat", value[0], other[0], axis=1)
        channels = value[1] + other[1]
        return [(self._model.conv(joined, channels, 8), 8)]

    def _split(self, value: Value) -> list[Value]:
        name, channels = value
        extents = self._model.constant([channels // 2, channels - channels // 2])
        parts = self._model.ops("Split", name, extents, outputs=2, axis=1)
        return [(parts[0], channels // 2), (parts[1], channels - channels // 2)]

    def _gate(self, value: Value) -> list[Value]:
        name, channels = value
        mean = self._model.op("ReduceMean", name, self._model.constant([2, 3]))
        gate = self._model.op("Sigmoid", self._model.conv(mean, channels, channels))
        return [(self._model.op("Mul", name, gate), channels)]

    def _sum(self, value: Value) -> list[Value]:
        name, channels = value
        return [(self._model.op("Add", self._model.conv(name, channels, channels), name), channels)]

    def _norm(self, value: Value) -> list[Value]:
        return [(self._model.batch_norm(*value), value[1])]

    def _shuffle(self, value: Value) -> list[Value]:
        name, channels = value
        if channels % 2:
            return []
        apart = self._model.constant([1, 2, channels // 2, SIZE, SIZE])
        turned = self._model.op("Reshape", name, apart)
        turned = self._model.op("Transpose", turned, perm=[0, 2, 1, 3, 4])
        whole = self._model.constant([1, channels, SIZE, SIZE])
        return [(self._model.op("Reshape", turned, whole), channels)]

    def _power(self, value: Value) -> list[Value]:
        name = self._model.op("Tanh", value[0])
        exponent = self._model.constant(self._rng.choice([2.0, 3.0]))
        return [(self._model.op("Pow", name, exponent), value[1])]

    def _turn(self, value: Value) -> list[Value]:
        turned = self._model.op("Relu", self._model.op("Transpose", value[0], perm=[0, 2, 3, 1]))
        return [(self._model.op("Transpose", turned, perm=[0, 3, 1, 2]), value[1])]

    def _idle(self, value: Value) -> list[Value]:
        return [(self._model.op("Identity", value[0]), value[1])]


def rewritten_once(proto: onnx.ModelProto, rng: random.Random) -> tuple[onnx.ModelProto, set[str]]:
    """Return a model with matches of all rules, as many as go together in a random order."""
    graph = view(proto)
    matches = matches_of(graph, *RULES.values())
    rng.shuffle(matches)
    chosen = choose_disjoint(graph, matches)
    edits = [match.edit for match in chosen]
    return apply_edits(graph.proto, edits), {match.rule for match in chosen}


@pytest.mark.parametrize(
    "seed",
    [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 24))],
)
def test_any_choice_of_matches_keeps_the_results(seed: int) -> None:
    model = RandomNetwork(seed).make(14)
    rng, changed, applied = random.Random(seed), model, set[str]()
    for _ in range(3):
        changed, rules = rewritten_once(changed, rng)
        applied |= rules
    assert applied
    feed = feed_of(model, seed=seed)
    expected = run_model(model, feed, optimize=False)
    for optimize in (False, True):
        actual = run_model(changed, feed, optimize=optimize)
        assert_equal(expected, actual, TOLERANCE, f"{sorted(applied)}, optimised {optimize}")


@pytest.mark.parametrize(
    "name",
    [
        "squeezenet",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("densenet121", "inception_v2")),
    ],
)
def test_networks_keep_their_results(name: str) -> None:
    model = shipped_network(name)
    changed, applied = rewritten_once(model, random.Random(1))
    assert applied
    feed = feed_of(model)
    expected = run_model(model, feed, optimize=True)
    assert_equal(expected, run_model(changed, feed, optimize=True), TOLERANCE, str(sorted(applied)))


def test_rules_are_flagged_by_when_they_are_applied_and_named_once() -> None:
    assert {rule.use for rule in RULES.values()} == {RuleUse.MEASURED}
    assert {rule.use for rule in (*ALWAYS, EXTENTS_RULE, TOKENS_RULE)} == {RuleUse.ALWAYS}
    assert {rule.use for rule in INEXACT} == {RuleUse.INEXACT}
    names = [*RULES, *(rule.name for rule in (*ALWAYS, EXTENTS_RULE, TOKENS_RULE, *INEXACT))]
    assert len(set(names)) == len(names)
