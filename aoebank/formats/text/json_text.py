"""JSON with positions, exact numbers and no way to fail but a clear error.

The C scanner of the standard library does the work; positions are computed only for the few
places a finding names.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json.scanner import make_scanner
from typing import NoReturn, TypeAlias, TypeVar, cast

from aoebank.model.json_value import ExactFloat, ExactInt, JsonValue

_T = TypeVar("_T")
_FLAT = (int, float, bool, type(None))
_PLAIN = frozenset({*_FLAT, str})  # types of values that are written as `json` writes them
MAX_DEPTH = 100  # real records nest 8 deep; every recursive reader in C++ or Python takes 100
_SPACES = " \t\r\n"
_SPACE = re.compile(f"[{_SPACES}]*")
_LAST_COMMA = {
    "Expecting value": ("]", "array"),
    "Expecting property name enclosed in double quotes": ("}", "object"),
}
_STRING_OR_CONSTANT = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<constant>-?Infinity|NaN)')


class JsonTextError(ValueError):
    """Text is no JSON: what is wrong, and the character offset where.

    Attributes:
        code: Finding code, AB103 for syntax or AB108 for nesting.
    """

    def __init__(self, problem: str, offset: int, code: str = "AB103") -> None:
        super().__init__(problem)
        self.problem = problem
        self.offset = offset
        self.code = code


class _ConstantError(ValueError):
    """NaN and infinities, which Python would accept."""


def _refuse_constant(text: str) -> NoReturn:
    raise _ConstantError(text)


def _exact_float(text: str) -> float:
    number = float(text)
    return number if repr(number) == text else ExactFloat(text)


def _exact_int(text: str) -> int | float:
    try:
        number = int(text)
    except ValueError:  # beyond Python's digit limit; the spelling is what counts
        return ExactFloat(text)
    return number if text != "-0" else ExactInt(text)


_QUICK = json.JSONDecoder(parse_constant=_refuse_constant)
_Scan: TypeAlias = "Callable[[str, int], tuple[JsonValue, int]]"
_SCAN: _Scan = make_scanner(_QUICK)  # type: ignore[arg-type]  # typeshed has another class there
_EXACT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_exact_float)
_EXACT_INTS = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_exact_float, parse_int=_exact_int
)


def skip_space(text: str, offset: int) -> int:
    """Return the offset of the first character that is no JSON white space."""
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def scan(text: str, offset: int) -> tuple[JsonValue, int]:
    """Return the value that starts at `offset` and the offset behind it, fast.

    Raises:
        JsonTextError: there is no value, or one nested deeper than `MAX_DEPTH`.
    """
    try:
        value, end = _SCAN(text, offset)
    except (ValueError, StopIteration, RecursionError):
        return _decode(_QUICK, text, offset)  # tells what is wrong, and where
    if _is_too_deep(value, text, offset, end):
        raise JsonTextError("values are nested too deeply", offset, "AB108")
    return value, end


def scan_line(text: str) -> JsonValue:
    """Return the value that a whole text is, as fast as it gets; for a million short texts.

    Raises:
        JsonTextError: it is no JSON value, or something follows it.
    """
    try:
        value, end = _SCAN(text, 0)
    except (ValueError, StopIteration, RecursionError):
        value, end = scan(text, 0)  # tells what is wrong, and where
    else:
        if _is_too_deep(value, text, 0, end):
            raise JsonTextError("values are nested too deeply", 0, "AB108")
    if end != len(text):
        raise JsonTextError("text after the end of the JSON value", end, "AB107")
    return value


def loads(text: str) -> JsonValue:
    """Parse a whole text; numbers with an unusual spelling are exact ones.

    Raises:
        JsonTextError: it is no JSON value, or something follows it.

    >>> loads('[1e-4, 7]')[0].text
    '1e-4'
    """
    value, end = _decode(_EXACT_INTS if "-0" in text else _EXACT, text, skip_space(text, 0))
    end = skip_space(text, end)
    if end != len(text):
        raise JsonTextError("text after the end of the value", end, "AB107")
    return value


def _decode(decoder: json.JSONDecoder, text: str, offset: int) -> tuple[JsonValue, int]:
    value, end = _decode_any(decoder, text, offset)
    if _is_too_deep(value, text, offset, end):
        raise JsonTextError("values are nested too deeply", offset, "AB108")
    return value, end


def _decode_any(decoder: json.JSONDecoder, text: str, offset: int) -> tuple[JsonValue, int]:
    """Return a value however deep it is, as far as Python's scanner goes."""
    try:
        value, end = decoder.raw_decode(text, offset)
    except json.JSONDecodeError as error:
        raise JsonTextError(*_explain(error)) from error
    except RecursionError as error:
        raise JsonTextError("values are nested too deeply", offset, "AB108") from error
    except _ConstantError as error:
        place = _find_constant(text, offset)
        raise JsonTextError(f"{error} is no JSON number", place) from error
    except ValueError:
        if decoder is _EXACT_INTS:
            raise
        return _decode_any(_EXACT_INTS, text, offset)
    return value, end


