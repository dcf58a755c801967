"""A workload in one short line, for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from aoebank.formats.text.json_text import dumps_compact
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

WIDTH = 160
NameOf: TypeAlias = Callable[[str | None, str, JsonValue], str]  # as Format.value_name
_OP_NAME = re.compile(r'"op"\s*:\s*"([^"\\]{1,40})"')


def workload_text(record: Record, width: int = WIDTH, *, name_of: NameOf | None = None) -> str:
    """Return the workload of a record as text; a text that is cut ends in a digest of the whole.

    A runtime bank names every field of its key struct, most of them 0 or 1: those are left
    out, except for data types.

    Args:
        name_of: Tells what a number stands for, which is then told beside it: `a_dtype=1(FLOAT16)`.

    >>> workload_text(Record(key="k", strategy={}, workload={"m": 16, "shape": [1, 3]}))
    'm=16 shape=[1,3]'
    """
    workload = record.workload
    if record.format == "graph":
        return _short(_operators(dumps_compact(workload)), workload, width, is_cut=True)
    if isinstance(workload, Mapping):
        has_zeros = record.format != "runtime_kb"
        text = _members(workload, has_zeros=has_zeros, op_type=record.op_type, name_of=name_of)
    else:
        text = dumps_compact(workload)
    return _short(text, workload, width, is_cut=False)


def _members(
    workload: Mapping[str, JsonValue],
    *,
    has_zeros: bool,
    op_type: str | None,
    name_of: NameOf | None,
) -> str:
    def meaning(name: str, value: JsonValue) -> str:
        word = name_of(op_type, name, value) if name_of is not None else ""
        return f"({word})" if word else ""

    return " ".join(
        f"{_name(name)}={_value(value)}{meaning(name, value)}"
        for name, value in workload.items()
        if has_zeros or "dtype" in name.lower() or value not in (0, 1)
    )


def _name(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else dumps_compact(name)


def _value(value: JsonValue) -> str:
    if type(value) is int or (isinstance(value, str) and value.isidentifier() and value.isascii()):
        return str(value)
    return dumps_compact(value)


def _operators(text: str) -> str:
    """Return the operators of a subgraph, each with how often it is in it."""
    counts = Counter(_OP_NAME.findall(text))
    return _joined(f"{name} x{number}" if number > 1 else name for name, number in counts.items())


def _joined(words: Iterable[str]) -> str:
    return " ".join(words) or "subgraph"


def _short(text: str, workload: JsonValue, width: int, *, is_cut: bool) -> str:
    if len(text) <= width and not is_cut:
        return text
    digest = sha256_of(dumps_compact(workload).encode("utf-8"))[:8]
    cut = text if len(text) <= width else f"{text[: width - 3]}..."
    return f"{cut} ({digest})"
