"""Accuracy of the tuned model against the untuned one (`--accuracy`); operators put back for it.

If all lowered operators together are too inaccurate, each is lowered alone, and the most harmful go
back to float32, as few as will do: their number is found by bisection, about log2(n) runs of the
model more. Where there is no time for that, all of them go back.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from aoe.errors import AccuracyError, OptionError

OPTION = "--accuracy"
_FORMS = "cosine>=0.999, max_relative<=0.01 or FILE.py:FUNCTION>=VALUE"
_NEARLY_ONE = 1e-4

Array = np.ndarray[Any, Any]
Results = Sequence[Sequence[Any]]
"""Results of a model: for every set of inputs, in their order, the outputs in theirs."""
Metric = Callable[[Results, Results], float]
"""What a user's function is: of the results of the untuned model and of the tuned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyConstraint:
    """A metric of results and the bound it has to keep."""

    name: str  # Of the metric, for people
    metric: Metric  # Computes it
    least: bool  # True if the value has to be `bound` or more, False if `bound` or less
    bound: float  # Finite

    def __str__(self) -> str:
        return f"{self.name} {'>=' if self.least else '<='} {self.bound:g}"

    def value(self, reference: Results, results: Results) -> float:
        """Return the metric of results.

        Raises:
            AccuracyError: the metric fails, or gives no number.
        """
        try:
            return float(self.metric(reference, results))
        except Exception as error:  # a user's code may raise anything
            raise AccuracyError(
                f"{OPTION} {self.name}",
                f"the metric failed: {type(error).__name__}: {error}",
                hint="it takes (reference, results), each a list of lists of arrays: one list for "
                "each set of inputs, and returns a number",
            ) from error

    def holds(self, value: float) -> bool:
        """True if a value is within the bound; NaN is not."""
        return value >= self.bound if self.least else value <= self.bound


def told(value: float) -> str:
    """Return a value of a metric for people; what is nearly 1 is told from 1.

    >>> told(0.2351234), told(0.99999812)
    ('0.235123', '0.99999812')
    """
    return f"{value:.9g}" if 0 < abs(1 - value) < _NEARLY_ONE else f"{value:.6g}"


# ---- metrics ----


def cosine(reference: Results, results: Results) -> float:
    """Return the least cosine similarity of all outputs, each as one vector: 1 is equality.

    Of outputs that are no floating-point tensors, the share of equal elements.
    """
    return min((_similarity(*pair) for pair in _pairs(reference, results)), default=1.0)


def max_relative(reference: Results, results: Results) -> float:
    """Return the largest error of an element, relative to the largest element of its output.

    Of outputs that are no floating-point tensors, 1 if any element differs.
    """
    return max((_largest_error(*pair) for pair in _pairs(reference, results)), default=0.0)


_METRICS: dict[str, tuple[Metric, bool]] = {
    "cosine": (cosine, True),
    "max_relative": (max_relative, False),
}
DEFAULT = AccuracyConstraint(name="cosine", metric=cosine, least=True, bound=0.999)
"""What holds where a lower precision is allowed and nothing is said: results turned by 2.6 degrees
at most, an error of 4.5 % of their norm. Products in bfloat16 made 0.7 and 0.8 % in VGG-11 and
ResNet-18 with random weights, and 10 % in an ill-conditioned ResNet-50 (against float64)."""


def _pairs(reference: Results, results: Results) -> Iterator[tuple[Array, Array]]:
    for left, right in zip(reference, results, strict=True):
        for one, other in zip(_flat(left), _flat(right), strict=True):
            yield np.asarray(one), np.asarray(other)


