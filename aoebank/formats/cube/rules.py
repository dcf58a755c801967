"""What a line of the cube bank must hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.json_lines import duplicate_identity
from aoebank.formats.text.problem import Problem, missing, not_a_record, unknown_members, wrong_type
from aoebank.formats.text.record import cost_problems, record_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonObject, JsonValue

STRUCTURE = Structure(schema="cube/1.json", depth=1)
MEMBERS = ("shape", "tiling", "cost_time")
# Source: CANN 8.1 auto_tune: names do not take part in the bits of a shape
NAME_MEMBERS = ("kernel_name", "test_case", "op_name", "platform")


def identity_part(shape: JsonObject) -> dict[str, JsonValue]:
    """Return the shape without the members that only name it."""
    return {name: shape[name] for name in shape if name not in NAME_MEMBERS}


def line_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why readers cannot use a line."""
    yield from not_a_record(value)
    if isinstance(value, Mapping) and value:
        yield from _member_problems(value)


def _member_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    for name in ("shape", "tiling"):
        if name not in value:
            yield missing(name, hint="tune the workload again, or remove the record")
    if not isinstance(value.get("shape", {}), Mapping):
        yield wrong_type(value["shape"], ("shape",), "an object")
    if not isinstance(value.get("tiling", []), list | tuple | Mapping):
        yield wrong_type(value["tiling"], ("tiling",), "a list or an object")
    cost = value.get("cost_time", 1)
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        yield wrong_type(cost, ("cost_time",), "a number")


def check_cube_file(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield identity and value findings of the records."""
    for number in range(len(parsed)):
        text = record_text(parsed, number)
        value = json_text.scan(text.text, 0)[0]
        assert isinstance(value, Mapping)
        for problem in (
            *STRUCTURE.problems(value),
            *_value_problems(value),
            *_identity_problems(parsed, number, value),
        ):
            yield text.finding(problem)
        yield from text.duplicates(value)


def _value_problems(value: Mapping[str, JsonValue]) -> Iterator[Problem]:
    yield from cost_problems(value.get("cost_time"))
    yield from unknown_members(value, MEMBERS)


def _identity_problems(
    parsed: ParsedFile, number: int, value: Mapping[str, JsonValue]
) -> Iterator[Problem]:
    yield from duplicate_identity(
        parsed,
        number,
        ("shape",),
        "tiling",
        "remove the slower one: the binary twin cannot be made from both",
    )
