"""Stored answer of a task, and its look-up by a run; each kind adds its own members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Stored answer of a task; a kind adds its own members.

    Attributes:
        cost_us: Time of the answer when it was measured.
        speedup: Its measured speed-up over the default then, or None.
        speedup_low: Lower end of the interval of that.
        is_base: True if it is of the earlier result the run was given.
        doubts: Why it is to be measured again, a sentence each.
    """

    cost_us: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    is_base: bool = False
    doubts: tuple[str, ...] = ()


S = TypeVar("S", bound=Stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(Generic[S]):
    """Look-up of a task in the banks, before it is searched.

    Attributes:
        stored: The record, if it can be used.
        tune: True if a search is due.
        reason: In words, for the report.
        invalid_reason: Why the record there counts as a miss; empty if it does not.
    """

    stored: S | None
    tune: bool
    reason: str
    invalid_reason: str = ""

    @property
    def has_record(self) -> bool:
        """True if there is a record, whether it can be used or not."""
        return self.stored is not None or bool(self.invalid_reason)
