"""Parts that all result files share: AOE's words, gains, and writing a file whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from aoe.errors import OutputError
from aoe.folders.whole_files import replaced
from aoe.measurement import QUIET_SHARE, Measurement, RoundingSteps, SpeedupEstimate
from aoe.measurement.memory import MemoryUse, ModelMemory
from aoe.workload import Precision

T = TypeVar("T", bound="TaskResult")

BANK_FOLDER = "bank"
"""In a directory of results: the records its model uses."""


OUT_OF_TIME, ONLY_LOOKED_UP = "the time limit was reached", "only looked up"
"""Reason of an operator that was not searched."""
NOT_DECIDED = "not decided, the machine was busy"
"""Beginning of the reason of an operator that no comparison has decided."""
NOT_TRIED_OUT = "not decided, no candidate could be measured"
"""The same where compiler, worker or clock have failed, which says nothing about candidates."""
NOTHING_BETTER = "nothing better was found"
DEFAULT_WAS_BEST = "default was best in an earlier search"
"""Reason of an operator that promises no further gain."""


class RepoOutcome(StrEnum):
    """Change of the record of one operator in the bank. Source: AOE, meaning of `repo_summary`."""

    ADD = "add"
    """Missed, tuned, better than the default: a new record."""
    UPDATE = "update"
    """Hit, tuned again, better than the record: replaced. Counts as a hit."""
    RESERVED = "reserved"
    """Hit, the record stays. Counts as a hit."""
    UNSATISFIED = "unsatisfied"
    """Missed, tuned, nothing better than the default: nothing is written."""


class TuningResult(StrEnum):
    """State of a run. Source: AOE, `opat_tuning_result`."""

    INCOMPLETE = "tuning incomplete"
    SUCCESSFUL = "tuning successful"
    FAILED = "tuning failed"


def improvement_percent(speedup: float) -> float:
    """Return AOE's "performance improvement": (before - after) / after, in percent."""
    return (speedup - 1) * 100


def improvement_text(speedup: float) -> str:
    """Return AOE's "performance improvement" as every file and line has it."""
    return f"{improvement_percent(speedup):.2f}%"


def machine_to_json(measurement: Measurement) -> dict[str, Any] | None:
    """Return the `machine` section of results: the load during a measurement."""
    load = measurement.load
    if load is None:
        return None
    return {
        "quiet": load.use.given_share >= QUIET_SHARE,
        "clock": measurement.clock.value,
        "given_share": round(load.use.given_share, 3),
        "cpu_share": round(load.cpu_share, 3),
        "threads": load.threads,
        "wall_s": round(load.use.wall_s, 4),
        "cpu_s": round(load.use.cpu_s, 4),
        "waited_s": round(load.use.waited_s, 4),
        "stolen_s": round(load.use.stolen_s, 4),
        "involuntary_switches": load.use.switches,
        "tries": load.tries,
        "paused_s": round(load.paused_s, 1),
    }


def memory_to_json(memory: ModelMemory | None) -> dict[str, Any] | None:
    """Return the `memory` section of results: bytes of the sessions."""
    if memory is None:
        return None
    return {"untuned": _use_to_json(memory.baseline), "tuned": _use_to_json(memory.tuned)}


def _use_to_json(use: MemoryUse) -> dict[str, int | None]:
    peak_bytes = None if use.peak_bytes is None else round(use.peak_bytes)
    return {"session_bytes": round(use.resident_bytes), "peak_bytes": peak_bytes}


def timestamp_of(now: datetime) -> str:
    """Return AOE's time stamp: YYYYMMDDhhmmssSSS."""
    return now.strftime("%Y%m%d%H%M%S") + f"{now.microsecond // 1000:03d}"


def result_name(mode: str, timestamp: str, pid: int) -> str:
    """Return the name of a mode's result file, `aoe_result_<mode>_<timestamp>_pid<N>.json`."""
    return f"aoe_result_{mode}_{timestamp}_pid{pid}.json"


def bank_of_results(directory: Path) -> Path | None:
    """Return the bank a run has left in its directory of results, None if it is no such place."""
    bank = directory / BANK_FOLDER
    return bank if bank.is_dir() else None


