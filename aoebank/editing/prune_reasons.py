"""Why a record is of no use: each reason a judge that looks at one file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from aoebank.errors import UsageError
from aoebank.formats.protocol import ParsedFile
from aoebank.reading.hits.result import HitsResult
from aoebank.reading.hits.run import used_keys
from aoebank.storage.quarantine import find_entry, load_quarantine
from aoebank.validation.built_in import BuiltInBank


class PruneReason(StrEnum):
    """What may be said against a record."""

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
        """Yield positions of records that should go, each with what is known of it."""
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
        """Yield them, with both times."""
        for record, hidden, _ in self._built_in.hidden_by(parsed):
            number = parsed.find(record.key)
            if number is not None:
                yield number, f"{record.cost_us} us, the built-in one {hidden.cost_us} us"


class QuarantinedJudge:
    """Finds records that are kept out by the quarantine of a bank.

    Args:
        roots: Of the banks.
        today: Day by which entries expire.
    """

    reason = PruneReason.QUARANTINED

    def __init__(self, roots: Iterable[Path], today: date) -> None:
        self._kept_out = [load_quarantine(root) for root in roots if root.is_dir()]
        self._today = today

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield them, with the reason given when they were put there."""
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
                got=f"{len(found.lookups)} look-ups without a key",
                expected="a summary.json of aoe, or a log with `Found in custom repo. K: ...`",
            )
        if len(found.unused) == len(found.records):
            raise UsageError(
                "--unused: the logs have found no record of these banks",
                got=f"{len(found.lookups)} look-ups, {len(found.records)} records",
                hint="are they logs of runs with other banks? aoebank hits LOG --bank BANK",
            )
        self._found = found

    def violations(self, parsed: ParsedFile) -> Iterator[tuple[int, str]]:
        """Yield them."""
        used = used_keys(parsed, self._found.hit_keys)
        for number, key in enumerate(parsed.keys):
            if key not in used:
                yield number, "no look-up in the logs has found it"
