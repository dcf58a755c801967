"""List what is in a bank: a row per file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.provenance import Event, Provenance
from aoebank.storage.sides.side import Side, listing_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """One bank file.

    Attributes:
        name: Path below the root; the file name where the root is the file.
        best_speedup: Largest speed-up its side-car tells of, for records still stored.
        problem: First error in the file, empty when there is none.
    """

    path: Path
    name: str
    format: str
    soc_version: str | None
    core_num: int | None
    core_type: str | None
    op_type: str | None
    records: int
    best_speedup: float | None
    median_speedup: float | None
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListResult:
    """The bank files of a side.

    Attributes:
        root: How a person wrote it.
        closed: Files and folders that cannot be read, so that records may be missing.
    """

    root: str
    files: tuple[FileSummary, ...]
    closed: tuple[BankPathError, ...] = ()


def list_bank(side: Side) -> ListResult:
    """Return a summary of each bank file; one that is gone meanwhile has none."""
    names, unlisted = listing_of(side)
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
    place = (
        f"{error.location.line}:{error.location.column}: " if error and error.location.line else ""
    )
    problem = f"{place}{error.message}" if error else ""
    return FileSummary(
        path=parsed.path,
        name=file_name,
        format=parsed.format.name,
        soc_version=name.soc_version if name else None,
        core_num=name.core_num if name else None,
        core_type=name.core_type if name else None,
        op_type=name.op_type if name else None,
        records=len(parsed),
        best_speedup=max(speedups, default=None),
        median_speedup=_median(speedups),
        problem=problem,
    )


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
