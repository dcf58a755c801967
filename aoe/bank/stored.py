"""Stored answer of a task, and its look-up by a run; each kind adds its own members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Generic, TypeVar

from aoe.results.files import RepoOutcome


class BankState(StrEnum):
    """What a bank has for a task before its search."""

    HIT = "hit"
    STALE = "stale"
    """A record that cannot be used any more."""
    MISS = "miss"


# When a record is written, as AOE does it: a hit is used as it is unless REPEAT_TUNE asks for a
# search. A search replaces a hit if its answer is better than the record, and fills a miss if its
# answer is better than the default; else nothing is written.
OUTCOMES: Mapping[tuple[BankState, bool], RepoOutcome] = MappingProxyType(
    {
        # (bank, the answer of the search is better): outcome    the record is
        (BankState.HIT, True): RepoOutcome.UPDATE,  #              replaced
        (BankState.HIT, False): RepoOutcome.RESERVED,  #           used as it is
        (BankState.STALE, True): RepoOutcome.UPDATE,  #            replaced
        (BankState.STALE, False): RepoOutcome.UNSATISFIED,  #      left, and not used
        (BankState.MISS, True): RepoOutcome.ADD,  #                written
        (BankState.MISS, False): RepoOutcome.UNSATISFIED,  #       not written
    }
)
"""Outcome of a search; a hit without one is `RESERVED`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Stored answer of a task; a kind adds its own members."""

    cost_us: float | None = None  # Time of the answer when it was measured
    speedup: float | None = None  # Its measured speed-up over the default then, or None
    speedup_low: float | None = None  # Lower end of the interval of that
    is_base: bool = False  # True if it is of the earlier result the run was given
    remeasure_reasons: tuple[str, ...] = ()  # Why it is to be measured again, a sentence each


S = TypeVar("S", bound=Stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Generic[S]):
    """Look-up of a task in the banks, before it is searched."""

    stored: S | None  # The record, if it can be used
    tune: bool  # True if a search is due
    reason: str  # In words, for the report
    invalid_reason: str = ""  # Why the record there counts as a miss; empty if it does not

    @property
    def state(self) -> BankState:
        """What the bank has."""
        if self.stored is not None:
            return BankState.HIT
        return BankState.STALE if self.invalid_reason else BankState.MISS

    @property
    def has_record(self) -> bool:
        """True if there is a record, whether it can be used or not."""
        return self.state is not BankState.MISS
