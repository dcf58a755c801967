"""Read the next line the way the last one was read, when only its numbers differ.

Banks are written by programs: a million lines with the same members in the same order. Such a
line needs no JSON reader; one regular expression, made of the line before, both proves that it
is well-formed and cuts out the values of the key struct. What does not fit is read as JSON, so
nothing depends on this but time: 10 us per record instead of 20.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from aoebank.formats.runtime_kb.operator_schema import OperatorSchema
from aoebank.formats.text import json_text
from aoebank.model.json_value import JsonValue

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false')
# possessive, and no alternatives where they can be avoided: half the time of the usual way
_INT = rb"-?(?!0[0-9])[0-9]++"
_FLOAT = _INT + rb"(?:\.[0-9]++(?:[eE][+-]?[0-9]++)?|[eE][+-]?[0-9]++)"
_BOOL = rb"true|false"
_MOST_SPELLINGS = 100_000
_LONGEST_LINE = 16_384  # bytes; a pattern takes 130 bytes of memory per byte, real lines have 1,500
_MOST_TEMPLATES = 8  # files mix a few writers at most
TEMPLATE_AFTER = 500  # lines read as JSON: making a template takes as long as it saves on these


class _Values(dict[bytes, object]):
    """Values by their spelling: the same few numbers come again and again."""

    def __missing__(self, spelling: bytes) -> object:
        if len(self) > _MOST_SPELLINGS:
            self.clear()
        value: object = spelling == b"true"
        if spelling[-1:] != b"e":  # as true and false end
            value = int(spelling) if spelling.lstrip(b"-").isdigit() else float(spelling)
        self[spelling] = value
        return value


class LineTemplate:
    """One way to write a line: its members in their order, numbers left open."""

    def __init__(
        self,
        schema: OperatorSchema,
        pattern: re.Pattern[bytes],
        order: Sequence[int],
        pack: Callable[..., bytes],
    ) -> None:
        self.schema = schema
        self._match = pattern.fullmatch
        self._order = itemgetter(*order)
        self._pack = pack
        self._value = _Values().__getitem__

    def pack(self, raw: bytes) -> bytes | None:
        """Return the packed key struct of a line, or None if it has to be read as JSON."""
        match = self._match(raw)
        if match is None:
            return None
        try:
            return self._pack(*map(self._value, self._order(match.groups())))
        except (struct.error, OverflowError, ValueError):  # the reader wraps it around
            return None


class LineTemplates:
    """The ways lines of a file were written so far, the last one used first.

    Args:
        after: Lines read as JSON before the first template is made.
    """

    def __init__(self, after: int = TEMPLATE_AFTER) -> None:
        self._known: list[LineTemplate] = []
        self._wait = after

    def find(self, raw: bytes) -> tuple[LineTemplate, bytes] | None:
        """Return a template that fits a line, and the packed key struct; None if none fits."""
        for number, template in enumerate(self._known):
            packed = template.pack(raw)
            if packed is not None:
                if number:
                    self._known.insert(0, self._known.pop(number))
                return template, packed
        return None

    def learn(self, raw: bytes, value: Mapping[str, JsonValue], schema: OperatorSchema) -> None:
        """Remember how a line is written that was read as JSON and has nothing odd about it."""
        if self._wait:
            self._wait -= 1
        elif len(self._known) < _MOST_TEMPLATES and len(raw) <= _LONGEST_LINE:
            template = _make(raw, value, schema)
            if template is not None:
                self._known.insert(0, template)


def _make(
    raw: bytes, value: Mapping[str, JsonValue], schema: OperatorSchema
) -> LineTemplate | None:
    workload = value["info_dict"]
    if not raw.isascii() or not isinstance(workload, Mapping):
        return None
    text = raw.decode("ascii")
    pack = schema.workload.exact_packer(workload)
    if pack is None or json_text.may_hold_duplicates(text, dict(value)):
        return None
    start = json_text.locate(text, ("info_dict",))
    fields = {
        place: name
        for name, _, place in json_text.iter_members(text, start)
        if name in schema.workload.names
    }
    parts, names, done = [], [], 0
    for token in _TOKEN.finditer(raw):
        place = token.start()
        pattern = _pattern(token[0])
        if place in fields:
            names.append(fields[place])
        parts += [re.escape(raw[done:place]), b"(" if place in fields else b"(?:", pattern, b")"]
        done = token.end()
    parts.append(re.escape(raw[done:]))
    order = [names.index(name) for name in schema.workload.names]
    return LineTemplate(schema, re.compile(b"".join(parts)), order, pack)


def _pattern(token: bytes) -> bytes:
    """Return a pattern for the values in the place of a token: its JSON type, but strings as is."""
    if token.startswith(b'"'):
        return re.escape(token)
    if token in (b"true", b"false"):
        return _BOOL
    return _INT if token.lstrip(b"-").isdigit() else _FLOAT
