"""A reader of bank files that shares nothing with the product: Python's json and little else.

It reads whole files as their readers do and says what each key answers. Where it would have to know
a C struct, it takes the members as they are spelled: two keys of its own can be one to a reader.
"""

from __future__ import annotations

import ast
import csv
import json
from collections.abc import Callable, Mapping
from typing import Any

BOM = "\ufeff"
NAMES = ("kernel_name", "test_case", "op_name", "platform")  # of a cube shape: they name it only


class FindError(AssertionError):
    """Something that must not be: a find."""


class NotReadableError(ValueError):
    """The file is none its readers take."""


_ODD = (
    *(LookupError, ValueError, TypeError, AttributeError, SyntaxError),
    *(RecursionError, csv.Error),
)


def read_pairs(format_name: str, data: bytes) -> list[tuple[str, str]]:
    """Return identity and answer of each record of a file as canonical texts, in file order.

    Raises:
        NotReadableError: Python's json does not take it, or it is not built as its format.
    """
    try:
        return _READERS[format_name](data.decode("utf-8").removeprefix(BOM))
    except _ODD as error:
        raise NotReadableError(str(error)) from error
    except StopIteration as error:
        raise NotReadableError("no member with records") from error


def read_values(data: bytes) -> list[object]:
    """Return the JSON values of a file, one behind the other, members as pairs.

    Raises:
        NotReadableError: it is not UTF-8, or no JSON.
    """
    try:
        return _values(data.decode("utf-8").lstrip(BOM), object_pairs_hook=list)
    except (ValueError, RecursionError) as error:
        raise NotReadableError(str(error)) from error


def canonical(value: object) -> str:
    """Return one text for values no reader tells apart."""
    return json.dumps(value, sort_keys=True)


def _integer(text: str) -> object:
    return int(text) if len(text) < 4000 else text  # Python refuses longer ones


def _values(text: str, **options: Any) -> list[object]:
    decoder, values, place = json.JSONDecoder(parse_int=_integer, **options), [], 0
    while text[place:].strip(" \t\r\n"):
        place += len(text[place:]) - len(text[place:].lstrip(" \t\r\n"))
        value, place = decoder.raw_decode(text, place)
        values.append(value)
    return values


def _one(text: str, **options: Any) -> Any:
    (value,) = _values(text, **options)
    return value


class _Members(list[tuple[str, Any]]):
    """The members of an object, each of them, also those with a name that comes again."""


def _members(text: str) -> list[tuple[str, Any]]:
    """Return the members of the one object a text is."""
    found = _one(text, object_pairs_hook=_Members)
    if not isinstance(found, _Members):
        raise TypeError("no object")
    return [(name, _without_pairs(value)) for name, value in found]


def _without_pairs(value: Any) -> Any:
    if isinstance(value, _Members):
        return {name: _without_pairs(member) for name, member in value}
    return [_without_pairs(item) for item in value] if isinstance(value, list) else value


def _unified(text: str) -> list[tuple[str, str]]:
    return [(key, canonical(value)) for key, value in _members(text)]


def _vector(text: str) -> list[tuple[str, str]]:
    return [(key, canonical(_string(value))) for key, value in _members(text)]


def _string(value: Any) -> Any:
    """Return the value in a string, where there is one."""
    try:
        return _one(value) if isinstance(value, str) else [value]
    except (ValueError, RecursionError):
        return [value]


def _runtime(text: str) -> list[tuple[str, str]]:
    lines = [json.loads(line, parse_int=_integer) for line in text.split("\n") if line.strip()]
    found: list[Mapping[str, Any]] = [line for line in lines if line != {} or len(lines) > 1]
    return [(canonical([line["op"], line["info_dict"]]), canonical(line)) for line in found]


def _cube(text: str) -> list[tuple[str, str]]:
    found: list[Any] = [value for value in _values(text) if value != {}]
    return [
        (
            canonical({name: value["shape"][name] for name in value["shape"] if name not in NAMES}),
            canonical(value),
        )
        for value in found
    ]


def _graph(text: str) -> list[tuple[str, str]]:
    found: list[Any] = _values(text)
    return [
        (str(value["graphID"]), canonical(value))
        for value in found
        if not ("version" in value and "graphID" not in value)
    ]


def _gradient(text: str) -> list[tuple[str, str]]:
    return [(item["modelhash"], canonical(item)) for item in _one(text)]


def _rows(text: str) -> list[tuple[str, str]]:
    return [
        (str(int(key)), canonical(value))
        for key, value in _members(text)
        if key != "triton_version"
    ]


def _trials(text: str) -> list[tuple[str, str]]:
    found: list[Any] = [_one(line) for line in text.split("\n") if line.strip()]
    return [
        (canonical([workload, target, arguments]), canonical([trace, times]))
        for workload, (trace, times, target, arguments) in found
    ]


def _dictionary(text: str) -> list[tuple[str, str]]:
    (node,) = ast.parse(text).body
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
        raise TypeError("no dictionary")
    pairs = zip(node.value.keys, node.value.values, strict=True)
    read = ast.literal_eval
    return [(str(read(key)), canonical(read(value))) for key, value in pairs if key]


def _table(text: str) -> list[list[str]]:
    rows = [row for row in csv.reader(text.split("\n"), strict=True) if row]
    if {len(row) for row in rows} != {len(rows[0])}:
        raise ValueError("rows of several lengths")
    return rows


def _tuned(text: str) -> list[tuple[str, str]]:
    head, *rows = _table(text)
    keys = [place for place, name in enumerate(head) if name in ("cu_num", "M", "N", "K")]
    return [(canonical([row[place].strip() for place in keys]), canonical(row)) for row in rows]


def _solutions(text: str) -> list[tuple[str, str]]:
    rows = [line for line in text.split("\n") if not line.startswith("Validator,")]
    return [(canonical(row[:2]), canonical(row[2:])) for row in _table("\n".join(rows))]


def _configurations(text: str) -> list[tuple[str, str]]:
    """Return results of Kernel Tuner's cache; one that is open is closed as its reader does."""
    try:
        head = _one(text, object_pairs_hook=_Members)
    except ValueError:
        closed = f"{text.strip().removesuffix(',')}}}\n}}"
        head = _one(closed, object_pairs_hook=_Members)
    results = next(member for name, member in head if name == "cache")
    if not isinstance(results, _Members):
        raise TypeError("no object")
    return [(key, canonical(_without_pairs(value))) for key, value in results]


def _results(text: str) -> list[tuple[str, str]]:
    items = next(member for name, member in _members(text) if name == "results")
    return [(canonical(item["configuration"]), canonical(item)) for item in items]


_READERS: Mapping[str, Callable[[str], list[tuple[str, str]]]] = {
    "unified": _unified,
    "vector": _vector,
    "runtime_kb": _runtime,
    "cube": _cube,
    "graph": _graph,
    "gradient": _gradient,
    "vllm": _rows,
    "aiter": _tuned,
    "aiter_triton": _unified,
    "akg": _unified,
    "flashinfer": _dictionary,
    "metaschedule": _trials,
    "tunable_op": _solutions,
    "kernel_tuner": _configurations,
    "t4": _results,
}
