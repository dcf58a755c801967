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
    `1.0` are two values, since readers in C++ tell them apart.

    >>> canonical_text({"b": 1e-4, "a": [1, "x"]})
    '{"a":[1,"x"],"b":0.0001}'
    """
    if type(value) is int:  # most members of most strategies
        return str(value)
    text = _ENCODER.encode(value)
    return _ENCODER.encode(_spelled(value)) if "Infinity" in text else text


def _spelled(value: JsonValue) -> JsonValue:
    """Return a value whose whole numbers too long for Python are texts: as floats all are one."""
    if isinstance(value, ExactFloat) and value.text.lstrip("-").isdigit():
        return f"\0{value.text}"
    if isinstance(value, Mapping):
        return {name: _spelled(member) for name, member in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_spelled(item) for item in value]
    return value


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
