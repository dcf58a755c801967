"""What became of the whole model, in lines: gain, accuracy, what was left out, the last line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

from aoe.measurement import QUIET_SHARE, Clock
from aoe.report.quantities import pairs_text
from aoe.report.reuse import write_reuse
from aoe.tuning.precision.constraint import told
from aoebank import Report, plural

if TYPE_CHECKING:
    from pathlib import Path

    from aoe.tuning.model_mode import ModelTuning
    from aoe.tuning.opat.result import OpatResult
    from aoebank import Text
if TYPE_CHECKING:
    from aoe.tuning.mode import ModeResult
if TYPE_CHECKING:
    from aoe.tuning.tasks.operators.chosen_kernel import ChosenKernel
    from aoe.tuning.validation.accuracy import HeldAccuracy
    from aoebank import Text

_MOST_ROWS = 30


def write_accuracy(text: Text, held: HeldAccuracy[ChosenKernel], kept: frozenset[str]) -> None:
    """Write what was traded, and what the whole model reaches.

    Args:
        text: Where to.
        held: What the model was held to.
        kept: Names of the kernels in the model.
    """
    if held.weighed:
        _write_trade(text, held, kept)
    text.line(f"accuracy: {held}" + ("" if held.trade.holds else ": MISSED, even in float32"))
    if held.trade.roll_back:
        text.line(
            f"{len(held.trade.roll_back)} of {len(held.weighed)} kernels put back to keep it: "
            f"{_with_all(held)}"
        )


def _with_all(held: HeldAccuracy[ChosenKernel]) -> str:
    if not held.trade.in_time and isnan(held.trade.at_first):
        return "no time was left to run the model with them"
    return f"{held.constraint.name} was {told(held.trade.at_first)} with all of them"


def _write_trade(text: Text, held: HeldAccuracy[ChosenKernel], kept: frozenset[str]) -> None:
    """Write a row for each kernel in question: the one that saves most comes first."""
    alone = f"{held.constraint.name} alone"
    header = ("operator", "precision", "places", "saves us", alone, "in model")
    ranked = sorted(held.weighed, key=lambda kernel: (-kernel.gain_us, kernel.source.name))
    text.line(f"accuracy against speed, {held.constraint}:")
    rows = (_row(kernel, held, kept) for kernel in ranked)
    text.table(header, rows, "n-rrr", most=_MOST_ROWS, rest="in summary.json")


def _row(
    kernel: ChosenKernel, held: HeldAccuracy[ChosenKernel], kept: frozenset[str]
) -> tuple[str, ...]:
    name = kernel.source.name
    alone = held.trade.alone.get(name)
    state = "put back" if name in held.trade.roll_back else "yes" if name in kept else "no"
    return (
        kernel.op_names[0],
        kernel.source.workload.precision.value,
        str(len(kernel.regions)),
        f"{kernel.gain_us:.1f}",
        told(alone) if alone is not None else "-",
        state,
    )


def finished_line(result: ModeResult, reason: str = "", *, note: str = "") -> str:
    """Return AOE's line about what came of it, the same for every mode.

    Args:
        result: Of the mode.
        reason: Why nothing was gained, if nothing was.
        note: What has to be said of the figure of a gain.
    """
    from aoe.results.files import improvement_text

    name = result.tuning_name
    of_what = "" if result.metric == "latency" else f" ({result.metric})"
    if result.speedup == 1.0:
        why = f": {reason}" if reason else ""
        return f"{name} process finished. Performance not improved{why}"
    gain = improvement_text(result.speedup)
    return f"{name} process finished. Performance improved by {gain}{of_what}{note}"


def looked_up_finish(result: ModeResult, parts: str) -> str:
    """Return the line of a run that has placed what the bank had, and measured nothing.

    Args:
        result: Of the mode.
        parts: How many of which, `3 kernels`.
    """
    return f"{result.tuning_name} process finished. From the bank: {parts}, not measured"


BY_CPU_TIME = "by CPU time: the machine was busy"
_NAMED = 4
"""Parts that are named where all went for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTuningReport(Report):
    """What a mode made of a model file; a mode that tells more has a class of its own."""

    result: ModelTuning[Any]
    schema: str = "aoe.tasks/1"

    def document(self) -> Mapping[str, object]:
        """Return the paths of all files, null for reports that did not stay, and the summary."""
        result, stay = self.result, self.result.places.reports_stay
        return {
            "om": str(result.om_file),
            "results": str(result.places.results) if stay else None,
            "result_file": str(result.result_file) if stay else None,
            "bank": str(result.bank),
            "summary": result.summary(),
        }

    def write(self, text: Text) -> None:
        result, validation = self.result, self.result.validation
        self.write_tasks(text)
        write_reuse(text, result.reuse)
        for line in self.whole_model():
            text.line(line)
        if busy := _busy(result):
            text.line(f"do not believe these figures, the machine was busy: {busy}")
        self.write_trade(text)
        _write_dropped(text, result)
        text.line(f"tuned model: {result.om_file}")
        for one in result.damaged:
            text.line(f"damaged bank file: {one}")
        text.line(bank_line(self.bank()))
        if validation.is_changed and not validation.is_measured:
            text.line(looked_up_finish(result, self.parts()) + self.lower())
            return
        last = finished_line(result, self.reason_for_nothing(), note=busy_note(result))
        text.line(last + self.lower())

    def whole_model(self) -> Sequence[str]:
        """Return the lines on the speed of the model."""
        precision = f" in {self.result.precision.value}" if self.lower() else ""
        if not self.result.validation.is_changed:
            return [unchanged_line(self.result, self.nothing_kept())]
        if not self.result.validation.is_measured:
            return [looked_up_line(self.parts(), precision)]
        return [gain_line(self.result, precision)]

    def lower(self) -> str:
        """Return the note on a model that computes in less than float32, else nothing."""
        precision = self.result.precision
        return f" ({precision.value})" if precision.is_lower else ""

    # ---- what a mode may tell in words of its own ----

    def write_tasks(self, text: Text) -> None:
        """Write the table of tasks."""
        columns = (self.result.job.subject, "before us", "after us", "speed-up", "bank", "why")
        text.table(columns, map(_task_cells, self.result.rows()), "nrrr--")

    def write_trade(self, text: Text) -> None:
        """Write what was given up for what the user asked for."""

    def nothing_kept(self) -> str:
        """Return why the model is unchanged."""
        return f"no {self.result.job.subject} is kept"

    def parts(self) -> str:
        """Return how many of what were taken from the bank."""
        return plural(len(self.result.validation.kept), self.result.job.subject)

    def reason_for_nothing(self) -> str:
        """Return in one line why the model is not faster."""
        return self.result.validation.undecided or self.nothing_kept()

    def bank(self) -> Path:
        """Return where the records are."""
        return self.result.bank / self.result.target.soc_version


