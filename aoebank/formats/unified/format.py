"""Format B, the unified (static) operator bank: one JSON object, a key per workload.

Source: CANN 8.1 tbe/common/repository_manager, checked against the 144 records it ships.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, repeat

from aoebank.errors import shell_word
from aoebank.formats.names import (
    OPERATOR_FOLDER,
    OPERATOR_GLOBS,
    RUNTIME_SUFFIX,
    BankName,
    build_operator_name,
    parse_operator_name,
)
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import value_place
from aoebank.formats.text.engine_words import computed_words, schedule_words
from aoebank.formats.text.json_text import dumps
from aoebank.formats.text.member_format import MemberFormat
from aoebank.formats.text.member_words import shape_words
from aoebank.formats.text.problem import (
    Problem,
    RecordText,
    kind_of,
    repeated,
    unknown_members,
    wrong_type,
)
from aoebank.formats.text.record import NO_TIME, cost_problems, cost_us, member_text, stored
from aoebank.formats.text.splice import splice
from aoebank.model.digest import canonical_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.record import Alternative, Record, with_raw
from aoebank.model.resolution import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """One answer: its text, its value in one spelling, what it is sorted by."""

    text: str
    meaning: str
    cost_us: float | None


def unite(ours: bytes, theirs: bytes) -> bytes:
    """Return the member with the candidates of both, fastest first, those without time last.

    Each candidate keeps its bytes; one that both have comes once. The rest is ours.

    Args:
        ours: `"key": [candidate, ...]`, readable.
        theirs: Another one of this key.
    """
    head, between, tail, known = _split(ours.decode("utf-8"))
    meanings = {candidate.meaning for candidate in known}
    new = [
        candidate
        for candidate in _split(theirs.decode("utf-8"))[3]
        if candidate.meaning not in meanings
    ]
    if not new:
        return ours
    candidates = sorted([*known, *new], key=_order)
    return (head + between.join(candidate.text for candidate in candidates) + tail).encode("utf-8")


def _split(text: str) -> tuple[str, str, str, list[_Candidate]]:
    """Return the text before, between and behind the candidates, and the candidates."""
    places = [
        (start, json_text.scan(text, start)[1])
        for _, _, start in json_text.iter_members(text, value_place(text))
    ]
    between = text[places[0][1] : places[1][0]] if len(places) > 1 else ", "
    candidates = [_read_candidate(text[start:end]) for start, end in places]
    return text[: places[0][0]], between, text[places[-1][1] :], candidates


def _read_candidate(text: str) -> _Candidate:
    value = json_text.loads(text)
    time = value.get("cost_time") if isinstance(value, dict) else None
    return _Candidate(text=text, meaning=canonical_text(value), cost_us=cost_us(time))


def _order(candidate: _Candidate) -> tuple[bool, float, str]:
    return candidate.cost_us is None, candidate.cost_us or 0.0, candidate.text


_SUFFIX = ".json"
_KEY_CODES = ("AB302", "AB303")
_TAKEN = "remove the record; the expected key is there already"
_KEY_START = re.compile(
    r'(?:^|[,{])[ \t\r\n]*(?P<key>"[0-9A-Fa-f]{8,64}"[ \t]*:[ \t\r\n]*\[)', re.MULTILINE
)
_CONTENT = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"[0-9A-Fa-f]{32}"\s*:\s*\[')


class UnifiedFormat(MemberFormat):
    """Reads and writes `<soc>_<core>_<core type>_<op type>.json`."""

    name = "unified"
    empty = b"{\n}\n"
    content = _CONTENT  # An object starts with an md5 that holds a list
    key_start = _KEY_START
    globs = OPERATOR_GLOBS
    folder = OPERATOR_FOLDER
    name_pattern = "<soc_version>_<cores>_<AiCore|VectorCore>_<op_type>.json"
    may_be_sorted = True
    keeps_times = True
    keeps_alternatives = True

    def parse_name(self, name: str) -> BankName | None:
        """Return the parts of the name of an operator bank, runtime banks excepted."""
        return None if name.endswith(RUNTIME_SUFFIX) else parse_operator_name(name, _SUFFIX)

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a static operator bank."""
        return build_operator_name(target, _SUFFIX)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position, further candidates as its alternatives."""
        text = member_text(parsed, number)
        value, problems = _read(text, structure_problems)
        for problem in problems:
            raise text.error(problem, hint=f"aoebank validate {shell_word(parsed.path)}")
        first, *others = (_alternative(candidate) for candidate in value)
        record = Record(
            **stored(parsed, number, text),
            workload=first.workload,
            strategy=first.strategy,
            op_type=parsed.name.op_type if parsed.name else None,
            cost_us=first.cost_us,
            origin=first.origin,
            extra=first.extra,
            alternatives=tuple(others),
        )
        return with_raw(record, parsed.raw(number))

    def iter_op_types(self, parsed: ParsedFile) -> Iterator[str | None]:
        """Yield the operator type in the file name for each record."""
        return repeat(parsed.name.op_type if parsed.name else None, len(parsed))

    def iter_times_us(self, parsed: ParsedFile) -> Iterator[float | None]:
        """Yield the time of the first candidate of each record."""
        return (_first_time_us(parsed.text(number)) for number in range(len(parsed)))

    def workload_words(self, record: Record) -> str:
        """Return the operators of an engine's workload, or the operator of CANN's tuner."""
        return computed_words(record.workload) or shape_words(record.workload)

    def strategy_words(self, record: Record) -> Iterator[str]:
        """Return the knobs and steps of an engine's schedule."""
        return schedule_words(record.strategy)

    def check(self, parsed: ParsedFile) -> Iterator[Finding]:
        """Yield structure, identity and value findings of every record."""
        for number in range(len(parsed)):
            text = member_text(parsed, number)
            for problem in _problems(parsed, number, text):
                yield text.finding(problem)

    def iter_keys(self, text: str, value: JsonValue, op_type: str | None) -> Iterator[str]:
        """Yield the keys of both spellings: the text as given, and as Python writes it."""
        yield md5_of(text)
        yield workload_key(value)

    def unite(self, ours: bytes, theirs: bytes) -> bytes:
        """Return a member with the candidates of both, fastest first."""
        return unite(ours, theirs)

    def strategy_places(self, parsed: ParsedFile, number: int) -> Sequence[int]:
        """Return the offsets of the strategies of all candidates, if each is an object."""
        text = member_text(parsed, number)
        candidates = range(len(_read(text, structure_problems)[0]))
        places = [
            json_text.locate(text.text, (str(candidate), "knowledge"), text.value)
            for candidate in candidates
        ]
        return places if all(text.text[place] == "{" for place in places) else ()

    def serialize(self, parsed: ParsedFile, changes: Mapping[str, Record | None]) -> bytes:
        """Return the file with `changes` applied, untouched members byte for byte."""
        return splice(parsed, changes, render)


