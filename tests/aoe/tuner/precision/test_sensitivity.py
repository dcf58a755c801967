"""Operators go back to float32 until the model is accurate enough."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from aoe.tuner.precision.constraint import AccuracyConstraint, cosine
from aoe.tuner.precision.sensitivity import hold

_COSINE = AccuracyConstraint(name="cosine", metric=cosine, least=True, bound=0.9)
_ERROR = AccuracyConstraint(name="error", metric=cosine, least=False, bound=0.1)


def _additive(
    harm: dict[str, float], base: float = 1.0
) -> tuple[Callable[[frozenset[str]], float], list[frozenset[str]]]:
    """Return a model whose accuracy falls by the harm of each lowered operator."""
    asked: list[frozenset[str]] = []

    def evaluate(lowered: frozenset[str]) -> float:
        asked.append(lowered)
        return base - sum(harm[name] for name in lowered)

    return evaluate, asked


def test_all_stay_where_that_is_accurate_enough_after_one_run() -> None:
    evaluate, asked = _additive({"a": 0.01, "b": 0.02})
    trade = hold(["a", "b"], evaluate, _COSINE)
    assert (trade.lowered, trade.roll_back, trade.alone) == (frozenset("ab"), (), {})
    assert trade.value == trade.at_first == 0.97
    assert len(asked) == 1


def test_each_is_looked_at_alone_where_the_report_wants_it() -> None:
    evaluate, asked = _additive({"a": 0.01, "b": 0.02})
    trade = hold(["a", "b"], evaluate, _COSINE, in_detail=lambda: True)
    assert trade.lowered == frozenset("ab")
    assert trade.alone == {"a": 0.99, "b": 0.98}
    assert len(asked) == 3


def test_the_most_harmful_go_back_and_no_more_than_needed() -> None:
    evaluate, _ = _additive({"a": 0.01, "b": 0.2, "c": 0.05, "d": 0.06})
    trade = hold(["a", "b", "c", "d"], evaluate, _COSINE)
    assert trade.roll_back == ("b", "d")
    assert trade.lowered == frozenset("ac")
    assert trade.holds
    assert math.isclose(trade.value, 0.94)
    assert math.isclose(trade.alone["b"], 0.8)


def test_a_metric_that_must_stay_small_works_the_same_way() -> None:
    harm = {"a": 0.3, "b": 0.01}
    trade = hold(["a", "b"], lambda lowered: sum(harm[name] for name in lowered), _ERROR)
    assert (trade.roll_back, trade.lowered) == (("a",), frozenset("b"))


def test_what_gives_nan_goes_back_first() -> None:
    def evaluate(lowered: frozenset[str]) -> float:
        return math.nan if "n" in lowered else 1.0 - 0.04 * len(lowered)

    trade = hold(["a", "n", "b"], evaluate, _COSINE)
    assert trade.roll_back == ("n",)


def test_bound_that_float32_misses_too_is_said() -> None:
    evaluate, _ = _additive({"a": 0.01}, base=0.5)
    trade = hold(["a"], evaluate, _COSINE)
    assert not trade.holds
    assert trade.lowered == frozenset()
    assert not hold([], evaluate, _COSINE).holds


@given(st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.floats(0, 0.2), max_size=9))
def test_bound_holds_and_runs_grow_with_the_operators_only(harm: dict[str, float]) -> None:
    evaluate, asked = _additive(harm)
    trade = hold(list(harm), evaluate, _COSINE)
    assert trade.holds
    assert evaluate(trade.lowered) == trade.value >= 0.9
    assert trade.lowered | set(trade.roll_back) == set(harm)
    assert len(asked) <= len(harm) + 8
    if trade.roll_back:
        least_harmful = trade.roll_back[-1]
        assert evaluate(trade.lowered | {least_harmful}) < 0.9
