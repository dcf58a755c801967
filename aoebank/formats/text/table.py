"""Tables of comma-separated values: a header line, then a record per line.

A field keeps its spelling until its record changes. Programs that read such tables pass over blank
lines; they fill up a short row and stop at a long one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM
from aoebank.formats.text.problem import Problem, RecordText
from aoebank.model.finding import Finding, make_finding
from aoebank.model.json_value import JsonValue

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", re.ASCII)
_BLANK = " \t\r"


def iter_rows(data: bytes, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield first byte and end of each line, blanks in it kept, its line end left out."""
    place = max(start, len(BOM)) if data.startswith(BOM) else start
    length = len(data)
    while place < length:
        newline = data.find(b"\n", place)
        end = length if newline < 0 else newline
        yield place, end - 1 if data[end - 1 : end] == b"\r" and end > place else end
        place = end + 1


def split_row(text: str) -> list[str]:
    """Return the fields of a line as they are written, quotes taken off.

    Raises:
        ValueError: a quoted field does not end in its line.

    >>> split_row('1, 16,"a,b"')
    ['1', ' 16', 'a,b']
    """
    if '"' not in text:
        return text.split(",")
    try:
        rows = list(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    return rows[0] if rows else [""]


def join_row(fields: Iterable[str]) -> str:
    """Return the line of fields, quoted where they have to be."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="").writerow(fields)
    return stream.getvalue()


def strip_field(text: str) -> str:
    """Return the text of a field without the blanks around it."""
    return text.strip(_BLANK)


def read_field(text: str) -> JsonValue:
    """Return the value of a field: a number in its own spelling, or a text.

    >>> read_field(" 16"), read_field("1.50").text, read_field("nan"), read_field("0.0%")
    (16, '1.50', 'nan', '0.0%')
    """
    text = text.strip(_BLANK)
    if text.isdecimal() and text.isascii() and (text[0] != "0" or text == "0"):
        return int(text) if len(text) < 20 else json_text.loads(text)
    return json_text.loads(text) if _NUMBER.fullmatch(text) else text


def write_field(value: JsonValue) -> str:
    """Return the text of a field, as Python's csv writers spell values.

    Raises:
        ValueError: a field has no room for such a value.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        if read_field(value) == value and "\n" not in value:
            return value
    elif isinstance(value, int | float):
        return json_text.dumps(value)
    raise ValueError(f"no field of a table holds {json_text.dumps(value)[:60]}")


def start_of_rows(data: bytes) -> int:
    """Return the first byte behind the header line, which is the first that is not blank."""
    for start, end in iter_rows(data):
        if data[start:end].strip():
            newline = data.find(b"\n", end)
            return len(data) if newline < 0 else newline + 1
    return len(data)


def read_columns(data: bytes) -> tuple[str, ...]:
    """Return the names of the columns, blanks around them left out; none of an empty file."""
    return _columns(header_line(data))


def header_line(data: bytes) -> bytes:
    """Return the line with the names of the columns; empty without one."""
    return next((data[start:end] for start, end in iter_rows(data) if data[start:end].strip()), b"")


@lru_cache(maxsize=64)
def _columns(line: bytes) -> tuple[str, ...]:
    text = line.decode("utf-8", errors="replace")
    try:
        return tuple(name.strip(_BLANK) for name in split_row(text)) if text else ()
    except ValueError:
        return ()


def column_of(text: str, number: int) -> int:
    """Return the offset in a line of the field with a number."""
    place, quoted = 0, False
    for offset, sign in enumerate(text):
        if number == 0:
            return place
        if sign == '"':
            quoted = not quoted
        elif sign == "," and not quoted:
            number, place = number - 1, offset + 1
    return place


def fill_row(columns: Iterable[str], values: Mapping[str, JsonValue]) -> str:
    """Return the line of a record under some columns; a column it has no value for stays empty.

    Raises:
        ValueError: it has a value under none of the columns, or one that no field holds.
    """
    names = tuple(columns)
    lost = [name for name, value in values.items() if name not in names and value is not None]
    if lost:
        raise ValueError(f"the table has no column {', '.join(lost)}")
    return join_row(write_field(values.get(name)) for name in names)


def finding_at(text: RecordText, place: int, problem: Problem) -> Finding:
    """Return a problem of the field at an offset of a row as a finding."""
    location = text.lines.location(text.path, text.byte(place), text.end)
    return make_finding(
        problem.code,
        location,
        problem.message,
        got=problem.got,
        expected=problem.expected,
        hint=problem.hint,
    )
