"""Items of one big JSON list, found without keeping their values.

Offsets are bytes, as in `object_index`.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from itertools import pairwise

from aoebank.formats.text.checks import BOM
from aoebank.formats.text.json_text import JsonTextError, scan, skip_space


@dataclass(slots=True)
class ArrayIndex:
    """Where the items of a top-level list are; filled while scanning."""

    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    problems: list[JsonTextError] = field(default_factory=list)


def index_array(data: bytes, item_start: re.Pattern[str]) -> ArrayIndex:
    """Find the items of the list that `data` is; never raises.

    Args:
        data: A whole file.
        item_start: Finds where an item starts. After an error reading goes on at the next
            one, so one bad item never hides the others.
    """
    index = ArrayIndex()
    text = data.decode("latin-1")
    start = skip_space(text, len(BOM) if data.startswith(BOM) else 0)
    if start == len(text):
        return index
    if text[start] != "[":
        index.problems.append(_not_a_list(text, start))
        return index
    try:
        end = _walk(text, skip_space(text, start + 1), index)
        if end != len(text):
            raise JsonTextError("text after the end of the JSON list", end, "AB107")
    except JsonTextError as error:
        index.problems.append(error)
        _recover(text, item_start, index)
    return index


def _not_a_list(text: str, start: int) -> JsonTextError:
    try:
        scan(text, start)
    except JsonTextError as error:
        return error
    return JsonTextError("file is not one JSON list", start, "AB201")


def _walk(text: str, place: int, index: ArrayIndex) -> int:
    """Collect items from `place` on; return the offset behind the closing bracket."""
    if text[place : place + 1] == "]":
        return skip_space(text, place + 1)
    while True:
        _, end = scan(text, place)
        index.starts.append(place)
        index.ends.append(end)
        place = skip_space(text, end)
        if text[place : place + 1] != ",":
            break
        place = skip_space(text, place + 1)
    if text[place : place + 1] != "]":
        raise JsonTextError("expecting ',' or ']' after an item", place)
    return skip_space(text, place + 1)


def _recover(text: str, item_start: re.Pattern[str], index: ArrayIndex) -> None:
    """Collect the items that stand behind an error, one region per item."""
    done = index.ends[-1] if len(index.ends) else 0
    marks = [match.start() for match in item_start.finditer(text, done)]
    known = {problem.offset for problem in index.problems}
    for start, end in pairwise([*marks, len(text)]):
        try:
            _, stop = scan(text[start:end], 0)
        except JsonTextError as error:
            error.offset += start
            if error.offset not in known:
                known.add(error.offset)
                index.problems.append(error)
            continue
        index.starts.append(start)
        index.ends.append(start + stop)
