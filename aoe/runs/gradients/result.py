"""Results of gradient tuning."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from aoe.bank.records.gradient import GradientConditions
from aoe.gradients.segmentation import Segmentation
from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome
from aoe.results.gradients import GdatReport, gdat_report_to_json
from aoe.tuner.mode import JobType, TargetMetric
from aoebank import AoebankError, RichDisplay


@dataclass(frozen=True, slots=True, kw_only=True)
class GdatResult:
    """Result of gradient tuning, the same in every process."""

    outcome: RepoOutcome  # What became of the record
    reason: str  # Why, in words
    segmentation: Segmentation | None  # What the model is left with, None for its default
    # Speed-up of a training step this run proves; None if it measured or kept nothing.
    estimate: SpeedupEstimate | None
    report: GdatReport  # Everything, as the result file has it
    steps: int  # Training steps that were run
    # What the bank says about a grouping that was used as it is.
    stored_speedup: float | None = None
    stored_conditions: GradientConditions | None = None  # Where that was measured
    # What sums in 16 bits brought on top of it; None if they were not allowed, or turned out not to
    # be.
    compressed: GdatResult | None = None

    @property
    def is_compressed(self) -> bool:
        """True if the model is left with sums in 16 bits."""
        return self.compressed is not None and self.compressed.segmentation is not None

    @property
    def measured_speedup(self) -> float:
        """Of a training step, as far as this run measured it; 1 if it measured or kept nothing."""
        own = self.estimate.median if self.estimate is not None else 1.0
        return own * (self.compressed.measured_speedup if self.compressed is not None else 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TunedGradients(RichDisplay):
    """Result of tuning the gradients of a training, and its files."""

    shown_by = "aoe.report.tuning:report_of"

    job: ClassVar[JobType] = JobType.GDAT
    """The mode."""

    result: GdatResult  # Outcome, grouping, speed-up, report; the same in every process
    bank_file: Path  # Gradient bank
    result_file: Path  # AOE's result file
    is_first: bool = True  # True in the process that speaks for all
    exit_code: int = 0  # Of the program that was tuned; 0 where there is none
    # Why the bank took no more, and where the records are; None if it took all.
    bank_failure: AoebankError | None = None

    def rows(self) -> list[dict[str, Any]]:
        """Return the groupings that were measured, as the result file has them."""
        _, section = gdat_report_to_json(self.result.report)
        rows: list[dict[str, Any]] = section["GDAT"]["candidates"]
        return rows

    def to_records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each grouping that was measured."""
        return self.rows()

    @property
    def tuning_name(self) -> str:
        """Name of the tuning task."""
        return self.result.report.tuning_name

    @property
    def bank(self) -> Path:
        """The gradient bank."""
        return self.bank_file

    @property
    def om_file(self) -> None:
        """No model is made: the one that trains is regrouped."""
        return

    @property
    def speedup(self) -> float:
        """Of a training step, measured in this run; 1 if it measured or kept nothing.

        What the bank says about a grouping that was used as it is: `result.stored_speedup`.
        """
        return self.result.measured_speedup

    @property
    def metric(self) -> TargetMetric:
        """A training step, which nothing runs beside."""
        return TargetMetric.LATENCY