def workload_key(workload: JsonValue) -> str:
    """Return the key of a workload: md5 of its JSON text, members in the order given.

    >>> workload_key({"op_type": "Softmax", "shape": [1, 1000]})
    '66a78a44439cdc10d34e82ad0095ea2a'
    """
    return md5_of(key_text(workload))


def make_unified_record(
    *, workload: JsonObject, strategy: JsonObject, cost_us: float | None, origin: str
) -> Record:
    """Return a new record for the unified bank, keyed by its workload.

    Args:
        workload: What was tuned; the order of its members is part of the identity.
        strategy: The answer; stored as it is.
        cost_us: Measured time, or None when there is none.
        origin: Who found it.
    """
    return Record(
        key=workload_key(workload),
        workload=workload,
        strategy=strategy,
        cost_us=cost_us,
        origin=origin,
    )


def render(record: Record) -> bytes:
    """Return the member of a record, one line as CANN writes it."""
    candidates = [_candidate(alternative) for alternative in record.answers]
    member = f"{json_text.dumps(record.key)}: {json_text.dumps(candidates)}"
    return member.encode("utf-8")


def _candidate(answer: Alternative) -> dict[str, JsonValue]:
    candidate: dict[str, JsonValue] = {
        "knowledge": answer.strategy,
        "info_dict": answer.workload,
        "cost_time": NO_TIME if answer.cost_us is None else answer.cost_us,
    }
    if answer.origin is not None:
        candidate["origin"] = answer.origin
    return {**candidate, **answer.extra}