def _flat(value: Any) -> Iterator[Any]:
    """Yield the arrays of outputs; sequences and maps of ONNX hold several."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flat(item)
    else:
        yield value


def _similarity(reference: Array, result: Array) -> float:
    if not _comparable(reference, result):
        return _equal_share(reference, result)
    left, right = _finite(reference, result)
    if np.array_equal(left, right):
        return 1.0
    left, right = _scaled(left), _scaled(right)
    norms = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(np.clip(np.dot(left, right) / norms, -1.0, 1.0)) if norms else 0.0


def _scaled(values: Array) -> Array:
    """Return a vector times a power of two: squares of a double may be infinite, or nothing."""
    _, exponent = np.frexp(np.abs(values).max(initial=0.0))
    scaled: Array = np.ldexp(values, -exponent)
    return scaled


def _largest_error(reference: Array, result: Array) -> float:
    if not _comparable(reference, result):
        return float(_equal_share(reference, result) < 1)
    left, right = _finite(reference, result)
    error = float(np.abs(left - right).max(initial=0.0))
    return error / (float(np.abs(left).max(initial=0.0)) or 1.0)


def _comparable(reference: Array, result: Array) -> bool:
    """True if both are floating-point, and special values stand at the same places."""
    floating = reference.dtype.kind == "f" and reference.shape == result.shape
    if not floating:
        return False
    special = ~np.isfinite(reference)
    return bool(np.array_equal(special, ~np.isfinite(result))) and np.array_equal(
        reference[special], result[special], equal_nan=True
    )


def _finite(reference: Array, result: Array) -> tuple[Array, Array]:
    kept = np.isfinite(reference)
    return reference[kept].astype(np.float64), result[kept].astype(np.float64)


def _equal_share(reference: Array, result: Array) -> float:
    if reference.shape != result.shape:
        return 0.0
    if reference.dtype.kind == "f":
        return 0.0  # special values stand elsewhere
    return float(np.mean(reference == result)) if reference.size else 1.0


# ---- reading ----


def parse_accuracy(text: str) -> AccuracyConstraint:
    """Return the constraint of `--accuracy`.

    Raises:
        OptionError: it is none, or the function it names cannot be loaded.
    """
    found = re.fullmatch(r"\s*(.+?)\s*(>=|<=)\s*(\S+)\s*", text)
    if found is None:
        raise OptionError(OPTION, "not a metric with a bound", got=text, expected=_FORMS)
    name, relation, number = found.groups()
    least, bound = relation == ">=", _number(number, text)
    if name in _METRICS:
        metric, wanted = _METRICS[name]
        if wanted is not least:
            expected = f"{name}{'>=' if wanted else '<='}{number}"
            raise OptionError(OPTION, "bounded on the wrong side", got=text, expected=expected)
    else:
        metric = _load_function(name)
    return AccuracyConstraint(name=name, metric=metric, least=least, bound=bound)


def _number(text: str, whole: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise OptionError(OPTION, "the bound is no number", got=whole, expected=_FORMS)
    return value


def _load_function(name: str) -> Metric:
    place, colon, function = name.rpartition(":")
    if not colon or not place or not function.isidentifier():
        raise OptionError(OPTION, "unknown metric", got=name, expected=_FORMS)
    try:
        module = (
            _load_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
        )
    except Exception as error:  # a user's code may raise anything
        raise OptionError(
            f"{OPTION} {name}", f"cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, function, None)
    if not callable(found):
        raise OptionError(f"{OPTION} {name}", "no such function", got=function, expected=_FORMS)
    metric: Metric = found
    return metric


def _load_file(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"aoe_metric_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


Evaluate = Callable[[frozenset[str]], float]
"""Gives the metric of the model with these operators lowered, and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """Result of putting operators back until a constraint holds."""

    lowered: frozenset[str]  # Operators that stay in the lower precision
    roll_back: tuple[str, ...] = ()  # Operators that go back, most harmful first
    value: float  # Metric of the model as it is now
    at_first: float  # With all operators lowered
    # With one of them lowered alone; empty where that was not asked for.
    alone: Mapping[str, float] = field(default_factory=dict)
    holds: bool = True  # False if not even the model without any lowered operator keeps the bound
    # False if all went back because the time was up; `value` is NaN then, where not even the model
    # without them could be run.
    in_time: bool = True


class _OutOfTimeError(Exception):
    """No further run of the model."""


def hold(
    names: Sequence[str],
    evaluate: Evaluate,
    constraint: AccuracyConstraint,
    *,
    in_detail: Callable[[], bool] = lambda: False,
    in_time: Callable[[], bool] = lambda: True,
) -> Trade:
    """Return which operators may be lowered.

    Args:
        names: Operators in question.
        evaluate: Runs the model.
        constraint: What has to hold.
        in_detail: True as long as there is time to look at each operator alone even where all of
            them may stay.
        in_time: False once there is no time for two more runs of the model.

    Raises:
        AccuracyError: the metric fails.
    """
    everything = frozenset(names)
    if not in_time():
        return _all_back(names, math.nan, math.nan)
    at_first = evaluate(everything)
    if not everything or constraint.holds(at_first):
        return Trade(
            lowered=everything,
            value=at_first,
            at_first=at_first,
            alone=_while_in_time(names, evaluate, in_detail),
            holds=constraint.holds(at_first),
        )
    exact = evaluate(frozenset())

    def evaluate_in_time(lowered: frozenset[str]) -> float:
        if not in_time():
            raise _OutOfTimeError
        return evaluate(lowered)

    try:
        return _traded(names, evaluate_in_time, constraint, at_first=at_first, exact=exact)
    except _OutOfTimeError:
        return replace(_all_back(names, at_first, exact), holds=constraint.holds(exact))


def _all_back(names: Sequence[str], at_first: float, exact: float) -> Trade:
    return Trade(
        lowered=frozenset(), roll_back=tuple(names), value=exact, at_first=at_first, in_time=False
    )


def _traded(
    names: Sequence[str],
    evaluate: Evaluate,
    constraint: AccuracyConstraint,
    *,
    at_first: float,
    exact: float,
) -> Trade:
    """Return the trade with the fewest operators in float32."""
    alone = _each_alone(names, evaluate)
    ranked = sorted(names, key=lambda name: (-_harm(exact, alone[name]), name))
    values = {0: at_first, len(ranked): exact}
    count = _fewest(ranked, values, evaluate, constraint)
    return Trade(
        lowered=frozenset(ranked[count:]),
        roll_back=tuple(ranked[:count]),
        value=values[count],
        at_first=at_first,
        alone=alone,
        holds=constraint.holds(values[count]),
    )


def _each_alone(names: Sequence[str], evaluate: Evaluate) -> dict[str, float]:
    return {name: evaluate(frozenset({name})) for name in names}


def _while_in_time(
    names: Sequence[str], evaluate: Evaluate, in_time: Callable[[], bool]
) -> dict[str, float]:
    """Look at operators alone as long as there is time; nothing depends on it."""
    found = {}
    for name in names:
        if not in_time():
            break
        found[name] = evaluate(frozenset({name}))
    return found


def _fewest(
    ranked: Sequence[str],
    values: dict[int, float],
    evaluate: Evaluate,
    constraint: AccuracyConstraint,
) -> int:
    """The number of `ranked` that go back; notes in `values` what every tried number gives."""
    low, high = 0, len(ranked)
    while high - low > 1:
        middle = (low + high) // 2
        values[middle] = evaluate(frozenset(ranked[middle:]))
        if constraint.holds(values[middle]):
            high = middle
        else:
            low = middle
    return high


def _harm(exact: float, value: float) -> float:
    harm = abs(exact - value)
    return math.inf if math.isnan(harm) else harm
