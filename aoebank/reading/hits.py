"""Look-ups that found a record, read from logs and results."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from aoebank.errors import BankNotFoundError, BankPathError, BankPermissionError
from aoebank.formats.protocol import ParsedFile
from aoebank.model.display import RichDisplay
from aoebank.report.output import (
    ReadingReport,
    Text,
    closed_document,
    plural,
    write_closed,
    write_rest,
)
from aoebank.selection import RecordFilter, parts_of, target_of
from aoebank.storage.sides.side import Side


class LookupKind(StrEnum):
    """Kind of object that was looked up."""

    OPERATOR = "operator"
    SUBGRAPH = "subgraph"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class BankLookup:
    """One look-up somebody noted."""

    source: Path  # The file that tells
    kind: LookupKind
    name: str  # Node, graph or kernel
    is_hit: bool | None  # None where the file leaves it open
    line: int | None = None  # Its line, None in a document
    reason: str = ""  # What the file says of it, in words
    key: str = ""  # Of the record, or its number; empty where the file does not tell
    pid: int | None = None  # Process that looked it up, None where the file does not tell
    soc_version: str = ""  # Target it was looked up for; empty where the file does not tell


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUse:
    """A record of a bank, and how often it was found."""

    bank: str
    file: str
    key: str
    hits: int
    # Look-ups that found this record, or one of its key for another target: a log does not tell for
    # which chip it looked.
    perhaps: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HitsResult(RichDisplay):
    """Look-ups, and what they mean for the records of banks."""

    shown_by = "aoebank.reading.hits:HitsReport"
    rows_in = "lookups"

    lookups: tuple[BankLookup, ...]  # In the order of the files and their lines
    silent: tuple[Path, ...]  # Files that tell of none
    records: tuple[RecordUse, ...]  # Every record of the banks
    # What could not be read, so that something may be missing.
    closed: tuple[BankPathError, ...] = ()

    @property
    def unused(self) -> tuple[RecordUse, ...]:
        """Records no look-up has found, not even perhaps."""
        return tuple(use for use in self.records if not use.hits and not use.perhaps)

    @property
    def hit_keys(self) -> Counter[str]:
        """Counts of hits, by the key or number a look-up tells."""
        return Counter(lookup.key for lookup in self.lookups if lookup.is_hit and lookup.key)

    @property
    def names_keys(self) -> bool:
        """True if some look-up tells which record it found: else none can be called unused."""
        return any(lookup.key for lookup in self.lookups)


def count_hits(lookups: Sequence[BankLookup], kind: LookupKind) -> tuple[int, int, int]:
    """Return the counts of look-ups of a kind that found, did not find, and do not tell."""
    told = [lookup.is_hit for lookup in lookups if lookup.kind is kind]
    return told.count(True), told.count(False), told.count(None)


_DOCUMENT = ".json"
_LOGS = (".log", ".txt")
"""Files of a folder that are looked into; a file somebody names always is."""


def hits(logs: Sequence[Path], sides: Sequence[Side], *, soc: Sequence[str] = ()) -> HitsResult:
    """Return the look-ups logs and results tell of, and which records of banks they found.

    Args:
        logs: Files, and folders to look for files in.
        sides: Banks; none to only count.
        soc: Targets the logs are of; patterns as in a shell. Without any a look-up whose key files
            of several targets have has found a record of one of them, nobody knows which.

    Raises:
        BankNotFoundError: a path is not there.
    """
    found: list[BankLookup] = []
    silent: list[Path] = []
    closed: list[BankPathError] = []
    for file in _files(logs):
        read = document_lookups if file.suffix == _DOCUMENT else log_lookups
        try:
            lookups = [*read(file)]
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            closed.append(BankPermissionError(problem, path=file))
            continue
        found += lookups
        if not lookups:
            silent.append(file)
    told = HitsResult(lookups=tuple(found), silent=tuple(silent), records=())
    files = [file for side in sides for file in _searched(side, told.hit_keys, closed, soc)]
    return replace(told, records=tuple(_uses(files, told.lookups)), closed=tuple(closed))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise BankNotFoundError("no such log or result", path=path)
        if not path.is_dir():
            yield path
            continue
        for file in sorted(path.rglob("*")):
            if file.suffix in (_DOCUMENT, *_LOGS) and file.is_file():
                yield file


@dataclass(frozen=True, slots=True, kw_only=True)
class _SearchedFile:
    """Keys of a bank file, those that look-ups may have found with what the look-ups call them."""

    bank: str
    name: str
    target: str  # soc_version its records count for; empty where its path is silent
    keys: Sequence[str]
    found: Mapping[str, Sequence[str]]


def _searched(
    side: Side, keys: Counter[str], closed: list[BankPathError], soc: Sequence[str]
) -> Iterator[_SearchedFile]:
    names, unlisted = side.listing()
    closed += unlisted
    ran = RecordFilter(soc=tuple(soc))
    for name in names:
        try:
            parsed = side.load(name)
        except BankPathError as error:
            closed.append(error)
            continue
        if parsed is not None:
            parts = parts_of(name)
            has_any = parts.has_target_in_rows  # the path tells no target then
            meant = not soc or has_any or ran.holds_soc(*parts.soc_versions)
            yield _SearchedFile(
                bank=side.label,
                name=name,
                target="" if has_any else target_of(name),
                keys=parsed.keys,
                found=used_keys(parsed, keys) if meant else {},
            )


def _uses(files: Sequence[_SearchedFile], lookups: Iterable[BankLookup]) -> Iterator[RecordUse]:
    targets: dict[str, set[str]] = defaultdict(set)
    for file in files:
        for lookup in {name for names in file.found.values() for name in names}:
            targets[lookup].add(file.target)
    told: dict[str, Counter[str]] = defaultdict(Counter)  # hits by target, by what was looked up
    for hit in lookups:
        if hit.is_hit and hit.key:
            told[hit.key][hit.soc_version] += 1
    for file in files:
        for key in file.keys:
            sure, perhaps = 0, 0
            for name in file.found.get(key, ()):
                for soc_version, hits in told[name].items():
                    if soc_version:
                        is_own = RecordFilter(soc=(soc_version,)).holds_soc(file.target)
                        sure += hits if is_own or not file.target else 0
                    elif len(targets[name]) == 1:
                        sure += hits
                    else:
                        perhaps += hits
            yield RecordUse(bank=file.bank, file=file.name, key=key, hits=sure, perhaps=perhaps)


def used_keys(parsed: ParsedFile, lookups: Iterable[str]) -> dict[str, list[str]]:
    """Return the keys of a file that look-ups may have found, with what those call them.

    Args:
        lookups: Keys, and numbers a log calls a record by.
    """
    asked = {*lookups}
    used = {key: [key] for key in parsed.keys if key in asked}
    for number in filter(str.isdecimal, asked):
        for key in parsed.format.iter_keys_of_id(parsed, int(number)):
            if number not in used.setdefault(key, []):
                used[key].append(number)
    return used


# ---- lines of logs ----


_OPERATOR = re.compile(
    r"\[op_kb_hit\]\[(?P<name>[^\]]*)\]\[(?P<status>-?\d+)\](?:\[(?P<kernel>[^\]]*)\])?"
)
_SUBGRAPH = re.compile(r"\[sg_kb_hit\]\[(?P<name>[^\]]*)\]\[(?P<status>\d+)\]")
_RUNTIME = re.compile(r"Found in (?P<tier>custom|builtin) repo(?:\W+K:\s*(?P<key>\w+))?")
_PROCESS = re.compile(r"\b[A-Z]+\((?P<pid>\d+),")
_SUBGRAPH_STATUS: Mapping[int, tuple[bool, str]] = {
    169738280: (True, "hit"),
    169738250: (False, "the bank has no strategy for it"),
    169738260: (False, "never tuned"),
    169738270: (False, "the bank was not updated"),
}


def log_lookups(path: Path) -> Iterator[BankLookup]:
    """Yield the look-ups of a log, whatever else is in it.

    Raises:
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, start=1):
            if "_kb_hit" in line or "Found in" in line:
                found = _lookup(path, number, line)
                if found is not None:
                    yield found