def bank_line(bank: Path) -> str:
    """Return the line on the bank; a bank that got no record may not exist."""
    return f"bank: {bank}" if bank.exists() else f"bank: {bank} (no record yet)"


def _task_cells(row: Mapping[str, Any]) -> Sequence[str]:
    before, after = (row.get(name) for name in ("before_us", "after_us"))
    return (
        str(row["op_name"]),
        f"{before:.1f}" if before else "-",
        f"{after:.1f}" if after else "-",
        f"{row['speedup']:.2f}x" if row["speedup"] else "-",
        row["outcome"],
        row["reason"],
    )


def gain_line(result: ModelTuning[Any], precision: str = "") -> str:
    """Return the line on the speed of the tuned model."""
    before, after = whole_model_figure(result), whole_model_figure(result, result.speedup)
    return (
        f"whole model{precision}: {before} -> {after}, "
        f"{pairs_text(result.validation.estimate)}, {_conditions(result)}, "
        f"against ONNX Runtime with {result.optimizations})"
    )


def range_lines(result: OpatResult) -> list[str]:
    """Return the lines on a model tuned for a range of shapes: the mean, and each point."""
    estimate = result.validation.estimate
    worst = min(result.points, key=lambda point: point.estimate.median)
    headline = (
        f"whole model, over {result.shape_range}: {estimate.median:.3f}x (95 % interval "
        f"{estimate.low:.3f} to {estimate.high:.3f}, geometric mean of "
        f"{plural(len(result.points), 'shape')}, worst {worst.estimate.median:.3f}x, "
        f"{_conditions(result)}, against ONNX Runtime with {result.optimizations})"
    )
    lines = [headline]
    for point in result.points:
        one = point.estimate
        lines.append(
            f"  {point.shapes}: {point.baseline_us / 1e3:.3f} ms -> {point.tuned_us / 1e3:.3f} ms, "
            f"{one.median:.3f}x ({one.low:.3f} to {one.high:.3f})"
        )
    return lines


