"""Tiling fields that are not there: from those that spoil the tiling to those nobody misses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aoebank.formats.runtime_kb.operator_schema import SchemaField
from aoebank.formats.text.problem import Problem

_MESSAGES = {
    "AB209": "tiling fields without a default are missing: the reader leaves them uninitialised",
    "AB217": "tiling fields are missing that count on one path of the operator only",
    "AB216": "tiling fields are missing that the operator does not take from records",
    "AB210": "tiling fields with a default, or reserved ones, are missing",
}  # the worst first


def missing_fields(absent: Sequence[SchemaField]) -> Iterator[Problem]:
    """Yield a problem per kind of missing field, the worst kind first."""
    groups: dict[str, list[SchemaField]] = {code: [] for code in _MESSAGES}
    for field in absent:
        groups[_code(field)].append(field)
    for code, fields in groups.items():
        if fields:
            yield _problem(code, fields)


def _code(field: SchemaField) -> str:
    if field.is_required:
        return "AB209"
    if field.has_fallback:
        return "AB210"
    return "AB217" if field.is_read else "AB216"


def _problem(code: str, fields: Sequence[SchemaField]) -> Problem:
    message, expected, hint = _MESSAGES[code], None, ""
    if code == "AB209":
        values = ", ".join(f"{field.name} = {field.value}" for field in fields if field.value)
        expected = "every field the operator reads"
        hint = f"add {values or 'the fields'}, or tune again; a reader older than a field is safe"
    elif code == "AB217":
        paths = " and ".join(dict.fromkeys(field.path for field in fields))
        expected = f"every field of the {paths} path"
        hint = "harmless unless the operator takes that path; tune again if it does"
    return Problem(
        code=code,
        tokens=("knowledge",),
        message=message,
        expected=expected,
        hint=hint,
        got=f"no {', '.join(field.name for field in fields)}",
    )
