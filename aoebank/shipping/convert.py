"""The verb: a bank into one file of rows, or such a file into a bank."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from aoebank.errors import BankFormatError, BankNotFoundError, BankPathError, UsageError, shell_word
from aoebank.formats.optuna.study import file_name, read_studies, write_results
from aoebank.formats.protocol import (
    Format,
    ParsedFile,
    find_error,
    iter_or_none,
    raise_if_broken,
)
from aoebank.formats.provenance import SUFFIX
from aoebank.formats.registry import get_format
from aoebank.formats.text.json_text import JsonTextError, dumps, loads, storable
from aoebank.model.json_value import JsonValue
from aoebank.model.record import Alternative, Record
from aoebank.storage.git.attributes import QUARANTINE
from aoebank.storage.packs.archive import is_name_in_bank
from aoebank.storage.sides.side import Side
from aoebank.storage.writing.journal import file_journal, roll_back
from aoebank.storage.writing.staged import FileWrite, update_file, write_files

_ANSWER = ("workload", "strategy", "cost_us", "origin", "extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class BankRow:
    """One row."""

    file: str  # Below the root of the bank
    format: str = ""  # Of a bank file; empty for a side-car and the quarantine
    # Members of a record; None for a bank file without one, and for other files.
    record: Mapping[str, JsonValue] | None = None
    # A line of another file, with its line end; what stands before the first record of a bank file
    # that is not as its tuner writes it.
    text: str = ""
    # Text of the record in such a file, with all up to the next one; None in others.
    written: str | None = None


def rows_of(side: Side, *, as_written: Collection[str] = ()) -> Iterator[BankRow]:
    """Yield the rows of a bank.

    Args:
        as_written: Bank files whose rows keep the text of the file.

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
        yield from _rows_as_written(name, parsed) if name in as_written else _rows(name, parsed)
        yield from _lines(side, f"{name}{SUFFIX}")
    yield from _lines(side, QUARANTINE)


def _rows(name: str, parsed: ParsedFile) -> list[BankRow]:
    rows = [
        BankRow(file=name, format=parsed.format.name, record=_members(record))
        for record in _records(parsed)
    ]
    return rows or [BankRow(file=name, format=parsed.format.name)]


def _rows_as_written(name: str, parsed: ParsedFile) -> Iterator[BankRow]:
    starts = [*parsed.starts, len(parsed.data)]  # what follows a record goes with it
    head = parsed.data[: starts[0]]
    if head or not len(parsed):
        yield BankRow(file=name, format=parsed.format.name, text=_decode(head, parsed.path))
    for record, (start, end) in zip(_records(parsed), pairwise(starts), strict=True):
        yield BankRow(
            file=name,
            format=parsed.format.name,
            record=_members(record),
            written=_decode(parsed.data[start:end], parsed.path),
        )


