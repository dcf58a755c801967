"""NaN and infinities in text that Python's `json` wrote: they are no JSON.

A value says such a constant by its name, the text `NaN`. For readers of JSON the constants are
hidden behind strings of the same length, so that every offset stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from aoebank.formats.text import json_text
from aoebank.model.json_value import JsonValue

NAMES = ("NaN", "Infinity", "-Infinity")
_MARK = "\x7f"  # no program writes it into a bank; a text that has it is left as it is
_HIDDEN = {"NaN": f'"{_MARK}"', "Infinity": f'"{_MARK}Infin"', "-Infinity": f'"{_MARK}-Infin"'}
_SHOWN = {hidden: name for name, hidden in _HIDDEN.items()}
_VALUES = {hidden[1:-1]: name for name, hidden in _HIDDEN.items()}
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<constant>-?Infinity|NaN)')
_NAMED = re.compile(r'"(?:[^"\\]|\\.)*"(?P<colon>\s*:)?')


def hide(text: str) -> str:
    """Return a text of the same length whose constants are strings.

    >>> hide('[NaN, "NaN"]') == '["\\x7f", "NaN"]'
    True
    """
    if ("NaN" not in text and "Infinity" not in text) or _MARK in text:
        return text
    return _STRING_OR_CONSTANT.sub(
        lambda match: _HIDDEN[match["constant"]] if match["constant"] else match[0], text
    )


def hide_bytes(data: bytes) -> bytes:
    """Return bytes of the same length whose constants are strings."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    return hide(data.decode("latin-1")).encode("latin-1")  # a byte is a character


def show(text: str) -> str:
    """Return a text with its constants as they were before `hide`."""
    if _MARK not in text:
        return text
    for hidden, name in _SHOWN.items():
        text = text.replace(hidden, name)
    return text


def loads(hidden: str) -> JsonValue:
    """Return the value of a text from `hide`; constants are their names.

    Raises:
        JsonTextError: it is no JSON.

    >>> loads(hide('{"time": NaN}'))
    {'time': 'NaN'}
    """
    return named(json_text.loads(hidden), hidden)


def dumps(value: JsonValue) -> str:
    """Return the text of a value; the name of a constant is the constant.

    >>> dumps({"time": "NaN", "NaN": "x"})
    '{"time": NaN, "NaN": "x"}'
    """
    text = json_text.dumps(value)
    if "NaN" not in text and "Infinity" not in text:
        return text
    return _NAMED.sub(
        lambda match: (
            match[0][1:-1] if match["colon"] is None and match[0][1:-1] in NAMES else match[0]
        ),
        text,
    )


def named(value: JsonValue, hidden: str = _MARK) -> JsonValue:
    """Return a value with the names of its constants.

    Args:
        hidden: Text from `hide` that it was read from; nearly all have no constant.
    """
    if _MARK not in hidden:
        return value
    if isinstance(value, Mapping):
        return {name: named(member) for name, member in value.items()}
    if isinstance(value, list):
        return [named(item) for item in value]
    return _VALUES.get(value, value) if isinstance(value, str) else value
