"""Releases of a toolkit as readers of a bank, and the fields their operators know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aoebank.model.json_value import JsonValue

TilingRow = tuple[str, str] | tuple[str, str, int]  # name, C type, default if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release as the reader of banks."""

    name: str  # As in `cann-9.1.0`
    source: str = ""  # Where its facts are from
    # Rows of the tiling struct by operator, in the order of the struct. What an operator that is
    # not here reads is that of the newest release known.
    tilings: Mapping[str, tuple[TilingRow, ...]] = field(default_factory=dict)


NEWEST = Release(name="newest", source="aoebank/schemas/runtime_kb/operators")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseGuess:
    """The release that explains the records of banks best, and how sure that is."""

    release: Release = NEWEST
    explained: int = 0  # Records with all fields the release wants, and none it does not know
    records: int = 0  # All records of operators whose fields are known
    equals: tuple[str, ...] = ()  # Names of releases that explain the records as well
    # Records the remaining releases explain, by their names.
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_sure(self) -> bool:
        """True if all records are explained, and only by this release."""
        return self.explained == self.records and not self.equals


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyField:
    """One field a reader knows."""

    name: str
    expected: str  # What its values are, for people
    is_required: bool  # Whether a record without it is an error for the reader
    accepts: Callable[[JsonValue], bool]  # Tells whether a value reaches the reader as it is
