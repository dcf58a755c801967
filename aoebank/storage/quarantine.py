"""The quarantine of a bank: `<root>/.aoebank/quarantine.jsonl`, committed with the bank.

One JSON object per line, sorted, so that two branches rarely touch the same lines. A line that
cannot be read is an error and not passed over: it may be the one that keeps a bad record out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from pathlib import Path

from aoebank.errors import (
    BankFormatError,
    RecordError,
)
from aoebank.formats.protocol import ParsedFile
from aoebank.formats.registry import get_format
from aoebank.formats.text import json_text
from aoebank.formats.text.checks import BOM
from aoebank.model.finding import Location
from aoebank.model.json_value import JsonValue
from aoebank.model.quarantine import Quarantine, QuarantineEntry, sorted_entries
from aoebank.storage.bank import read_file
from aoebank.storage.tree import iter_folders_above

FOLDER = ".aoebank"
FILE = "quarantine.jsonl"
SCHEMA = "aoebank.quarantine_entry/1"
_TEXTS = (
    "key",
    "reason",
    "who",
    "when",
    "soc_version",
    "op_type",
    "strategy_sha256",
    "ticket",
    "evidence",
)
_LINE_HINT = "restore the line from git, or remove it: then it no longer keeps a record out"
_REQUIRED = ("key", "reason", "who", "when")
_MEMBERS = (
    "schema",
    "soc_version",
    "op_type",
    "format",
    "key",
    "strategy_sha256",
    "reason",
    "ticket",
    "until",
    "who",
    "when",
    "evidence",
)


def quarantine_path(root: Path) -> Path:
    """Return the path of a bank's quarantine."""
    return root / FOLDER / FILE


def find_quarantine_root(path: Path) -> Path | None:
    """Return the bank root at or above `path` that has a quarantine, or None."""
    for folder in iter_folders_above(path):
        try:
            if os.path.lexists(quarantine_path(folder)):  # one that leads nowhere is an error
                return folder
        except OSError:
            return None
    return None


def load_quarantine(root: Path) -> Quarantine:
    """Read the quarantine of a bank; a bank without one has no entries.

    Raises:
        BankFormatError: a line is no entry; the first one is named.
        BankPathError: the file cannot be read.
    """
    path = quarantine_path(root)
    data = read_file(path) or b""
    return parse_quarantine(data, path)


def find_entry(
    parsed: ParsedFile, number: int, quarantine: Quarantine, *, today: date
) -> QuarantineEntry | None:
    """Return the entry that keeps a record of a file out; None for one that cannot be read."""
    if not quarantine.holds_key(parsed.keys[number]):
        return None
    try:
        record = parsed.format.record(parsed, number)
    except RecordError:
        return None
    return quarantine.find(record, today=today)


def parse_quarantine(data: bytes, path: Path) -> Quarantine:
    """Return the entries of a quarantine file.

    Raises:
        BankFormatError: a line is no entry.
    """
    return Quarantine(tuple(_iter_entries(data, path)))


def serialize_quarantine(entries: Iterable[QuarantineEntry]) -> bytes:
    """Return the file of these entries: sorted, one line each."""
    lines = (json_text.dumps(entry_document(entry)) for entry in sorted_entries(entries))
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def entry_document(entry: QuarantineEntry) -> dict[str, JsonValue]:
    """Return an entry as the members of its line, empty ones left out."""
    until = entry.until.isoformat() if entry.until else None
    format_ = str(entry.format) if entry.format else None
    known: dict[str, JsonValue] = {"schema": SCHEMA, "until": until, "format": format_}
    known |= {name: getattr(entry, name) for name in _TEXTS}
    members = {name: known[name] for name in _MEMBERS if known[name] is not None}
    return {**members, **entry.extra}


class _LineError(ValueError):
    """Problem of a line."""

    def __init__(self, problem: str, got: object = None, expected: object = None) -> None:
        super().__init__(problem)
        self.got = got
        self.expected = expected


def _iter_entries(data: bytes, path: Path) -> Iterator[QuarantineEntry]:
    for number, line in enumerate(data.removeprefix(BOM).split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield _entry(line, Location(path=path, line=number, column=1))
        except ValueError as error:
            bad = error if isinstance(error, _LineError) else _LineError(str(error))
            raise BankFormatError(
                str(bad),
                path=path,
                line=number,
                column=1,
                got=bad.got,
                expected=bad.expected,
                hint=_LINE_HINT,
            ) from error


def _entry(line: bytes, place: Location) -> QuarantineEntry:
    """Return the entry of a line.

    Raises:
        ValueError: the line is none.
    """
    try:
        value = json_text.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, json_text.JsonTextError) as error:
        raise _LineError("line is not one JSON object", str(error)) from error
    if not isinstance(value, Mapping):
        raise _LineError("line is not one JSON object", json_text.dumps(value)[:40])
    if value.get("schema") != SCHEMA:
        raise _LineError("unknown schema", value.get("schema"), SCHEMA)
    for name in _TEXTS:
        found = value.get(name)
        if name in _REQUIRED and not found:
            raise _LineError(f"member {name} is missing")
        if found is not None and not isinstance(found, str):
            raise _LineError(f"{name} must be a text", json_text.dumps(found)[:40])
    return QuarantineEntry(
        **{name: value[name] for name in _TEXTS if value.get(name)},  # type: ignore[arg-type]
        until=_date(value.get("until")),
        format=_format(value.get("format")),
        extra={name: value[name] for name in value if name not in _MEMBERS},
        location=place,
    )


def _date(value: JsonValue) -> date | None:
    if value is None:
        return None
    try:
        day = date.fromisoformat(str(value))
    except ValueError:
        day = None
    if day is None or day.isoformat() != value:  # Python also takes 20270131 and week dates
        raise ValueError(f"until must be a date such as 2027-01-31, not {value!r}")
    return day


def _format(value: JsonValue) -> str | None:
    return None if value is None else get_format(str(value)).name
