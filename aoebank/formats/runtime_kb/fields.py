"""Fields of a key or tiling struct: missing, unknown, or of a value the struct cannot hold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from aoebank.formats.release import StrategyField
from aoebank.formats.runtime_kb.operator_schema import (
    FieldError,
    SchemaField,
    StructFields,
    convert,
    is_exact,
)
from aoebank.formats.text import json_text
from aoebank.formats.text.problem import Problem, wrong_type
from aoebank.model.json_value import JsonValue

_MESSAGES = {
    "AB209": "tiling fields without a default are missing: the reader leaves them uninitialised",
    "AB218": "tiling fields without a default are missing, and no known kernel uses what they make",
    "AB217": "tiling fields are missing that count on one path of the operator only",
    "AB216": "tiling fields are missing that the operator does not take from records",
    "AB210": "tiling fields with a default, or reserved ones, are missing",
}  # the worst first


def strategy_field(field: SchemaField) -> StrategyField:
    """Return a tiling field as whoever changes records has to know it."""

    def accepts(value: JsonValue) -> bool:
        try:
            return is_exact(field, value)
        except FieldError:
            return False

    return StrategyField(
        name=field.name,
        expected="true or false" if field.code == "?" else f"a number that fits {field.c_type}",
        is_required=field.is_required,
        accepts=accepts,
    )


def missing_fields(absent: Sequence[SchemaField]) -> Iterator[Problem]:
    """Yield a problem per kind of missing field, the worst kind first."""
    groups: dict[str, list[SchemaField]] = {code: [] for code in _MESSAGES}
    for field in absent:
        groups[_code(field)].append(field)
    for code, fields in groups.items():
        if fields:
            yield _problem(code, fields)


def unknown_fields(
    struct: StructFields, values: Mapping[str, JsonValue], part: str
) -> Iterator[Problem]:
    """Yield names a struct does not have, each with the one that may be meant."""
    names = struct.names
    if values.keys() <= names.keys():
        return
    for name in sorted(values.keys() - names.keys()):
        absent = [known for known in names if known not in values]  # no member may be there twice
        close = get_close_matches(name.strip(), absent, n=1) if len(name) < 100 else []
        yield Problem(
            code="AB211",
            tokens=(part, name),
            message=f"unknown field of {part}: the reader passes over it",
            got=json_text.dumps(name),
            expected=close[0] if close else None,
            hint="rename it" if close else "remove it",
        )


def value_problems(
    struct: StructFields, values: Mapping[str, JsonValue], part: str
) -> Iterator[Problem]:
    """Yield values that the C type cannot hold, or that are converted to fit it."""
    if struct.is_exact(values):
        return
    for field in struct.fields:
        if field.name not in values:
            continue
        value, tokens = values[field.name], (part, field.name)
        try:
            stored = convert(field, value)
        except FieldError as error:
            yield wrong_type(value, tokens, error.expected)
            continue
        if not is_exact(field, value):
            yield _inexact(field, value, stored, tokens)


def _inexact(
    field: SchemaField, value: JsonValue, stored: float, tokens: tuple[str, ...]
) -> Problem:
    code, message = "AB405", f"value is outside the range of {field.c_type}"
    if isinstance(value, bool) or (field.code not in "fd" and _whole(value) == stored):
        code, message = "AB407", f"number is converted to {field.c_type} by the reader"
    return Problem(
        code=code,
        tokens=tokens,
        message=message,
        got=spell(value),
        expected=field.c_type,
        hint=f"write {json_text.dumps(stored)}, which the reader sees, or tune again"
        if math.isfinite(stored)
        else "tune again",
    )


def _whole(value: JsonValue) -> int | None:
    return int(value) if isinstance(value, float) and abs(value) < 2.0**64 else None


def spell(value: JsonValue) -> str:
    """Return a value as text, cut where nobody reads on."""
    return str(value) if len(str(value)) < 40 else f"{str(value)[:40]}..."


def _code(field: SchemaField) -> str:
    if field.is_required:
        return "AB209"
    if field.has_fallback:
        return "AB210"
    if field.is_read and field.reaches:
        return "AB218"
    return "AB217" if field.is_read else "AB216"


def _problem(code: str, fields: Sequence[SchemaField]) -> Problem:
    message, expected, hint = _MESSAGES[code], None, ""
    values = ", ".join(f"{field.name} = {field.value}" for field in fields if field.value)
    if code == "AB209":
        expected = "every field the operator reads"
        hint = f"add {values or 'the fields'}, or tune again; a reader older than a field is safe"
    elif code == "AB218":
        made = ", ".join(dict.fromkeys(field.reaches for field in fields))
        expected = f"a value, since the operator makes {made} of it"
        hint = f"add {values or 'the fields'}; records without have worked so far"
    elif code == "AB217":
        paths = " and ".join(dict.fromkeys(field.path for field in fields))
        expected = f"every field of the {paths} path"
        hint = "tune again if the operator takes that path; it is harmless else"
    return Problem(
        code=code,
        tokens=("knowledge",),
        message=message,
        expected=expected,
        hint=hint,
        got=f"no {', '.join(field.name for field in fields)}",
    )
