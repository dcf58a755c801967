"""Reports of the small commands: each is written as text or as one document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aoe.report.quantities import interval_text, speedup_text
from aoe.workload import Precision
from aoebank import Report, members, plural

if TYPE_CHECKING:
    from aoe.execute.tasks import ModelComparison
    from aoe.measurement import Measurement
    from aoebank import Text


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionReport(Report):
    """Versions of what a measurement depends on; None for what is not installed."""

    versions: Mapping[str, str | None]
    schema: str = "aoe.version/1"

    def document(self) -> Mapping[str, object]:
        return {"versions": dict(self.versions)}

    def write(self, text: Text) -> None:
        for name, number in self.versions.items():
            text.line(f"{name} {number or 'not installed'}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One output of a model: its shape, and the first of its values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    values: tuple[float | int | bool, ...]  # Of integers as they are: a float may not hold them


@dataclass(frozen=True, slots=True, kw_only=True)
class SignReport(Report):
    """A tuned model that was signed."""

    om: Path  # Where the signed one is
    parts: int  # How many parts the signature is about
    schema: str = "aoe.sign/1"

    @property
    def about(self) -> str:
        """The signed model."""
        return str(self.om)

    def document(self) -> Mapping[str, object]:
        return {"om": str(self.om), "parts": self.parts}

    def write(self, text: Text) -> None:
        text.line(f"signed {self.om}, {self.parts} parts")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(Report):
    """Outputs of a model run."""

    om: Path
    kernels: int
    outputs: tuple[Output, ...]
    fallback_reason: str  # Why the untuned model ran; empty if the tuned one did
    precision: Precision = Precision.FLOAT32  # What the tuned model computes in
    schema: str = "aoe.run/1"

    @property
    def about(self) -> str:
        """The tuned model."""
        return str(self.om)

    def document(self) -> Mapping[str, object]:
        """Return the outputs, and which model computed them; null for what JSON cannot hold."""
        from aoe.results.files import finite_or_none

        outputs = [
            {
                **members(output, "name dtype shape"),
                "values": [finite_or_none(value) for value in output.values],
            }
            for output in self.outputs
        ]
        reason = self.fallback_reason
        return {
            "tuned": not reason,
            "precision": (Precision.FLOAT32 if reason else self.precision).value,
            "outputs": outputs,
            "fallback_reason": reason,
        }

    def write(self, text: Text) -> None:
        kind = "untuned model" if self.fallback_reason else "tuned model"
        lower = self.precision.is_lower and not self.fallback_reason
        precision = f", {self.precision.value}" if lower else ""
        text.line(f"{self.om}: {kind}, {plural(self.kernels, 'kernel')}{precision}")
        for output in self.outputs:
            shape, values = list(output.shape), list(output.values)
            text.line(f"  {output.name} {output.dtype} {shape}: {values}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkReport(Report):
    """Two models timed in pairs."""

    model: Path
    baseline: str  # What the model is compared with, in words
    threads: int  # Of a run
    comparison: ModelComparison
    precision: Precision = Precision.FLOAT32  # What the model computes in
    baseline_precision: Precision = Precision.FLOAT32  # What the other one computes in
    streams: int = 1  # Callers at the same time; of several, runs in a second are compared
    schema: str = "aoe.benchmark/1"

    @property
    def about(self) -> str:
        """The model."""
        return str(self.model)

    def document(self) -> Mapping[str, object]:
        from aoe.measurement import estimate_speedup
        from aoe.results.files import finite_or_none, machine_to_json

        measurement, deviation = self.comparison.measurement, self.comparison.deviation
        estimate = estimate_speedup(measurement)
        return {
            **members(self, "model baseline threads"),
            **self._figures(measurement),
            **members(estimate, "speedup=median:4 speedup_low=low:4 speedup_high=high:4 pairs"),
            **members(self, "precision baseline_precision"),
            "same_results": None if self._is_lower else deviation.acceptable,
            "max_abs_err": finite_or_none(deviation.max_abs_err),
            "machine": machine_to_json(measurement),
        }

    @property
    def _is_lower(self) -> bool:
        return self.precision.is_lower or self.baseline_precision.is_lower

    def _figures(self, measurement: Measurement) -> dict[str, float | int]:
        """Return the times of both models, or how often they run in a second."""
        from aoe.results.files import runs_per_s

        model_ms = measurement.latency_us / 1e3
        baseline_ms = measurement.baseline_latency_us / 1e3
        if self.streams == 1:
            return {"model_ms": round(model_ms, 4), "baseline_ms": round(baseline_ms, 4)}
        return {
            "streams": self.streams,
            "model_runs_per_s": round(runs_per_s(model_ms), 4),
            "baseline_runs_per_s": round(runs_per_s(baseline_ms), 4),
        }

    def write(self, text: Text) -> None:
        from aoe.measurement import QUIET_SHARE, Clock, estimate_speedup
        from aoe.report.whole_model import BY_CPU_TIME
        from aoe.results.files import finite_or_none

        measurement, deviation = self.comparison.measurement, self.comparison.deviation
        estimate = estimate_speedup(measurement)
        error = finite_or_none(deviation.max_abs_err)
        largest = (
            f"largest difference {error:.3g}" if error is not None else "not even finite alike"
        )
        same = "same results" if deviation.acceptable else "results differ"
        if self._is_lower:
            same = f"products in {self.precision.value}"
        if self.baseline_precision.is_lower:
            same += f" against {self.baseline_precision.value}"
        *_, model, baseline = self._figures(measurement).values()
        unit, callers = "ms", plural(self.threads, "thread")
        if self.streams > 1:
            unit, callers = "runs/s", f"{self.streams} streams, each of {callers}"
        decided = f", {BY_CPU_TIME}" if measurement.clock is Clock.CPU else ""
        text.line(f"{self.model}: {model:.3f} {unit}")
        text.line(f"{self.baseline}: {baseline:.3f} {unit}")
        text.line(
            f"{speedup_text(estimate)} as fast (95 % interval {interval_text(estimate)}, "
            f"{plural(estimate.pairs, 'pair')}, {callers}{decided}); {same} ({largest})"
        )
        if deviation.note:
            text.line(deviation.note)
        load, by_wall_time = measurement.load, measurement.clock is Clock.WALL
        is_doubted = by_wall_time or bool(measurement.disagreement)
        if is_doubted and load is not None and load.use.given_share < QUIET_SHARE:
            text.line(
                f"do not believe these figures, the machine was busy: {measurement.busy_words}"
            )
