"""The record of a model's gradients and the line about it in the side-car, to and fro."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import accumulate, pairwise
from statistics import median
from typing import Any

from aoe.gradients.choose import Origin, cost_behind
from aoe.gradients.cost import CostModel, cost_from_json, cost_to_json, described_cost
from aoe.gradients.segmentation import Segmentation, optimal
from aoe.gradients.trace import GradientTrace
from aoe.measurement import SpeedupEstimate
from aoebank import Event, Provenance, Record, make_gradient_record

_PLACEHOLDER = [0] * 5
"""A list CANN's tuner fills with what it measures next, whatever the model. Source: hicann/ge,
gradient_split_tune.cc."""
_LIMIT = 2**64
_LARGEST = sys.float_info.max
"""An integer of JSON may be larger than any float."""


class Miss(StrEnum):
    """Reason for which a look-up found nothing that can be used."""

    ABSENT = "no record"
    PLACEHOLDER = "record is a placeholder nobody filled"
    TWICE = "same modelhash twice: readers would join the lists"
    BROKEN = "lists are broken or do not fit together"
    FOREIGN = "record is of a model with other gradients"
    QUARANTINED = "record is in quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientConditions:
    """Conditions of a tuning run; a record is worth something only under the same ones."""

    cost: CostModel | None = None  # All-reduce there, None if the side-car does not know
    # Time of a training step with what the run left in use; None if unknown.
    step_us: float | None = None
    time_limit_s: float | None = None  # Limit that cut the search short, None if none did
    world_size: int | None = None  # Number of processes
    backend: str | None = None  # Their communication library
    cpu_model: str | None = None  # Of the first process's machine
    date: str | None = None  # Day, ISO 8601
    busy: str = ""  # How a busy machine served the steps; empty for a quiet one

    def __str__(self) -> str:
        words = [described_cost(self.cost)] if self.cost is not None else []
        if self.world_size is not None:
            words.append(f"{self.world_size} processes")
        words += [word for word in (self.backend, self.cpu_model, self.date) if word]
        words += ["on a busy machine"] if self.busy else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientVerdict:
    """Result of a tuning run for one model, for the side-car."""

    event: Event  # What became of the record
    world_size: int  # Number of processes it was measured with
    backend: str  # Their communication library, such as `gloo`
    cost: CostModel | None = None  # All-reduce among them, or None if it was not measured
    segmentation: Segmentation | None = None  # The one chosen, or None if the default stays
    origin: Origin | None = None  # Why that one was a candidate
    inflation: float = 1.0  # Factor on the cost, or on its latency, that it is optimal for
    # Speed-up of a step over the default's, with its interval.
    estimate: SpeedupEstimate | None = None
    baseline_us: tuple[float, ...] = ()  # Steps with the default segmentation
    tuned_us: tuple[float, ...] = ()  # Steps with the chosen one, pair by pair
    # Time of a training step with what is in use now, None if it was not measured.
    step_us: float | None = None
    time_limit_s: float | None = None  # Limit that cut the search short, None if none did
    search: Mapping[str, Any] | None = None  # Anything else worth keeping, JSON values


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGradients:
    """A usable record with what its side-car adds."""

    key: str  # Modelhash
    # The lists; times count from backward if the side-car knows its start, else from the first
    # gradient. Names and dtypes are `?` where there is no side-car of ours.
    trace: GradientTrace
    world_size: int | None = None  # Processes the segmentation was measured with, None if unknown
    backend: str | None = None  # Their communication library, None if unknown
    cost: CostModel | None = None  # All-reduce among them, None if unknown
    segmentation: Segmentation | None = None  # The one that won there, None if unknown
    origin: Origin = Origin.OPTIMUM  # Why that one was a candidate
    inflation: float = 1.0  # Factor on the cost, or on its latency, that it is optimal for
    speedup: float | None = None  # Of a step over the default's there, None if unknown
    speedup_low: float | None = None  # Lower end of its interval
    speedup_high: float | None = None  # Upper end
    conditions: GradientConditions = GradientConditions()  # Where all that was measured

    def segment(self, cost: CostModel, *, world_size: int, backend: str) -> Segmentation:
        """Return the segmentation to use now.

        Where it was measured, in a cluster of this size and library, the winner; elsewhere the
        optimum for this cluster's cost, inflated as the winner's was.
        """
        same = (self.world_size, self.backend) == (world_size, backend)
        if same and self.segmentation is not None:
            return self.segmentation
        return self.computed_for(cost)

    def computed_for(self, cost: CostModel) -> Segmentation:
        """Return the optimum for a cost, inflated as the winner's was."""
        return optimal(self.trace, cost_behind(cost, self.origin, self.inflation))


def record_of(modelhash: int, trace: GradientTrace, now: datetime) -> Record:
    """Return the lists as readers take them: bytes and whole microseconds."""
    if not 0 <= modelhash < _LIMIT:
        raise ValueError(f"a modelhash is an unsigned 64-bit number (got {modelhash})")
    # rounding the sums, not the steps: thousands of half microseconds would add up
    marks = [round(ready - trace.ready_us[0]) for ready in trace.ready_us]
    start = round(now.timestamp() * 1e6)
    return make_gradient_record(
        modelhash=str(modelhash),
        sizes_bytes=trace.sizes_bytes,
        times=(start, *(later - earlier for earlier, later in pairwise(marks))),
    )


