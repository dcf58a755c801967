"""What a record of the unified bank must look like, as rules that name the member at fault."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise

from aoebank.formats.structure import Structure
from aoebank.formats.text.json_text import dumps
from aoebank.formats.text.problem import Problem, kind_of, unknown_members, wrong_type
from aoebank.formats.text.record import NO_TIME, cost_problems, cost_us
from aoebank.model.json_value import JsonValue

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
