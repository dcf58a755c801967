"""Rules for a line of the subgraph bank, as far as shipped banks tell."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import duplicate_identity
from aoebank.formats.text.problem import (
    Problem,
    kind_of,
    missing,
    not_a_record,
    unknown_members,
    wrong_type,
)
from aoebank.formats.text.record import cost_us, record_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue

STRUCTURE = Structure(schema="graph/1.json", record=("$defs", "subgraph"), depth=4)
MEMBERS = ("feature", "graphID", "strategy")
VERSION = "2.1"
HEADER = b'{"version": "2.1"}'
PER_NODE = ("cut", "fusionType", "scopeId")
_LARGEST = 2**64 - 1
_NS_PER_US = 1000
_OWN_PASS = re.compile(
    r"kernel\.[a-z0-9_]+\.[a-z]+(#\d+)?|[\w.-]+@\d+(#\d+)?|chunks|layout\.plain", re.ASCII
)
"""What `ubPass` names in records of `aoe`; CANN's are words in one piece (`AutomaticUbFusion`)."""


def is_uint64(value: JsonValue) -> bool:
    """True if a value is a 64-bit number in decimal, as a string."""
    return (
        isinstance(value, str)
        and value.isascii()
        and value.isdigit()
        and len(value) <= 20
        and str(int(value)) == value
        and int(value) <= _LARGEST
    )


def uint64_problem(value: JsonValue, name: str) -> Problem:
    """Return the problem of a member that should be a 64-bit number as a string."""
    return Problem(
        code="AB309",
        tokens=(name,),
        message=f"{name} is not a 64-bit number in decimal",
        got=str(value)[:40],
        expected="a string of digits, 0 to 18446744073709551615",
    )


def own_time_us(strategy: JsonValue) -> float | None:
    """Return the time of a record of `aoe`, which is in nanoseconds; None for any other record.

    >>> own_time_us({"end2EndTime": 2500, "group": [{"ubPass": {"kernel.matmul.tile": [0]}}]})
    2.5
    >>> own_time_us({"end2EndTime": 2500, "group": [{"ubPass": {"AutomaticUbFusion": [0]}}]})
    """
    groups = strategy.get("group") if isinstance(strategy, Mapping) else None
    if not isinstance(groups, list) or len(groups) != 1 or not isinstance(groups[0], Mapping):
        return None
    passes = groups[0].get("ubPass")
    if not isinstance(passes, Mapping) or not passes or not all(map(_OWN_PASS.fullmatch, passes)):
        return None
    assert isinstance(strategy, Mapping)
    time_ns = cost_us(strategy.get("end2EndTime"))
    return None if time_ns is None else time_ns / _NS_PER_US


def header_problem(value: JsonValue, *, is_first: bool) -> Problem | None:
    """Return the problem of the first line, or of a version line further down."""
    is_header = isinstance(value, Mapping) and "version" in value and "graphID" not in value
    if is_first != is_header:
        return Problem(
            code="AB214",
            tokens=(),
            message="version line is not the first" if is_header else "version line is missing",
            expected=HEADER.decode(),
            hint="make it the first line",
        )
    if isinstance(value, Mapping) and is_header and value["version"] != VERSION:
        return Problem(
            code="AB214",
            tokens=("version",),
            message="version is not known",
            got=str(value["version"])[:40],
            expected=VERSION,
        )
    return None


def line_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why a line is no record."""
    yield from not_a_record(value)
    if isinstance(value, Mapping) and value:
        yield from _member_problems(value)


def _member_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    for name in MEMBERS:
        if name not in value:
            yield missing(name, hint="tune the model again, or remove the line")
    for name in ("feature", "strategy"):
        if not isinstance(value.get(name, {}), Mapping):
            yield wrong_type(value[name], (name,), "an object")
    if "graphID" in value and not is_uint64(value["graphID"]):
        yield uint64_problem(value["graphID"], "graphID")


def check_graph_file(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield findings about groups, times and identities."""
    features: dict[str, int] = {}
    for number in range(len(parsed)):
        text = record_text(parsed, number)
        value = json_text.scan(text.text, 0)[0]
        assert isinstance(value, Mapping)
        for problem in (
            *STRUCTURE.problems(value, structure_problems(value)),
            *_value_problems(value),
            *unknown_members(value, MEMBERS),
            *_identity_problems(parsed, number, value, features),
        ):
            yield text.finding(problem)
        yield from text.duplicates(value)


