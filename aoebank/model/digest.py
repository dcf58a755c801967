"""Digests of bytes, and of JSON values however a file spells them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import overload

from aoebank.model.json_value import ExactFloat, JsonValue

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def canonical_text(value: JsonValue) -> str:
    """Return the text two values share if and only if they are the same.

    Order of members, white space, escapes and the spelling of a float do not count; `1` and
    `1.0` are two values, since readers in C++ tell them apart. Of numbers beyond a double, which
    all are infinite to Python, the digits count.

    >>> canonical_text({"b": 1e-4, "a": [1, "x"]})
    '{"a":[1,"x"],"b":0.0001}'
    >>> canonical_text(ExactFloat("1e400")) == canonical_text(ExactFloat("10.0E+399"))
    True
    """
    if type(value) is int:  # most members of most strategies
        return str(value)
    text = _ENCODER.encode(value)
    return _ENCODER.encode(_spelled(value)) if "Infinity" in text else text


def _spelled(value: JsonValue) -> JsonValue:
    """Return a value whose numbers too large for Python are texts: as floats all are one."""
    if isinstance(value, ExactFloat) and value - value != 0:
        return f"\0{_digits(value.text)}"
    if isinstance(value, Mapping):
        return {name: _spelled(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_spelled(item) for item in value]
    return value


def _digits(text: str) -> str:
    """Return the digits of a number, without zeros at the ends, and its exponent of ten."""
    mantissa, e, exponent = text.lower().partition("e")
    if not e and "." not in mantissa:
        return text  # a whole number is another value than a float
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    sign, digits = "-" * text.startswith("-"), (whole + fraction).lstrip("0")
    zeros = len(digits) - len(digits.rstrip("0"))
    try:
        power = int(exponent or 0) - len(fraction) + zeros
    except ValueError:  # an exponent of more digits than Python reads
        return text
    return f"{sign}{digits.rstrip('0')}e{power}"


def digest_of(value: JsonValue) -> str:
    """Return the sha256 of the canonical text of a value, in hexadecimal."""
    return sha256_of(canonical_text(value).encode("ascii"))


@overload
def sha256_of(data: bytes) -> str: ...


@overload
def sha256_of(data: bytes | None) -> str | None: ...


def sha256_of(data: bytes | None) -> str | None:
    """Return the sha256 of bytes, in hexadecimal; None for none, as of a file that is not there."""
    import hashlib  # loads OpenSSL, which a command line that only helps does not need

    return None if data is None else hashlib.sha256(data).hexdigest()
