"""Metrics of whole models, and how their bounds are written."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aoe.errors import AccuracyError, OptionError
from aoe.tuner.precision.constraint import (
    DEFAULT,
    AccuracyConstraint,
    cosine,
    hold,
    max_relative,
    parse_accuracy,
    told,
)


def _array(*values: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(values, np.float32)


_METRIC = """
from dataclasses import dataclass
import numpy as np

@dataclass
class Labels:
    right: int

def top1(reference, results):
    hits = [np.argmax(a[0]) == np.argmax(b[0]) for a, b in zip(reference, results)]
    return Labels(right=sum(hits)).right / len(hits)

def broken(reference, results):
    raise RuntimeError("no labels")

def wordless(reference, results):
    return "good"
"""


def test_equal_results_are_perfect() -> None:
    results = [[_array(1, 2, np.nan), np.array([3, 4])], [_array(np.inf, 0), np.array([5, 6])]]
    assert cosine(results, results) == 1
    assert max_relative(results, results) == 0


def test_cosine_is_the_least_of_all_outputs_of_all_sets() -> None:
    reference = [[_array(1, 0)], [_array(1, 0)]]
    assert cosine(reference, [[_array(2, 0)], [_array(1, 1)]]) == pytest.approx(math.sqrt(0.5))


def test_largest_error_is_relative_to_the_largest_element() -> None:
    assert max_relative([[_array(10, 1)]], [[_array(10, 1.5)]]) == pytest.approx(0.05)
    assert max_relative([[_array(0, 0)]], [[_array(0, 0.5)]]) == 0.5


@pytest.mark.parametrize(
    "result",
    [_array(1, np.nan, 3), _array(1, np.inf, 3), _array(1, 2), np.array([1, 2, 3])],
)
def test_special_values_elsewhere_and_other_shapes_are_as_wrong_as_can_be(
    result: np.ndarray,  # type: ignore[type-arg]
) -> None:
    reference = [[_array(1, 2, 3)]]
    expected = 0.0 if result.dtype.kind == "f" else cosine(reference, [[result]])
    assert cosine(reference, [[result]]) == expected
    if result.dtype.kind == "f":
        assert max_relative(reference, [[result]]) == 1


def test_integers_count_by_their_equal_share() -> None:
    reference, results = [[np.array([7, 8, 9, 9])]], [[np.array([7, 8, 9, 1])]]
    assert cosine(reference, results) == 0.75
    assert max_relative(reference, results) == 1


def test_sequences_and_maps_are_looked_into() -> None:
    reference = [[[{"a": _array(1, 0)}, {"a": _array(1, 0)}]]]
    assert cosine(reference, [[[{"a": _array(1, 0)}, {"a": _array(0, 1)}]]]) == 0


def test_size_of_doubles_does_not_matter() -> None:
    for size in (1e200, 1e-200):
        reference, turned = np.array([size, 0.0]), np.array([size, size])
        results = [[_array(1, 0), turned]]
        assert cosine([[_array(1, 0), reference]], results) == pytest.approx(math.sqrt(0.5))


def test_zeros_are_like_zeros_only() -> None:
    zeros = [[_array(0, 0)]]
    assert cosine(zeros, zeros) == 1
    assert cosine(zeros, [[_array(1, 0)]]) == 0
    assert cosine([[_array()]], [[_array()]]) == 1


@pytest.mark.parametrize(
    ("text", "name", "good", "bad"),
    [
        ("cosine>=0.99", "cosine >= 0.99", 0.99, 0.98),
        (" max_relative <= 1e-2 ", "max_relative <= 0.01", 0.01, 0.02),
    ],
)
def test_built_in_metrics_are_read(text: str, name: str, good: float, bad: float) -> None:
    constraint = parse_accuracy(text)
    assert str(constraint) == name
    assert constraint.holds(good)
    assert not constraint.holds(bad)
    assert not constraint.holds(math.nan)


def test_default_is_a_cosine() -> None:
    assert str(DEFAULT) == "cosine >= 0.999"


def test_function_of_a_file_is_a_metric(tmp_path: Path) -> None:
    file = tmp_path / "metric.py"
    file.write_text(_METRIC)
    constraint = parse_accuracy(f"{file}:top1>=0.5")
    reference = [[_array(1, 0)], [_array(0, 1)]]
    assert constraint.value(reference, [[_array(2, 1)], [_array(2, 1)]]) == 0.5
    assert constraint.holds(0.5)


def test_function_of_a_module_is_a_metric() -> None:
    constraint = parse_accuracy("aoe.tuner.precision.constraint:cosine>=0.5")
    assert constraint.value([[_array(1)]], [[_array(1)]]) == 1


@pytest.mark.parametrize("function", ["broken", "wordless"])
def test_metric_that_fails_is_one_error_that_says_what_it_takes(
    function: str, tmp_path: Path
) -> None:
    file = tmp_path / "metric.py"
    file.write_text(_METRIC)
    constraint = parse_accuracy(f"{file}:{function}>=0.5")
    with pytest.raises(AccuracyError, match="the metric failed") as caught:
        constraint.value([[_array(1)]], [[_array(1)]])
    assert "for each set of inputs" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cosine", "not a metric with a bound"),
        ("cosine>0.9", "not a metric with a bound"),
        ("cosine<=0.9", "bounded on the wrong side .*expected cosine>=0.9"),
        ("max_relative>=0.1", "bounded on the wrong side"),
        ("cosine>=good", "the bound is no number"),
        ("cosine>=nan", "the bound is no number"),
        ("psnr>=30", "unknown metric .got psnr"),
        ("metric.py:>=30", "unknown metric"),
        ("none.py:top1>=0.5", "cannot be loaded: FileNotFoundError"),
        ("no_such_module_at_all:top1>=0.5", "cannot be loaded: ModuleNotFoundError"),
        ("math:no_such>=1", "no such function"),
        ("math:pi>=1", "no such function"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_accuracy(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.9999996, "0.9999996"), (0.9990123456, "0.999012"), (0.0351234567, "0.0351235")],
)
def test_values_are_told_with_the_digits_that_say_something(value: float, text: str) -> None:
    assert told(value) == text


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
