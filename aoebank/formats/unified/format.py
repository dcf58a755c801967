"""Format B, the unified (static) operator bank: one JSON object, a key per workload.

Source: CANN 8.1 tbe/common/repository_manager, checked against the 144 records it ships.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path

from aoebank.errors import shell_word
from aoebank.formats.names import (
    OPERATOR_FOLDER,
    OPERATOR_GLOBS,
    RUNTIME_SUFFIX,
    BankName,
    build_operator_name,
    parse_operator_name,
)
from aoebank.formats.protocol import Format, ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import scan_members, value_place
from aoebank.formats.text.problem import Problem, RecordText
from aoebank.formats.text.record import NO_TIME, cost_us, member_text, stored
from aoebank.formats.text.scan import start_scan
from aoebank.formats.text.splice import splice
from aoebank.formats.unified.rules import (
    MEMBERS,
    identity_problems,
    key_text,
    md5_of,
    schema_problems,
    structure_problems,
    value_problems,
)
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


class UnifiedFormat(Format):
    """Reads and writes `<soc>_<core>_<core type>_<op type>.json`."""

    name = "unified"
    empty = b"{\n}\n"
    globs = OPERATOR_GLOBS
    folder = OPERATOR_FOLDER
    name_pattern = "<soc_version>_<cores>_<AiCore|VectorCore>_<op_type>.json"
    first_wins = False  # Python's json module keeps the last of two equal names
    brackets = b"{}"
    may_be_sorted = True
    keeps_times = True
    keeps_alternatives = True
    fatal_codes = frozenset({"AB105"})  # Python's json takes no mark: the file is ignored whole

    def parse_name(self, name: str) -> BankName | None:
        """Return the parts of the name of an operator bank, runtime banks excepted."""
        return None if name.endswith(RUNTIME_SUFFIX) else parse_operator_name(name, _SUFFIX)

    def build_name(self, target: BankName | Query) -> str:
        """Return the name of a static operator bank."""
        return build_operator_name(target, _SUFFIX)

    def recognizes_content(self, head: bytes) -> bool:
        """True if an object starts with an md5 that holds a list."""
        return _CONTENT.match(head) is not None

    def parse(self, data: bytes, path: Path) -> ParsedFile:
        """Find the members of the object; conflict markers are reported once, as such."""
        scan = start_scan(data, path)
        scan_members(scan, _KEY_START)
        return scan.file(self)

    def record(self, parsed: ParsedFile, number: int) -> Record:
        """Return the record at a position, further candidates as its alternatives."""
        text = member_text(parsed, number)
        value, problems = _read(text)
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
        candidates = range(len(_read(text)[0]))
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
    text: RecordText, problems_of: Callable[[JsonValue], Iterator[Problem]] = structure_problems
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
        yield Problem(
            code="AB301",
            tokens=(),
            message="the same key comes again further down",
            got=key,
            expected="each key once",
            hint="remove this one; readers use the last",
        )
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
