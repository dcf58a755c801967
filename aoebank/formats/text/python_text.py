"""Literals of Python source: strings, numbers, constants, and tuples of them.

Offsets are characters. What runs is not read: a file with a call or an expression is none of ours.
"""

from __future__ import annotations

import ast
import re
import warnings

from aoebank.formats.text import json_text
from aoebank.formats.text.json_text import JsonTextError
from aoebank.model.json_value import JsonValue

DEEPEST = 100  # levels, as of JSON
_SPACE = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"|' r"'(?:[^'\\\n]|\\.)*'")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.])", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_CONSTANTS: dict[str, JsonValue] = {"None": None, "True": True, "False": False}
_CLOSING = {"(": ")", "[": "]"}


def skip_space(text: str, offset: int) -> int:
    """Return the first offset from here on that is neither white space nor a comment."""
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def scan_string(text: str, offset: int) -> tuple[str, int]:
    """Return the string at an offset, and the offset behind it.

    Raises:
        JsonTextError: there is none.
    """
    match = _STRING.match(text, offset)
    if match is None:
        raise JsonTextError("expecting a string in quotes", offset)
    if "\\" not in match[0]:
        return match[0][1:-1], match.end()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an escape Python does not know is kept
            return str(ast.literal_eval(match[0])), match.end()
    except (SyntaxError, ValueError) as error:
        raise JsonTextError("string has an escape that Python refuses", offset) from error


def scan_literal(text: str, offset: int, depth: int = 0) -> tuple[JsonValue, int]:
    """Return the value at an offset, tuples as lists, and the offset behind it.

    A name with dots (`torch.float16`) is its text.

    Raises:
        JsonTextError: it is no literal.
    """
    if depth > DEEPEST:
        raise JsonTextError("nested too deeply", offset, "AB108")
    sign = text[offset : offset + 1]
    if sign in _CLOSING and sign:
        return _scan_items(text, offset, depth)
    if sign in ("'", '"'):
        return scan_string(text, offset)
    if match := _NUMBER.match(text, offset):
        return json_text.loads(match[0]), match.end()
    if match := _NAME.match(text, offset):
        return _CONSTANTS.get(match[0], match[0]), match.end()
    raise JsonTextError("expecting a value", offset)


def _scan_items(text: str, offset: int, depth: int) -> tuple[JsonValue, int]:
    closing, items = _CLOSING[text[offset]], list[JsonValue]()
    place, has_comma = skip_space(text, offset + 1), True
    while not text.startswith(closing, place):
        if not has_comma:
            raise JsonTextError(f"expecting ',' or '{closing}'", place)
        item, place = scan_literal(text, place, depth + 1)
        items.append(item)
        place = skip_space(text, place)
        has_comma = text.startswith(",", place)
        place = skip_space(text, place + has_comma)
    # one value in parentheses is that value
    is_value = closing == ")" and len(items) == 1 and not has_comma
    return items[0] if is_value else items, place + 1


def dumps_literal(value: JsonValue) -> str:
    """Write a value as Python does, lists as tuples.

    >>> dumps_literal([1, [None], "a"])
    '(1, (None,), "a")'
    """
    if isinstance(value, list | tuple):
        items = [dumps_literal(item) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    for name, constant in _CONSTANTS.items():
        if value is constant:
            return name
    return dumps_string(value) if isinstance(value, str) else json_text.dumps(value)


def dumps_string(text: str) -> str:
    """Write a string in double quotes."""
    written = json_text.dumps(text)
    return written if written.isascii() and "\\ud" not in written else _by_characters(text)


def _by_characters(text: str) -> str:
    # JSON writes what is beyond 16 bits as two halves, which Python keeps as two
    marks = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\", '"': '\\"'}
    signs = (marks.get(sign) or (sign if sign >= " " else f"\\x{ord(sign):02x}") for sign in text)
    return f'"{"".join(signs)}"'
