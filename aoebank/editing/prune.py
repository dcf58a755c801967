"""The verb: take records out of banks, all files or none, the rest byte for byte as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aoebank.editing.files import banks_to_change, write_banks
from aoebank.editing.prune_reasons import PruneReason, RecordJudge
from aoebank.errors import BankPathError
from aoebank.formats.protocol import ParsedFile, find_error, raise_if_broken
from aoebank.formats.text.splice import splice_raw
from aoebank.storage.bank import load_file
from aoebank.storage.binary_caches import demand_no_binary_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedRecord:
    """A record that goes, and why."""

    path: Path
    key: str
    reason: PruneReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneResult:
    """What goes, and what stays.

    Attributes:
        records: Those that go, by file and place.
        kept: How many records of the banks stay.
        broken: Files left alone, since they have errors.
        written: Files with a new content; none for a dry run.
    """

    records: tuple[PrunedRecord, ...]
    kept: int
    broken: tuple[Path, ...]
    written: tuple[Path, ...]


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
    edits: list[tuple[ParsedFile, bytes]] = []
    kept = 0
    for entry in banks_to_change(paths, is_dry_run=is_dry_run):
        parsed = load_file(entry.path)
        if find_error(parsed) is not None:
            broken.append(parsed.path)
            continue
        violations = _condemned(parsed, judges)
        kept += len(parsed) - len(violations)
        if violations:
            demand_no_binary_cache(parsed.path, parsed.format)
            edits.append((parsed, _without(parsed, violations)))
            gone += (violations[number] for number in sorted(violations))
    return PruneResult(
        records=tuple(gone),
        kept=kept,
        broken=tuple(broken),
        written=() if is_dry_run else write_banks(edits, paths),
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


def _without(parsed: ParsedFile, violations: Mapping[int, PrunedRecord]) -> bytes:
    """Return the bytes of a file without some of its records; the others are what they were."""
    data = splice_raw(parsed, replaced={}, removed=violations.keys(), added=())
    after = parsed.format.parse(data, parsed.path)
    raise_if_broken(after)
    stays = [number for number in range(len(parsed)) if number not in violations]
    if [after.raw(n) for n in range(len(after))] != [parsed.raw(n) for n in stays]:
        raise BankPathError("records that stay would not be what they were", path=parsed.path)
    return data