def _decode(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BankFormatError("is not UTF-8", path=path, hint="aoebank validate") from error


def files_of(rows: Iterable[BankRow], where: Path) -> dict[str, bytes]:
    """Return the files rows stand for, by name.

    Args:
        where: What they were read from, for messages.

    Raises:
        BankFormatError: a row is no record of its format, or has a name that leads elsewhere.
    """
    banks: dict[str, list[BankRow]] = {}
    texts: dict[str, list[str]] = {}
    for row in rows:
        _demand_inside(row.file, where)
        if row.format:
            banks.setdefault(row.file, []).append(row)
        else:
            texts.setdefault(row.file, []).append(row.text)
    files = {name: "".join(lines).encode("utf-8") for name, lines in texts.items()}
    return files | {name: _bank_file(name, found, where) for name, found in banks.items()}


def _bank_file(name: str, rows: Sequence[BankRow], where: Path) -> bytes:
    """Return a bank file: as it was written, but for records somebody changed in the rows."""
    format_ = _format(rows[-1].format, where)
    records = [_record(row, row.record, where) for row in rows if row.record is not None]
    written = [row for row in rows if row.written is not None or row.text]
    if written:
        data = "".join(row.text + (row.written or "") for row in written).encode("utf-8")
        parsed = format_.parse(data, Path(name))
        changes = None if find_error(parsed) else _changed(parsed, rows, records)
        if changes is not None:
            return format_.serialize(parsed, changes)
    empty = format_.parse(format_.empty, Path(name))
    return format_.serialize(empty, {record.key: record for record in records})


def _changed(
    parsed: ParsedFile, rows: Sequence[BankRow], records: Iterable[Record]
) -> dict[str, Record | None] | None:
    """Return the records that are not as the text of their rows; None if the text is none."""
    kept = iter_or_none(parsed)
    asked = iter(records)
    changes: dict[str, Record | None] = {}
    for row in rows:
        if row.record is None:
            continue
        record = next(asked)
        found = next(kept, None) if row.written is not None else None
        if found is None or dumps(_members(found)) != dumps(row.record):
            changes[record.key] = record
    return changes if len(parsed) == sum(row.written is not None for row in rows) else None


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
    if data is None:
        return
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BankFormatError("is not UTF-8", path=Path(name), hint="aoebank validate") from error
    # an empty file comes back, too
    for line in text.splitlines(keepends=True) if text and "\r" not in text else [text]:
        yield BankRow(file=name, text=line)


def _demand_inside(name: str, where: Path) -> None:
    if not is_name_in_bank(name):
        raise BankFormatError("a row has a file that would lie elsewhere", path=where, got=name)


def _demand_each_once(rows: Iterable[BankRow], where: Path) -> None:
    """Refuse two rows of one record, of which a bank would have one.

    Rows with the text of their file may have a key twice, as the file has.
    """
    known: dict[tuple[str, str], BankRow] = {}
    for row in rows:
        if row.record is not None:
            key = str(row.record.get("key"))
            other = known.setdefault((row.file, key), row)
            if other is not row and None in (other.written, row.written):
                raise BankFormatError("has a record twice", path=where, got=f"{row.file}: {key}")


def _format(name: str, where: Path) -> Format:
    try:
        return get_format(name)
    except ValueError as error:
        raise BankFormatError(f"a row has no known format: {error}", path=where) from error


# ---- the conversion ----


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertResult:
    """Files and records of a conversion."""

    source: str  # As a person wrote it
    output: Path  # What was written
    files: int  # Files of the bank, side-cars and the quarantine too
    records: int  # Records of the bank
    left_out: Mapping[str, int] = field(default_factory=dict)  # Trials without a result, by state


def convert_bank(side: Side, output: Path, *, force: bool) -> ConvertResult:
    """Write a bank as one file of rows, if every file comes back byte for byte.

    Args:
        side: The bank.
        output: `.jsonl`, `.db` or `.sqlite`.
        force: Whether a file that is there may be replaced.

    Raises:
        UsageError: the output is of no known kind.
        BankFormatError: a file is broken, or would not come back as it is.
        BankPathError: the output is there already, or cannot be written.
    """
    container = demand_container(output)
    if os.path.lexists(output) and not force:
        raise BankPathError("is there already", path=output, hint="--force replaces it")
    rows = [*rows_of(side)]
    odd = _differing(rows, side, output)
    if odd:  # not as their tuner writes them: the rows take their text along
        rows = [*rows_of(side, as_written=odd)]
        for name in _differing(rows, side, output):
            raise BankFormatError(
                "would not come back byte for byte",
                path=Path(name),
                hint=f"aoebank pack {shell_word(side.label)} -o bank.tar.gz takes it as it is",
            )
    data = container.serialize(rows)
    update_file(output, lambda _: data)
    return ConvertResult(
        source=side.label,
        output=output,
        files=len({row.file for row in rows}),
        records=sum(row.record is not None for row in rows),
    )


def _differing(rows: Iterable[BankRow], side: Side, output: Path) -> list[str]:
    """Return the files that rows would make other bytes of than a side has."""
    files = files_of(rows, output)
    return [name for name, data in files.items() if data != side.read_bytes(name)]


def convert_rows(source: Path, root: Path) -> ConvertResult:
    """Make a bank of a file of rows, whole or not at all.

    Args:
        source: What `convert_bank` has written, edited perhaps.
        root: Folder for the bank, which must not be there yet.

    Raises:
        BankNotFoundError: there is no such file.
        BankFormatError: it has rows that are no records, or not of the file they name.
        BankPathError: the folder is there already, or cannot be made.
    """
    container = find_container(source)
    assert container is not None, source
    if not source.is_file():
        raise BankNotFoundError("no such file", path=source)
    journal = _new_tree(root, "rows")
    rows = [*container.parse(source)]
    _demand_each_once(rows, source)
    files = files_of(rows, source)
    changes = (FileWrite(path=root / name, data=data) for name, data in files.items())
    write_files(changes, journal=journal, root=root, is_new_tree=True)
    return ConvertResult(
        source=str(source),
        output=root,
        files=len(files),
        records=sum(row.record is not None for row in rows),
    )


def _new_tree(root: Path, what: str) -> Path:
    """Return the journal of a bank that is made; one that was killed at its end is made anew.

    Raises:
        BankPathError: something else is there.
    """
    journal = file_journal(root, "convert") if root.name else root
    if root.name:
        roll_back(journal, takes_tree=True)
    if os.path.lexists(root):
        raise BankPathError(f"is there already, and {what} become a bank of their own", path=root)
    return journal


def convert_studies(source: Path, root: Path) -> ConvertResult:
    """Make results in the T4 format of the studies of Optuna, a file each.

    Args:
        source: A journal or a database, for which `is_study` holds.
        root: Folder for the files, which must not be there yet.

    Raises:
        BankFormatError: it is not as Optuna writes it, or has no trial with a result.
        BankPathError: the folder is there already, or cannot be made.
    """
    journal = _new_tree(root, "studies")
    studies = read_studies(source)
    trials = [trial for study in studies for trial in study.trials]
    records = sum(trial.has_result for trial in trials)
    if not records:
        raise BankFormatError(
            "no trial has a result",
            path=source,
            got=f"{len(studies)} studies, {len(trials)} trials",
        )
    files: dict[str, bytes] = {}
    for study in studies:
        if any(trial.has_result for trial in study.trials):
            name = file_name(study)
            free = (f"{number}-{name}" if number > 1 else name for number in count(1))
            files[next(one for one in free if one not in files)] = write_results(study)
    changes = (FileWrite(path=root / name, data=data) for name, data in files.items())
    write_files(changes, journal=journal, root=root, is_new_tree=True)
    return ConvertResult(
        source=str(source),
        output=root,
        files=len(files),
        records=records,
        left_out=Counter(sorted(trial.state for trial in trials if not trial.has_result)),
    )


# ---- files of rows ----


SCHEMA = "aoebank.rows/1"
SCHEMA_AS_WRITTEN = "aoebank.rows/2"
"""Of rows with the text of files: a reader that knew the first alone would make other files."""
_PLAIN = {"key": str, "op_type": str, "workload": str, "strategy": str, "cost_us": float}


class Container(Protocol):
    """A file with the rows of a bank."""

    suffixes: tuple[str, ...]

    def serialize(self, rows: Iterable[BankRow]) -> bytes:
        """Return the file."""
        ...

    def parse(self, path: Path) -> Iterator[BankRow]:
        """Yield the rows of a file.

        Raises:
            BankFormatError: it is none of ours.
            OSError: it cannot be read.
        """
        ...


class JsonLines:
    """A JSON object per line; the first says what the others are."""

    suffixes: tuple[str, ...] = (".jsonl",)

    def serialize(self, rows: Iterable[BankRow]) -> bytes:
        """Return the lines, the same rows always the same bytes."""
        rows = [*rows]
        lines = [dumps({"schema": schema_of(rows)}), *(dumps(_document(row)) for row in rows)]
        return "".join(f"{line}\n" for line in lines).encode("utf-8")

    def parse(self, path: Path) -> Iterator[BankRow]:
        """Yield the rows, each checked."""
        lines = path.read_bytes().removesuffix(b"\n").split(b"\n")
        for number, line in enumerate(lines, start=1):
            document = _loads(line, path, number)
            if number == 1:
                _demand_schema(document.get("schema"), path)
            else:
                yield _row(document, path, number)


class SqliteTable:
    """A table `rows` of SQLite: `document` is the row, the other columns are for questions."""

    suffixes: tuple[str, ...] = (".db", ".sqlite")

    def serialize(self, rows: Iterable[BankRow]) -> bytes:
        """Return the database."""
        from sqlite_utils import Database

        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "bank.db")
            with closing(Database(str(file))) as database:
                rows = [*rows]
                database.table("about").insert({"schema": schema_of(rows)})
                columns = {"file": str, "format": str, **_PLAIN, "document": str}
                database.table("rows").create(columns)
                database.table("rows").insert_all(map(_columns, rows))
            return file.read_bytes()

    def parse(self, path: Path) -> Iterator[BankRow]:
        """Yield the rows of the table, in the order they were put there."""
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            _demand_tables(connection, path)
            (schema,) = connection.execute("SELECT schema FROM about").fetchone() or ("",)
            _demand_schema(schema, path)
            cursor = connection.execute("SELECT document FROM rows ORDER BY rowid")
            for number, (document,) in enumerate(cursor, start=1):
                yield _row(_loads(str(document).encode(), path, number), path, number)
        except sqlite3.Error as error:
            raise BankFormatError(f"is no bank in SQLite: {error}", path=path) from error
        finally:
            connection.close()


