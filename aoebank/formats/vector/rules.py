"""The string a vector bank holds per workload: `[cheque, tick, name]`, or the word `tmpl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import LONG_INTEGER, MOST_DIGITS, iter_long_integers
from aoebank.formats.text.problem import Problem, kind_of
from aoebank.formats.text.record import cost_us
from aoebank.model.json_value import JsonObject, JsonValue

TEMPLATE = "tmpl"  # keep the template schedule
STRUCTURE = Structure(schema="vector/1.json", record=("additionalProperties",), depth=0)
_EXPECTED = "[cheque, tick], [cheque, tick, name] or tmpl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the string of one record says.

    Attributes:
        strategy: The cheque; the word `tmpl` for the template schedule.
        extra: `name` (third item), `tick` where it is no time, `word` for a bare `tmpl`.
    """

    strategy: JsonValue
    cost_us: float | None
    extra: JsonObject = field(default_factory=dict)

    def text(self) -> str:
        """Return the string, as CANN spells it."""
        if self.extra.get("word"):
            return TEMPLATE
        tick = self.extra.get("tick", 0) if self.cost_us is None else self.cost_us
        items = [self.strategy, tick]
        if "name" in self.extra:
            items.append(self.extra["name"])
        return json_text.dumps(items)


def read_answer(text: str, place: int) -> Answer:
    """Return the answer in a member text without problems.

    Args:
        text: `"feature": "answer"`.
        place: Where in it the value starts.
    """
    inner = str(json_text.scan(text, place)[0])
    if inner == TEMPLATE:
        return Answer(strategy=TEMPLATE, cost_us=None, extra={"word": True})
    items = json_text.loads(inner)
    assert isinstance(items, list)
    cheque, tick, *names = items
    extra: dict[str, JsonValue] = {"name": names[0]} if names else {}
    time = cost_us(tick)
    if time is None and (tick != 0 or type(tick) is not int):  # -0.0 is no time either, and kept
        extra["tick"] = tick
    return Answer(strategy=cheque, cost_us=time, extra=extra)


def structure_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why a value is no answer, whatever its text says."""
    if not isinstance(value, str):
        yield Problem(
            code="AB206",
            tokens=(),
            message="answer is not a string",
            got=kind_of(value),
            expected=f"a string with {_EXPECTED}",
        )


def schema_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield the same, as far as the published schema says so."""
    return STRUCTURE.problems(value, structure_problems(value))


def record_problems(
    text: str,
    place: int,
    key: str,
    *,
    is_used: bool = True,
    problems_of: Callable[[JsonValue], Iterator[Problem]] = structure_problems,
) -> Iterator[Problem]:
    """Yield the problems of a member; AB103, AB206 and AB404 keep it from use.

    Args:
        text: `"feature": "answer"`.
        place: Where in it the value starts.
        key: The feature.
        is_used: Whether no later member has the same feature.
        problems_of: Tells what keeps a value from being an answer.
    """
    if not key:
        yield Problem(
            code="AB404",
            tokens=(),
            message="feature is empty",
            got='""',
            expected="a list of tensors",
        )
    if not is_used:
        yield Problem(
            code="AB301",
            tokens=(),
            message="the same feature comes again further down",
            expected="each feature once",
            hint="remove this one; readers use the last",
        )
    value = json_text.scan(text, place)[0]
    problems = tuple(problems_of(value))
    yield from problems
    if not problems and isinstance(value, str) and value != TEMPLATE:
        yield from _answer_problems(value)


def _answer_problems(inner: str) -> Iterator[Problem]:
    try:
        items = json_text.loads(inner)
    except json_text.JsonTextError as error:
        yield Problem(
            code="AB103",
            tokens=(),
            message=f"string holds no JSON: {error.problem}",
            got=inner[:40],
            expected=_EXPECTED,
            hint="tune the workload again",
        )
        return
    for _, digits in iter_long_integers(inner.encode("utf-8", errors="replace")):
        yield Problem(
            code="AB116",
            tokens=(),
            message=LONG_INTEGER,
            got=f"{digits} digits",
            expected=f"at most {MOST_DIGITS}",
            hint="tune the workload again",
        )
        return
    if not isinstance(items, list) or not 2 <= len(items) <= 3:
        yield _wrong("string holds something else than an answer", items)
        return
    tick = items[1]
    if isinstance(tick, bool) or not isinstance(tick, int | float):
        yield _wrong("tick is not a number", tick)
    elif cost_us(tick) is None and items[0] != TEMPLATE:
        yield Problem(
            code="AB402",
            tokens=(),
            message="measured time is not positive and finite",
            got=str(tick)[:40],
            expected="microseconds > 0",
            hint="tune the workload again; no merge will ever keep this record",
        )
    if len(items) == 3 and not isinstance(items[2], str):
        yield _wrong("name is not a string", items[2])


def _wrong(message: str, value: JsonValue) -> Problem:
    return Problem(code="AB206", tokens=(), message=message, got=kind_of(value), expected=_EXPECTED)
