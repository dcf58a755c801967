"""Quarantine: records that are known to be bad and have to stay out of a bank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date

from aoebank.model.digest import digest_of
from aoebank.model.finding import Location
from aoebank.model.json_value import JsonObject, JsonValue
from aoebank.model.provenance import check_time
from aoebank.model.record import Record

_EMPTY: Mapping[str, JsonValue] = {}
_NO_ANSWER = frozenset({"end2EndTime", "modelName"})
"""Members of strategies that are no part of the answer: what was measured, and on which model. A
gradient list is its times: measured again, it is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuarantineEntry:
    """One known-bad record, by its key and what narrows it down."""

    key: str
    reason: str
    who: str  # Who put it there
    when: str  # RFC 3339 in UTC
    soc_version: str | None = None  # None for any target; so for `op_type` and `format`
    op_type: str | None = None
    format: str | None = None
    # `answer_digest` of the bad record; None for any strategy of this key.
    strategy_sha256: str | None = None
    ticket: str | None = None  # Where people discuss it
    until: date | None = None  # Last day it holds; None for ever
    evidence: str | None = None  # What was seen: a log, a command, a file
    # Members this version does not know, kept as they are.
    extra: JsonObject = field(default_factory=lambda: _EMPTY)
    location: Location | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.key or not self.reason.strip():
            raise ValueError("a quarantine entry needs a key and a reason")
        check_time(self.when)

    @property
    def sort_key(self) -> tuple[str, ...]:
        """Return the sort key of entries, by which files of two branches merge well."""
        names = (
            self.soc_version,
            self.op_type,
            self.key,
            self.strategy_sha256,
            self.format,
            self.when,
            self.reason,
            self.ticket,
            self.who,
            self.evidence,
            self.until,
        )
        return tuple(str(name or "") for name in names)

    @property
    def identity(self) -> tuple[str | None, ...]:
        """Return the identity of an entry; a second one of it replaces the first."""
        return (self.key, self.soc_version, self.op_type, self.format, self.strategy_sha256)

    def is_active(self, today: date) -> bool:
        """True if the entry still holds on a day."""
        return self.until is None or today <= self.until

    def holds(self, record: Record) -> bool:
        """True if the entry names a record; a member the record has not cannot differ."""
        pairs = (
            (self.soc_version, record.soc_version),
            (self.op_type, record.op_type),
            (self.format, record.format),
        )
        if record.key != self.key:
            return False
        if any(None not in pair and pair[0] != pair[1] for pair in pairs):
            return False
        # entries that were written before answers had digests of their own name whole strategies
        return self.strategy_sha256 in (None, answer_digest(record), digest_of(record.strategy))


def answer_digest(record: Record) -> str:
    """Return the digest of the answer a record gives: the same one however often it is measured."""
    strategy = record.strategy
    if not isinstance(strategy, Mapping):
        return digest_of(strategy)
    return digest_of({name: strategy[name] for name in strategy if name not in _NO_ANSWER})


@dataclass(frozen=True, slots=True)
class Quarantine:
    """The known-bad records of one bank."""

    entries: tuple[QuarantineEntry, ...] = ()
    _by_key: dict[str, list[QuarantineEntry]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        for entry in self.entries:
            self._by_key.setdefault(entry.key, []).append(entry)

    def __iter__(self) -> Iterator[QuarantineEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def holds_key(self, key: str) -> bool:
        """True if any entry is about a key: cheap, before a record is read."""
        return key in self._by_key

    def find(self, record: Record, *, today: date) -> QuarantineEntry | None:
        """Return the entry that keeps a record out on a day, or None."""
        for entry in self._by_key.get(record.key, ()):
            if entry.is_active(today) and entry.holds(record):
                return entry
        return None


def sorted_entries(entries: Iterable[QuarantineEntry]) -> tuple[QuarantineEntry, ...]:
    """Return entries in the order of the file, the newest of each identity only."""
    newest: dict[tuple[str | None, ...], QuarantineEntry] = {}
    for entry in sorted(entries, key=lambda listed: (listed.when, listed.sort_key)):
        newest[entry.identity] = entry
    return tuple(sorted(newest.values(), key=lambda kept: kept.sort_key))
