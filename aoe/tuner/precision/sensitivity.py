"""Which operators go back to float32, so that a model stays as accurate as it has to be.

If all of them lowered are too inaccurate, each is lowered alone, and the most harmful go back,
as few as will do: their number is found by bisection, about log2(n) runs of the model more. Where
there is no time for that, all of them go back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from aoe.tuner.precision.constraint import AccuracyConstraint

Evaluate = Callable[[frozenset[str]], float]
"""Gives the metric of the model with these operators lowered, and no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trade:
    """What holding a constraint came to.

    Attributes:
        lowered: Operators that stay in the lower precision.
        roll_back: Operators that go back, most harmful first.
        value: Metric of the model as it is now.
        at_first: With all operators lowered.
        alone: With one of them lowered alone; empty where that was not asked for.
        holds: False if not even the model without any lowered operator keeps the bound.
        in_time: False if all went back because the time was up; `value` is NaN then, where not even
            the model without them could be run.
    """

    lowered: frozenset[str]
    roll_back: tuple[str, ...] = ()
    value: float
    at_first: float
    alone: Mapping[str, float] = field(default_factory=dict)
    holds: bool = True
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