def _demand_tables(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse views of these names: they may compute without an end."""
    asked = "SELECT count(*) FROM sqlite_schema WHERE name IN ('about', 'rows') AND type != 'table'"
    if connection.execute(asked).fetchone() != (0,):
        raise BankFormatError("is no bank in SQLite: its rows are no table", path=path)


def schema_of(rows: Iterable[BankRow]) -> str:
    """Return the name of the schema that rows need."""
    has_text = any(row.written is not None or (row.format and row.text) for row in rows)
    return SCHEMA_AS_WRITTEN if has_text else SCHEMA


CONTAINERS: tuple[Container, ...] = (JsonLines(), SqliteTable())


def find_container(path: Path) -> Container | None:
    """Return the container a name stands for, None for a bank."""
    for container in CONTAINERS:
        if path.suffix in container.suffixes:
            return container
    return None


def demand_container(path: Path) -> Container:
    """Return the container a name stands for.

    Raises:
        UsageError: there is none.
    """
    container = find_container(path)
    if container is None:
        suffixes = [suffix for known in CONTAINERS for suffix in known.suffixes]
        raise UsageError(
            "--output: unknown kind of file", got=path.name, expected=" or ".join(suffixes)
        )
    return container


def _document(row: BankRow) -> dict[str, JsonValue]:
    members: dict[str, JsonValue] = {"file": row.file}
    if not row.format:
        return members | {"text": row.text}
    members["format"] = row.format
    if row.text:
        members["text"] = row.text
    if row.written is not None:
        members["written"] = row.written
    return members if row.record is None else members | {"record": dict(row.record)}


def _columns(row: BankRow) -> dict[str, object]:
    record = row.record or {}
    plain: dict[str, object] = {}
    for name in _PLAIN:
        value = record.get(name)
        is_json = value is not None and name in ("workload", "strategy")
        plain[name] = dumps(value) if is_json else value
    cost = plain["cost_us"]
    plain["cost_us"] = float(cost) if isinstance(cost, int | float) else None
    columns = {"file": row.file, "format": row.format, **plain, "document": dumps(_document(row))}
    # a document, from which a row is read, has what is spelled out here as escapes of JSON
    return {name: storable(value) for name, value in columns.items()}


def _loads(line: bytes, path: Path, number: int) -> Mapping[str, JsonValue]:
    try:
        value = loads(line.decode("utf-8"))
    except (JsonTextError, UnicodeDecodeError) as error:
        raise BankFormatError(f"a row is not JSON: {error}", path=path, line=number) from error
    if not isinstance(value, dict):
        raise BankFormatError("a row is no object", path=path, line=number)
    return value


def _row(document: Mapping[str, JsonValue], path: Path, number: int) -> BankRow:
    file, format_, text = (document.get(name, "") for name in ("file", "format", "text"))
    record, written = document.get("record"), document.get("written")
    is_right = all(isinstance(value, str) for value in (file, format_, text))
    if not is_right or not isinstance(record, dict | None) or not isinstance(written, str | None):
        raise BankFormatError("a row has members of wrong types", path=path, line=number)
    return BankRow(
        file=str(file), format=str(format_), text=str(text), record=record, written=written
    )


def _demand_schema(schema: object, path: Path) -> None:
    if schema not in (SCHEMA, SCHEMA_AS_WRITTEN):
        raise BankFormatError(
            "is no bank that was converted", path=path, got=repr(schema), expected=SCHEMA_AS_WRITTEN
        )