def _explain(error: json.JSONDecodeError) -> tuple[str, int]:
    """Return message and position of a JSON syntax error as Python 3.13 words them.

    Older ones expect a value, or a name, behind a comma that is one too many.
    """
    message, place = error.msg, error.pos
    end, container = _LAST_COMMA.get(message, ("", ""))
    if end and error.doc.startswith(end, place):
        before = error.doc[:place].rstrip(_SPACES)
        if before.endswith(","):
            message = f"illegal trailing comma before end of {container}"
            place = len(before) - 1
    return (message[:1].lower() + message[1:]).removesuffix(" starting at"), place


def _find_constant(text: str, offset: int) -> int:
    for match in _STRING_OR_CONSTANT.finditer(text, offset):
        if match["constant"]:
            return match.start()
    return offset


def _is_too_deep(value: JsonValue, text: str, start: int, end: int) -> bool:
    if end - start <= MAX_DEPTH:
        return False
    if text.count("[", start, end) + text.count("{", start, end) <= MAX_DEPTH:
        return False
    layer: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        layer = [child for parent in layer for child in _containers(parent)]
        if not layer:
            return False
    return True


def _containers(value: JsonValue) -> Iterable[JsonValue]:
    children: Iterable[JsonValue] = ()
    if isinstance(value, dict):
        children = value.values()
    elif isinstance(value, list):
        children = value
    return (child for child in children if isinstance(child, dict | list))


def iter_members(text: str, offset: int) -> Iterator[tuple[str, int, int]]:
    """Yield key, offset of the key and offset of the value of the object or list at `offset`.

    In a list the keys are "0", "1", ... The text must be valid JSON. A member that a later one of
    its name hides may be nested deeper than `MAX_DEPTH`: no value has it.
    """
    is_object = text[offset] == "{"
    place = skip_space(text, offset + 1)
    number = 0
    while text[place] not in "]}":
        key, start = str(number), place
        if is_object:
            decoded, place = _decode_any(_QUICK, text, place)
            key = str(decoded)
            place = skip_space(text, skip_space(text, place) + 1)
        yield key, start, place
        place = skip_space(text, _decode_any(_QUICK, text, place)[1])
        if text[place] == ",":
            place = skip_space(text, place + 1)
        number += 1


def locate(text: str, tokens: Sequence[str], offset: int = 0) -> int:
    """Return the offset of the value at a JSON pointer, or of the nearest parent there is."""
    place = skip_space(text, offset)
    for token in tokens:
        if text[place : place + 1] not in ("{", "["):
            break
        # of two equal names the last one counts; where there is one, the rest need not be read
        is_once = "\\" not in text and text.count(f'"{token}"') == 1
        found = None
        for key, _, value in iter_members(text, place):
            if key == token:
                found = value
                if is_once:
                    break
        if found is None:
            break
        place = found
    return place


def find_duplicates(text: str, offset: int = 0) -> list[tuple[tuple[str, ...], int]]:
    """Return pointer and offset of each member whose name its object already has.

    The common case, no duplicate, costs one pass of the C scanner.
    """
    if not _has_duplicates(text, offset):
        return []
    found: list[tuple[tuple[str, ...], int]] = []
    todo: list[tuple[tuple[str, ...], int]] = [((), skip_space(text, offset))]
    while todo:
        tokens, place = todo.pop()
        if text[place] not in "{[":
            continue
        seen: set[str] = set()
        for key, key_place, value in iter_members(text, place):
            if key in seen:
                found.append(((*tokens, key), key_place))
            seen.add(key)
            todo.append(((*tokens, key), value))
    return sorted(found, key=lambda item: item[1])