def usable_lists(record: Record) -> tuple[list[int], list[float]] | Miss:
    """Return sizes in bytes and steps in microseconds, or why they are of no use."""
    strategy: Any = record.strategy
    sizes, times = strategy["gradientSize"], strategy["gradientTime"]
    if not any(sizes) or _PLACEHOLDER in (sizes, times):
        return Miss.PLACEHOLDER
    are_times = all(0 <= number <= _LARGEST for number in (*sizes, *times))
    if len(sizes) != len(times) or not are_times:
        return Miss.BROKEN
    if any(size != int(size) for size in sizes):
        return Miss.BROKEN
    return [int(size) for size in sizes], [float(time) for time in times]


def stored_gradients(
    key: str, sizes: Sequence[int], times: Sequence[float], entry: Provenance | None
) -> StoredGradients:
    """Return the lists with what the side-car says about them, None if that is not about them."""
    noted = _Noted(entry.search if entry else {})
    names, dtypes = (entry.op_names if entry else ()), noted.texts("dtypes")
    unknown = ("?",) * len(sizes)
    trace = GradientTrace(
        sizes_bytes=tuple(sizes),
        dtypes=dtypes if len(dtypes) == len(sizes) else unknown,
        names=names if len(names) == len(sizes) else unknown,
        ready_us=tuple(accumulate(times[1:], initial=noted.number("first_ready_us", 0.0))),
        loops=int(noted.number("loops", 0)),
    )
    if entry is None:
        return StoredGradients(key=key, trace=trace)
    world_size, backend = entry.fingerprint.get("world_size"), entry.fingerprint.get("backend")
    return StoredGradients(
        key=key,
        trace=trace,
        world_size=world_size if isinstance(world_size, int) else None,
        backend=backend if isinstance(backend, str) else None,
        cost=noted.cost(),
        segmentation=noted.segmentation(len(sizes)),
        origin=noted.origin(),
        inflation=noted.number("inflation", 1.0),
        speedup=entry.speedup,
        speedup_low=entry.speedup_low,
        speedup_high=entry.speedup_high,
        conditions=conditions_of(entry),
    )


def conditions_of(entry: Provenance) -> GradientConditions:
    """Return the cluster and versions of a side-car line."""
    noted, where = _Noted(entry.search), entry.fingerprint
    world_size, backend, cpu_model = (
        where.get(name) for name in ("world_size", "backend", "cpu_model")
    )
    # versions before noted samples only
    step_us = noted.number("step_us", median(entry.tuned_us) if entry.tuned_us else 0.0)
    return GradientConditions(
        cost=noted.cost(),
        step_us=step_us or None,
        time_limit_s=noted.number("time_limit_s", -1.0) if "time_limit_s" in entry.search else None,
        world_size=world_size if isinstance(world_size, int) else None,
        backend=backend if isinstance(backend, str) else None,
        cpu_model=cpu_model if isinstance(cpu_model, str) else None,
        date=entry.time[:10] if entry.time else None,
        busy=noted.text("busy"),
    )


class _Noted:
    """The `search` member of a side-car entry, which anybody may have edited."""

    def __init__(self, search: Mapping[str, Any]) -> None:
        self._search = search

    def number(self, name: str, default: float) -> float:
        value = self._search.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return default
        return float(value) if 0 <= value <= _LARGEST else default

    def text(self, name: str) -> str:
        value = self._search.get(name)
        return value if isinstance(value, str) else ""

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._search.get(name)
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            return ()
        return tuple(value)

    def origin(self) -> Origin:
        value = self._search.get("origin")
        return Origin(value) if value in tuple(Origin) else Origin.OPTIMUM

    def cost(self) -> CostModel | None:
        try:
            return cost_from_json(self._search["cost"])
        except (KeyError, ValueError):
            return None

    def segmentation(self, count: int) -> Segmentation | None:
        ends = self._search.get("segmentation")
        if not isinstance(ends, list) or not all(type(end) is int for end in ends):
            return None
        try:
            found = Segmentation(ends=tuple(ends))
        except ValueError:
            return None
        return found if found.ends[-1] == count else None


def search_facts(
    verdict: GradientVerdict, trace: GradientTrace | None, digest: str | None
) -> dict[str, Any]:
    """Return the `search` member of a verdict's line in the side-car."""
    facts: dict[str, Any] = {"method": "dynamic program", "inflation": verdict.inflation}
    if verdict.cost is not None:
        facts["cost"] = cost_to_json(verdict.cost)
    if verdict.segmentation is not None:
        facts["segmentation"] = list(verdict.segmentation.ends)
    if verdict.origin is not None:
        facts["origin"] = verdict.origin.value
    if verdict.step_us is not None:
        facts["step_us"] = round(verdict.step_us, 3)
    if verdict.time_limit_s is not None:
        facts["time_limit_s"] = verdict.time_limit_s
    if trace is not None:
        facts["first_ready_us"] = round(trace.ready_us[0], 3)
        facts["loops"], facts["dtypes"] = trace.loops, list(trace.dtypes)
    if digest is not None:
        facts["lists"] = digest
    return {**facts, **(verdict.search or {})}


def lists_digest(record: Record) -> str:
    """Return the digest that ties a side-car line to these lists, however their text is written."""
    text = json.dumps(record.strategy, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