def basic_section(tuning_name: str, tuning_time_s: float, result: TuningResult) -> dict[str, Any]:
    """Return the section every result file begins with; the time only once it is known."""
    basic: dict[str, Any] = {"tuning_name": tuning_name}
    if result is not TuningResult.INCOMPLETE:
        basic["tuning_time(s)"] = round(tuning_time_s)
    return {"basic": basic}


def runs_per_s(ms: float) -> float:
    """Return runs per second, where one comes after so many ms."""
    return 1e3 / ms


def metric_members(streams: int, *, is_throughput: bool) -> dict[str, Any]:
    """Return the members that name the metric: one run, or the runs of all streams."""
    if not is_throughput:
        return {"target_metric": "latency"}
    return {"target_metric": "throughput", "streams": streams}


def performance_members(
    baseline_ms: float,
    speedup: float,
    result: TuningResult,
    streams: int = 1,
    *,
    is_throughput: bool = False,
    is_proven: bool = False,
) -> dict[str, Any]:
    """Return AOE's figures about the whole model: only the first until a tuned one is written.

    Args:
        baseline_ms: Time of the untuned model; of several streams, from one run to the next.
        speedup: Untuned time over tuned time.
        result: State of the run.
        streams: Callers at the same time.
        is_throughput: True for runs in a second beside AOE's times.
        is_proven: True if a tuned model is written while the run goes on.
    """
    figures: dict[str, Callable[[float], float]] = {"ms": float}
    members = {}
    if is_throughput:
        figures["runs/s"] = runs_per_s
        members = metric_members(streams, is_throughput=True)
    for unit, figure in figures.items():
        members[f"model_baseline_performance({unit})"] = round(figure(baseline_ms), 6)
    if not is_proven and result is not TuningResult.SUCCESSFUL:
        return members
    members["model_performance_improvement"] = improvement_text(speedup)
    for unit, figure in figures.items():
        members[f"model_result_performance({unit})"] = round(figure(baseline_ms / speedup), 6)
    return members


def repo_summary(outcomes: Iterable[RepoOutcome]) -> dict[str, int]:
    """Return AOE's counts of what a run did in the bank; updated and reserved ones are hits."""
    count = Counter(outcomes)
    return {
        "repo_add_num": count[RepoOutcome.ADD],
        "repo_hit_num": count[RepoOutcome.UPDATE] + count[RepoOutcome.RESERVED],
        "repo_reserved_num": count[RepoOutcome.RESERVED],
        "repo_unsatisfied_num": count[RepoOutcome.UNSATISFIED],
        "repo_update_num": count[RepoOutcome.UPDATE],
        "total_num": count.total(),
    }