def may_hold_duplicates(text: str, value: JsonValue) -> bool:
    """Return False when every string of a text is in its value too, so that no name came twice."""
    return "\\" in text or text.count('"') != 2 * _count_strings(value)


def _count_strings(value: JsonValue) -> int:
    if isinstance(value, str):
        return 1
    if isinstance(value, dict):
        own = len(value)
        return own + sum(
            _count_strings(member) for member in value.values() if type(member) not in _FLAT
        )
    if isinstance(value, list):
        return sum(_count_strings(item) for item in value if type(item) not in _FLAT)
    return 0


def _has_duplicates(text: str, offset: int) -> bool:
    seen: list[None] = []

    def pair_up(pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen.append(None)
        return members

    decoder = json.JSONDecoder(object_pairs_hook=pair_up, parse_int=_exact_int)
    decoder.raw_decode(text, skip_space(text, offset))
    return bool(seen)


def pointer(tokens: Iterable[str]) -> str:
    """Return a JSON pointer (RFC 6901).

    >>> pointer(["a/b", "0"])
    '/a~1b/0'
    """
    return "".join("/" + token.replace("~", "~0").replace("/", "~1") for token in tokens)


def storable(value: _T) -> _T:
    """Return a value as databases take it: a text, with halves of surrogate pairs spelled out.

    Names of files need not be Unicode, nor what git says of a person.

    >>> storable("a\\udcff"), storable(1)
    ('a\\\\udcff', 1)
    """
    if not isinstance(value, str):
        return value
    return cast(_T, value.encode("utf-8", "backslashreplace").decode("utf-8"))


def dumps_compact(value: JsonValue) -> str:
    """Write a value without white space, numbers as they were spelled.

    Raises:
        ValueError: it holds a NaN or an infinity, which JSON has no word for.
    """
    if _holds_exact(value):
        return _write(value, ",", ":")
    return json.dumps(value, allow_nan=False, default=_plain, separators=(",", ":"))


def dumps(value: JsonValue) -> str:
    """Write a value as `json.dumps` does by default, numbers as they were spelled.

    Raises:
        ValueError: it holds a NaN or an infinity, which JSON has no word for.
    """
    if _holds_exact(value):
        return _write(value)
    return json.dumps(value, allow_nan=False, default=_plain)


def dumps_indented(value: JsonValue, indent: str, level: int = 0) -> str:
    """Write a value as `json.dumps` does with an indent, numbers as they were spelled.

    Args:
        level: How deep the value stands; its first line is not indented.

    >>> dumps_indented({"a": [1], "b": {}}, "  ", 1)
    '{\\n    "a": [\\n      1\\n    ],\\n    "b": {}\\n  }'
    """
    if not value or not isinstance(value, Mapping | list | tuple):
        return dumps(value)
    if isinstance(value, Mapping):
        open_, close = "{}"
        items = [
            f"{dumps(name)}: {dumps_indented(item, indent, level + 1)}"
            for name, item in value.items()
        ]
    else:
        open_, close = "[]"
        items = [dumps_indented(item, indent, level + 1) for item in value]
    line = f"\n{indent * level}"
    return f"{open_}{line}{indent}" + f",{line}{indent}".join(items) + f"{line}{close}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _holds_exact(value: JsonValue) -> bool:
    if type(value) in _PLAIN:  # most values: no more than a look-up for each
        return False
    if isinstance(value, Mapping):
        return any(type(part) not in _PLAIN and _holds_exact(part) for part in value.values())
    if isinstance(value, list | tuple):
        return any(type(part) not in _PLAIN and _holds_exact(part) for part in value)
    return isinstance(value, ExactFloat | ExactInt)


def _write(value: JsonValue, comma: str = ", ", colon: str = ": ") -> str:
    if isinstance(value, ExactFloat | ExactInt):
        return value.text
    if isinstance(value, Mapping):
        members = (
            f"{json.dumps(key)}{colon}{_write(member, comma, colon)}"
            for key, member in value.items()
        )
        return "{" + comma.join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + comma.join(_write(item, comma, colon) for item in value) + "]"
    return json.dumps(value, allow_nan=False)
