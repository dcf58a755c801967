"""Releases of a toolkit as readers of a bank, and the fields their operators know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aoebank.model.json_value import JsonValue

TilingRow = tuple[str, str] | tuple[str, str, int]  # name, C type, default if there is one


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """One release as the reader of banks.

    Attributes:
        name: As in `cann-9.1.0`.
        source: Where its facts are from.
        tilings: Rows of the tiling struct by operator, in the order of the struct. What an
            operator that is not here reads is that of the newest release known.
    """

    name: str
    source: str = ""
    tilings: Mapping[str, tuple[TilingRow, ...]] = field(default_factory=dict)


NEWEST = Release(name="newest", source="aoebank/schemas/runtime_kb/operators")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseGuess:
    """The release that explains the records of banks best, and how sure that is.

    Attributes:
        explained: Records with all fields the release wants, and none it does not know.
        records: All records of operators whose fields are known.
        equals: Names of releases that explain the records as well.
        others: Records the remaining releases explain, by their names.
    """

    release: Release = NEWEST
    explained: int = 0
    records: int = 0
    equals: tuple[str, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_sure(self) -> bool:
        """True if all records are explained, and only by this release."""
        return self.explained == self.records and not self.equals


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyField:
    """One field a reader knows.

    Attributes:
        expected: What its values are, for people.
        is_required: Whether a record without it is an error for the reader.
        accepts: Tells whether a value reaches the reader as it is.
    """

    name: str
    expected: str
    is_required: bool
    accepts: Callable[[JsonValue], bool]
