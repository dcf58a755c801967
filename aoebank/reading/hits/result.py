"""What logs tell of look-ups, and which records of a bank those found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from aoebank.errors import BankPathError


class LookupKind(StrEnum):
    """What was looked up."""

    OPERATOR = "operator"
    SUBGRAPH = "subgraph"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class BankLookup:
    """One look-up somebody noted.

    Attributes:
        source: The file that tells.
        line: Its line, None in a document.
        name: Node, graph or kernel.
        is_hit: None where the file leaves it open.
        reason: What the file says of it, in words.
        key: Of the record, or its number; empty where the file does not tell.
        pid: Process that looked it up, None where the file does not tell.
    """

    source: Path
    kind: LookupKind
    name: str
    is_hit: bool | None
    line: int | None = None
    reason: str = ""
    key: str = ""
    pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordUse:
    """A record of a bank, and how often it was found."""

    bank: str
    file: str
    key: str
    hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HitsResult:
    """Look-ups, and what they mean for the records of banks.

    Attributes:
        lookups: In the order of the files and their lines.
        silent: Files that tell of none.
        records: Every record of the banks.
        closed: What could not be read, so that something may be missing.
    """

    lookups: tuple[BankLookup, ...]
    silent: tuple[Path, ...]
    records: tuple[RecordUse, ...]
    closed: tuple[BankPathError, ...] = ()

    @property
    def unused(self) -> tuple[RecordUse, ...]:
        """Records no look-up has found."""
        return tuple(record for record in self.records if not record.hits)

    @property
    def hit_keys(self) -> Counter[str]:
        """How often records were found, by the key or number a look-up tells."""
        return Counter(lookup.key for lookup in self.lookups if lookup.is_hit and lookup.key)

    @property
    def names_keys(self) -> bool:
        """Whether some look-up tells which record it found: else none can be called unused."""
        return any(lookup.key for lookup in self.lookups)


def count_hits(lookups: Sequence[BankLookup], kind: LookupKind) -> tuple[int, int, int]:
    """Return how many look-ups of a kind found something, found nothing, or do not tell."""
    told = [lookup.is_hit for lookup in lookups if lookup.kind is kind]
    return told.count(True), told.count(False), told.count(None)
