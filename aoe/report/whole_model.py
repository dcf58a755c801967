"""Lines on the whole model: gain, accuracy, parts that were left out, the last line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any, TypeVar

from aoe.measurement import QUIET_SHARE, Clock
from aoe.report.quantities import figure, interval_text, pairs_text, speedup_text
from aoe.report.reuse import write_reuse
from aoe.tuner.precision.constraint import told
from aoebank import Report, plural

if TYPE_CHECKING:
    from pathlib import Path

    from aoe.measurement import SpeedupEstimate
    from aoe.runs.model_mode import ModelTuning
    from aoe.runs.operators.result import OpatResult
    from aoe.tasks.operators.chosen_kernel import ChosenKernel
    from aoe.tasks.operators.operator import TunedOperator
    from aoe.tasks.rewrites.lookup import TunedSubgraph
    from aoe.tasks.tuned_task import TunedTask
    from aoe.tuner.chosen_graph import WrittenForm
    from aoe.tuner.mode import ModeResult
    from aoe.validation.accuracy import HeldAccuracy
    from aoe.validation.calibrated import CalibratedForm, Calibration
    from aoe.validation.model_validator import ValidationResult
    from aoebank import AoebankError, Column, Text

_MOST_ROWS = 30
T = TypeVar("T")


TIMES: tuple[Column[TunedOperator | TunedSubgraph], ...] = (
    ("before us", "r", lambda task: figure(task.before_us or None, ".1f")),
    ("after us", "r", lambda task: figure(task.after_us or None, ".1f")),
    ("speed-up", "r", lambda task: f"{task.speedup:.2f}x" if task.speedup else "-"),
)
"""Columns of times of one place in the model; None or 0 stands for what was not measured."""


def first_reason(tasks: Sequence[T], *reasons: tuple[str, Callable[[T], bool]]) -> str:
    """Return the first reason that some tasks have; empty if none has any.

    Args:
        tasks: All of the model.
        reasons: Words with `{}` for the number of tasks, and the tasks that are meant.
    """
    for words, is_meant in reasons:
        if number := sum(map(is_meant, tasks)):
            return words.format(f"{number} of {len(tasks)}")
    return ""


def write_accuracy(
    text: Text,
    held: HeldAccuracy[ChosenKernel],
    kept: frozenset[str],
    names: Mapping[str, str],
) -> None:
    """Write what was traded, and what the whole model reaches.

    Args:
        text: Where to.
        held: What the model was held to.
        kept: Names of the kernels in the model.
        names: What other tables call operators, by their keys.
    """
    if held.weighed:
        _write_trade(text, held, kept, names)
    text.line(f"accuracy: {held}" + ("" if held.trade.holds else ": MISSED, even in float32"))
    if held.trade.roll_back:
        text.line(
            f"{len(held.trade.roll_back)} of {plural(len(held.weighed), 'kernel')} put back to "
            f"keep it: {_with_all(held)}"
        )


def recalled_note(*figures: str) -> str:
    """Return the note on figures an earlier run has measured; empty where there are none.

    Args:
        figures: Names of them; empty ones are passed over.
    """
    named = ", ".join(filter(None, figures))
    return f" (measured by an earlier run: {named})" if named else ""


def recalled_times(tasks: Iterable[TunedTask], plural_noun: str) -> str:
    """Return the name of times in a table that are those of records; empty where none is."""
    return f"times of reserved {plural_noun}" if any(one.is_recalled for one in tasks) else ""


def write_forms(text: Text, calibration: Calibration) -> None:
    """Write a row for each form in integers: what it costs, what it gains, what went back."""

    def gain(form: CalibratedForm) -> str:
        return "-" if form.speedup is None else f"{form.speedup:.2f}x"

    known = recalled_note("all figures" if calibration.is_stored else "")
    by = "written by ONNX Runtime's quantiser, without kernels"
    text.line(f"the model in integers, {by}{known}:")
    text.columns(
        calibration.forms,
        ("in integers", "n", lambda form: form.reach.value),
        ("products", "r", lambda form: f"{form.in_integers} of {form.products}"),
        ("back for accuracy", "r", lambda form: str(len(form.inaccurate))),
        ("back for time", "r", lambda form: str(len(form.slow))),
        ("accuracy", "r", lambda form: told(form.accuracy)),
        ("speed-up", "r", gain),
    )


def _with_all(held: HeldAccuracy[ChosenKernel]) -> str:
    if not held.trade.in_time and isnan(held.trade.at_first):
        return "no time was left to run the model with them"
    return f"{held.constraint.name} was {told(held.trade.at_first)} with all of them"


def _write_trade(
    text: Text,
    held: HeldAccuracy[ChosenKernel],
    kept: frozenset[str],
    names: Mapping[str, str],
) -> None:
    """Write a row for each kernel in question: the one that saves most comes first."""

    def alone(kernel: ChosenKernel) -> str:
        value = held.trade.alone.get(kernel.source.name)
        return told(value) if value is not None else "-"

    def state(kernel: ChosenKernel) -> str:
        name = kernel.source.name
        return "put back" if name in held.trade.roll_back else "yes" if name in kept else "no"

    text.line(f"accuracy against speed, {held.constraint}:")
    text.columns(
        sorted(held.weighed, key=lambda kernel: (-kernel.gain_us, kernel.source.name)),
        ("operator", "n", lambda kernel: names.get(kernel.key, kernel.op_names[0])),
        ("precision", "-", lambda kernel: kernel.source.workload.precision.value),
        ("places", "r", lambda kernel: str(len(kernel.regions))),
        ("saves us", "r", lambda kernel: f"{kernel.gain_us:.1f}"),
        (f"{held.constraint.name} alone", "r", alone),
        ("in model", "-", state),
        most=_MOST_ROWS,
        rest="in summary.json",
    )


_WIDEST_RATIO = 1.5
"""Upper over lower bound of an interval; beyond it, its middle would promise too much."""


def finished_line(
    result: ModeResult,
    reason: str = "",
    *,
    note: str = "",
    estimate: SpeedupEstimate | None = None,
) -> str:
    """Return AOE's last line about a tuning, the same for every mode.

    Args:
        result: Of the mode.
        reason: Why nothing was gained, if nothing was.
        note: What has to be said of the figure of a gain.
        estimate: Interval of the gain. Where it is wide, the line has its lower bound.
    """
    from aoe.results.files import improvement_text

    name = result.tuning_name
    of_what = "" if result.metric == "latency" else f" ({result.metric})"
    if result.speedup == 1.0:
        why = f": {reason}" if reason else ""
        return f"{name} process finished. Performance not improved{why}"
    gain = improvement_text(result.speedup)
    if estimate is not None and estimate.high > _WIDEST_RATIO * estimate.low > _WIDEST_RATIO:
        gain = f"{improvement_text(estimate.low)} or more"
        note = f" (95 % interval {interval_text(estimate)}){note}"
    return f"{name} process finished. Performance improved by {gain}{of_what}{note}"


BY_CPU_TIME = "by CPU time: the machine was busy"
_NAMED = 4
"""Parts that are named where all went for the same reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultReport(Report):
    """Report on a tuning whose records went to a bank."""

    result: Any

    @property
    def error(self) -> AoebankError | None:
        """Error of a bank that took no more; None if it took all."""
        error: AoebankError | None = self.result.bank_failure
        return error


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTuningReport(ResultReport):
    """Result of a mode on a model file; a mode that tells more has a class of its own."""

    result: ModelTuning[Any]
    schema: str = "aoe.tasks/1"

    @property
    def about(self) -> str:
        """Name of the model."""
        return self.result.model.get("name", "")

    def document(self) -> Mapping[str, object]:
        """Return the paths of all files, null for reports that did not stay, and the summary."""
        result, stay = self.result, self.result.places.reports_stay
        return {
            "om": str(result.om_file),
            "results": str(result.places.results) if stay else None,
            "result_file": str(result.result_file) if stay else None,
            "bank": str(result.places.bank_made_of or result.bank),
            "summary": result.summary(),
        }

    def write(self, text: Text) -> None:
        result, validation = self.result, self.result.validation
        self.write_tasks(text)
        write_reuse(text, result.reuse)
        for line in self.whole_model():
            text.line(line)
        if result.written_as is not None:
            text.line(str(result.written_as))
        if busy := _busy(result):
            text.line(f"do not believe these figures, the machine was busy: {busy}")
        self.write_trade(text)
        _write_dropped(text, result)
        text.line(f"tuned model: {result.om_file}")
        for one in result.damaged:
            text.line(f"damaged bank file: {one}")
        made_of = result.places.bank_made_of
        text.line(f"bank: the reports in {made_of}" if made_of else bank_line(self.bank()))
        if validation.is_changed and not validation.is_measured:
            found = f"From the bank: {self.parts()}, not measured"
            if not validation.kept and result.written_as is not None:
                found = _form_only(result.written_as)
            text.line(f"{result.tuning_name} process finished. {found}{self.lower()}")
            return
        last = finished_line(
            result, self.reason_for_nothing(), note=busy_note(result), estimate=validation.estimate
        )
        text.line(last + self.lower())

    def whole_model(self) -> Sequence[str]:
        """Return the lines on the speed of the model; of an unchanged one without a ratio."""
        result, untuned = self.result, f"ONNX Runtime with {self.result.optimizations}"
        before, conditions = whole_model_figure(result), _conditions(result)
        if not result.validation.is_changed:
            why = f"unchanged, {self.nothing_kept()}"
            return [f"whole model: {why} ({before}, {conditions}, {untuned})"]
        name = f"whole model in {result.precision.value}" if self.lower() else "whole model"
        if not result.validation.is_measured:
            if not result.validation.kept and result.written_as is not None:
                return [f"{name}: {_form_only(result.written_as)}"]
            return [f"{name}: {self.parts()} of the bank, looked up and not measured"]
        gain = pairs_text(result.validation.estimate)
        after = whole_model_figure(result, result.speedup)
        return [f"{name}: {before} -> {after}, {gain}, {conditions}, against {untuned})"]

    def lower(self) -> str:
        """Return the note on a model that computes in less than float32, else nothing."""
        precision = self.result.precision
        return f" ({precision.value})" if precision.is_lower else ""

    # ---- what a mode may tell in words of its own ----

    def write_tasks(self, text: Text) -> None:
        """Write the table of tasks."""
        rows, noun = self.result.rows(), self.result.job.subject
        if any(row.get("recalled") for row in rows):
            text.line(f"{noun}s{recalled_note(f'times of reserved {noun}s')}:")
        text.columns(
            rows,
            (noun, "n", lambda row: str(row["op_name"])),
            ("before us", "r", lambda row: figure(row.get("before_us") or None, ".1f")),
            ("after us", "r", lambda row: figure(row.get("after_us") or None, ".1f")),
            ("speed-up", "r", lambda row: f"{row['speedup']:.2f}x" if row["speedup"] else "-"),
            ("bank", "-", lambda row: row["outcome"]),
            ("why", "-", lambda row: row["reason"]),
        )

    def write_trade(self, text: Text) -> None:
        """Write what was given up for what the user asked for."""

    def nothing_kept(self) -> str:
        """Return the reason why the model is unchanged."""
        return f"no {self.result.job.subject} is kept"

    def parts(self) -> str:
        """Return the number of parts taken from the bank, with their noun."""
        return plural(len(self.result.validation.kept), self.result.job.subject)

    def reason_for_nothing(self) -> str:
        """Return in one line why the model is not faster."""
        return self.result.validation.undecided or self.nothing_kept()

    def bank(self) -> Path:
        """Return the file or folder of the records."""
        return self.result.bank / self.result.target.soc_version


