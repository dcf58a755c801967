"""Releases of the toolkit as data files, `schemas/runtime_kb/releases/<name>.json`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from aoebank.formats.release import NEWEST, Release, ReleaseGuess, TilingRow
from aoebank.formats.runtime_kb.operator_schema import (
    C_TYPES,
    FOLDER,
    OperatorSchema,
    SchemaField,
    StructFields,
    operator_schemas,
)

SUFFIX = "_tuning_tiling.h"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KEY = re.compile(r"\bstruct\s+\w*Args\w*\s*\{(.*?)\}\s*;", re.DOTALL)
_MEMBER = re.compile(r"([\w:]+)\s+(\w+)\s*(?:=\s*[\w:]+\s*)?;")
_TILING = re.compile(
    r"\bBEGIN_TUNING_TILING_DEF\s*\(\s*(\w+)\s*\)(.*?)\bEND_TUNING_TILING_DEF\b", re.DOTALL
)
_FIELD = re.compile(
    r"\bTUNING_TILING_DATA_FIELD_DEF\w*\s*"
    r"\(\s*([\w:]+)\s*,\s*(\w+)\s*(?:,\s*(-?\w+)\s*)?\)"
)
_CLASS = re.compile(r"Tun+erTiling$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TilingHeader:
    """The structs of one operator."""

    name: str  # Of the tiling class, without its ending: the operator, or a start of it
    workload: tuple[TilingRow, ...]  # Members of the key struct
    strategy: tuple[TilingRow, ...]  # Members of the tiling struct

    def op(self, known: Collection[str]) -> str:
        """Return the operator meant: one of `known`, the version of it too, or the name.

        >>> header = TilingHeader(name="Conv3DBackpropInput", workload=(), strategy=())
        >>> header.op(["Conv3D", "Conv3DBackpropInputV2"])
        'Conv3DBackpropInputV2'
        """
        if self.name in known:
            return self.name
        versions = [op for op in known if re.fullmatch(rf"{re.escape(self.name)}V\d+", op)]
        return versions[0] if len(versions) == 1 else self.name


def parse_header(text: str) -> TilingHeader:
    """Return the structs of a `*_tuning_tiling.h` header of ops-nn: what is hashed, what is read.

    Facts are taken from a header, names, C types, defaults and their order, no text.

    Raises:
        ValueError: it does not have one key struct and one tiling struct, or a member has a
            type or a default that is not known; the message says which.
    """
    plain = _COMMENT.sub(" ", text)
    keys, tilings = _KEY.findall(plain), _TILING.findall(plain)
    if len(keys) != 1 or len(tilings) != 1:
        raise ValueError(f"{len(keys)} key and {len(tilings)} tiling structs, expected 1 of both")
    name, body = tilings[0]
    if body.count("FIELD_DEF") != len(_FIELD.findall(body)):
        raise ValueError(f"a field of {name} is written in a way that is not known")
    return TilingHeader(
        name=_CLASS.sub("", name),
        workload=tuple(_row(*member) for member in _MEMBER.findall(keys[0])),
        strategy=tuple(_row(*field) for field in _FIELD.findall(body)),
    )


def _row(c_type: str, name: str, default: str = "") -> TilingRow:
    if c_type not in C_TYPES:
        raise ValueError(f"member {name} has the type {c_type}, expected one of {C_TYPES}")
    if not default:
        return name, c_type
    words = {"true": 1, "false": 0}
    return name, c_type, words[default] if default in words else int(default, 0)


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
    """Return the release of some headers.

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


def guess_release(files: Iterable[tuple[str, bytes]]) -> ReleaseGuess:
    """Return the release that explains the records of banks best, of equal ones the newest.

    A field a release does not know is evidence against it, and so is a field without a default
    that no record of an operator has. One that some of them lack is none: that is a fault to be
    found. Of releases with as many operators against them, fewer missing fields count more
    than fewer unknown ones: no tool leaves out what its own reader needs.

    Args:
        files: Operator and content of each runtime bank.
    """
    readers = known_releases()
    shapes = {op: _Shapes(op, readers) for op in operator_schemas()}
    for op, data in files:
        if op in shapes:
            shapes[op].add(data)
    used = [found for found in shapes.values() if found.counts]
    fits = {reader.name: sum((found.fit(reader) for found in used), _Fit()) for reader in readers}
    best = min(readers, key=lambda reader: fits[reader.name].rank)
    own = fits[best.name]
    equals = [name for name, fit in fits.items() if fit.rank == own.rank and name != best.name]
    records = sum(sum(found.counts.values()) for found in used)
    return ReleaseGuess(
        release=best,
        explained=records - own.unexplained,
        records=records,
        equals=tuple(equals),
        others={
            name: records - fit.unexplained
            for name, fit in fits.items()
            if name not in (best.name, *equals)
        },
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """Fit of the records of operators to a release."""

    against: int = 0  # Operators whose records speak against it
    missing: int = 0  # Records without a field it needs
    unknown: int = 0  # Records with a field it does not know
    unexplained: int = 0  # Records with either

    @property
    def rank(self) -> tuple[int, int, int]:
        return self.against, self.missing, self.unknown

    def __add__(self, other: _Fit) -> _Fit:
        return _Fit(
            against=self.against + other.against,
            missing=self.missing + other.missing,
            unknown=self.unknown + other.unknown,
            unexplained=self.unexplained + other.unexplained,
        )


class _Shapes:
    """The sets of fields records of one operator have, and how many have each."""

    def __init__(self, op: str, readers: Iterable[Release]) -> None:
        self.counts: Counter[frozenset[str]] = Counter()
        self._op = op
        self._known = _names(op, readers)
        self._seen: dict[tuple[bytes, ...], frozenset[str]] = {}

    def add(self, data: bytes) -> None:
        """Count the records of a file; names are enough, so nothing is parsed."""
        for line in data.split(b"\n"):
            tokens = tuple(_NAME.findall(line))
            if not tokens:
                continue
            shape = self._seen.get(tokens)
            if shape is None:
                names = frozenset(token.decode() for token in tokens)
                shape = self._seen[tokens] = names & self._known
            self.counts[shape] += 1

    def fit(self, reader: Release) -> _Fit:
        """Return the fit of the records to a release."""
        struct = schemas_of(reader)[self._op].strategy
        needed = {field.name for field in struct.fields if field.is_required}
        own = _fields(self._op, reader)
        missing = {shape: number for shape, number in self.counts.items() if needed - shape}
        unknown = {shape: number for shape, number in self.counts.items() if shape - own}
        had = frozenset().union(*self.counts)
        return _Fit(
            against=bool(needed - had) + bool(unknown),
            missing=sum(missing.values()),
            unknown=sum(unknown.values()),
            unexplained=sum((missing | unknown).values()),
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
