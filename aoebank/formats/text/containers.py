"""Members of one big JSON object, or items of one big list, found without keeping values.

Offsets are bytes: the file is scanned as Latin-1, in which a character is a byte and all
characters JSON gives a meaning to are where they are in UTF-8.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container
from itertools import pairwise

from aoebank.formats.text.checks import BOM
from aoebank.formats.text.json_text import JsonTextError, scan, skip_space
from aoebank.formats.text.scan import MOST_LISTED, FileScan, not_listed
from aoebank.model.finding import make_finding

_PLAIN_KEY = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\r\n]*:[ \t\r\n]*')
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*")
_HINT = "restore the file from git, or mend it in an editor"
_Walk = Callable[[str, int], int]
_Recover = Callable[[str, JsonTextError], list[JsonTextError]]


def scan_members(found: FileScan, key_line: re.Pattern[str]) -> None:
    """Find the members of the object that a file is; never raises.

    Args:
        found: Nothing found in it yet but what is odd about the text as a whole.
        key_line: Finds where a member starts (its group `key`). After an error reading
            goes on at the next one, so one bad member never hides the others.
    """
    problems = _scan(
        found.data,
        "{",
        "object",
        lambda text, place: _walk_members(text, place, found, is_last=True),
        lambda text, first: _recover_members(text, key_line, found, first),
    )
    report_problems(found, problems, ("AB102", "AB104"))


def scan_items(found: FileScan, item_start: re.Pattern[str]) -> list[tuple[int, int]]:
    """Return first byte and end of the items of the list that a file is; never raises.

    Args:
        found: Nothing found in it yet but what is odd about the text as a whole.
        item_start: Finds where an item starts. After an error reading goes on at the next
            one, so one bad item never hides the others.
    """
    items: list[tuple[int, int]] = []
    problems = _scan(
        found.data,
        "[",
        "list",
        lambda text, place: _walk_items(text, place, items),
        lambda text, first: _recover_items(text, item_start, items, first),
    )
    report_problems(found, problems, ("AB104",))
    return items


def find_member(text: str, place: int, name: str) -> int | None:
    """Return the offset of the value of a member of the object that a text is; None without it.

    What stands behind the member is not read: it may be damaged.

    Raises:
        JsonTextError: what stands before it is no JSON object.
    """
    place = skip_space(text, place)
    if text[place : place + 1] != "{":
        scan(text, place)
        raise JsonTextError("file is not one JSON object", place, "AB201")
    place = skip_space(text, place + 1)
    while text[place : place + 1] != "}":
        found, value = _key(text, place)
        if found == name:
            return value
        place = skip_space(text, scan(text, value)[1])
        if text[place : place + 1] == "}":
            break
        if text[place : place + 1] != ",":
            raise JsonTextError("expecting ',' or '}' after a member", place)
        place = skip_space(text, place + 1)
    return None


def value_place(text: str) -> int:
    """Return the offset of the value in a member text `"key": value`."""
    match = _PLAIN_KEY.match(text)
    if match is not None:
        return match.end()
    _, end = scan(text, 0)
    return skip_space(text, skip_space(text, end) + 1)


def _scan(
    data: bytes, bracket: str, word: str, walk: _Walk, recover: _Recover
) -> list[JsonTextError]:
    """Let `walk` collect what the container holds, or `recover` what it can; return why."""
    text = data.decode("latin-1")
    start = skip_space(text, len(BOM) if data.startswith(BOM) else 0)
    if start == len(text):
        return []
    try:
        if text[start] != bracket:
            scan(text, start)
            return [JsonTextError(f"file is not one JSON {word}", start, "AB201")]
    except JsonTextError as error:
        return [error]
    try:
        end = walk(text, skip_space(text, start + 1))
    except JsonTextError as error:
        return recover(text, error)
    return [] if end == len(text) else [_text_behind(word, end)]


def _text_behind(word: str, place: int) -> JsonTextError:
    return JsonTextError(f"text after the end of the JSON {word}", place, "AB107")


def _walk_members(text: str, place: int, found: FileScan, *, is_last: bool, base: int = 0) -> int:
    """Collect members from `place` on; return the offset behind the last of them.

    The last part of an object ends with its brace, a part before it with a comma.
    """
    add_key, add_start, add_end = found.keys.append, found.starts.append, found.ends.append
    if is_last and text[place : place + 1] == "}":
        return skip_space(text, place + 1)
    find_key, find_comma = _PLAIN_KEY.match, _COMMA.match
    while True:  # a million times for some files: what is usual is done without a call of ours
        match = find_key(text, place)
        if match is not None and match[1].isascii():
            key, value = match[1], match.end()
        else:
            key, value = _key(text, place)
        _, end = scan(text, value)
        add_key(key)
        add_start(base + place)
        add_end(base + end)
        comma = find_comma(text, end)
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
    """Return a member name and the offset of its value, whatever its spelling."""
    if text[place : place + 1] != '"':
        raise JsonTextError("expecting a member name in double quotes", place)
    _, end = scan(text, place)
    colon = skip_space(text, end)
    if text[colon : colon + 1] != ":":
        raise JsonTextError("expecting ':' after a member name", colon)
    name = text[place:end].encode("latin-1").decode("utf-8", errors="replace")
    return str(scan(name, 0)[0]), skip_space(text, colon + 1)


def _recover_members(
    text: str, key_line: re.Pattern[str], found: FileScan, first: JsonTextError
) -> list[JsonTextError]:
    """Collect what stands behind the last good member, one region per member."""
    ends, problems = found.ends, []
    if len(ends) and text[ends[-1] - 1] == '"' and not _COMMA.match(text, ends[-1]):
        found.keys.pop()  # a string cut short ends where the next one starts: read it again
        found.starts.pop()
        ends.pop()
    marks = [match.start("key") for match in key_line.finditer(text, ends[-1] if ends else 0)]
    if not marks or first.offset < marks[0]:
        problems.append(first)
    for start, end in pairwise([*marks, len(text)]):
        region = text[start:end]
        try:
            stop = _walk_members(region, 0, found, is_last=end == len(text), base=start)
            if stop != len(region):
                raise _text_behind("object", stop)
        except JsonTextError as error:
            # where a part is cut short, point at its end and not at the next one
            error.offset = start + min(error.offset, len(region.rstrip()))
            problems.append(error)
    return problems or [first]


def _walk_items(text: str, place: int, items: list[tuple[int, int]]) -> int:
    """Collect items from `place` on; behind the closing bracket there may be none."""
    has_more = text[place : place + 1] != "]"
    while has_more:
        _, end = scan(text, place)
        items.append((place, end))
        place = skip_space(text, end)
        has_more = text[place : place + 1] == ","
        place = skip_space(text, place + 1) if has_more else place
    if text[place : place + 1] != "]":
        raise JsonTextError("expecting ',' or ']' after an item", place)
    end = skip_space(text, place + 1)
    if end != len(text):
        raise _text_behind("list", end)
    return end


def _recover_items(
    text: str,
    item_start: re.Pattern[str],
    items: list[tuple[int, int]],
    first: JsonTextError,
) -> list[JsonTextError]:
    """Collect the items that stand behind an error, one region per item."""
    marks = [match.start() for match in item_start.finditer(text, items[-1][1] if items else 0)]
    problems = {first.offset: first}
    for start, end in pairwise([*marks, len(text)]):
        try:
            _, stop = scan(text[start:end], 0)
        except JsonTextError as error:
            error.offset += start
            problems.setdefault(error.offset, error)
            continue
        items.append((start, start + stop))
    return [*problems.values()]


def report_problems(found: FileScan, problems: list[JsonTextError], told: Container[str]) -> None:
    """Add problems as findings, save those in lines that a finding of these codes tells of."""
    lines = found.lines
    reported = {finding.location.line for finding in found.findings if finding.code in told}
    new = [problem for problem in problems if lines.position(problem.offset)[0] not in reported]
    new.sort(key=lambda problem: problem.offset)
    for problem in new[:MOST_LISTED]:
        place = lines.location(found.path, problem.offset, problem.offset)
        found.findings.append(make_finding(problem.code, place, problem.problem, hint=_HINT))
    found.findings += not_listed(
        found.path, Counter(unlisted.code for unlisted in new[MOST_LISTED:])
    )