def _form_only(form: WrittenForm) -> str:
    """Return the words on a model that has no parts but a form of its own, and was not timed."""
    return f"{form.what}, the whole not measured"


def reason_of_drops(validation: ValidationResult[Any], parts: str) -> str:
    """Return the reason for a model without parts that win alone.

    Args:
        validation: Of the model, decided.
        parts: What they are, in the plural.
    """
    untimed = [drop.reason for drop in validation.drops.values() if drop.estimate is None]
    if untimed and len(untimed) == len(validation.drops):
        return untimed[0]
    return f"the whole model is not proven faster with the {parts} that win alone"


def bank_line(bank: Path) -> str:
    """Return the line on the bank; a bank that got no record may not exist."""
    return f"bank: {bank}" if bank.exists() else f"bank: {bank} (no record yet)"


def range_lines(result: OpatResult) -> list[str]:
    """Return the lines on a model tuned for a range of shapes: the mean, and each point."""
    estimate = result.validation.estimate
    worst = min(result.points, key=lambda point: point.estimate.median)
    headline = (
        f"whole model, over {result.shape_range}: {speedup_text(estimate)} (95 % interval "
        f"{interval_text(estimate)}, geometric mean of {plural(len(result.points), 'shape')}, "
        f"worst {speedup_text(worst.estimate)}, {_conditions(result)}, against ONNX Runtime with "
        f"{result.optimizations})"
    )
    lines = [headline]
    for point in result.points:
        lines.append(
            f"  {point.shapes}: {point.baseline_us / 1e3:.3f} ms -> {point.tuned_us / 1e3:.3f} ms, "
            f"{speedup_text(point.estimate)} ({interval_text(point.estimate)})"
        )
    return lines


