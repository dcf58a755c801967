"""The verb: take records out of banks, all files or none, the rest byte for byte as it was."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from aoebank.errors import UsageError
from aoebank.formats.protocol import ParsedFile, find_error
from aoebank.model.display import RichDisplay
from aoebank.reading.hits import HitsResult, used_keys
from aoebank.report.output import Report, Text, members, plural, write_rest
from aoebank.storage.bank import load_file
from aoebank.storage.bank_change import BankChange
from aoebank.storage.quarantine import find_entry, find_quarantine_root, load_quarantine
from aoebank.validation.built_in import BuiltInBank


class PruneReason(StrEnum):
    """Reason for taking a record out."""

    SHADOWED = "shadowed"
    SLOWER = "slower"
    QUARANTINED = "quarantined"
    UNUSED = "unused"


class RecordJudge(Protocol):
    """Finds records of a file there is one reason against."""

    @property
    def reason(self) -> PruneReason:
        """The reason."""
        ...

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield positions of records that should go, each with the evidence."""
        ...


class ShadowedJudge:
    """Finds records whose key is in the file again, where readers take the other one."""

    reason = PruneReason.SHADOWED

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield all of equal keys but the one that is read."""
        if parsed.format.joins_equal_keys:
            return
        for number, key in enumerate(parsed.keys):
            if parsed.find(key) != number:
                yield number, "the same key is in the file again, and readers take that one"


class SlowerJudge:
    """Finds records slower than those of the built-in bank they hide."""

    reason = PruneReason.SLOWER

    def __init__(self, built_in: BuiltInBank) -> None:
        self._built_in = built_in

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield the number of each slower record, and both times."""
        for record, hidden, _ in self._built_in.hidden_by(parsed):
            number = parsed.find(record.key)
            if number is not None:
                yield number, f"{record.cost_us} us, the built-in one {hidden.cost_us} us"


class QuarantinedJudge:
    """Finds records that are kept out by the quarantine of a bank.

    Args:
        paths: Banks, or files and folders in them.
        today: Day by which entries expire.
    """

    reason = PruneReason.QUARANTINED

    def __init__(self, paths: Iterable[Path], today: date) -> None:
        roots = dict.fromkeys(filter(None, map(find_quarantine_root, paths)))
        self._kept_out = [load_quarantine(root) for root in roots]
        self._today = today

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield the number of each record in quarantine, and the reason its entry gives."""
        for number in range(len(parsed)):
            for kept_out in self._kept_out:
                entry = find_entry(parsed, number, kept_out, today=self._today)
                if entry is not None:
                    yield number, entry.reason
                    break


class UnusedJudge:
    """Finds records no look-up has found.

    Args:
        found: What the logs tell, of the banks that are to be pruned.

    Raises:
        UsageError: the logs do not tell which records were found, or found none of these banks.
    """

    reason = PruneReason.UNUSED

    def __init__(self, found: HitsResult) -> None:
        if not found.names_keys:
            raise UsageError(
                "--unused: the logs do not tell which records they found",
                got=f"{plural(len(found.lookups), 'look-up')} without a key",
                expected="a summary.json of aoe, or a log with `Found in custom repo. K: ...`",
            )
        if len(found.unused) == len(found.records):
            raise UsageError(
                "--unused: the logs have found no record of these banks",
                got=f"{plural(len(found.lookups), 'look-up')}, "
                f"{plural(len(found.records), 'record')}",
                hint="are they logs of runs with other banks? aoebank hits LOG --bank BANK",
            )
        self._found = found

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield the number of each record that no look-up found."""
        used = used_keys(parsed, self._found.hit_keys)
        for number, key in enumerate(parsed.keys):
            if key not in used:
                yield number, "no look-up in the logs has found it"


# ---- the verb ----


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedRecord:
    """A record that goes, and why."""

    path: Path
    key: str
    reason: PruneReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PruneResult(RichDisplay):
    """Records that go, and counts of records that stay."""

    shown_by = "aoebank.editing.prune:PruneReport"
    rows_in = "records"

    records: tuple[PrunedRecord, ...]  # Those that go, by file and place
    kept: int  # How many records of the banks stay
    broken: tuple[Path, ...]  # Files left alone, since they have errors
    written: tuple[Path, ...]  # Files with a new content; none for a dry run


def prune(paths: Sequence[Path], judges: Sequence[RecordJudge], *, is_dry_run: bool) -> PruneResult:
    """Take out the records that one of the judges has no use for.

    A file that is empty afterwards stays, as an empty bank. What side-cars tell of a record stays
    too: it is history.

    Args:
        paths: Bank files and trees.
        judges: What is looked for; the first that condemns a record gives the reason.
        is_dry_run: Tell what would go, write nothing.

    Raises:
        BankNotFoundError: a path is not there.
        BankPathError: a file has a binary twin, or cannot be read or written; nothing is changed.
    """
    gone: list[PrunedRecord] = []
    broken: list[Path] = []
    change = BankChange(paths, is_dry_run=is_dry_run)
    kept = 0
    for entry in change.find_banks():
        parsed = load_file(entry.path)
        if find_error(parsed) is not None:
            broken.append(parsed.path)
            continue
        violations = _condemned(parsed, judges)
        kept += len(parsed) - len(violations)
        if violations:
            change.splice(parsed, removed=violations.keys())
            gone += (violations[number] for number in sorted(violations))
    return PruneResult(
        records=tuple(gone),
        kept=kept,
        broken=tuple(broken),
        written=change.write(),
    )


def _condemned(parsed: ParsedFile, judges: Sequence[RecordJudge]) -> dict[int, PrunedRecord]:
    """Return the records of a file that go, by position."""
    found: dict[int, PrunedRecord] = {}
    for judge in judges:
        for number, detail in judge.violations(parsed):
            found.setdefault(
                number,
                PrunedRecord(
                    path=parsed.path, key=parsed.keys[number], reason=judge.reason, detail=detail
                ),
            )
    return found


# ---- what is printed ----

MOST_ROWS = 50
"""Records listed on a terminal; the document has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport(Report):
    """A line per record that goes, then the counts."""

    result: PruneResult
    is_dry_run: bool = False
    schema: str = "aoebank.prune/1"

    @property
    def exit_code(self) -> int:
        """Return 1 if a file was left alone since it is broken."""
        return int(bool(self.result.broken))

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            "dry_run": self.is_dry_run,
            "pruned": len(result.records),
            "kept": result.kept,
            "records": [members(record, "path key reason detail") for record in result.records],
            **members(result, "broken written"),
        }

    def write(self, text: Text) -> None:
        result = self.result
        for record in result.records[:MOST_ROWS]:
            text.line((f"{record.reason} ", "bold"), f"{record.path}:{record.key}  {record.detail}")
        write_rest(text, len(result.records), MOST_ROWS)
        for path in result.broken:
            text.line(f"left alone: {path} is broken; aoebank validate tells why")
        counts = Counter(record.reason for record in result.records)
        why = ", ".join(f"{number} {reason}" for reason, number in counts.items())
        done = "would go" if self.is_dry_run else "pruned"
        text.line(
            f"{plural(len(result.records), 'record')} {done}"
            + (f" ({why})" if why else "")
            + f", {result.kept} stay"
        )
