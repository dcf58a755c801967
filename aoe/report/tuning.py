"""Reports on a tuning: each is written as text or as one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from aoe.report.quantities import pairs_text, speedup_members
from aoe.report.timelines import judged_lines
from aoe.report.whole_model import (
    TIMES,
    ModelTuningReport,
    ResultReport,
    finished_line,
    first_reason,
    is_timed,
    listed,
    range_lines,
    reason_of_drops,
    recalled_note,
    recalled_times,
    write_accuracy,
    write_forms,
)
from aoe.workload import Precision
from aoebank import Report, plural, size_text

if TYPE_CHECKING:
    from aoe.measurement.memory import ModelMemory
    from aoe.runs.gradients.result import GdatResult, TunedGradients
    from aoe.runs.operators.result import OpatResult
    from aoe.runs.run import TunedCase, TuneResult
    from aoe.tasks.operators.operator import TunedOperator
    from aoe.torch.scripts.running import TunedOperators
    from aoe.tuner.mode import ModeResult
    from aoebank import AoebankError, Column, Text

_MOST_ROWS = 30
_LEAST_FIRST = ("places", "bank", "computes", "share", "before us", "after us")
"""Columns that go when there is no room; name, precision, speed-up and verdict stay."""
_GAP = 2
_MOST_ROUNDED = 4


def write_operators(text: Text, result: OpatResult) -> None:
    """Write the operators before and after tuning, one line each where the terminal has room.

    All figures are in `summary.json`, also of columns and rows that are left out.
    """
    columns = _columns(result)
    for name in _LEAST_FIRST:
        if text.width is None or _width(columns, result.operators[:_MOST_ROWS]) <= text.width:
            break
        columns = [column for column in columns if column[0] != name]
    has_shares = any(name == "share" for name, *_ in columns)
    shares = "shares" if has_shares and result.profile.is_recalled else ""
    note = recalled_note(shares, recalled_times(result.operators, "operators"))
    text.line(f"operators, times for one place in the model{note}:")
    text.columns(result.operators, *columns, most=_MOST_ROWS, rest="in summary.json")
    total = sum(tuned.operator.share for tuned in result.operators)
    if total > 1 and has_shares:
        text.line(
            f"shares overlap ({total:.0%} in all): fused operators and their parts have a row each"
        )


def _columns(result: OpatResult) -> list[Column[TunedOperator]]:
    """Return all columns; the precision is one where there is any but plain float32."""
    is_plain = all(one.operator.workload.precision is Precision.FLOAT32 for one in result.operators)
    precision: Column[TunedOperator] = (
        "precision",
        "n",
        lambda one: one.operator.workload.precision.value,
    )
    return [
        ("operator", "n", lambda one: one.operator.op_name),
        ("computes", "-", lambda one: one.operator.computes),
        *([] if is_plain else [precision]),
        ("places", "r", lambda one: str(len(one.operator.regions))),
        ("share", "r", lambda one: f"{one.operator.share:.1%}"),
        *TIMES,
        ("bank", "n", lambda one: one.outcome.value),
        ("in model", "n", lambda one: "yes" if one.operator.key in result.used_keys else "no"),
    ]


def _width(columns: Sequence[Column[TunedOperator]], operators: Sequence[TunedOperator]) -> int:
    """Return the characters a table needs at least to break no word."""
    from rich.cells import cell_len

    needed = 0
    for title, kind, cell in columns:
        texts = [title, *map(cell, operators)]
        parts = [part for text in texts for part in (text.split() if kind == "-" else [text])]
        needed += max(map(cell_len, parts)) + _GAP
    return needed - _GAP


_CONTROL_FLOW = ("If", "Loop", "Scan")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTuningReport(ModelTuningReport):
    """Result of operator tuning of a model."""

    result: OpatResult
    schema: str = "aoe.tune/1"

    def write_tasks(self, text: Text) -> None:
        result = self.result
        if not result.operators:
            text.line(f"{_nothing_tunable(result)}: {_untuned_time(result)}")
            return
        write_operators(text, result)
        _write_steps(text, result)
        _write_undecided(text, result)

    def whole_model(self) -> Sequence[str]:
        result, memory = self.result, self.result.validation.memory
        lines = [*(range_lines(result) if result.points else ModelTuningReport.whole_model(self))]
        if note := result.validation.comparison.deviation.note:
            lines.append(note)
        if memory is not None and result.validation.is_changed:
            lines.append(_memory(memory))
        return lines

    def write_trade(self, text: Text) -> None:
        if self.result.calibration is not None and self.result.calibration.forms:
            write_forms(text, self.result.calibration)
        validation = self.result.validation
        if validation.accuracy is not None:
            kept = frozenset(kernel.source.name for kernel in validation.kept)
            names = {one.operator.key: one.operator.op_name for one in self.result.operators}
            write_accuracy(text, validation.accuracy, kept, names)

    def nothing_kept(self) -> str:
        return "no kernel is kept"

    def parts(self) -> str:
        kept = self.result.validation.kept
        return plural(len(kept), "kernel") if kept else "the forms of its subgraphs"

    def reason_for_nothing(self) -> str:
        from aoe.results.files import NOT_DECIDED, NOT_TRIED_OUT, ONLY_LOOKED_UP, OUT_OF_TIME

        operators = self.result.operators
        if not operators:
            first = next(iter(self.result.refusals), None)
            why = _largest_part(self.result)
            if first is not None:
                why = f"{first.node}: {first.reason.partition(';')[0]}"
            return ": ".join(filter(None, (_nothing_tunable(self.result), why)))
        left = self.result.validation.undecided or first_reason(
            operators,
            ("the time limit left {} operators untried", lambda one: one.reason == OUT_OF_TIME),
            (
                f"{{}} operators are not in the bank, and were {ONLY_LOOKED_UP}",
                # an answer of a range is looked up, too, and is one
                lambda one: ONLY_LOOKED_UP in one.reason and one.schedule is None,
            ),
        )
        if left or any(tuned.schedule is not None for tuned in operators):
            return left or reason_of_drops(self.result.validation, "kernels")
        return (
            first_reason(
                operators,
                (
                    f"{{}} operators are {NOT_DECIDED}",
                    lambda one: one.reason.startswith(NOT_DECIDED),
                ),
                (
                    f"{{}} operators are {NOT_TRIED_OUT}",
                    lambda one: one.reason.startswith(NOT_TRIED_OUT),
                ),
            )
            or "ONNX Runtime's own kernels are as fast as any that was found"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientTuningReport(ResultReport):
    """Result of gradient tuning of a training."""

    result: TunedGradients
    schema: str = "aoe.gdat/1"

    @property
    def about(self) -> str:
        """Name of the run, which begins with that of the model."""
        return self.result.tuning_name

    @property
    def exit_code(self) -> int:
        """That of the training script, or of the bank's failure."""
        return self.result.exit_code or (self.error.exit_code if self.error else 0)

    def document(self) -> Mapping[str, object]:
        result = self.result.result
        return {
            "outcome": result.outcome.value,
            "reason": result.reason,
            "segments": list(result.segmentation.ends) if result.segmentation else None,
            **speedup_members(result.estimate, digits=None),
            "stored_speedup": result.stored_speedup,
            "stored_conditions": str(result.stored_conditions or "") or None,
            "compression": _compression_members(result),
            "steps": result.steps,
            "busy": result.report.busy or None,
            "result_file": str(self.result.result_file),
            "bank": str(self.result.bank_file),
            "script_exit_code": self.result.exit_code,
        }

    def write(self, text: Text) -> None:
        result, report = self.result.result, self.result.result.report
        segments = len(result.segmentation) if result.segmentation is not None else None
        grouping = plural(segments, "segment") if segments is not None else "DDP's own buckets"
        text.line(f"{result.outcome.value}: {result.reason}; {grouping}")
        if result.estimate is not None:
            text.line(
                f"training step: {pairs_text(result.estimate)}, {report.world_size} processes, "
                f"{report.backend}, against {report.before.name if report.before else 'DDP'})"
            )
        for name, shown in (("before", report.before), ("after", report.after)):
            if shown is not None:
                timeline = shown.timeline
                text.line(
                    f"{name}: tail {timeline.tail_us / 1e3:.1f} ms, "
                    f"{timeline.overlap_ratio:.0%} of communication hidden ({shown.source.value})"
                )
        for line in judged_lines(report):
            text.line(line)
        _write_compression(text, result)
        text.line(f"result: {self.result.result_file}")
        text.line(f"bank: {self.result.bank_file}")
        if result.stored_speedup is None:
            text.line(
                finished_line(self.result, result.reason, estimate=result.estimate)
                + _differing(result)
            )
        else:  # what this run did not measure is no improvement of this run
            text.line(_stored_line(self.result, result.stored_speedup) + _differing(result))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport(Report):
    """Result of tuning the operators of a training script."""

    result: TunedOperators
    gradients: AoebankError | None = None  # Why its gradients were asked for, and are not tuned
    script_exit_code: int = 0
    schema: str = "aoe.training/1"

    @property
    def about(self) -> str:
        """Name of the run, which begins with that of the script."""
        return self.result.places.name

    @property
    def exit_code(self) -> int:
        """That of the script."""
        return self.script_exit_code

    def document(self) -> Mapping[str, object]:
        places, left = self.result.places, self.gradients
        known = {name: value for name, value in self.result.document.items() if name != "schema"}
        return {
            **known,
            "results": str(places.results),
            "result_file": str(places.result_file),
            "gradients_left": None if left is None else left.headline,
            "script_exit_code": self.script_exit_code,
        }

    def write(self, text: Text) -> None:
        places, left = self.result.places, self.gradients
        for line in self.result.lines:
            text.line(line)
        if self.result.document:
            text.line(f"results: {places.results}")
            if self.result.document["graphs"]:
                text.line(f"result: {places.result_file}")
        text.line(f"bank: {places.bank}")
        if left is not None:
            text.line(f"gradients are not tuned: {left.headline}")
            if left.hint:
                text.line(f"hint: {left.hint}")
        text.line(f"{places.name} process finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeReport(ResultReport):
    """Result of a mode that has no report of its own."""

    result: ModeResult
    schema: str = "aoe.mode/1"

    @property
    def about(self) -> str:
        """Name of the run, which begins with that of the model."""
        return self.result.tuning_name

    def document(self) -> Mapping[str, object]:
        result = self.result
        return {
            "tuning_name": result.tuning_name,
            "om": str(result.om_file) if result.om_file is not None else None,
            "result_file": str(result.result_file),
            "bank": str(result.bank),
            "speedup": result.speedup,
        }

    def write(self, text: Text) -> None:
        if self.result.om_file is not None:
            text.line(f"tuned model: {self.result.om_file}")
        text.line(f"result: {self.result.result_file}")
        text.line(f"bank: {self.result.bank}")
        text.line(finished_line(self.result))


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningReport(Report):
    """Results of all modes of a run; the document is that of the last."""

    modes: tuple[Report, ...]  # Their reports, in the order they ran; one at least

    @property
    def schema(self) -> str:
        """That of the last mode."""
        return self.modes[-1].schema

    @property
    def about(self) -> str:
        """That of the last mode."""
        return self.modes[-1].about

    @property
    def error(self) -> AoebankError | None:
        """The first one."""
        return next(filter(None, (mode.error for mode in self.modes)), None)

    @property
    def exit_code(self) -> int:
        """That of the last mode, or of the error."""
        return self.modes[-1].exit_code or (self.error.exit_code if self.error else 0)

    def document(self) -> Mapping[str, object]:
        earlier = [{"schema": mode.schema, **mode.document()} for mode in self.modes[:-1]]
        return {**self.modes[-1].document(), **({"earlier": earlier} if earlier else {})}

    def write(self, text: Text) -> None:
        for mode in self.modes:
            mode.write(text)
        text.line("Aoe process finished")


@dataclass(frozen=True, slots=True, kw_only=True)
class CasesReport(ResultReport):
    """Result of tuning a model for several shapes."""

    result: TuneResult
    schema: str = "aoe.tune_cases/1"

    @property
    def about(self) -> str:
        """That of the last shape."""
        return report_of(self.result.modes[-1]).about

    def document(self) -> Mapping[str, object]:
        return {
            "om": str(self.result.om_file),
            "bank": report_of(self.result.modes[-1]).document()["bank"],
            "speedup": self.result.speedup,
            **self._weighted_members(),
            "cases": [
                {
                    "input_shape": case.shapes,
                    **({"count": case.count} if case.count is not None else {}),
                    "report": case.report,
                    "modes": {
                        mode.result_file.name: report_of(mode).document() for mode in case.modes
                    },
                }
                for case in self.result.cases
            ],
        }

    def _weighted_members(self) -> Mapping[str, object]:
        weighted = self.result.weighted_speedup
        return {} if weighted is None else {"weighted_speedup": round(weighted, 4)}

    def write(self, text: Text) -> None:
        for case in self.result.cases:
            text.line((f"{case.shapes} ({case.report})", "bold"))
            for mode in case.modes:
                report_of(mode).write(text)
            text.line("")
        cases, weighted = self.result.cases, self.result.weighted_speedup
        columns: list[Column[TunedCase]] = [
            ("shape", "n", lambda case: case.shapes),
            (
                "speed-up",
                "r",
                lambda case: f"{case.modes[-1].speedup:.3f}x" if is_timed(case.modes) else "-",
            ),
        ]
        if weighted is not None:
            columns.append(("calls", "r", lambda case: str(case.count)))
        text.columns(cases, *columns)
        if weighted is not None and all(is_timed(case.modes) for case in cases):
            text.line(f"all these calls together: {weighted:.3f}x")
        text.line(f"one tuned model for {plural(len(cases), 'shape')}: {self.result.om_file}")
        text.line("Aoe process finished")


def tune_report(*, result: TuneResult) -> Report:
    """Return the report on a run: of several shapes, or of all its modes."""
    if result.cases:
        return CasesReport(result=result)
    return TuningReport(modes=tuple(map(report_of, result.modes)))


def report_of(result: ModeResult) -> Report:
    """Return the report of what a mode gave."""
    from aoe.runs.model_mode import ModelTuning
    from aoe.tuner.registry import KINDS

    kind = KINDS.get(result.job)
    if kind is not None and kind.report:
        module, _, name = kind.report.rpartition(".")
        report: Report = getattr(import_module(module), name)(result=result)
        return report
    if isinstance(result, ModelTuning):
        return ModelTuningReport(result=result)
    return ModeReport(result=result)


def _compression_members(result: GdatResult) -> Mapping[str, object] | None:
    """Return the members on sums in 16 bits, None if these were not allowed."""
    found, compressed = result.report.compression, result.compressed
    if found is None:
        return None
    grouping = compressed.segmentation if compressed is not None else None
    return {
        "summed_in": found.compression.value,
        "in_use": result.is_compressed,
        "tolerance": found.tolerance,
        "deviation": found.deviation,
        "outcome": compressed.outcome.value if compressed is not None else None,
        "reason": compressed.reason if compressed is not None else found.problem,
        "segments": list(grouping.ends) if grouping is not None else None,
        **speedup_members(compressed.estimate if compressed is not None else None, digits=None),
        "stored_speedup": compressed.stored_speedup if compressed is not None else None,
    }


def _write_compression(text: Text, result: GdatResult) -> None:
    """Write what sums in 16 bits brought on top of the grouping, and what they change."""
    found, compressed = result.report.compression, result.compressed
    if found is None:
        return
    name = found.compression.type_name
    if compressed is None:
        text.line(f"{name} is not used: {found.problem}")
        return
    text.line(f"summed in {name}: {compressed.outcome.value}: {compressed.reason}")
    if compressed.estimate is not None:
        text.line(f"training step on top of that: {pairs_text(compressed.estimate)})")
    if result.is_compressed:
        text.line(
            f"{found.compression.words}, by {found.deviation or 0:.2%} of their length in the "
            f"steps that were checked (at most {found.tolerance:.0%})"
        )


def _nothing_tunable(result: OpatResult) -> str:
    text = "nothing in this model is tunable"
    return f"{text} for a range of shapes ({result.shape_range})" if result.shape_range else text


def _untuned_time(result: OpatResult) -> str:
    """Say who computes a model without kernels, and in which operators its time goes."""
    return ", ".join(filter(None, ("ONNX Runtime computes it as before", _largest_part(result))))


def _largest_part(result: OpatResult) -> str:
    """Say in which operators most of the time goes; empty where nothing is known of it."""
    times: dict[str, float] = {}
    for operator in result.figures[0]:
        times[operator.op_type] = times.get(operator.op_type, 0.0) + operator.median_us
    whole_us = sum(times.values())
    if not whole_us:
        return ""
    kind = max(times, key=times.__getitem__)
    inner = ", whose branches and bodies are not tuned" if kind in _CONTROL_FLOW else ""
    note = recalled_note("this share" if result.profile.is_recalled else "")
    return f"{times[kind] / whole_us:.0%} of the time in {kind}{inner}{note}"


def _differing(result: GdatResult) -> str:
    """Return the end of the last line where results differ in their last bits."""
    found = result.report.compression
    return f" ({found.compression.words})" if found is not None and result.is_compressed else ""


def _write_steps(text: Text, result: OpatResult) -> None:
    """Write which kernels of the model round integers otherwise than ONNX Runtime, and how many."""
    used = [one for one in result.operators if one.operator.key in result.used_keys]
    off = [(one.operator.op_name, one.rounding) for one in used if one.rounding]
    off = [(name, steps) for name, steps in off if steps.off]
    for name, steps in off[:_MOST_ROUNDED]:
        text.line(f"{name}: {steps}, all others are ONNX Runtime's")
    if len(off) > _MOST_ROUNDED:
        rest = plural(len(off) - _MOST_ROUNDED, "further operator")
        text.line(f"{rest} with values one step off: one_step_off in summary.json")


def _write_undecided(text: Text, result: OpatResult) -> None:
    """Write which operators nothing is known of, as nothing of theirs could be measured."""
    from aoe.results.files import NOT_TRIED_OUT

    failed = [one for one in result.operators if one.reason.startswith(NOT_TRIED_OUT)]
    if failed:
        names = listed([one.operator.op_name for one in failed])
        text.line(f"{names}: {failed[0].reason}; the next run tries again")


def _stored_line(tuned: TunedGradients, speedup: float) -> str:
    from aoe.results.files import improvement_text

    return (
        f"{tuned.tuning_name} process finished. From the bank: {improvement_text(speedup)} "
        f"measured with {tuned.result.stored_conditions}"
    )


def _memory(memory: ModelMemory) -> str:
    before, after = memory.baseline, memory.tuned
    line = f"memory of a session: {_change(before.resident_bytes, after.resident_bytes)}"
    if before.peak_bytes is None or after.peak_bytes is None:
        return line
    return f"{line} (peak {_change(before.peak_bytes, after.peak_bytes)})"


def _change(before_bytes: float, after_bytes: float) -> str:
    return f"{size_text(before_bytes)} -> {size_text(after_bytes)}"