def structure_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    """Yield lists that are not there, in a line whose members are objects."""
    for parent, name in (("feature", "feature"), ("strategy", "group")):
        members = value[parent]
        assert isinstance(members, Mapping)
        if not isinstance(members.get(name), list):
            yield _list_problem(members, name, (parent,))
    for group, place in _groups(value):
        if not isinstance(group, Mapping):
            yield Problem(
                code="AB206",
                tokens=place,
                message="group is not an object",
                got=kind_of(group),
                expected="an object",
            )
            continue
        for name in PER_NODE:
            if not isinstance(group.get(name), list):
                yield _list_problem(group, name, place)


def _groups(value: Mapping[str, JsonValue]) -> Iterator[tuple[JsonValue, tuple[str, ...]]]:
    """Yield the values in the place of groups, each with its offset."""
    strategy = value["strategy"]
    groups = strategy.get("group") if isinstance(strategy, Mapping) else None
    for number, group in enumerate(groups if isinstance(groups, list) else ()):
        yield group, ("strategy", "group", str(number))


def group_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    """Yield the problems of parts and groups of a line whose members are objects."""
    structural = list(structure_problems(value))
    yield from structural or _value_problems(value)


def _value_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    feature, strategy = value["feature"], value["strategy"]
    assert isinstance(feature, Mapping)
    assert isinstance(strategy, Mapping)
    tensors, groups = feature.get("feature"), strategy.get("group")
    if not isinstance(groups, list):
        return
    if isinstance(tensors, list) and len(tensors) != len(groups):
        yield Problem(
            code="AB213",
            tokens=("strategy", "group"),
            message="number of groups is not the number of parts of the feature",
            got=str(len(groups)),
            expected=str(len(tensors)),
            hint="tune the model again",
        )
    for group, place in _groups(value):
        if isinstance(group, Mapping):
            yield from _length_problems(group, place)
    time = strategy.get("end2EndTime")
    if isinstance(time, int | float) and not isinstance(time, bool) and time <= 0:
        yield Problem(
            code="AB402",
            tokens=("strategy", "end2EndTime"),
            message="measured time is not positive",
            got=str(time)[:40],
            hint="tune the model again",
        )


def _length_problems(group: Mapping[str, JsonValue], place: tuple[str, ...]) -> Iterator[Problem]:
    lists = {name: group.get(name) for name in PER_NODE}
    lengths = {name: len(items) for name, items in lists.items() if isinstance(items, list)}
    if len(set(lengths.values())) > 1:
        yield Problem(
            code="AB213",
            tokens=place,
            message=f"{', '.join(lengths)} differ in length",
            got=", ".join(map(str, lengths.values())),
            expected="one item per node in each",
            hint="tune the model again, or remove the line",
        )


def _list_problem(parent: Mapping[str, JsonValue], name: str, place: tuple[str, ...]) -> Problem:
    if name not in parent:
        return missing(name, place, "tune the model again, or remove the line")
    return wrong_type(parent[name], (*place, name), "a list")


def _identity_problems(
    parsed: ParsedFile, number: int, value: Mapping[str, JsonValue], features: dict[str, int]
) -> Iterator[Problem]:
    yield from duplicate_identity(
        parsed,
        number,
        ("graphID",),
        "strategy",
        "remove one: which of them is used is not known",
    )
    other = features.setdefault(_digest(value["feature"]), number)
    if parsed.keys[other] != parsed.keys[number]:
        line, _ = parsed.lines.position(parsed.starts[other])
        yield Problem(
            code="AB311",
            tokens=("feature",),
            message="another graphID has an equal feature",
            got=f"line {line}",
        )


def _digest(value: JsonValue | Sequence[JsonValue]) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.md5(text.encode("ascii"), usedforsecurity=False).hexdigest()
