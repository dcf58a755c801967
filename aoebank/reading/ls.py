"""List the files of a bank, with what is known of each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoebank.errors import BankPathError, shell_word
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.formats.registry import target_word
from aoebank.formats.words import words_of
from aoebank.model.display import RichDisplay
from aoebank.model.provenance import Event, Provenance
from aoebank.report.output import (
    ReadingReport,
    Text,
    closed_document,
    members,
    place_and_problem,
    plural,
    times,
    write_closed,
)
from aoebank.storage.sides.side import PathSide, Side

if TYPE_CHECKING:
    from aoebank.storage.bank import Bank

_SHORTEST_KEY = 8  # digits people copy; the hash a reader of runtime banks logs is as long
_FIRST_KEYS = 2
_MOST_IN_WORDS = 10_000  # reading the records of more takes seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """One bank file."""

    path: Path
    name: str  # Path below the root; the file name where the root is the file
    format: str
    soc_version: str | None  # As the file name tells
    targets: tuple[str, ...]  # Of its records: that of the name, or those its rows name, sorted
    core_num: int | None
    core_type: str | None
    op_type: str | None
    records: int
    best_speedup: float | None  # Largest speed-up its side-car tells of, for records still stored
    median_speedup: float | None
    problem: str  # First error in the file, empty when there is none
    # Starts of keys that mean one record of the file each, as `aoebank show` takes them: of the
    # first records, or of all where the file alone is listed.
    keys: tuple[str, ...] = ()
    # What the records of these keys compute, where the file alone is listed; else none.
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ListResult(RichDisplay):
    """The bank files of a side."""

    shown_by = "aoebank.reading.ls:ListReport"
    rows_in = "files"

    root: str  # How a person wrote it
    files: tuple[FileSummary, ...]
    # Files and folders that cannot be read, so that records may be missing.
    closed: tuple[BankPathError, ...] = ()


def list_bank(side: Side) -> ListResult:
    """Return a summary of each bank file; one that is gone meanwhile has none."""
    names, unlisted = side.listing()
    closed: list[BankPathError] = [*unlisted]
    files: list[FileSummary] = []
    for name in names:
        try:
            parsed = side.load(name)
            files += () if parsed is None else (_summary(side, name, parsed),)
        except BankPathError as error:
            closed.append(error)
    return ListResult(root=side.label, files=tuple(files), closed=tuple(closed))


def _summary(side: Side, file_name: str, parsed: ParsedFile) -> FileSummary:
    name = parsed.name
    speedups = _speedups(parsed, side.load_provenance(file_name).entries)
    error = find_error(parsed)
    return FileSummary(
        path=parsed.path,
        name=file_name,
        format=parsed.format.name,
        soc_version=name.soc_version if name else None,
        targets=_targets_of(parsed),
        core_num=name.core_num if name else None,
        core_type=name.core_type if name else None,
        op_type=name.op_type if name else None,
        records=len(parsed),
        best_speedup=max(speedups, default=None),
        median_speedup=_median(speedups),
        problem=place_and_problem(error) if error else "",
        keys=_short_keys(parsed, _FIRST_KEYS if side.is_tree else len(parsed)),
        words=() if side.is_tree or len(parsed) > _MOST_IN_WORDS else _words(parsed),
    )


def _targets_of(parsed: ParsedFile) -> tuple[str, ...]:
    if parsed.format.has_target_in_rows:
        return tuple(sorted({one for one in parsed.format.iter_targets(parsed) if one}))
    target = parsed.name.soc_version if parsed.name else None
    return (target,) if target else ()


def _words(parsed: ParsedFile) -> tuple[str, ...]:
    """Return the workload of each key in words; empty for a record that cannot be read."""
    records = {record.key: record for record in parsed.iter_records()}
    return tuple(
        words_of(records[key]).computes if key in records else ""
        for key in dict.fromkeys(parsed.keys)
    )


def _short_keys(parsed: ParsedFile, most: int) -> tuple[str, ...]:
    """Return the shortest starts of the first keys that no other key of the file has."""
    keys = list(dict.fromkeys(parsed.keys))
    ordered = sorted(keys)
    return tuple(key[: _needed(key, ordered)] for key in keys[:most])


def _needed(key: str, ordered: Sequence[str]) -> int:
    """Return the length of a key's prefix that tells it from its neighbours."""
    place = bisect_left(ordered, key)
    others = [*ordered[max(0, place - 1) : place], *ordered[place + 1 : place + 2]]
    shared = max((_count_shared(key, other) for other in others), default=0)
    return max(_SHORTEST_KEY, shared + 1)


