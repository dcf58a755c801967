"""What the engine knows about gradient banks: format F, looked up and stored by modelhash."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from aoe.gradients.choose import Origin, cost_behind
from aoe.gradients.cost import CostModel, cost_from_json, cost_to_json
from aoe.gradients.segmentation import Segmentation, optimal
from aoe.gradients.trace import GradientTrace
from aoe.measurement import SpeedupEstimate
from aoebank import (
    Bank,
    Event,
    Provenance,
    Reader,
    Record,
    RecordError,
    load_quarantine,
    make_gradient_record,
    resolve_bank,
)

_ENGINE = "aoe"
_PLACEHOLDER = [0] * 5
"""A list CANN's tuner fills with what it measures next, whatever the model. Source: hicann/ge,
gradient_split_tune.cc."""
_LIMIT = 2**64


class Miss(StrEnum):
    """Why a look-up found nothing that can be used."""

    ABSENT = "no record"
    PLACEHOLDER = "record is a placeholder nobody filled"
    TWICE = "same modelhash twice: readers would join the lists"
    BROKEN = "lists are broken or do not fit together"
    FOREIGN = "record is of a model with other gradients"
    QUARANTINED = "record is in quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientVerdict:
    """What a tuning run found out about one model; goes into the side-car.

    Attributes:
        event: What became of the record.
        world_size: Number of processes it was measured with.
        backend: Their communication library, such as `gloo`.
        cost: All-reduce among them, or None if it was not measured.
        segmentation: The one chosen, or None if the default stays.
        origin: Why that one was a candidate.
        inflation: Factor on the cost, or on its latency, that it is optimal for.
        estimate: Speed-up of a step over the default's, with its interval.
        baseline_us: Steps with the default segmentation.
        tuned_us: Steps with the chosen one, pair by pair.
        search: Anything else worth keeping, JSON values.
    """

    event: Event
    world_size: int
    backend: str
    cost: CostModel | None = None
    segmentation: Segmentation | None = None
    origin: Origin | None = None
    inflation: float = 1.0
    estimate: SpeedupEstimate | None = None
    baseline_us: tuple[float, ...] = ()
    tuned_us: tuple[float, ...] = ()
    search: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGradients:
    """A usable record with what its side-car adds.

    Attributes:
        key: Modelhash.
        trace: The lists; times count from backward if the side-car knows its start, else from
            the first gradient. Names and dtypes are `?` where there is no side-car of ours.
        world_size: Processes the segmentation was measured with, None if unknown.
        backend: Their communication library, None if unknown.
        cost: All-reduce among them, None if unknown.
        segmentation: The one that won there, None if unknown.
        origin: Why that one was a candidate.
        inflation: Factor on the cost, or on its latency, that it is optimal for.
        speedup: Of a step over the default's there, None if unknown.
        speedup_low: Lower end of its interval.
        speedup_high: Upper end.
    """

    key: str
    trace: GradientTrace
    world_size: int | None = None
    backend: str | None = None
    cost: CostModel | None = None
    segmentation: Segmentation | None = None
    origin: Origin = Origin.OPTIMUM
    inflation: float = 1.0
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None

    @property
    def has_names(self) -> bool:
        """True if the lists can be matched with parameters by name."""
        return "?" not in self.trace.names

    def segment(self, cost: CostModel, *, world_size: int, backend: str) -> Segmentation:
        """Return the segmentation to use now.

        Where it was measured, in a cluster of this size and library, the winner; elsewhere the
        optimum for this cluster's cost, inflated as the winner's was.
        """
        same = (self.world_size, self.backend) == (world_size, backend)
        if same and self.segmentation is not None:
            return self.segmentation
        return optimal(self.trace, cost_behind(cost, self.origin, self.inflation))


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientLookup:
    """Outcome of a look-up: one of both is there."""

    stored: StoredGradients | None = None
    miss: Miss | None = None


class GradientBank:
    """The gradient bank of one target.

    Args:
        folder: Where the file is, see `gradient_bank_folder`.
        soc_version: Names the file.
        fingerprint: Environment of this run's measurements: machine, library versions.
        model: Name of the model, and what else identifies it to people.
        engine_version: Written into the side-car.
        clock: Returns the present time in UTC.
    """

    def __init__(
        self,
        folder: Path,
        soc_version: str,
        *,
        fingerprint: Mapping[str, Any],
        model: Mapping[str, str],
        engine_version: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.file = folder / f"{soc_version}_gradient_fusion.json"
        self._soc_version = soc_version
        self._bank = Bank(folder)
        self._fingerprint = dict(fingerprint)
        self._model = dict(model)
        self._engine = f"{_ENGINE} {engine_version}"
        self._clock = clock

    def find(
        self, modelhash: int, sizes_bytes: Sequence[int] | None = None
    ) -> StoredGradients | None:
        """Return what the bank knows about a model, None on any kind of miss."""
        return self.look_up(modelhash, sizes_bytes).stored

    def look_up(self, modelhash: int, sizes_bytes: Sequence[int] | None = None) -> GradientLookup:
        """Look a model up; a record nobody should use is a miss that says why.

        Args:
            modelhash: See `model_hash`.
            sizes_bytes: Gradients of the model in any order; a record with others is foreign.

        Raises:
            BankFormatError: the bank file is corrupt.
        """
        key = str(modelhash)
        try:
            record = self._bank.find(self.file, key)
        except RecordError:
            return GradientLookup(miss=Miss.BROKEN)
        if record is None:
            return GradientLookup(miss=Miss.ABSENT)
        if self._is_quarantined(record):
            return GradientLookup(miss=Miss.QUARANTINED)
        if self._count(key) > 1:
            return GradientLookup(miss=Miss.TWICE)
        lists = _usable_lists(record)
        if isinstance(lists, Miss):
            return GradientLookup(miss=lists)
        sizes, times = lists
        if sizes_bytes is not None and sorted(sizes) != sorted(sizes_bytes):
            return GradientLookup(miss=Miss.FOREIGN)
        return GradientLookup(stored=_stored(key, sizes, times, self._last_entry(key, record)))

    def save(self, modelhash: int, trace: GradientTrace, verdict: GradientVerdict) -> None:
        """Write the record of a model and its provenance, in place of all older ones of it.

        Where the quarantine wants no record of this model at all, only the provenance is written.
        """
        record = _record_of(modelhash, trace, self._clock())
        if self._is_quarantined(record):
            self._append(modelhash, replace(verdict, event=Event.UNSATISFIED), trace, None)
            return
        self._bank.put(self.file, [record])
        self._append(modelhash, verdict, trace, _digest(record))

    def note(
        self, modelhash: int, verdict: GradientVerdict, trace: GradientTrace | None = None
    ) -> None:
        """Append provenance without touching the record."""
        self._append(modelhash, verdict, trace, None)

    def is_hopeless(self, modelhash: int, *, world_size: int, backend: str) -> bool:
        """Return True if the last tuning in such a cluster found only the default best."""
        last = None
        for entry in self._bank.iter_provenance(self.file):
            same = (entry.fingerprint.get("world_size"), entry.fingerprint.get("backend"))
            if entry.key == str(modelhash) and same == (world_size, backend):
                last = entry.event
        return last is Event.UNSATISFIED

    def _is_quarantined(self, record: Record) -> bool:
        quarantine = load_quarantine(self._bank.root)
        record = replace(record, soc_version=self._soc_version)
        return quarantine.find(record, today=self._clock().date()) is not None

    def _count(self, key: str) -> int:
        """Return how many records have a key; broken ones of other models do not matter."""
        return sum(record.key == key for record in self._bank.iter_records(self.file))

    def _last_entry(self, key: str, record: Record) -> Provenance | None:
        """Return who wrote the record as it is now, None if that was not this engine."""
        found = None
        for entry in self._bank.iter_provenance(self.file):
            if entry.key == key and entry.event in (Event.ADD, Event.UPDATE):
                found = entry
        return found if found and found.search.get("lists") == _digest(record) else None

    def _append(
        self,
        modelhash: int,
        verdict: GradientVerdict,
        trace: GradientTrace | None,
        digest: str | None,
    ) -> None:
        estimate = verdict.estimate
        cluster: dict[str, Any] = {"world_size": verdict.world_size, "backend": verdict.backend}
        entry = Provenance(
            key=str(modelhash),
            event=verdict.event,
            time=self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
            engine=self._engine,
            fingerprint=self._fingerprint | cluster,
            model=self._model,
            op_names=trace.names if trace else (),
            baseline_us=tuple(round(each, 3) for each in verdict.baseline_us),
            tuned_us=tuple(round(each, 3) for each in verdict.tuned_us),
            speedup=round(estimate.median, 4) if estimate else None,
            speedup_low=round(estimate.low, 4) if estimate else None,
            speedup_high=round(estimate.high, 4) if estimate else None,
            search=_search(verdict, trace, digest),
        )
        self._bank.append_provenance(self.file, [entry])


def gradient_bank_folder(env: Mapping[str, str], cwd: Path, soc_version: str) -> Path:
    """Return the folder CANN's own tuner would write the bank of a target to.

    That is `TUNE_BANK_PATH` itself, without a folder per target, or one per target below the
    default in the home directory.

    Raises:
        BankNotFoundError: `TUNE_BANK_PATH` names no directory, or there is no home.
        BankPermissionError: it may not be used.
    """
    resolution = resolve_bank(env=env, cwd=cwd, reader=Reader.GRADIENT_WRITER)
    is_default = resolution.variable == "HOME"
    return resolution.root / soc_version if is_default else resolution.root


def _record_of(modelhash: int, trace: GradientTrace, now: datetime) -> Record:
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


def _usable_lists(record: Record) -> tuple[list[int], list[float]] | Miss:
    strategy: Any = record.strategy
    sizes, times = strategy["gradientSize"], strategy["gradientTime"]
    if not any(sizes) or _PLACEHOLDER in (sizes, times):
        return Miss.PLACEHOLDER
    numbers = [*sizes, *times]
    if len(sizes) != len(times) or not all(math.isfinite(each) and each >= 0 for each in numbers):
        return Miss.BROKEN
    if any(size != int(size) for size in sizes):
        return Miss.BROKEN
    return [int(size) for size in sizes], [float(time) for time in times]


def _stored(
    key: str, sizes: Sequence[int], times: Sequence[float], entry: Provenance | None
) -> StoredGradients:
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
    )


class _Noted:
    """The `search` member of a side-car entry, which anybody may have edited."""

    def __init__(self, search: Mapping[str, Any]) -> None:
        self._search = search

    def number(self, name: str, default: float) -> float:
        value = self._search.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return default
        return float(value) if 0 <= value < math.inf else default

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._search.get(name)
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
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


def _search(
    verdict: GradientVerdict, trace: GradientTrace | None, digest: str | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {"method": "dynamic program", "inflation": verdict.inflation}
    if verdict.cost is not None:
        facts["cost"] = cost_to_json(verdict.cost)
    if verdict.segmentation is not None:
        facts["segmentation"] = list(verdict.segmentation.ends)
    if verdict.origin is not None:
        facts["origin"] = verdict.origin.value
    if trace is not None:
        facts["first_ready_us"] = round(trace.ready_us[0], 3)
        facts["loops"], facts["dtypes"] = trace.loops, list(trace.dtypes)
    if digest is not None:
        facts["lists"] = digest
    return {**facts, **(verdict.search or {})}


def _digest(record: Record) -> str:
    """Return what ties a side-car entry to these very lists, whoever rewrote their text."""
    text = json.dumps(record.strategy, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
