"""Records of a bank that were measured in another environment than the present one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.display import RichDisplay
from aoebank.model.fingerprint import KERNEL_SOURCE, Drift, compare_fingerprints
from aoebank.model.provenance import Provenance, last_measured
from aoebank.model.record import Record
from aoebank.report.output import (
    ReadingReport,
    Text,
    closed_document,
    members,
    plural,
    write_closed,
)
from aoebank.selection import RecordFilter, demand_case, holds_file, holds_record
from aoebank.storage.readers.soc_versions import old_soc_versions
from aoebank.storage.sides.side import Side

SourceOf = Callable[[Record], str | None]
"""Returns the digest of what the strategy of a record is turned into code by, None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleRecord:
    """A record that was measured in another environment, or nobody noted in which."""

    path: Path  # The bank file
    key: str  # Record key
    op_type: str | None  # Of the record, None where its format has none
    soc_version: str | None  # Target of the file, None where neither name nor folder tells
    measured: str | None  # When, RFC 3339 in UTC; None if nobody noted it
    drift: Drift  # What differs: hard, it must not be used; soft, it is to be checked again
    is_noted: bool = True  # False if nobody noted in which environment


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StaleResult(RichDisplay):
    """Stale records of a side."""

    shown_by = "aoebank.validation.stale:StaleReport"
    rows_in = "found"

    root: str  # How a person wrote it
    # Records with something to tell, those that must not be used first.
    found: tuple[StaleRecord, ...]
    looked_at: int  # How many records there are
    # Records whose kernel source is noted, with no engine here to compare it with.
    uncompared: int = 0
    # Files and folders that cannot be read, so that records may be missing.
    closed: tuple[BankPathError, ...] = ()


def find_stale(
    side: Side, *, now: Mapping[str, str], source_of: SourceOf | None, wanted: RecordFilter
) -> StaleResult:
    """Return the records of a side whose fingerprint is another than the present one.

    Args:
        side: A bank file or tree, or a version of one.
        now: What is known of the present environment, see `present_facts`.
        source_of: Says what strategies are turned into code by here; None without an engine.
        wanted: Which records are looked at.
    """
    names, unlisted = side.listing()
    demand_case(wanted, names)
    closed: list[BankPathError] = [*unlisted]
    found: list[StaleRecord] = []
    looked_at = uncompared = 0
    for name in names:
        if not holds_file(wanted, name):
            continue
        try:
            parsed = side.load(name)
            entries = side.load_provenance(name).entries
        except BankPathError as error:
            closed.append(error)
            continue
        for record, last in _measured(parsed, entries, wanted):
            looked_at += 1
            source = source_of(record) if source_of is not None else None
            if source is None and last is not None and KERNEL_SOURCE in last.fingerprint:
                uncompared += 1
            one = _looked_at(parsed, record, last, now, source)
            found += [one] if one.drift != Drift() else []
    found.sort(key=lambda one: (not one.drift.is_stale, str(one.path), one.key))
    return StaleResult(
        root=side.label,
        found=tuple(found),
        looked_at=looked_at,
        uncompared=uncompared,
        closed=tuple(closed),
    )


def _measured(
    parsed: ParsedFile | None, entries: Iterable[Provenance], wanted: RecordFilter
) -> Iterator[tuple[Record, Provenance | None]]:
    """Yield the records that are meant, each with the line of its last measurement."""
    by_key: dict[str, list[Provenance]] = {}
    for entry in entries:
        by_key.setdefault(entry.key, []).append(entry)
    for record in parsed.iter_records() if parsed is not None else ():
        if holds_record(wanted, record):
            yield record, last_measured(by_key.get(record.key, ()))


def _looked_at(
    parsed: ParsedFile | None,
    record: Record,
    last: Provenance | None,
    now: Mapping[str, str],
    source: str | None,
) -> StaleRecord:
    assert parsed is not None
    name = parsed.name
    soc_version = record.soc_version or (name.soc_version if name else None)
    present = dict(now)
    then = dict(last.fingerprint) if last is not None else {}
    if soc_version is not None:
        present["soc_version"] = soc_version
        if then.get("soc_version") in old_soc_versions(soc_version):
            then["soc_version"] = soc_version
    if source is not None:
        present[KERNEL_SOURCE] = source
    return StaleRecord(
        path=parsed.path,
        key=record.key,
        op_type=record.op_type or (name.op_type if name else None),
        soc_version=soc_version,
        measured=last.time if last is not None else None,
        drift=compare_fingerprints(then, present),
        is_noted=bool(then),
    )


# ---- what is printed ----


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleReport(ReadingReport[StaleResult]):
    """A table of records with the reasons."""

    schema: str = "aoebank.stale/1"

    @property
    def where(self) -> str:
        """The bank."""
        return self.result.root

    @property
    def exit_code(self) -> int:
        """Return 1 if a record is stale or to be checked again, or that of the error."""
        return self.error.exit_code if self.error is not None else int(bool(self.result.found))

    def document(self) -> Mapping[str, object]:
        return {
            **members(self, "root=result.root records=result.looked_at stale=_stale"),
            "to_check": len(self.result.found) - self._stale,
            "uncompared": self.result.uncompared,
            "found": [_document(one) for one in self.result.found],
            "unreadable": closed_document(self.result.closed),
        }

    def write(self, text: Text) -> None:
        if self.result.found:
            text.columns(
                self.result.found,
                ("state", "-", lambda one: "stale" if one.drift.is_stale else "check"),
                ("op_type", "-", lambda one: one.op_type or "-"),
                ("key", "-", lambda one: one.key),
                ("why", "-", lambda one: str(one.drift)),
                ("file", "-", lambda one: str(one.path)),
            )
        write_closed(text, self.result.closed)
        if self.result.uncompared:
            text.line(
                f"kernel source of {plural(self.result.uncompared, 'record')} not compared: "
                "that takes the engine that makes the kernels"
            )
        to_check = len(self.result.found) - self._stale
        text.line(
            f"{plural(self.result.looked_at, 'record')}: {self._stale} stale, "
            f"{to_check} to be checked again"
        )

    @property
    def _stale(self) -> int:
        return sum(one.drift.is_stale for one in self.result.found)


def _document(one: StaleRecord) -> dict[str, object]:
    return {
        **members(one, "path key op_type soc_version measured"),
        "stale": one.drift.is_stale,
        **members(one.drift, "hard soft"),
    }