class TaskResult(Protocol):
    """Result of one task."""

    @property
    def outcome(self) -> RepoOutcome:
        """Change of its record in the bank."""
        ...

    @property
    def failed(self) -> bool:
        """True if it was tuned, and no candidate could be compiled, run, or was right."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReport(Generic[T]):
    """Contents of the result file of a mode that tunes the tasks of a model file."""

    tuning_name: str  # Name of the run
    tuning_time_s: float = 0.0  # Seconds so far
    # Whole untuned model, None until it is measured; of several streams, from one run to the next.
    baseline_ms: float | None = None
    speedup: float = 1.0  # Whole model, untuned time over tuned time
    result: TuningResult = TuningResult.INCOMPLETE  # State of the run
    tasks: tuple[T, ...] = ()  # Every task that is done
    # The lowest the tuned model computes in: what `speedup` is of.
    precision: Precision = Precision.FLOAT32
    # What sessions of both models take, None where that is not known.
    memory: ModelMemory | None = None
    streams: int = 1  # Callers the whole model is judged with at the same time
    is_throughput: bool = False  # True where the runs of a second are judged, not the time of one
    # True once a tuned model is written, with the speed-up: better ones may follow.
    is_proven: bool = False

    @property
    def has_failed(self) -> bool:
        """True if tasks were tuned, and each of them has failed."""
        return bool(self.tasks) and all(task.failed for task in self.tasks)

    @property
    def has_nothing(self) -> bool:
        """True if the run has succeeded and found nothing to tune."""
        return self.result is TuningResult.SUCCESSFUL and not self.tasks

    def basic(self) -> dict[str, Any]:
        """Return the section every result file begins with."""
        return basic_section(self.tuning_name, self.tuning_time_s, self.result)

    def sections(self, mode: str, modified: Mapping[str, Any], **more: Any) -> list[dict[str, Any]]:
        """Return the report in AOE's form (dialect of CANN 6.3 and later).

        While a run is incomplete, what only its end can tell is absent.

        Args:
            mode: `opat`, `sgat`.
            modified: Members on the tasks whose records are new or replaced.
            more: Members at the end of the section.
        """
        body: dict[str, Any] = {}
        if self.baseline_ms is not None:
            body |= performance_members(
                self.baseline_ms,
                self.speedup,
                self.result,
                self.streams,
                is_throughput=self.is_throughput,
                is_proven=self.is_proven,
            )
        if self.memory is not None:
            body["session_memory"] = memory_to_json(self.memory)
        body[f"{mode}_tuning_result"] = self.result.value
        body |= modified
        body["repo_summary"] = repo_summary(task.outcome for task in self.tasks)
        return [self.basic(), {mode.upper(): body | more}]


def finite_or_none(value: float) -> float | None:
    """Return a number JSON can hold: it has no word for infinities and NaN."""
    return value if math.isfinite(value) else None


def steps_to_json(steps: RoundingSteps | None) -> dict[str, int] | None:
    """Return the counts of integers one step off and of all; None where results are floats."""
    return None if steps is None else {"count": steps.off, "of": steps.of}


def write_json(file: Path, value: Any) -> None:
    """Write a JSON file whole or not at all.

    Raises:
        OutputError: no permission, no space, not a directory.
    """
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_report(file: Path, report: Sequence[Any], key: str = "") -> None:
    """Write the report of a model: the whole result file, or one member of it.

    Args:
        file: AOE's result file.
        report: The sections.
        key: Of the model in the file of a run that tunes several, `report_<timestamp>_<tid>`;
            the others of that run stay.

    Raises:
        OutputError: no permission, no space, not a directory.
    """
    if not key:
        write_json(file, report)
        return
    write_json(file, {**read_reports(file), key: report})


def read_reports(file: Path) -> dict[str, Any]:
    """Return the reports this run has written so far, by key; none if there is no file yet."""
    reports: dict[str, Any] = json.loads(file.read_bytes()) if file.exists() else {}
    return reports


def write_table(file: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a CSV file whole or not at all.

    Raises:
        OutputError: as `write_json`.
    """
    sink = io.StringIO()
    writer = csv.DictWriter(sink, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(file, sink.getvalue())


def write_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all: temporary file, fsync, rename.

    Raises:
        OutputError: no permission, no space, not a directory.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as sink:
            sink.write(text.encode("utf-8", "backslashreplace"))  # names of files may be no text
    except OSError as error:
        raise OutputError(
            str(file),
            f"cannot be written: {error.strerror or error}",
            hint="free some space, or give a directory you may write to with --output",
        ) from error


class GainKind(StrEnum):
    """Choice that brought a gain. Source: AOE, keys of `tune_performance`."""

    FORMAT = "Format"
    """Another layout of what it reads and writes, so that nothing is reordered."""
    IMPL = "Impl"
    """Another way to compute the operator, as its first guess has it."""
    SCHEDULE = "Schedule"
    """Tiles, loops and threads of that way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Gain of one choice, while the others stay as they are."""

    kind: GainKind  # The choice
    before_us: float  # Time of the operator without it, us
    after_us: float  # Time with it


def gains_to_json(gains: Iterable[Gain], outcome: RepoOutcome) -> dict[str, Any]:
    """Return gains as AOE's files have them, by kind."""
    return {
        gain.kind.value: {
            "performance_after_tune(us)": round(gain.after_us, 3),
            "performance_before_tune(us)": round(gain.before_us, 3),
            "performance_improvement": improvement_text(gain.before_us / gain.after_us),
            "update_mode": outcome.value,
        }
        for gain in gains
    }


def interval_to_json(estimate: SpeedupEstimate) -> dict[str, float]:
    """Return a speed-up and its interval, with four decimals."""
    return {
        "median": round(estimate.median, 4),
        "low": round(estimate.low, 4),
        "high": round(estimate.high, 4),
    }