def busy_note(result: ModelTuning[Any]) -> str:
    """Return the note on a figure taken on a busy machine; empty for others."""
    if _by_cpu_time(result):
        return f", {BY_CPU_TIME}"
    return ", measured on a busy machine" if _busy(result) else ""


def _busy(result: ModelTuning[Any]) -> str:
    """Return the load during the measurement of the whole model, empty if the machine was idle."""
    measurement = result.validation.comparison.measurement
    load = measurement.load
    if load is None or load.use.given_share >= QUIET_SHARE or _by_cpu_time(result):
        return ""
    return measurement.busy_words


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
    from aoe.tuner.mode import TargetMetric

    if result.metric is TargetMetric.THROUGHPUT:
        return f"{plural(result.streams, 'stream')} of one thread at the same time"
    by_cpu_time = f", {BY_CPU_TIME}" if _by_cpu_time(result) else ""
    return f"{plural(result.target.core_num, 'thread')}{by_cpu_time}"


def _by_cpu_time(result: ModelTuning[Any]) -> bool:
    return result.validation.comparison.measurement.clock is Clock.CPU


def is_timed(modes: Iterable[ModeResult]) -> bool:
    """False for a model that has another form or kernels of the bank, which was only looked up."""
    from aoe.runs.model_mode import ModelTuning

    found = [mode.validation for mode in modes if isinstance(mode, ModelTuning)]
    return all(one.is_measured or not one.is_changed for one in found)


def whole_model_figure(result: ModelTuning[Any], speedup: float = 1.0) -> str:
    """Return the time of a model so many times as fast as the untuned one, or its throughput."""
    from aoe.results.files import runs_per_s
    from aoe.runs.model_mode import whole_model_ms
    from aoe.tuner.mode import TargetMetric

    before_ms = whole_model_ms(result.validation, result.streams)
    if result.metric is TargetMetric.LATENCY:
        return "not measured" if before_ms is None else f"{before_ms / speedup:.3f} ms"
    if before_ms is None:
        return "throughput not measured"
    return f"{runs_per_s(before_ms / speedup):.3f} runs/s"
