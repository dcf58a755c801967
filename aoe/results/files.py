"""Files a run leaves behind: AOE's own result file, the summary, per-operator and profile files."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from aoe.errors import OutputError

_LONGEST_PREFIX = 80  # of a temporary file; a long model name must not make it too long


class RepoOutcome(StrEnum):
    """What a run did about one operator in the bank. Source: AOE, meaning of `repo_summary`."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorResult:
    """One tuned operator (a workload, which several nodes of the model may share).

    Attributes:
        op_name: First node that computes it.
        op_type: Kernel family.
        outcome: What became of it.
        before_us: Time of the default, us; None for a hit that was not tuned again.
        after_us: Time of the best strategy, us.
    """

    op_name: str
    op_type: str
    outcome: RepoOutcome
    before_us: float | None = None
    after_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpatReport:
    """Contents of `aoe_result_opat_<timestamp>_<pid>.json`.

    Attributes:
        tuning_name: Name of the tuning task.
        tuning_time_s: Seconds so far.
        baseline_ms: Whole untuned model, None until it is measured.
        speedup: Whole model, untuned time over tuned time.
        result: State of the run.
        operators: Every operator that is done.
        failed_operators: Names of operators whose tuning failed altogether.
    """

    tuning_name: str
    tuning_time_s: float = 0.0
    baseline_ms: float | None = None
    speedup: float = 1.0
    result: TuningResult = TuningResult.INCOMPLETE
    operators: tuple[OperatorResult, ...] = ()
    failed_operators: tuple[str, ...] = field(default=())

    def count(self, outcome: RepoOutcome) -> int:
        """Return how many operators ended so."""
        return sum(operator.outcome is outcome for operator in self.operators)

    def with_operator(self, operator: OperatorResult) -> OpatReport:
        """Return the report with one more operator done."""
        return replace(self, operators=(*self.operators, operator))


def improvement_percent(speedup: float) -> float:
    """Return AOE's "performance improvement": (before - after) / after, in percent."""
    return (speedup - 1) * 100


def opat_report_to_json(report: OpatReport) -> list[dict[str, Any]]:
    """Return the report in AOE's form (dialect of CANN 6.3 and later).

    Source: AOE documentation, result file of operator tuning.
    """
    body: dict[str, Any] = {}
    if report.baseline_ms is not None:
        result_ms = report.baseline_ms / report.speedup
        body["model_baseline_performance(ms)"] = round(report.baseline_ms, 6)
        percent = improvement_percent(report.speedup)
        body["model_performance_improvement"] = f"{percent:.2f}%"
        body["model_result_performance(ms)"] = round(result_ms, 6)
    body["opat_tuning_result"] = report.result.value
    body["repo_modified_operators"] = [
        _modified(operator)
        for operator in report.operators
        if operator.outcome in (RepoOutcome.ADD, RepoOutcome.UPDATE)
    ]
    hits = report.count(RepoOutcome.UPDATE) + report.count(RepoOutcome.RESERVED)
    body["repo_summary"] = {
        "repo_add_num": report.count(RepoOutcome.ADD),
        "repo_hit_num": hits,
        "repo_reserved_num": report.count(RepoOutcome.RESERVED),
        "repo_unsatisfied_num": report.count(RepoOutcome.UNSATISFIED),
        "repo_update_num": report.count(RepoOutcome.UPDATE),
        "total_num": len(report.operators),
    }
    if report.failed_operators:
        body["tuning_failed_operators"] = list(report.failed_operators)
    basic = {"tuning_name": report.tuning_name, "tuning_time(s)": round(report.tuning_time_s)}
    return [{"basic": basic}, {"OPAT": body}]


def _modified(operator: OperatorResult) -> dict[str, Any]:
    before, after = operator.before_us or 0.0, operator.after_us or 1.0
    return {
        "op_name": operator.op_name,
        "op_type": operator.op_type,
        "tune_performance": {
            "Schedule": {
                "performance_after_tune(us)": round(after, 3),
                "performance_before_tune(us)": round(before, 3),
                "performance_improvement": f"{improvement_percent(before / after):.2f}%",
                "update_mode": operator.outcome.value,
            }
        },
    }


def finite_or_none(value: float) -> float | None:
    """Return a number JSON can hold: it has no word for infinities and NaN."""
    return value if math.isfinite(value) else None


def write_json(file: Path, value: Any) -> None:
    """Write a JSON file whole or not at all.

    Raises:
        OutputError: no permission, no space, not a directory.
    """
    write_text(file, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


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


@contextmanager
def replaced(file: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file that takes the place of `file` when everything went well."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}."[:_LONGEST_PREFIX], dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as sink:
            yield sink
            sink.flush()
            os.fsync(sink.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all: temporary file, fsync, rename.

    Raises:
        OutputError: no permission, no space, not a directory.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with replaced(file) as sink:
            sink.write(text.encode("utf-8"))
    except OSError as error:
        raise OutputError(
            str(file),
            f"cannot be written: {error.strerror or error}",
            hint="free some space, or give a directory you may write to with --output",
        ) from error
