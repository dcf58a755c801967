"""What an item of the gradient bank must hold, as its reader takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aoebank.formats.graph.rules import is_uint64, uint64_problem
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.structure import Structure
from aoebank.formats.text import json_text
from aoebank.formats.text.problem import (
    Problem,
    RecordText,
    kind_of,
    missing,
    unknown_members,
    wrong_type,
)
from aoebank.formats.text.record import record_text
from aoebank.model.finding import Finding
from aoebank.model.json_value import JsonValue

MEMBERS = ("modelhash", "modelvalue")
KNOWN = (*MEMBERS, "modelgraphid")
STRUCTURE = Structure(schema="gradient/1.json", record=("items",), depth=3)
LISTS = ("gradientSize", "gradientTime")


def item_text(parsed: ParsedFile, number: int) -> RecordText:
    """Return the text of an item; its pointer starts with its place among the records."""
    return record_text(parsed, number, (str(number),))


def item_problems(value: JsonValue) -> Iterator[Problem]:
    """Yield why the reader cannot use an item.

    Problems of the item as a whole or of its modelhash leave it without an identity.
    """
    if not isinstance(value, Mapping):
        yield Problem(
            code="AB204",
            tokens=(),
            message="item is not an object",
            got=kind_of(value),
            expected="an object",
        )
        return
    if "modelhash" not in value:
        yield missing("modelhash", hint="tune the model again, or remove the item")
    elif not is_uint64(value["modelhash"]):
        yield uint64_problem(value["modelhash"], "modelhash")
    if "modelvalue" not in value:
        yield missing("modelvalue", ("modelvalue",))
    elif not isinstance(value["modelvalue"], Mapping):
        yield wrong_type(value["modelvalue"], ("modelvalue",), "an object")
    else:
        yield from _list_problems(value["modelvalue"])


def _list_problems(model: Mapping[str, JsonValue]) -> Iterator[Problem]:
    for name in LISTS:
        place = ("modelvalue", name)
        if name not in model:
            yield missing(name, ("modelvalue",), "tune the model again, or remove the item")
            continue
        items = model[name]
        if not isinstance(items, list):
            yield wrong_type(items, place, "a list")
            continue
        for number, item in enumerate(items):
            if isinstance(item, bool) or not isinstance(item, int | float):
                yield Problem(
                    code="AB206",
                    tokens=(*place, str(number)),
                    message=f"member {name} holds something else than numbers",
                    got=kind_of(item),
                    expected="a number",
                )
                break


def check_gradient_file(parsed: ParsedFile) -> Iterator[Finding]:
    """Yield findings about lists, placeholders and identities."""
    for number in range(len(parsed)):
        text = item_text(parsed, number)
        value = json_text.scan(text.text, 0)[0]
        assert isinstance(value, Mapping)
        problems = [*STRUCTURE.problems(value, item_problems(value))]
        if not problems:
            problems += _value_problems(value["modelvalue"])
        for problem in (*problems, *_item_rules(parsed, number, value)):
            yield text.finding(problem)
        yield from text.duplicates(value)


def _value_problems(model: JsonValue) -> Iterator[Problem]:
    assert isinstance(model, Mapping)
    sizes, times = model["gradientSize"], model["gradientTime"]
    assert isinstance(sizes, list)
    assert isinstance(times, list)
    if len(sizes) != len(times):
        yield Problem(
            code="AB213",
            tokens=("modelvalue",),
            message="gradientSize and gradientTime differ in length",
            got=f"{len(sizes)} and {len(times)}",
            expected="one size and one time per gradient",
            hint="tune the model again",
        )
    if not any(sizes) and not any(times):
        yield Problem(
            code="AB408",
            tokens=("modelvalue",),
            message="lists are empty" if not sizes else "lists hold a placeholder",
            got=f"{len(sizes)} zeros" if sizes else "no items",
            hint="tune the model again; the tuner died before it filled the record",
        )
    for name, items in (("gradientSize", sizes), ("gradientTime", times)):
        negative = next((place for place, item in enumerate(items) if item < 0), None)
        if negative is not None:
            yield Problem(
                code="AB404",
                tokens=("modelvalue", name, str(negative)),
                message=f"{name} is negative",
                got=str(items[negative])[:40],
                expected=">= 0",
                hint="tune the model again",
            )


def _item_rules(
    parsed: ParsedFile, number: int, value: Mapping[str, JsonValue]
) -> Iterator[Problem]:
    used = parsed.find(parsed.keys[number])
    if used is not None and used != number:
        line, column = parsed.lines.position(parsed.starts[used])
        yield Problem(
            code="AB312",
            tokens=("modelhash",),
            message="same modelhash as another item: the reader joins their lists",
            got=f"line {line}, column {column}",
            expected="each modelhash once",
            hint="remove one of them",
        )
    yield from unknown_members(value, KNOWN)
