"""Releases of the toolkit as data files, `schemas/runtime_kb/releases/<name>.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from aoebank.formats.release import NEWEST, Release, TilingRow
from aoebank.formats.runtime_kb.operator_schema import (
    FOLDER,
    OperatorSchema,
    SchemaField,
    StructFields,
    operator_schemas,
)
from aoebank.formats.runtime_kb.tiling_header import TilingHeader

SCHEMA = "aoebank.schema-import/1"
RELEASES = FOLDER.parent / "releases"
_NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-beta\.(\d+))?")
_NAME = re.compile(rb'"(\w+)"\s*:')
_WIDTH = 96


@cache
def known_releases() -> tuple[Release, ...]:
    """Return the releases known, the newest first."""
    readers = [
        parse_release(json.loads(path.read_text(encoding="utf-8")))
        for path in RELEASES.glob("*.json")
    ]
    return (NEWEST, *sorted(readers, key=_age, reverse=True))


def parse_release(document: Mapping[str, Any]) -> Release:
    """Return the release a document describes."""
    tilings = {op: tuple(tuple(row) for row in rows) for op, rows in document["operators"].items()}
    return Release(name=document["name"], source=document["source"], tilings=tilings)


def serialize_release(reader: Release) -> str:
    """Return the document of a release, a few fields per line."""
    head = json.dumps({"schema": SCHEMA, "name": reader.name, "source": reader.source}, indent=2)
    operators = ",\n".join(
        f"    {json.dumps(op)}: [\n{_wrapped(rows)}\n    ]"
        for op, rows in sorted(reader.tilings.items())
    )
    return f'{head.removesuffix("}").rstrip()},\n  "operators": {{\n{operators}\n  }}\n}}\n'


def make_release(name: str, source: str, headers: Iterable[TilingHeader]) -> Release:
    """Return the release that has these headers.

    Raises:
        ValueError: a key struct is another one than that of the operator here: records would
            have another identity.
    """
    known = operator_schemas()
    tilings = {}
    for header in headers:
        op = header.op(known)
        schema = known.get(op)
        if schema is not None:
            ours = [(field.name, field.c_type) for field in schema.workload.fields]
            if [row[:2] for row in header.workload] != ours:
                raise ValueError(f"the key struct of {op} is another one")
        tilings[op] = header.strategy
    return Release(name=name, source=source, tilings=tilings)


def schemas_of(reader: Release) -> Mapping[str, OperatorSchema]:
    """Return the operators as a release reads them."""
    found = dict(operator_schemas())
    for op in found.keys() & reader.tilings.keys():
        fields = [_field(row, found[op].strategy.names) for row in reader.tilings[op]]
        found[op] = replace(found[op], strategy=StructFields(fields))
    return found


def guess_release(files: Iterable[tuple[str, bytes]]) -> Release:
    """Return the newest release that knows all fields in banks; the newest of all if none does.

    A field that is there is evidence, since no older tool could have written it. One that is
    missing is none: that may be the fault to be found.

    Args:
        files: Operator and content of each runtime bank.
    """
    readers = known_releases()
    names = {op: _names(op, readers) for op in operator_schemas()}
    used: dict[str, set[str]] = {}
    for op, data in files:
        if op in names:
            used.setdefault(op, set()).update(
                name for token in set(_NAME.findall(data)) if (name := token.decode()) in names[op]
            )
    return next(
        (reader for reader in readers if all(used[op] <= _fields(op, reader) for op in used)),
        NEWEST,
    )


@cache
def known_fields(op: str) -> frozenset[str]:
    """Return the tiling fields an operator has in any release; its operator must be known."""
    rows = (row for reader in known_releases() for row in reader.tilings.get(op, ()))
    return frozenset({*operator_schemas()[op].strategy.names, *(row[0] for row in rows)})


def _names(op: str, readers: Iterable[Release]) -> set[str]:
    """Return the tiling fields of an operator in any release."""
    return set().union(*(_fields(op, reader) for reader in readers))


def _fields(op: str, reader: Release) -> set[str]:
    """Return the members of both structs."""
    schema = operator_schemas()[op]
    rows = reader.tilings.get(op)
    tiling = {row[0] for row in rows} if rows is not None else {*schema.strategy.names}
    return tiling | {*schema.workload.names}


def _field(row: TilingRow, known: Mapping[str, SchemaField]) -> SchemaField:
    """Return a field of a release, with what is known of how its operator reads it."""
    name, c_type, default = row if len(row) == 3 else (*row, None)
    field = known.get(name, SchemaField(name=name, c_type=c_type))
    return replace(field, c_type=c_type, default=default)


def _age(reader: Release) -> tuple[int, ...]:
    found = _NUMBERS.search(reader.name)
    assert found is not None  # a data file of ours
    major, minor, patch, beta = found.groups()
    return int(major), int(minor), int(patch), int(beta or 1000)


def _wrapped(rows: Iterable[TilingRow]) -> str:
    lines = [""]
    for row in rows:
        text = json.dumps(row)
        if lines[-1] and len(lines[-1]) + len(text) + 2 > _WIDTH - 6:
            lines.append("")
        lines[-1] += f", {text}" if lines[-1] else text
    return ",\n".join(f"      {line}" for line in lines)
