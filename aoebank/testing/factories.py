"""Small values for tests: say what matters, the rest is filled in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aoebank import make_unified_record
from aoebank.model.provenance import Event, Provenance
from aoebank.model.record import Record


def make_record(number: int = 0, *, tile: int = 16, **changes: Any) -> Record:
    """Return a unified record whose key depends on `number` only."""
    record = make_unified_record(
        workload={"op_type": "Softmax", "shape": [1, 1000 + number], "axis": -2},
        strategy={"tile": [tile, 4], "vectorize": True},
        cost_us=10.5 + number,
        origin="aoe",
    )
    return replace(record, **changes)


def make_provenance(key: str, *, event: Event = Event.ADD, **changes: Any) -> Provenance:
    """Return an entry for a key, twice as fast as the baseline."""
    entry = Provenance(
        key=key,
        event=event,
        time="2026-01-02T03:04:05Z",
        engine="aoe 1.0",
        baseline_us=(20.0, 21.0),
        tuned_us=(10.0, 10.5),
        speedup=2.0,
        speedup_low=1.9,
        speedup_high=2.1,
    )
    return replace(entry, **changes)
