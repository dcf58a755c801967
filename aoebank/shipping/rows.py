"""A bank as rows of plain values: one for each record, one for each line of other files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from aoebank.errors import BankFormatError, shell_word
from aoebank.formats.protocol import Format, ParsedFile, raise_if_broken
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import get_format
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Alternative, Record
from aoebank.storage.foreign_names import is_name_in_bank
from aoebank.storage.git.attributes import QUARANTINE
from aoebank.storage.sides.side import Side

_ANSWER = ("workload", "strategy", "cost_us", "origin", "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRow:
    """One row.

    Attributes:
        file: Below the root of the bank.
        format: Of a bank file; empty for a side-car and the quarantine.
        record: Members of a record; None for a bank file without one, and for other files.
        text: A line of another file, with its line end.
    """

    file: str
    format: str = ""
    record: Mapping[str, JsonValue] | None = None
    text: str = ""


def rows_of(side: Side) -> Iterator[BankRow]:
    """Yield the rows of a bank.

    Raises:
        BankFormatError: a file is broken, or has something rows cannot hold.
    """
    for name in side.names():
        parsed = side.load(name)
        if parsed is None:
            continue
        raise_if_broken(parsed)
        companion = parsed.format.companion(Path(name))
        if companion is not None and side.read_bytes(companion.as_posix()) is not None:
            raise BankFormatError(
                "has a binary twin, which no row can hold",
                path=parsed.path,
                got=companion.name,
                hint=f"aoebank pack {shell_word(side.label)} -o bank.tar.gz takes both along",
            )
        rows = [
            BankRow(file=name, format=parsed.format.name, record=_members(record))
            for record in _records(parsed)
        ]
        yield from rows or [BankRow(file=name, format=parsed.format.name)]
        yield from _lines(side, f"{name}{SUFFIX}")
    yield from _lines(side, QUARANTINE)


def files_of(rows: Iterable[BankRow], where: Path) -> dict[str, bytes]:
    """Return the files rows stand for, by name.

    Args:
        where: What they were read from, for messages.

    Raises:
        BankFormatError: a row is no record of its format, or has a name that leads elsewhere.
    """
    records: dict[str, dict[str, Record]] = {}
    formats: dict[str, str] = {}
    texts: dict[str, list[str]] = {}
    for row in rows:
        _demand_inside(row.file, where)
        if not row.format:
            texts.setdefault(row.file, []).append(row.text)
            continue
        formats[row.file] = row.format
        found = records.setdefault(row.file, {})
        if row.record is not None:
            record = _record(row, row.record, where)
            found[record.key] = record
    files = {name: "".join(lines).encode("utf-8") for name, lines in texts.items()}
    for name, found in records.items():
        format_ = _format(formats[name], where)
        empty = format_.parse(format_.empty, Path(name))
        files[name] = format_.serialize(empty, found)
    return files


def _records(parsed: ParsedFile) -> Iterator[Record]:
    for number in range(len(parsed)):
        yield parsed.format.record(parsed, number)


def _members(record: Record) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {"key": record.key}
    if record.op_type is not None:
        members["op_type"] = record.op_type
    members |= _answer(record)
    if record.alternatives:
        members["alternatives"] = [_answer(other) for other in record.alternatives]
    return members


def _answer(answer: Record | Alternative) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {"workload": answer.workload, "strategy": answer.strategy}
    if answer.cost_us is not None:
        members["cost_us"] = answer.cost_us
    if answer.origin is not None:
        members["origin"] = answer.origin
    if answer.extra:
        members["extra"] = dict(answer.extra)
    return members


def _record(row: BankRow, members: Mapping[str, JsonValue], where: Path) -> Record:
    format_ = _format(row.format, where)
    name = format_.parse_name(PurePosixPath(row.file).name)
    try:
        others = members.get("alternatives", [])
        answers = [_values(other) for other in others] if isinstance(others, list) else []
        return Record(
            key=str(members["key"]),
            format=row.format,
            soc_version=name.soc_version if name else None,
            op_type=members.get("op_type"),  # type: ignore[arg-type]
            alternatives=tuple(Alternative(**answer) for answer in answers),
            **_values(members),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BankFormatError(
            f"a row is no record: {error}", path=where, got=f"{row.file}: {members.get('key')!r}"
        ) from error


def _values(members: object) -> dict[str, Any]:
    if not isinstance(members, Mapping):
        raise TypeError(f"an answer is an object, not {type(members).__name__}")
    return {
        "workload": members["workload"],
        "strategy": members["strategy"],
        **{name: members[name] for name in _ANSWER[2:] if name in members},
    }


def _lines(side: Side, name: str) -> Iterator[BankRow]:
    data = side.read_bytes(name)
    try:
        text = (data or b"").decode("utf-8")
    except UnicodeDecodeError as error:
        raise BankFormatError("is not UTF-8", path=Path(name), hint="aoebank validate") from error
    for line in text.splitlines(keepends=True) if "\r" not in text else [text]:
        yield BankRow(file=name, text=line)


def _demand_inside(name: str, where: Path) -> None:
    if not is_name_in_bank(name):
        raise BankFormatError("a row has a file that would lie elsewhere", path=where, got=name)


def _format(name: str, where: Path) -> Format:
    try:
        return get_format(name)
    except ValueError as error:
        raise BankFormatError(f"a row has no known format: {error}", path=where) from error
