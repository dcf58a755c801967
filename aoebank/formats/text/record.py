"""The record at a position: its text, ready for messages, and what its file says about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TypedDict

from aoebank.formats.protocol import ParsedFile
from aoebank.formats.text import json_text
from aoebank.formats.text.containers import value_place
from aoebank.formats.text.problem import Problem, RecordText
from aoebank.model.finding import Location


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
