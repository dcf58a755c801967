"""Everything the engine knows about banks: the only module that sees `Bank` and `Record`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aoe.measurement import Measurement, SpeedupEstimate
from aoe.schedule import Configuration, Schedule, schedule_from_json, schedule_to_json
from aoe.target import Target
from aoe.workload import Workload, workload_from_json, workload_to_json
from aoebank import (
    Bank,
    Event,
    Provenance,
    Quarantine,
    Record,
    current_environment,
    load_quarantine,
    make_unified_record,
    resolve_bank,
    workload_key,
)

STRATEGY_VERSION = 1
_ENGINE = "aoe"
_COMPARED = ("cpu_model", "onnxruntime", "halide", "core_num")
"""Parts of the fingerprint that must agree before an earlier verdict is believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """What a bank knows about a workload.

    Attributes:
        key: Record key.
        schedule: The strategy, replayable.
        configuration: The knobs it came from.
        cost_us: Its time when it was measured.
        speedup: Its measured speed-up over the default then, or None.
    """

    key: str
    schedule: Schedule
    configuration: Configuration
    cost_us: float | None
    speedup: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A note to be kept about one workload of one model.

    Attributes:
        event: What happened.
        op_names: Nodes of the model.
        estimate: Speed-up with its interval, if anything was measured.
        measurement: The samples behind it.
        search: Method, seed and trials.
    """

    event: Event
    op_names: tuple[str, ...] = ()
    estimate: SpeedupEstimate | None = None
    measurement: Measurement | None = None
    search: Mapping[str, Any] = field(default_factory=dict)


class TuningBank:
    """The custom operator bank of one target, as the engine uses it.

    Args:
        root: Bank root, see `open_bank`.
        target: Names the files.
        fingerprint: Environment of this run's measurements.
        model: Name and sha256 of the model being tuned.
        engine_version: Written as the origin of records.
        clock: Returns the present time in UTC.
    """

    def __init__(
        self,
        root: Path,
        target: Target,
        *,
        fingerprint: Mapping[str, Any],
        model: Mapping[str, str],
        engine_version: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.root = root
        self._bank = Bank(root)
        self._target = target
        self._fingerprint = dict(fingerprint)
        self._model = dict(model)
        self._engine = f"{_ENGINE} {engine_version}"
        self._clock = clock
        self._loaded_quarantine: Quarantine | None = None

    def file(self, op_type: str) -> Path:
        """Return the bank file of a kernel family."""
        return self._bank.unified_file(
            soc_version=self._target.soc_version,
            core_num=self._target.core_num,
            op_type=op_type,
        )

    def find(self, workload: Workload) -> StoredAnswer | None:
        """Return the stored answer for a workload, None on a miss.

        A record whose strategy this version cannot replay is a miss: it gets replaced. So is
        one in quarantine, see `quarantine_reason`.

        Raises:
            BankFormatError: the bank file or the quarantine is corrupt.
        """
        record = self._bank.find(self.file(workload.op_type), key_of(workload))
        if record is None or self._is_quarantined(record):
            return None
        return self._answer(record)

    def quarantine_reason(self, workload: Workload) -> str | None:
        """Return why the record of a workload is passed over, None if it is not."""
        record = self._bank.find(self.file(workload.op_type), key_of(workload))
        return None if record is None else self._reason(record)

    def refusal(
        self, workload: Workload, schedule: Schedule, configuration: Configuration
    ) -> str | None:
        """Return why a strategy must not be saved for a workload, None if it may be."""
        strategy = _strategy(schedule, configuration)
        return self._reason(self._record(workload, strategy, cost_us=None))

    def nearest(self, workload: Workload, limit: int = 3) -> tuple[Configuration, ...]:
        """Return knobs that were best for the most similar workloads, most similar first."""
        ranked = []
        for record in self._bank.iter_records(self.file(workload.op_type)):
            other = _workload_of(record)
            answer = self._answer(record)
            if other is None or answer is None or _operators(other) != _operators(workload):
                continue
            if self._is_quarantined(record):
                continue
            distance = abs(math.log(other.output.size / workload.output.size))
            ranked.append((distance, record.key, answer.configuration))
        ranked.sort(key=lambda item: item[:2])
        return tuple(dict.fromkeys(configuration for _, _, configuration in ranked))[:limit]

    def is_hopeless(self, workload: Workload, trials: int) -> bool:
        """Return True if a search here, as large or larger, found only the default best."""
        last = None
        for entry in self._entries(workload):
            if entry.event in (Event.UNSATISFIED, Event.ADD, Event.UPDATE):
                last = entry
        if last is None or last.event is not Event.UNSATISFIED:
            return False
        limit = last.search.get("limit")
        return isinstance(limit, int) and limit >= trials

    def model_verdict(self, workload: Workload) -> Event | None:
        """Return whether this very model kept or dropped the workload's kernel, if it is known.

        A record that was replaced since has not been judged yet.
        """
        verdict = None
        for entry in self._entries(workload):
            if entry.event in (Event.ADD, Event.UPDATE):
                verdict = None
            elif entry.event in (Event.KEPT, Event.DROPPED) and self._is_own(entry):
                verdict = entry.event
        return verdict

    def save(
        self, workload: Workload, schedule: Schedule, configuration: Configuration, verdict: Verdict
    ) -> None:
        """Write a record and its provenance; the record is whole on disk when this returns.

        Raises:
            ValueError: the strategy is in quarantine; ask `refusal` first.
        """
        assert verdict.measurement is not None
        strategy = _strategy(schedule, configuration)
        cost_us = round(verdict.measurement.latency_us, 3)
        record = self._record(workload, strategy, cost_us=cost_us)
        reason = self._reason(record)
        if reason is not None:
            raise ValueError(f"{record.key} is {reason}")
        self._bank.put(self.file(workload.op_type), [record])
        self.note([(workload, verdict)])

    def note(self, verdicts: Sequence[tuple[Workload, Verdict]]) -> None:
        """Append provenance without touching any record."""
        by_file: dict[Path, list[Provenance]] = {}
        for workload, verdict in verdicts:
            entry = self._provenance(workload, verdict)
            by_file.setdefault(self.file(workload.op_type), []).append(entry)
        for file, entries in by_file.items():
            self._bank.append_provenance(file, entries)

    def _record(
        self, workload: Workload, strategy: Mapping[str, Any], *, cost_us: float | None
    ) -> Record:
        record = make_unified_record(
            workload=workload_to_json(workload),
            strategy=strategy,
            cost_us=cost_us,
            origin=self._engine,
        )
        return replace(record, soc_version=self._target.soc_version, op_type=workload.op_type)

    def _is_quarantined(self, record: Record) -> bool:
        return self._reason(record) is not None

    def _reason(self, record: Record) -> str | None:
        if self._loaded_quarantine is None:
            self._loaded_quarantine = load_quarantine(self.root)
        entry = self._loaded_quarantine.find(record, today=self._clock().date())
        if entry is None:
            return None
        return f"in quarantine: {entry.reason}" + (f" ({entry.ticket})" if entry.ticket else "")

    def _entries(self, workload: Workload) -> Iterator[Provenance]:
        """Yield what was noted about a workload in this environment, oldest first."""
        key = key_of(workload)
        for entry in self._bank.iter_provenance(self.file(workload.op_type)):
            same = all(entry.fingerprint.get(n) == self._fingerprint.get(n) for n in _COMPARED)
            if entry.key == key and same:
                yield entry

    def _is_own(self, entry: Provenance) -> bool:
        return entry.model.get("sha256") == self._model["sha256"]

    def _answer(self, record: Record) -> StoredAnswer | None:
        strategy = record.strategy
        if not isinstance(strategy, Mapping) or strategy.get("engine") != _ENGINE:
            return None
        try:
            knobs: Any = strategy["knobs"]
            schedule = schedule_from_json(strategy["steps"])
            configuration = Configuration(knobs)
        except (KeyError, TypeError, AttributeError, ValueError):
            return None
        return StoredAnswer(
            key=record.key,
            schedule=schedule,
            configuration=configuration,
            cost_us=record.cost_us,
            speedup=self._speedup(record),
        )

    def _speedup(self, record: Record) -> float | None:
        file = self.file(str(record.op_type or ""))
        found = None
        for entry in self._bank.iter_provenance(file):
            if entry.key == record.key and entry.event in (Event.ADD, Event.UPDATE):
                found = entry.speedup
        return found

    def _provenance(self, workload: Workload, verdict: Verdict) -> Provenance:
        estimate, measurement = verdict.estimate, verdict.measurement
        return Provenance(
            key=key_of(workload),
            event=verdict.event,
            time=self._clock().strftime("%Y-%m-%dT%H:%M:%SZ"),
            engine=self._engine,
            fingerprint=self._fingerprint,
            model=self._model,
            op_names=verdict.op_names,
            baseline_us=_rounded(measurement.baseline_us) if measurement else (),
            tuned_us=_rounded(measurement.tuned_us) if measurement else (),
            speedup=round(estimate.median, 4) if estimate else None,
            speedup_low=round(estimate.low, 4) if estimate else None,
            speedup_high=round(estimate.high, 4) if estimate else None,
            search=dict(verdict.search),
        )


def bank_root(env: Mapping[str, str], cwd: Path) -> Path:
    """Return the custom operator bank root: TUNE_BANK_PATH > ASCEND_CACHE_PATH > home.

    Raises:
        BankNotFoundError: an explicit path does not exist.
        BankPermissionError: it may not be read, written and searched.
    """
    return resolve_bank(env=env, cwd=cwd).root


def key_of(workload: Workload) -> str:
    """Return the record key of a workload."""
    return workload_key(workload_to_json(workload))


def _strategy(schedule: Schedule, configuration: Configuration) -> dict[str, Any]:
    return {
        "engine": _ENGINE,
        "version": STRATEGY_VERSION,
        "knobs": dict(configuration),
        "steps": schedule_to_json(schedule),
    }


def _workload_of(record: Record) -> Workload | None:
    if not isinstance(record.workload, Mapping):
        return None
    try:
        return workload_from_json(record.workload)
    except ValueError:
        return None


def _operators(workload: Workload) -> tuple[tuple[str, str], ...]:
    return tuple((op.domain, op.op_type) for op in workload.operations)


def _rounded(samples: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(sample, 3) for sample in samples)


__all__ = [
    "Event",
    "StoredAnswer",
    "TuningBank",
    "Verdict",
    "bank_root",
    "current_environment",
    "key_of",
]
