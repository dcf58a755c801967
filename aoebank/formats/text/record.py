"""The text of one record with its places, and times and weights as files write them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TypedDict

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import value_place
from aoebank.formats.text.problem import Problem, RecordText
from aoebank.model.finding import Location
from aoebank.model.json_value import JsonValue

NO_TIME = -1  # what CANN's writer stores when it was given no time
US_PER_MS = 1000


def cost_us(value: JsonValue) -> float | None:
    """Return a measured time as positive finite microseconds in its own spelling, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return value if 0 < number < math.inf else None


def us_of_ms(value: JsonValue) -> float | None:
    """Return a measured time in milliseconds as microseconds, or None."""
    time = cost_us(value)
    return None if time is None else cost_us(float(time) * US_PER_MS)


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


class Stored(TypedDict):
    """The part of a record that does not depend on its format."""

    key: str
    format: str
    soc_version: str | None
    location: Location


def stored(parsed: ParsedFile, number: int, text: RecordText) -> Stored:
    """Return the stored facts of the record at a position in its file.

    Raises:
        RecordError: its key is empty, which names nothing.
    """
    pointer = json_text.pointer(text.prefix)
    if not parsed.keys[number]:
        problem = Problem(code="AB302", tokens=(), message="key is empty", hint="remove the record")
        raise text.error(problem)
    return Stored(
        key=parsed.keys[number],
        format=parsed.format.name,
        soc_version=parsed.name.soc_version if parsed.name else None,
        location=parsed.lines.location(parsed.path, text.start, text.end, pointer),
    )


def record_text(parsed: ParsedFile, number: int, prefix: tuple[str, ...] = ()) -> RecordText:
    """Return the text of a record, ready to tell where a problem in it is."""
    return RecordText(
        path=parsed.path,
        lines=parsed.lines,
        text=parsed.text(number),
        start=parsed.starts[number],
        end=parsed.ends[number],
        prefix=prefix,
    )


def member_text(parsed: ParsedFile, number: int) -> RecordText:
    """Return the text of a record that is a member of an object, its name included."""
    text = record_text(parsed, number, (parsed.keys[number],))
    return replace(text, value=value_place(text.text))