def _first_time_us(member: str) -> float | None:
    """Return the time in the text of a member, without making a record of it."""
    try:
        candidates = json_text.scan(member, value_place(member))[0]
    except json_text.JsonTextError:
        return None
    if next(structure_problems(candidates), None) is not None:
        return None
    return cost_us(candidates[0].get("cost_time"))  # type: ignore[index,union-attr]


def _alternative(candidate: Mapping[str, JsonValue]) -> Alternative:
    origin = candidate.get("origin")
    return Alternative(
        workload=candidate["info_dict"],
        strategy=candidate["knowledge"],
        cost_us=cost_us(candidate.get("cost_time")),
        origin=origin if isinstance(origin, str) else None,
        extra={name: value for name, value in candidate.items() if name not in MEMBERS},
    )


def _read(
    text: RecordText, problems_of: Callable[[JsonValue], Iterator[Problem]]
) -> tuple[list[Mapping[str, JsonValue]], Sequence[Problem]]:
    """Return the candidates in a member text, or the problems that keep them from use."""
    try:
        value = json_text.loads(text.text[text.value :])
    except json_text.JsonTextError as error:
        return [], [Problem(code=error.code, tokens=(), message=error.problem)]
    problems = tuple(problems_of(value))
    if problems or not isinstance(value, list):
        return [], problems
    return value, ()


def _problems(parsed: ParsedFile, number: int, text: RecordText) -> Iterator[Problem]:
    key = parsed.keys[number]
    candidates, problems = _read(text, schema_problems)
    yield from problems
    if not problems:
        for problem in identity_problems(key, candidates, partial(_info_text, text)):
            is_taken = (
                problem.code in _KEY_CODES and parsed.find(problem.expected or "") is not None
            )
            yield replace(problem, hint=_TAKEN) if is_taken else problem
        yield from value_problems(candidates)
    if parsed.find(key) != number:
        yield repeated("key", key)
    for tokens, offset in json_text.find_duplicates(text.text, text.value):
        place = parsed.lines.location(parsed.path, text.byte(offset), 0)
        yield Problem(
            code="AB109",
            tokens=tokens,
            message="member name appears twice in one object",
            got=f"{tokens[-1]!a} again in line {place.line}, column {place.column}",
            hint="remove all but the last one, which readers use",
        )


def _info_text(text: RecordText, number: int) -> str:
    """Return the text of a candidate's `info_dict` as spelled in the file."""
    place = json_text.locate(text.text, (str(number), "info_dict"), text.value)
    return text.text[place : json_text.scan(text.text, place)[1]]


# ---- what a record must look like, as rules that name the member at fault ----

KEY = re.compile(r"[0-9a-f]{32}")
STRUCTURE = Structure(schema="unified/1.json", record=("additionalProperties",), depth=2)
_TEXT_OR_OBJECT = (dict, str)
MEMBERS = ("knowledge", "info_dict", "cost_time", "origin")


def md5_of(text: str) -> str:
    """Return the key the unified bank gives to a workload text."""
    data = text.encode("utf-8", errors="surrogatepass")
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def key_text(workload: JsonValue) -> str:
    """Return the text a workload is identified by: a string itself, else its JSON."""
    return workload if isinstance(workload, str) else dumps(workload)


