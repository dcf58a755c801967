"""Provenance: how a record came to be, for the side-car of a bank file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from aoebank.model.finding import Location
from aoebank.model.json_value import JsonObject, JsonValue

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)", re.ASCII)
_EMPTY: Mapping[str, JsonValue] = {}


class Event(StrEnum):
    """Action of a tuning run for a workload."""

    ADD = "add"
    UPDATE = "update"
    RESERVED = "reserved"
    UNSATISFIED = "unsatisfied"
    KEPT = "kept"
    DROPPED = "dropped"


_MEASURING = (Event.ADD, Event.UPDATE, Event.RESERVED)
"""Events of a line that says where the record as it is was last measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Origin of a measurement of one key: author, time, machine, samples; a side-car line."""

    key: str
    event: Event
    time: str  # RFC 3339 in UTC, as in `2026-03-01T12:00:00Z`
    engine: str  # Program and version that wrote the entry
    # Environment of the measurement, compared before times are.
    fingerprint: JsonObject = field(default_factory=lambda: _EMPTY)
    # `name` and `sha256` of the model the workload came from.
    model: JsonObject = field(default_factory=lambda: _EMPTY)
    op_names: tuple[str, ...] = ()
    baseline_us: tuple[float, ...] = ()  # Samples of the default schedule, microseconds
    tuned_us: tuple[float, ...] = ()  # Samples of the strategy, same session, microseconds
    # Estimate of baseline / tuned; `speedup_low` and `speedup_high` bound it.
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    # `method`, `seed` and `trials` of the search.
    search: JsonObject = field(default_factory=lambda: _EMPTY)
    # Members this version does not know, kept as they are.
    extra: JsonObject = field(default_factory=lambda: _EMPTY)
    location: Location | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_time(self.time)
        for name in ("speedup", "speedup_low", "speedup_high"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise ValueError(f"{name} must be positive and finite, not {value}")


def last_measured(entries: Iterable[Provenance]) -> Provenance | None:
    """Return the line that tells where a record was last measured, None if none does.

    Args:
        entries: Of its key, oldest first.
    """
    return next((e for e in reversed([*entries]) if e.event in _MEASURING), None)


def check_time(text: str) -> None:
    """Raise `ValueError` unless `text` is an RFC 3339 time in UTC."""
    problem = f"time must be RFC 3339 in UTC, not {text!r}"
    if not _TIME.fullmatch(text):
        raise ValueError(problem)
    try:
        datetime.fromisoformat(text[:19])
    except ValueError as error:  # the 30th of February
        raise ValueError(problem) from error