def _count_shared(a: str, b: str) -> int:
    """Return the number of characters two texts have in common at their start."""
    pairs = enumerate(zip(a, b, strict=False))
    return next((place for place, pair in pairs if pair[0] != pair[1]), min(len(a), len(b)))


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    from statistics import median  # slow to import

    return median(values)


def _speedups(parsed: ParsedFile, entries: Iterable[Provenance]) -> list[float]:
    """Return the newest speed-up of each record that is still in the file."""
    newest: dict[str, float] = {}
    for entry in entries:
        if entry.event in (Event.UNSATISFIED, Event.DROPPED):
            continue
        if entry.speedup is not None and parsed.find(entry.key) is not None:
            newest[entry.key] = entry.speedup
    return list(newest.values())


_FEW_KEYS = 2
_FEW_TARGETS = 3
_LONGEST_KEY = 24  # a feature list is a key too, and no column


# ---- what is printed ----


def bank_report(*, result: Bank) -> ListReport:
    """Return the report on the files of a bank, which need not be there yet."""
    if not result.root.exists():
        return ListReport(result=ListResult(root=str(result.root), files=()))
    return ListReport(result=list_bank(PathSide(label=str(result.root), path=result.root)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListReport(ReadingReport[ListResult]):
    """A table of files."""

    schema: str = "aoebank.ls/1"

    @property
    def where(self) -> str:
        """The bank."""
        return self.result.root

    def document(self) -> Mapping[str, object]:
        """Return a member per file."""
        return {
            "root": self.result.root,
            "records": sum(file.records for file in self.result.files),
            "files": [_document(file) for file in self.result.files],
            "unreadable": closed_document(self.result.closed),
        }

    def write(self, text: Text) -> None:
        """Write the table and the totals."""
        if self.result.files:
            text.columns(
                self.result.files,
                (target_word(file.format for file in self.result.files), "-", _targets),
                ("cores", "r", lambda one: "-" if one.core_num is None else str(one.core_num)),
                ("core type", "-", lambda one: one.core_type or "-"),
                ("op_type", "-", lambda one: one.op_type or "-"),
                ("format", "-", lambda one: str(one.format)),
                ("records", "r", lambda one: str(one.records)),
                ("best", "r", lambda one: times(one.best_speedup)),
                ("median", "r", lambda one: times(one.median_speedup)),
                ("keys", "-", _keys),
                ("file", "p", lambda one: one.name),
            )
        for file in self.result.files:
            for key, words in _listed(file):
                text.line(f"  {shell_word(key)}", (f"  {words}" if words else "", "dim"))
            if file.problem:
                text.line(("broken: ", "red"), _place(file))
        write_closed(text, self.result.closed)
        records = sum(file.records for file in self.result.files)
        text.line(f"{plural(len(self.result.files), 'file')}, {plural(records, 'record')}")


def _targets(file: FileSummary) -> str:
    shown = ", ".join(file.targets[:_FEW_TARGETS])
    more = len(file.targets) - _FEW_TARGETS
    return f"{shown} and {more} more" if more > 0 else shown or "-"


def _listed(file: FileSummary) -> Iterator[tuple[str, str]]:
    """Yield the keys that have no room in the table, and those that words go with."""
    if file.words:
        yield from zip(file.keys, file.words, strict=True)
    elif len(file.keys) > _FEW_KEYS:
        yield from ((key, "") for key in file.keys)


def _place(file: FileSummary) -> str:
    space = "" if file.problem[:1].isdigit() else " "  # a line, or nothing: the file as a whole
    return f"{file.path}:{space}{file.problem}"


def _keys(file: FileSummary) -> str:
    few = file.keys[:_FEW_KEYS]
    shown = [shell_word(key) if len(key) <= _LONGEST_KEY else "..." for key in few]
    more = ["..."] if len(few) < file.records and shown[-1:] != ["..."] else []
    return " ".join([*dict.fromkeys(shown), *more]) or "-"


def _document(file: FileSummary) -> dict[str, object]:
    target = "soc_version targets core_num core_type op_type"
    names = f"path format {target} records best_speedup median_speedup keys"
    return {**members(file, names), "problem": file.problem or None}
