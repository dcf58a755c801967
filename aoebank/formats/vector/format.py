"""Format D, the vector ("RL") bank: one JSON object whose values are JSON as strings.

Source: CANN 8.1 tbe/common/rl_bank, checked against a bank a user made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from aoebank.formats.names import CORE_TYPES, OPERATOR_GLOBS, BankName, open_parts, plain_soc
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import LONG_INTEGER, MOST_DIGITS, iter_long_integers
from aoebank.formats.text.member_format import MemberFormat
from aoebank.formats.text.member_words import joined, value_text
from aoebank.formats.text.problem import Problem, kind_of, repeated
from aoebank.formats.text.record import cost_us, member_text, stored
from aoebank.formats.text.splice import splice
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Record, with_raw
from aoebank.model.resolution import Query

FILE_NAME = re.compile(  # readers take every name that starts so, whatever follows the version
    r"(?:dynamic_|static_)?(?P<soc>.+)_(?P<type>AiCore|VectorCore)_(?P<cores>\d{1,9})_v\d{3}"
    r".*\.json",
    re.ASCII,
)
_KEY_START = re.compile(
    r'(?:^|[,{])[ \t\r\n]*(?P<key>"[^"\\\n]{2,}"[ \t]*:[ \t\r\n]*")', re.MULTILINE
)
_CONTENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"\[\[')


class VectorFormat(MemberFormat):
    """Reads and writes `<soc>_<core type>_<cores>_v00N[_<time>].json`."""

    name = "vector"
    empty = b"{\n}"
    content = _CONTENT  # An object starts with a list of tensors as a name
    key_start = _KEY_START
    globs = OPERATOR_GLOBS
    folder = "vector"
    name_pattern = "[dynamic_|static_]<soc>_<AiCore|VectorCore>_<cores>_v00N[_<time>].json"
    indent = b"    "
    may_be_sorted = True
    keeps_times = True

    def parse_name(self, name: str) -> BankName | None:
        """Return the target from the name of a vector bank; one file holds all operators."""
        match = FILE_NAME.fullmatch(name)
        if match is None:
            return None
        return BankName(
            soc_version=match["soc"], core_num=int(match["cores"]), core_type=match["type"]
        )

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a vector bank."""
        cores, soc, _ = open_parts(target)
        return f"{soc}_{target.core_type or CORE_TYPES[0]}_{cores}_v001_<time>.json"

    def fits_folder(self, spelled: str, soc_version: str) -> bool:
        """True if they are equal, or the one in the name is shorter."""
        return plain_soc(soc_version).startswith(plain_soc(spelled))

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position: the feature list is the workload."""
        text, key = member_text(parsed, number), parsed.keys[number]
        for problem in record_problems(text.text, text.value, key):
            if problem.code in ("AB103", "AB206", "AB404"):
                raise text.error(problem)
        answer = read_answer(text.text, text.value)
        record = Record(
            **stored(parsed, number, text),
            workload=_workload(key),
            strategy=answer.strategy,
            cost_us=answer.cost_us,
            extra=answer.extra,
        )
        return with_raw(record, parsed.raw(number))

    def strategy_places(self, parsed: ParsedFile, number: int) -> Sequence[int]:
        """Return nothing: a strategy is JSON inside a string."""
        return ()

    def workload_words(self, record: Record) -> str:
        """Return the tensors of a feature list: their shapes, and the axes that are summed up."""
        match record.workload:
            case [_, *_] as tensors:
                told = dict.fromkeys(_tensor_words(tensor) for tensor in tensors)
                if all(told):
                    return f"{len(tensors)} tensors: {', '.join(told)}"
        return ""

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Yield a line for a record that keeps the template schedule."""
        if record.strategy in (TEMPLATE, [TEMPLATE]):
            yield "the template schedule stays"

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield the problems of each record, and names that come twice."""
        for number, key in enumerate(parsed.keys):
            text = member_text(parsed, number)
            is_used = parsed.find(key) == number
            for problem in record_problems(
                text.text, text.value, key, is_used=is_used, problems_of=schema_problems
            ):
                yield text.finding(problem)

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched members byte for byte."""
        return splice(parsed, changes, render_vector)


def render_vector(record: Record) -> bytes:
    """Return the member of a record, name and string as CANN writes them."""
    answer = Answer(strategy=record.strategy, cost_us=record.cost_us, extra=record.extra)
    return f"{json_text.dumps(record.key)}: {json_text.dumps(answer.text())}".encode()


def _tensor_words(tensor: JsonValue) -> str:
    """Return the shape of a tensor of a feature list; empty for what is none."""
    match tensor:
        case [*_, list(shape), list(axes), int(), list()]:
            summed = f" over axes {', '.join(map(value_text, axes))}" if axes else ""
            return (joined(shape) or "scalar") + summed
    return ""


def _workload(key: str) -> JsonValue:
    try:
        value = json_text.loads(key)
    except json_text.JsonTextError:
        return key
    return value if isinstance(value, list) else key


TEMPLATE = "tmpl"  # keep the template schedule
# ---- the string per workload: `[cheque, tick, name]`, or the word `tmpl` ----

STRUCTURE = Structure(schema="vector/1.json", record=("additionalProperties",), depth=0)
_EXPECTED = "[cheque, tick], [cheque, tick, name] or tmpl"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Content of the string of one record."""

    strategy: JsonValue  # The cheque; the word `tmpl` for the template schedule
    cost_us: float | None
    # `name` (third item), `tick` where it is no time, `word` for a bare `tmpl`.
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
        yield repeated("feature")
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
