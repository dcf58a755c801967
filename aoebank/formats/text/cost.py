"""Measured times as banks store them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from aoebank.formats.text.problem import Problem
from aoebank.model.json_value import JsonValue

NO_TIME = -1  # what CANN's writer stores when it was given no time


def cost_us(value: JsonValue) -> float | None:
    """Return a measured time as positive finite microseconds in its own spelling, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return value if 0 < number < math.inf else None


def cost_problems(value: JsonValue, place: tuple[str, ...] = ()) -> Iterator[Problem]:
    """Yield the problems of `cost_time` in the object at `place`; None: not there."""
    if value is None or value == NO_TIME:
        yield Problem(
            code="AB401",
            tokens=place,
            message="no measured time: merges that compare times pass over it",
            got="no cost_time" if value is None else "-1",
        )
    elif cost_us(value) is None:
        yield Problem(
            code="AB402",
            tokens=(*place, "cost_time"),
            message="measured time is not positive and finite",
            got=str(value)[:40],
            expected="microseconds > 0, or -1",
            hint="tune the workload again",
        )