def _lookup(path: Path, number: int, line: str) -> BankLookup | None:
    process = _PROCESS.search(line)
    pid = int(process["pid"]) if process else None
    if match := _OPERATOR.search(line):
        is_hit = {"1": True, "0": False}.get(match["status"])
        reason = "" if is_hit is not None else f"status {match['status']}"
        kernel = f"kernel {match['kernel']}" if match["kernel"] else ""
        return BankLookup(
            source=path,
            line=number,
            kind=LookupKind.OPERATOR,
            name=match["name"],
            is_hit=is_hit,
            reason=reason or kernel,
            pid=pid,
        )
    if match := _SUBGRAPH.search(line):
        status = int(match["status"])
        hit, words = _SUBGRAPH_STATUS.get(status, (None, f"status {status}"))
        return BankLookup(
            source=path,
            line=number,
            kind=LookupKind.SUBGRAPH,
            name=match["name"],
            is_hit=hit,
            reason=words,
            pid=pid,
        )
    if match := _RUNTIME.search(line):
        is_custom = match["tier"] == "custom"
        return BankLookup(
            source=path,
            line=number,
            kind=LookupKind.OPERATOR,
            name=match["key"] or "",
            is_hit=is_custom,
            reason="" if is_custom else "found in the built-in bank",
            key=match["key"] or "",
            pid=pid,
        )
    return None