def structure_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why readers cannot use the value of a member; nothing when they can."""
    if _is_usual(value):
        return
    if not isinstance(value, list):
        yield Problem(
            code="AB202",
            tokens=(),
            message="record is not a list of candidates",
            got=kind_of(value),
            expected="a list",
        )
        return
    if not value:
        yield Problem(
            code="AB203",
            tokens=(),
            message="record has no candidate",
            got="[]",
            expected="at least one",
            hint="remove the record",
        )
    for number, candidate in enumerate(value):
        yield from _candidate_problems(candidate, (str(number),))


def _is_usual(value: JsonValue) -> bool:
    """True for one candidate with nothing wrong, as most records are: looked at in no detail."""
    if type(value) is not list or len(value) != 1 or type(value[0]) is not dict:
        return False
    get = value[0].get
    return (
        type(get("knowledge")) in _TEXT_OR_OBJECT
        and type(get("info_dict")) in _TEXT_OR_OBJECT
        and type(get("cost_time", NO_TIME)) in (int, float)
        and type(get("origin", "")) is str
    )


def schema_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield the same, as far as the published schema says so."""
    return STRUCTURE.problems(value, structure_problems(value))


def _candidate_problems(candidate: JsonValue, place: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(candidate, Mapping):
        yield Problem(
            code="AB204",
            tokens=place,
            message="candidate is not an object",
            got=kind_of(candidate),
            expected="an object",
        )
        return
    for name in ("knowledge", "info_dict"):
        if name not in candidate:
            yield Problem(
                code="AB205",
                tokens=place,
                message=f"member {name} is missing",
                expected=name,
                hint="tune the workload again, or remove the record",
            )
        elif not isinstance(candidate[name], Mapping | str):
            yield wrong_type(candidate[name], (*place, name), "an object or a string")
    cost = candidate.get("cost_time", NO_TIME)
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        yield wrong_type(cost, (*place, "cost_time"), "a number")
    if not isinstance(candidate.get("origin", ""), str):
        yield wrong_type(candidate["origin"], (*place, "origin"), "a string")


def identity_problems(
    key: str, candidates: list[Mapping[str, JsonValue]], spelled: Callable[[int], str]
) -> Iterator[Problem]:
    """Yield why readers would never find the record under its key.

    Args:
        key: Member name.
        candidates: Values without structure problems.
        spelled: Gives the text of a candidate's `info_dict` as it stands in the file. A
            writer that kept the caller's spelling has hashed that, not the one of Python.
    """
    if not KEY.fullmatch(key):
        yield Problem(
            code="AB302",
            tokens=(),
            message="key is not 32 lower-case hexadecimal digits",
            got=dumps(key),
            expected=_python_key(candidates[0]),
            hint="use the expected key",
        )
        return
    for number, candidate in enumerate(candidates):
        expected = _python_key(candidate)
        if key == expected or key == md5_of(spelled(number)):
            continue
        place = (str(number), "info_dict")
        if number == 0:
            yield Problem(
                code="AB303",
                tokens=place,
                message="key is not the md5 of the info_dict text",
                got=key,
                expected=expected,
                hint="use the expected key, if info_dict is as it should be",
            )
        elif candidate["info_dict"] != candidates[0]["info_dict"]:
            yield Problem(
                code="AB304",
                tokens=place,
                message="candidates have different workloads",
                got=expected,
                expected=key,
                hint="store it under a key of its own",
            )


def _python_key(candidate: Mapping[str, JsonValue]) -> str:
    workload = candidate["info_dict"]
    return md5_of(workload if isinstance(workload, str) else json.dumps(workload))


def value_problems(candidates: list[Mapping[str, JsonValue]]) -> Iterator[Problem]:
    """Yield the implausible values of a record readers can use."""
    for number, candidate in enumerate(candidates):
        place = (str(number),)
        yield from cost_problems(candidate.get("cost_time"), place)
        yield from unknown_members(candidate, MEMBERS, place)
    yield from _order_problems(candidates)


def _order_problems(candidates: list[Mapping[str, JsonValue]]) -> Iterator[Problem]:
    costs = [cost_us(candidate.get("cost_time")) for candidate in candidates]
    for number, (first, second) in enumerate(pairwise(costs)):
        if first is not None and second is not None and second < first:
            yield Problem(
                code="AB403",
                tokens=(str(number + 1), "cost_time"),
                message="a later candidate is faster than the one readers use",
                got=dumps(second),
                expected=f">= {dumps(first)}",
                hint="sort the candidates by cost_time",
            )
            return