def looked_up_line(parts: str, precision: str = "") -> str:
    """Return the line on a tuned model that was looked up and not timed.

    Args:
        parts: How many of which, `3 kernels`.
        precision: What the model is computed in, in words.
    """
    return f"whole model{precision}: {parts} of the bank, looked up and not measured"


def unchanged_line(result: ModelTuning[Any], why: str) -> str:
    """Return the line on an unchanged model: its time, and no ratio, which would be noise."""
    return (
        f"whole model: unchanged, {why} ({whole_model_figure(result)}, "
        f"{_conditions(result)}, ONNX Runtime with {result.optimizations})"
    )


def busy_note(result: ModelTuning[Any]) -> str:
    """Return the note on a figure taken on a busy machine; empty for others."""
    if _by_cpu_time(result):
        return f", {BY_CPU_TIME}"
    return ", measured on a busy machine" if _busy(result) else ""


def _busy(result: ModelTuning[Any]) -> str:
    """Return the load during the measurement of the whole model, empty if the machine was idle."""
    load = result.validation.comparison.measurement.load
    if load is None or load.use.given_share >= QUIET_SHARE or _by_cpu_time(result):
        return ""
    return str(load)


def _write_dropped(text: Text, result: ModelTuning[Any]) -> None:
    """Write a line for each reason for which the whole model did without parts, and a way out."""
    names_of: dict[str, list[str]] = {}
    for name, reason in result.validation.dropped.items():
        names_of.setdefault(reason, []).append(name)
    for reason, names in names_of.items():
        text.line(f"dropped {listed(names)}: {reason}")
    if result.validation.undecided:
        text.line("what was found is in the bank; the same command again goes on from there")


def listed(names: Sequence[str]) -> str:
    """Return names, of many the first ones and how many more there are."""
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[: _NAMED - 1])} and {len(names) - _NAMED + 1} more"


def _conditions(result: ModelTuning[Any]) -> str:
    from aoe.tuning.mode import TargetMetric

    if result.metric is TargetMetric.THROUGHPUT:
        return f"{plural(result.streams, 'stream')} of one thread at the same time"
    by_cpu_time = f", {BY_CPU_TIME}" if _by_cpu_time(result) else ""
    return f"{result.target.core_num} threads{by_cpu_time}"


def _by_cpu_time(result: ModelTuning[Any]) -> bool:
    return result.validation.comparison.measurement.clock is Clock.CPU


def whole_model_figure(result: ModelTuning[Any], speedup: float = 1.0) -> str:
    """Return the time of a model so many times as fast as the untuned one, or its throughput."""
    from aoe.results.files import runs_per_s
    from aoe.tuning.mode import TargetMetric
    from aoe.tuning.model_mode import whole_model_ms

    if result.metric is TargetMetric.LATENCY:
        return f"{result.baseline_ms / speedup:.3f} ms"
    before_ms = whole_model_ms(result.validation, result.streams)
    if before_ms is None:
        return "throughput not measured"
    return f"{runs_per_s(before_ms / speedup):.3f} runs/s"
