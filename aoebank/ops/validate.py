"""Check bank files and trees; all findings in one run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from aoebank.errors import BankPathError
from aoebank.formats.provenance import bank_file_of, parse_provenance
from aoebank.model.codes import Severity
from aoebank.model.finding import Finding, make_finding
from aoebank.model.location import Location
from aoebank.ops.tree_checks import check_entry, check_name, check_side_car
from aoebank.storage.bank import load_file
from aoebank.storage.tree import FileKind, TreeEntry, classify, iter_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    """Everything found, sorted by place, and how much was looked at."""

    findings: tuple[Finding, ...]
    files: int
    records: int

    def count(self, severity: Severity) -> int:
        """Return how many findings have this severity."""
        return sum(finding.severity is severity for finding in self.findings)


@dataclass(slots=True)
class _Run:
    findings: list[Finding] = field(default_factory=list)
    files: int = 0
    records: int = 0


def validate(paths: Iterable[Path]) -> ValidateResult:
    """Return the findings of files and of all files below directories."""
    run = _Run()
    for entry in _entries(paths, run):
        run.files += 1
        try:
            _check(entry, run)
        except BankPathError as error:
            place = Location(path=entry.path)
            run.findings.append(make_finding("AB101", place, error.problem, hint=error.hint))
    findings = sorted(
        run.findings, key=lambda each: (str(each.location.path), each.location.start, each.code)
    )
    return ValidateResult(findings=tuple(findings), files=run.files, records=run.records)


def _entries(paths: Iterable[Path], run: _Run) -> Iterator[TreeEntry]:
    seen: set[Path] = set()
    for path in paths:
        try:
            is_tree, exists = path.is_dir(), path.exists()
        except OSError:
            is_tree, exists = False, False
        if not exists:
            place = Location(path=path)
            run.findings.append(make_finding("AB501", place, "no such file or directory"))
            continue
        for entry in iter_tree(path) if is_tree else (classify(path),):
            if entry.path not in seen:
                seen.add(entry.path)
                yield entry


def _check(entry: TreeEntry, run: _Run) -> None:
    if entry.kind is FileKind.SIDE_CAR:
        run.findings += _side_car(entry.path)
    elif entry.kind is FileKind.BANK:
        parsed = load_file(entry.path)
        run.records += len(parsed)
        run.findings += parsed.findings
        run.findings += parsed.format.check(parsed)
        run.findings += check_name(parsed)
    else:
        run.findings += check_entry(entry)


def _side_car(path: Path) -> Iterator[Finding]:
    try:
        log = parse_provenance(path.read_bytes(), path)
    except OSError as error:
        raise BankPathError(f"cannot be read: {str(error.strerror).lower()}") from error
    yield from log.findings
    bank_file = bank_file_of(path)
    bank = load_file(bank_file) if bank_file.is_file() else None
    yield from check_side_car(path, log, bank)
