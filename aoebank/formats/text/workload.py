"""A workload in one short line, for people."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from aoebank.formats.text.json_text import dumps_compact
from aoebank.model.digest import sha256_of
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Record

WIDTH = 160
_OP_NAME = re.compile(r'"op"\s*:\s*"([^"\\]{1,40})"')


def workload_text(record: Record, width: int = WIDTH) -> str:
    """Return what a record is about; a text that is cut ends in a digest of the whole.

    A runtime bank names every field of its key struct, most of them 0 or 1: those are left
    out, except for data types.

    >>> workload_text(Record(key="k", strategy={}, workload={"m": 16, "shape": [1, 3]}))
    'm=16 shape=[1,3]'
    """
    workload = record.workload
    if record.format == "graph":
        return _short(_operators(dumps_compact(workload)), workload, width, is_cut=True)
    if isinstance(workload, Mapping):
        has_zeros = record.format != "runtime_kb"
        text = _members(workload, has_zeros=has_zeros)
    else:
        text = dumps_compact(workload)
    return _short(text, workload, width, is_cut=False)


def _members(workload: Mapping[str, JsonValue], *, has_zeros: bool) -> str:
    return " ".join(
        f"{_name(name)}={_value(value)}"
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
