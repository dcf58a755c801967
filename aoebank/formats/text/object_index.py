"""Members of one big JSON object, found without keeping their values.

Offsets are bytes: the file is scanned as Latin-1, in which a character is a byte and all
characters JSON gives a meaning to are where they are in UTF-8.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from aoebank.formats.lines import LineIndex
from aoebank.formats.text.checks import BOM
from aoebank.formats.text.json_lines import MOST_LISTED, not_listed
from aoebank.formats.text.json_text import JsonTextError, scan, skip_space
from aoebank.model.finding import Finding, make_finding

_PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")


@dataclass(slots=True)
class ObjectIndex:
    """Where the members of a top-level object are; filled while scanning."""

    keys: list[str] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    problems: list[JsonTextError] = field(default_factory=list)


def index_object(data: bytes, key_line: re.Pattern[str]) -> ObjectIndex:
    """Find the members of the object that `data` is; never raises.

    Args:
        data: A whole file.
        key_line: Finds where a member starts (its group `key`). After an error reading
            goes on at the next one, so one bad member never hides the others.
    """
    index = ObjectIndex()
    text = data.decode("latin-1")
    start = skip_space(text, len(BOM) if data.startswith(BOM) else 0)
    if start == len(text):
        return index
    if text[start] != "{":
        index.problems.append(_not_an_object(text, start))
        return index
    try:
        end = _walk(text, skip_space(text, start + 1), index, is_last=True)
        if end != len(text):
            index.problems.append(
                JsonTextError("text after the end of the JSON object", end, "AB107")
            )
    except JsonTextError as error:
        index.problems.append(error)
        _recover(text, key_line, index)
    return index


def value_place(text: str) -> int:
    """Return where the value of a member text `"key": value` starts."""
    _, end = scan(text, 0)
    return skip_space(text, skip_space(text, end) + 1)


def _not_an_object(text: str, start: int) -> JsonTextError:
    try:
        scan(text, start)
    except JsonTextError as error:
        return error
    return JsonTextError("file is not one JSON object", start, "AB201")


def _walk(text: str, place: int, index: ObjectIndex, *, is_last: bool, base: int = 0) -> int:
    """Collect members from `place` on; return the offset behind the last of them.

    The last part of an object ends with its brace, a part before it with a comma.
    """
    add_key, add_start, add_end = index.keys.append, index.starts.append, index.ends.append
    if is_last and text[place : place + 1] == "}":
        return skip_space(text, place + 1)
    while True:
        key, value = _key(text, place)
        _, end = scan(text, value)
        add_key(key)
        add_start(base + place)
        add_end(base + end)
        comma = _COMMA.match(text, end)
        if comma is None:
            break
        place = comma.end()
        if not is_last and place == len(text):
            return place
    place = skip_space(text, end)
    if not is_last:
        raise JsonTextError("expecting ',' after a member", place)
    if text[place : place + 1] != "}":
        raise JsonTextError("expecting ',' or '}' after a member", place)
    return skip_space(text, place + 1)


def _key(text: str, place: int) -> tuple[str, int]:
    match = _PLAIN_KEY.match(text, place)
    if match is not None and match[1].isascii():
        return match[1], match.end()
    if text[place : place + 1] != '"':
        raise JsonTextError("expecting a member name in double quotes", place)
    _, end = scan(text, place)
    colon = skip_space(text, end)
    if text[colon : colon + 1] != ":":
        raise JsonTextError("expecting ':' after a member name", colon)
    name = text[place:end].encode("latin-1").decode("utf-8", errors="replace")
    return str(scan(name, 0)[0]), skip_space(text, colon + 1)


def _recover(text: str, key_line: re.Pattern[str], index: ObjectIndex) -> None:
    """Collect what stands behind the last good member, one region per member."""
    first = index.problems.pop()
    if (
        len(index.ends)
        and text[index.ends[-1] - 1] == '"'
        and not _COMMA.match(text, index.ends[-1])
    ):
        index.keys.pop()  # a string cut short ends where the next one starts: read it again
        index.starts.pop()
        index.ends.pop()
    done = index.ends[-1] if len(index.ends) else 0
    marks = [match.start("key") for match in key_line.finditer(text, done)]
    if not marks or first.offset < marks[0]:
        index.problems.append(first)
    for start, end in pairwise([*marks, len(text)]):
        region = text[start:end]
        try:
            stop = _walk(region, 0, index, is_last=end == len(text), base=start)
            if stop != len(region):
                raise JsonTextError("text after the end of the JSON object", stop, "AB107")
        except JsonTextError as error:
            # where a part is cut short, point at its end and not at the next one
            error.offset = start + min(error.offset, len(region.rstrip()))
            index.problems.append(error)
    if not index.problems:
        index.problems.append(first)


def findings_of(
    found: Iterable[JsonTextError], path: Path, lines: LineIndex, skip: Callable[[int], bool]
) -> list[Finding]:
    """Return the problems of an index as findings, save those at offsets to `skip`."""
    hint = "restore the file from git, or mend it in an editor"
    problems = [each for each in found if not skip(each.offset)]
    problems.sort(key=lambda problem: problem.offset)
    listed = [
        make_finding(
            each.code, lines.location(path, each.offset, each.offset), each.problem, hint=hint
        )
        for each in problems[:MOST_LISTED]
    ]
    return [*listed, *not_listed(path, Counter(each.code for each in problems[MOST_LISTED:]))]
