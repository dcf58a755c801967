"""List what is in a bank: a row per file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from aoebank.errors import BankNotFoundError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.provenance import Event, Provenance
from aoebank.storage.bank import Bank, load_file, load_provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSummary:
    """One bank file.

    Attributes:
        best_speedup: Largest speed-up its side-car tells of, for records still stored.
        problem: First error in the file, empty when there is none.
    """

    path: Path
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
    """The bank files below a directory, or one file."""

    root: Path
    files: tuple[FileSummary, ...]


def list_bank(path: Path) -> ListResult:
    """Return a summary of each bank file.

    Raises:
        BankNotFoundError: there is no such path.
    """
    if not path.exists():
        raise BankNotFoundError(
            "no such bank", path=path, hint="aoebank resolve --explain shows where banks are"
        )
    files: Iterable[Path] = Bank(path).iter_files() if path.is_dir() else (path,)
    return ListResult(root=path, files=tuple(_summary(file) for file in files))


def _summary(path: Path) -> FileSummary:
    parsed = load_file(path)
    name = parsed.name
    speedups = _speedups(parsed, load_provenance(path).entries)
    error = find_error(parsed)
    problem = f"{error.location.line}:{error.location.column}: {error.message}" if error else ""
    return FileSummary(
        path=path,
        format=parsed.format.name,
        soc_version=name.soc_version if name else None,
        core_num=name.core_num if name else None,
        core_type=name.core_type if name else None,
        op_type=name.op_type if name else None,
        records=len(parsed),
        best_speedup=max(speedups, default=None),
        median_speedup=median(speedups) if speedups else None,
        problem=problem,
    )


def _speedups(parsed: ParsedFile, entries: Iterable[Provenance]) -> list[float]:
    """Return the newest speed-up of each record that is still in the file."""
    newest: dict[str, float] = {}
    for entry in entries:
        if entry.event in (Event.UNSATISFIED, Event.DROPPED):
            continue
        if entry.speedup is not None and parsed.find(entry.key) is not None:
            newest[entry.key] = entry.speedup
    return list(newest.values())
