"""Digests of records and of sets of records; spelling and order do not change a digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable

from aoebank.model.digest import canonical_text, sha256_of
from aoebank.model.json_value import ExactFloat, JsonValue

DIGEST_BYTES = 32


def record_digest(raw: bytes) -> bytes:
    """Return the sha256 of a record as a value: its bytes parsed and written canonically.

    White space, order of members, escapes and the spelling of floats do not count; of equal
    member names the last counts, as for the readers. What cannot be parsed counts as bytes.

    Args:
        raw: One JSON value, or one member of a JSON object with its name.
    """
    try:
        text = raw.decode("utf-8")
        meaning = canonical_text(_loads(text))
        if "Infinity" in meaning:  # numbers beyond a double are infinite, but not all the same
            meaning = canonical_text(_loads(text, parse_float=_finite_or_exact))
    except (ValueError, RecursionError):
        return hashlib.sha256(raw).digest()
    return hashlib.sha256(meaning.encode("ascii")).digest()


def record_set_hash(digests: Iterable[bytes]) -> str:
    """Return the hash of a multiset of digests: sha256 over all of them, sorted.

    Sorting makes it independent of order; unlike a sum or an exclusive or of the digests it
    offers no way to make up another set with the same hash.
    """
    return sha256_of(b"".join(sorted(digests)))


def _finite_or_exact(text: str) -> float:
    number = float(text)
    return number if number - number == 0 else ExactFloat(text)


def _loads(text: str, parse_float: Callable[[str], float] | None = None) -> JsonValue:
    """Return the value of a text, a member as an object of it alone: its name counts."""
    value: JsonValue
    if text.startswith('"'):
        try:
            value = json.loads(f"{{{text}}}", parse_float=parse_float)
            return value
        except ValueError:
            pass  # a string
    value = json.loads(text, parse_float=parse_float)
    return value
