"""A record: one stored answer of a bank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from aoebank.model.finding import Location
from aoebank.model.json_value import JsonObject, JsonValue

_NO_EXTRA: Mapping[str, JsonValue] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A further answer for the workload of a record, behind the one readers use."""

    workload: JsonValue
    strategy: JsonValue
    cost_us: float | None = None
    origin: str | None = None
    extra: JsonObject = field(default_factory=lambda: _NO_EXTRA)

    @property
    def facts(self) -> list[JsonValue]:
        """Everything the answer says, in a fixed order."""
        return [self.workload, self.strategy, self.extra, self.cost_us, self.origin]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One stored answer: for this workload on this target, that strategy, taking so long.

    A record read from a file carries its bytes in `raw`. `dataclasses.replace` drops them,
    so a changed record is written anew and an unchanged one byte for byte.
    """

    key: str  # Identity inside its file, as the readers of the format compute it
    workload: JsonValue
    strategy: JsonValue  # Opaque to the bank; only tuners and compilers give it meaning
    format: str = "unified"  # Name of the format it is stored in
    soc_version: str | None = None  # From the file name; None for a record that is in no file yet
    op_type: str | None = None
    cost_us: float | None = None  # Measured time in microseconds; None when the file has none
    origin: str | None = None
    # Members this version does not know, kept as they are.
    extra: JsonObject = field(default_factory=lambda: _NO_EXTRA)
    # Slower answers for the same key, where a format stores them.
    alternatives: tuple[Alternative, ...] = ()
    location: Location | None = field(default=None, compare=False)
    raw: bytes | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.key:
            raise ValueError("a record needs a key")
        if self.cost_us is not None and not (0 < self.cost_us < math.inf):
            raise ValueError(f"cost_us must be positive and finite, or None, not {self.cost_us}")

    @property
    def answers(self) -> tuple[Alternative, ...]:
        """All answers for the key, the one readers use first."""
        first = Alternative(
            workload=self.workload,
            strategy=self.strategy,
            cost_us=self.cost_us,
            origin=self.origin,
            extra=self.extra,
        )
        return first, *self.alternatives


def with_raw(record: Record, raw: bytes) -> Record:
    """Return `record` itself, now carrying the bytes it was read from (parsers only)."""
    object.__setattr__(record, "raw", raw)
    return record