# ---- documents ----


Document = Mapping[str, Any]


def document_lookups(path: Path) -> Iterator[BankLookup]:
    """Yield the look-ups a document tells of; none where it is of another kind, or no JSON.

    Raises:
        OSError: it cannot be read.
    """
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    if isinstance(value, list):  # of CANN's reports, a member each
        value = {
            name: part for entry in value if isinstance(entry, dict) for name, part in entry.items()
        }
    if isinstance(value, dict):
        for reader in _READERS:
            yield from reader(path, value)


def _summary(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read `summary.json` of aoe: an operator was found if its outcome says so."""
    if document.get("schema") != "aoe.summary/1":
        return
    target = document.get("target")
    soc_version = target.get("soc_version") if isinstance(target, dict) else ""
    for row in _objects(document.get("operators")):
        outcome = str(row.get("outcome", ""))
        is_used = row.get("in_model")
        names = row.get("op_names")
        yield BankLookup(
            source=path,
            kind=LookupKind.OPERATOR,
            name=", ".join(map(str, names)) if isinstance(names, list) else "",
            is_hit=outcome in ("reserved", "update") or is_used is True,
            reason=outcome + ("" if is_used is None else ", used" if is_used else ", not used"),
            key=str(row.get("key", "")),
            soc_version=soc_version if isinstance(soc_version, str) else "",
        )


def _tune_result(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read `tune_result_*.json` of Auto Tune: a member for each operator."""
    for names, entry in document.items():
        status = entry.get("status_data") if isinstance(entry, dict) else None
        if isinstance(status, dict) and isinstance(status.get("bank_hit"), bool):
            yield BankLookup(
                source=path,
                kind=LookupKind.OPERATOR,
                name=re.sub(r"[\[\]'\"]", "", names),  # as Python writes a list, or one of lists
                is_hit=status["bank_hit"],
                reason=", ".join(name for name, value in status.items() if value is True),
            )


def _operator_report(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read `aoe_result_opat_*.json`: it names only what it changed, and counts the rest."""
    if (path.parent / "summary.json").exists():  # tells the same, with keys
        return
    section = document.get("OPAT")
    changed = section.get("repo_modified_operators") if isinstance(section, dict) else None
    if isinstance(changed, dict):  # as reports were written up to CANN 6.2
        for member, is_hit in (("add_repo_operators", False), ("update_repo_operators", True)):
            for row in _objects(changed.get(member)):
                yield _changed(path, row, is_hit)
    for row in _objects(changed):
        kinds = row.get("tune_performance")
        modes = {str(kind.get("update_mode")) for kind in _objects(_values(kinds))}
        yield _changed(path, row, "update" in modes)


def _changed(path: Path, row: Document, is_hit: bool) -> BankLookup:
    return BankLookup(
        source=path,
        kind=LookupKind.OPERATOR,
        name=str(row.get("op_name", "")),
        is_hit=is_hit,
        reason="update" if is_hit else "add",
    )


def _kernel(path: Path, document: Document) -> Iterator[BankLookup]:
    """Read the document beside a compiled kernel."""
    told = document.get("KBHit")
    if isinstance(told, bool | int):
        yield BankLookup(
            source=path,
            kind=LookupKind.KERNEL,
            name=str(document.get("kernelName") or document.get("binFileName") or path.stem),
            is_hit=bool(told),
        )


def _objects(value: object) -> Sequence[Document]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _values(value: object) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return [part for entry in _objects(value) for part in entry.values()]


_READERS: tuple[Callable[[Path, Document], Iterator[BankLookup]], ...] = (
    _summary,
    _tune_result,
    _operator_report,
    _kernel,
)
"""One for each kind of document; a new kind is a function more."""


# ---- what is printed ----


MOST_ROWS = 20
"""Rows of each part on a terminal; the document has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsReport(ReadingReport[HitsResult]):
    """Counts of hits, the misses, and records that no look-up used."""

    schema: str = "aoebank.hits/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if no file tells of a look-up."""
        return self.error.exit_code if self.error is not None else int(not self.result.lookups)

    def document(self) -> Mapping[str, object]:
        """Return counts, look-ups and records."""
        result = self.result
        return {
            "counts": [
                {"kind": kind, "hit": hit, "missed": missed, "untold": untold}
                for kind, (hit, missed, untold) in _counts(result).items()
            ],
            "lookups": [_document(lookup) for lookup in result.lookups],
            "silent": [str(path) for path in result.silent],
            "records": [asdict(record) for record in result.records],
            "unreadable": closed_document(result.closed),
        }

    def write(self, text: Text) -> None:
        """Write the counts, then misses, then records no look-up found."""
        result = self.result
        write_closed(text, result.closed)
        if not result.lookups:
            text.line("no look-up is told of here")
            return
        rows = [
            (str(kind), *map(str, (sum(counts), *counts)))
            for kind, counts in _counts(result).items()
        ]
        text.table(("kind", "looked up", "hit", "missed", "untold"), rows, kinds="-rrrr")
        missed = [lookup for lookup in result.lookups if lookup.is_hit is False]
        for lookup in missed[:MOST_ROWS]:
            line = f":{lookup.line}" if lookup.line is not None else ""
            why = f" ({lookup.reason})" if lookup.reason else ""
            text.line(
                f"missed: {lookup.name or lookup.key}{why}  ", (f"{lookup.source}{line}", "dim")
            )
        write_rest(text, len(missed), MOST_ROWS)
        if result.records:
            self._write_records(text)

    def _write_records(self, text: Text) -> None:
        result = self.result
        if not result.names_keys:
            text.line("these logs do not tell which record a look-up found")
            return
        for record in result.unused[:MOST_ROWS]:
            text.line(f"not used: {record.file}:{record.key}")
        write_rest(text, len(result.unused), MOST_ROWS)
        perhaps = sum(not use.hits and use.perhaps > 0 for use in result.records)
        if perhaps:
            text.line(
                f"{plural(perhaps, 'record')} perhaps used: files of several targets have the key, "
                "and logs do not name theirs; --soc does"
            )
        used = len(result.records) - len(result.unused) - perhaps
        text.line(f"{used} of {plural(len(result.records), 'record')} used")


def _counts(result: HitsResult) -> dict[LookupKind, tuple[int, int, int]]:
    counts = {kind: count_hits(result.lookups, kind) for kind in LookupKind}
    return {kind: found for kind, found in counts.items() if any(found)}


def _document(lookup: BankLookup) -> dict[str, object]:
    return asdict(lookup) | {"source": str(lookup.source), "kind": str(lookup.kind)}
