"""Put known-bad records into quarantine, take them out, list them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from aoebank.errors import BankNotFoundError, UsageError, shell_word
from aoebank.formats.protocol import ParsedFile
from aoebank.history.changes import read_record
from aoebank.history.edits import (
    EditPlan,
    FileEdit,
    Kept,
    edit_records,
    kept_document,
    write_kept,
)
from aoebank.model.quarantine import QuarantineEntry, answer_digest
from aoebank.model.record import Record
from aoebank.model.snapshot import Author
from aoebank.parameters.context import bank_in_use, demand_bank
from aoebank.report.output import Report, Text, members
from aoebank.selection import RecordFilter, holds_file, holds_record
from aoebank.storage.bank import Bank, load_file, read_file
from aoebank.storage.quarantine import (
    entry_document,
    load_quarantine,
    parse_quarantine,
    quarantine_path,
    serialize_quarantine,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """Reason and terms for keeping a record out."""

    reason: str
    ticket: str | None = None
    until: date | None = None  # Last day it has to stay out; None for ever
    evidence: str | None = None
    # Whether every answer for the workload is bad, not the present one alone.
    any_strategy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantinePlan(EditPlan):
    """Changes of a quarantine, and edits of the bank files that lose the bad records."""

    added: tuple[QuarantineEntry, ...] = ()  # New entries
    removed: tuple[QuarantineEntry, ...] = ()  # Entries that go
    left_out: tuple[tuple[str, str], ...] = ()  # The bad records, as file and key

    @property
    def message(self) -> str:
        return f"quarantine {', '.join(dict.fromkeys(entry.key for entry in self.added))}"

    def first(self) -> tuple[FileEdit, ...]:
        """Return the edit of the quarantine: a reader between two writes keeps the records out.

        Raises:
            BankFormatError: the quarantine is broken.
        """
        gone = {entry.identity for entry in (*self.removed, *self.added)}
        path = quarantine_path(self.root)
        old = read_file(path)
        kept = (entry for entry in parse_quarantine(old or b"", path) if entry.identity not in gone)
        new = serialize_quarantine([*kept, *self.added])
        return (FileEdit(name=path.relative_to(self.root).as_posix(), before=old, after=new),)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineResult:
    """A plan and the snapshots around its edits; `kept` is None for a dry run."""

    plan: QuarantinePlan
    kept: Kept | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntry:
    """An entry, and whether the bank holds a record that it keeps out."""

    entry: QuarantineEntry
    is_active: bool
    present: tuple[str, ...]  # Bank files that hold one


def plan_add(
    root: Path,
    key: str,
    complaint: Complaint,
    author: Author,
    *,
    wanted: RecordFilter,
    keep: bool = False,
) -> QuarantinePlan:
    """Return the entries for the records of a key, and the bank files without them.

    Args:
        key: A key or the start of one that leaves one key.
        wanted: Which files are meant, by soc_version and op_type.
        keep: Leave the records in the bank.

    Raises:
        UsageError: several keys start like this, or the last day is over.
        BankNotFoundError: there is no such record and `complaint` is not about any strategy.
    """
    today = author.now.date()
    if complaint.until is not None and complaint.until < today:
        raise UsageError(
            "is over already", where="--until", got=complaint.until, expected=f"{today} or later"
        )
    found = [*_find(root, key, wanted)]
    keys = sorted({record.key for _, _, record in found})
    if len(keys) > 1 and key not in keys:
        raise UsageError("more than one key starts like this", where=key, got=", ".join(keys[:5]))
    found = [hit for hit in found if len(keys) == 1 or hit[2].key == key]
    if not found and not complaint.any_strategy:
        listed = _listed(root, key, wanted)
        if listed:  # an earlier call has done it: its entries get what is said now
            renewed = tuple(_renewed(entry, complaint, author) for entry in listed)
            return QuarantinePlan(root=root, added=renewed)
    if not found:
        return QuarantinePlan(root=root, added=(_unseen(root, key, complaint, author, wanted),))
    entries = tuple(_entry(record, complaint, author) for _, _, record in found)
    places = tuple((name, record.key) for name, _, record in found)
    edits = () if keep else tuple(_edits(root, found))
    return QuarantinePlan(root=root, added=entries, edits=edits, left_out=() if keep else places)


def plan_remove(root: Path, key: str, *, wanted: RecordFilter) -> QuarantinePlan:
    """Return the entries that `key` and the filter mean, to be taken out.

    Raises:
        BankNotFoundError: there is none, or no such bank.
        UsageError: entries of several keys start like this.
    """
    found = _listed(demand_bank(root), key, wanted)
    if not found:
        raise BankNotFoundError(
            "no such entry in the quarantine",
            where=key,
            hint=f"aoebank quarantine list {shell_word(root)}",
        )
    return QuarantinePlan(root=root, removed=found)


def _listed(root: Path, key: str, wanted: RecordFilter) -> tuple[QuarantineEntry, ...]:
    """Return the entries that a key, or the start of one, and a filter mean.

    Raises:
        UsageError: entries of several keys start like this.
    """
    keys = RecordFilter(key=(key,))
    found = tuple(
        entry
        for entry in load_quarantine(root)
        if keys.holds_key(entry.key)
        and wanted.holds_op(entry.op_type)
        and wanted.holds_soc(entry.soc_version or "")
    )
    exact = tuple(entry for entry in found if entry.key == key)
    if not exact and len({entry.key for entry in found}) > 1:
        several = ", ".join(sorted({entry.key for entry in found})[:5])
        raise UsageError("more than one key starts like this", where=key, got=several)
    return exact or found


def list_quarantine(
    root: Path, *, today: date, wanted: RecordFilter, expired: bool = False
) -> tuple[ListedEntry, ...]:
    """Return the entries that a filter means, each with the bank files it is still needed for.

    Args:
        expired: Only entries whose last day is over.

    Raises:
        BankNotFoundError: there is no such bank.
    """
    entries = [
        entry
        for entry in load_quarantine(demand_bank(root))
        if wanted.holds_key(entry.key)
        and wanted.holds_op(entry.op_type)
        and wanted.holds_soc(entry.soc_version or "")
        and not (expired and entry.is_active(today))
    ]
    if not entries:
        return ()
    keys = frozenset(entry.key for entry in entries)
    records = [
        (name, record)
        for name, parsed in _iter_files(root, RecordFilter())
        for key in keys.intersection(parsed.keys)
        if (record := read_record(parsed, key)) is not None  # no reader gets one that is broken
    ]
    return tuple(
        ListedEntry(
            entry=entry,
            is_active=entry.is_active(today),
            present=tuple(name for name, record in records if entry.holds(record)),
        )
        for entry in entries
    )


_Found = tuple[str, ParsedFile, Record]


def _find(root: Path, key: str, wanted: RecordFilter) -> Iterator[_Found]:
    """Yield the records whose key starts with `key`, with their files."""
    keys = RecordFilter(key=(key,))
    for name, parsed in _iter_files(root, wanted):
        for full_key in dict.fromkeys(filter(keys.holds_key, parsed.keys)):
            number = parsed.find(full_key)
            assert number is not None  # it is one of its keys
            record = parsed.format.record(parsed, number)
            if holds_record(wanted, record):
                yield name, parsed, record


def _iter_files(root: Path, wanted: RecordFilter) -> Iterator[tuple[str, ParsedFile]]:
    if not root.is_dir():
        raise BankNotFoundError("no such bank", path=root, expected="a directory")
    for path in Bank(root).iter_files():
        name = path.relative_to(root).as_posix()
        if holds_file(wanted, name):
            yield name, load_file(path)


def _entry(record: Record, complaint: Complaint, author: Author) -> QuarantineEntry:
    strategy = None if complaint.any_strategy else answer_digest(record)
    return QuarantineEntry(
        key=record.key,
        soc_version=record.soc_version,
        op_type=record.op_type,
        format=record.format,
        strategy_sha256=strategy,
        **_said(complaint),
        who=author.who,
        when=author.time,
    )


def _said(complaint: Complaint) -> dict[str, Any]:
    return {name: getattr(complaint, name) for name in ("reason", "ticket", "until", "evidence")}


def _renewed(entry: QuarantineEntry, complaint: Complaint, author: Author) -> QuarantineEntry:
    """Return an entry with what is said now; itself where that was said before."""
    said = _said(complaint)
    if all(getattr(entry, name) == value for name, value in said.items()):
        return entry
    return replace(entry, **said, who=author.who, when=author.time)


def _unseen(
    root: Path, key: str, complaint: Complaint, author: Author, wanted: RecordFilter
) -> QuarantineEntry:
    """Return the entry for a key the bank does not hold, for any strategy."""
    if not complaint.any_strategy:
        raise BankNotFoundError(
            "no such record, so its strategy is not known",
            where=f"{root}: {key}",
            hint="--any-strategy keeps every record of this key out; then give the whole key",
        )
    for option, given in (("--soc", wanted.soc), ("--op", wanted.op)):
        if len(given) > 1 or any(set(pattern) & set("*?[") for pattern in given):
            raise UsageError(
                "a record that is not in the bank needs one name, no pattern",
                where=option,
                got=", ".join(given),
            )
    return QuarantineEntry(
        key=key,
        soc_version=next(iter(wanted.soc), None),
        op_type=next(iter(wanted.op), None),
        **_said(complaint),
        who=author.who,
        when=author.time,
    )


def _edits(root: Path, found: list[_Found]) -> Iterator[FileEdit]:
    for name in dict.fromkeys(name for name, _, _ in found):
        parsed = next(parsed for file, parsed, _ in found if file == name)
        keys = [record.key for file, _, record in found if file == name]
        after = edit_records(root / name, parsed, parsed, dict.fromkeys(keys))
        yield FileEdit(name=name, before=parsed.data, after=after)


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineReport(Report):
    """Entries that came or went, and records taken out of the bank."""

    result: QuarantineResult
    schema: str

    def document(self) -> Mapping[str, object]:
        plan = self.result.plan
        return {
            "root": str(plan.root),
            "dry_run": self.result.kept is None,
            "added": [entry_document(entry) for entry in plan.added],
            "removed": [entry_document(entry) for entry in plan.removed],
            "left_out": [{"file": file, "key": key} for file, key in plan.left_out],
            "snapshots": kept_document(self.result.kept),
        }

    def write(self, text: Text) -> None:
        plan, kept = self.result.plan, self.result.kept
        would = "would be " if kept is None else ""
        for entry in plan.added:
            text.line((f"{would}in quarantine: ", "red"), entry.key, _about(entry))
        for entry in plan.removed:
            text.line((f"{would}out of quarantine: ", "green"), entry.key, _about(entry))
        for file, key in plan.left_out:
            text.line(f"{would}removed from the bank: {file}: {key}")
        write_kept(text, kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineListReport(Report):
    """A block per entry."""

    root: Path
    entries: tuple[ListedEntry, ...]
    schema: str = "aoebank.quarantine-list/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if the bank holds a record that has to stay out."""
        return 1 if any(listed.is_active and listed.present for listed in self.entries) else 0

    def document(self) -> Mapping[str, object]:
        return {
            "root": str(self.root),
            "entries": [
                {
                    **entry_document(listed.entry),
                    **members(listed, "active=is_active present_in=present"),
                }
                for listed in self.entries
            ],
        }

    def write(self, text: Text) -> None:
        for listed in self.entries:
            _write(text, listed)
        active = sum(listed.is_active for listed in self.entries)
        number = f"{len(self.entries)} entries" if len(self.entries) != 1 else "1 entry"
        text.line(f"{number}, {active} active")


def _write(text: Text, listed: ListedEntry) -> None:
    entry = listed.entry
    text.line((entry.key, "bold"), _about(entry))
    day = f"until {entry.until}" if entry.until else "for ever"
    expired = "" if listed.is_active else ", expired"
    ticket = f", {entry.ticket}" if entry.ticket else ""
    text.line(f"  {entry.reason}{ticket}")
    text.line(f"  {day}{expired}, by {entry.who} at {entry.when}")
    if entry.evidence:
        text.line(f"  evidence: {entry.evidence}")
    for name in listed.present:
        text.line(("  in the bank: ", "red"), name)


def _about(entry: QuarantineEntry) -> str:
    names = [name for name in (entry.soc_version, entry.op_type) if name]
    strategy = entry.strategy_sha256
    names.append(f"strategy {strategy[:12]}" if strategy else "any strategy")
    return f"  {', '.join(names)}"


def show(call: Callable[..., Any], given: Mapping[str, Any]) -> QuarantineListReport:
    """Return the report on what is in quarantine."""
    root = bank_in_use(given["root"])
    return QuarantineListReport(root=root, entries=call(root=root))
