"""Common parts of the modes that tune a model file: refusals, the run with its report, summaries.

`summary.json` has the whole run in figures. The model is the one the last mode has left, and so are
its figures: every mode measures the whole model against the imported one. Counts are sums over all
modes, and `modes` has a row for each mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from aoe.bank.damage import DamagedFile
from aoe.bank.remembered import RememberedOperator
from aoe.errors import OptionError, RunError
from aoe.measurement import Measurement
from aoe.ort.optimizers import ALL_OPTIMIZATIONS, marked
from aoe.results.files import (
    RepoOutcome,
    TuningResult,
    finite_or_none,
    improvement_percent,
    improvement_text,
    machine_to_json,
    memory_to_json,
    metric_members,
    runs_per_s,
    write_json,
    write_report,
)
from aoe.results.progress_log import POINTER, ProgressLog, progress_name
from aoe.runs.host_form import leave_out_what_is_wrong
from aoe.runs.written_form import with_faster_form
from aoe.settings import LARGEST_SEED
from aoe.target import Target
from aoe.tasks.tuned_task import TunedTask
from aoe.tuner.chosen_graph import WrittenForm
from aoe.tuner.live_report import LiveReport
from aoe.tuner.mode import JobType, ModeContext, ModeResult, TargetMetric
from aoe.tuner.progress import LoggedProgress
from aoe.tuner.reuse.kinds import ReuseKind, ReuseSummary, reuse_to_json
from aoe.tuner.search.registry import SEARCHES
from aoe.tuner.study import StudyWriter
from aoe.tuner.tune_context import ResultPlaces, TuneContext, open_tune_context
from aoe.validation.candidates import ValidatedPart
from aoe.validation.comparing import NOT_TIMED_US
from aoe.validation.model_validator import ValidationResult
from aoe.validation.time_reserve import beyond_limit
from aoe.workload import Precision
from aoebank import AoebankError

_MOST_IMPROVED = 10
"""Entries of `top_improved_ops`."""
P = TypeVar("P", bound=ValidatedPart)
R = TypeVar("R", bound=Any)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTuning(Generic[P]):
    """Result of a mode on a model file; each mode has more of its own."""

    job: ClassVar[JobType]
    """The mode."""

    model: Mapping[str, str]  # Name, path and sha256 of the model that was tuned
    target: Target  # What it was tuned for
    versions: Mapping[str, str]  # Of aoe, halide, onnxruntime
    bank: Path  # Root of the bank
    places: ResultPlaces  # Where everything was written
    validation: ValidationResult[P]  # What held up in the whole model, and its measured speed-up
    seconds: float  # Duration of the run
    phases: Mapping[str, float] = field(default_factory=dict)  # Seconds of each `Phase` of it
    streams: int = 1  # Callers the whole model was judged with at the same time
    damaged: tuple[DamagedFile, ...] = ()  # Bank files the run did without
    # Why the bank took no more, and where the records are; None if it took all.
    bank_failure: AoebankError | None = None
    metric: TargetMetric = TargetMetric.LATENCY  # What the figures of the whole model are of
    # Of ONNX Runtime, in words: how the untuned model is computed.
    optimizations: str = str(ALL_OPTIMIZATIONS)
    reuse: ReuseSummary | None = None  # What was taken from an earlier result, None without one
    written_as: WrittenForm | None = None  # How the model is written, None if there is one way
    # What the bank knows of each task now, by its key.
    remembered: Mapping[str, RememberedOperator] = field(default_factory=dict)

    @property
    def tuning_name(self) -> str:
        """Name of the run."""
        return self.places.tuning_name

    @property
    def om_file(self) -> Path:
        """The tuned model."""
        return self.places.om_file

    @property
    def result_file(self) -> Path:
        """AOE's result file."""
        return self.places.result_file

    @property
    def speedup(self) -> float:
        """Of the whole model over the imported one; 1 if it is that."""
        return self.validation.estimate.median if self.validation.is_changed else 1.0

    @property
    def baseline_ms(self) -> float:
        """Median time of the untuned model; of several streams, from one run to the next."""
        return self.validation.comparison.measurement.baseline_latency_us / 1e3

    @property
    def tuned_ms(self) -> float:
        """Time of the tuned model: that of the untuned one over the speed-up, as in AOE's file."""
        return self.baseline_ms / self.speedup

    @property
    def precision(self) -> Precision:
        """The lowest the tuned model computes in: what its speed-up is of."""
        return Precision.FLOAT32

    @property
    def schema(self) -> str:
        """Of the summary."""
        return "aoe.summary/1"

    def rows(self) -> list[dict[str, Any]]:
        """Return the tasks as the summary has them.

        Each has `outcome`, `reason`, `speedup`, `in_model`, and a name: `op_name`, or `places`.
        """
        return []

    def own_members(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return the members of the summary that other modes do not have."""
        return {}

    def summary(self) -> dict[str, Any]:
        """Return the figures of the mode, for `--json` and the head of `summary.json`."""
        validation, target, rows = self.validation, self.target, self.rows()
        return {
            "schema": self.schema,
            "tuning_name": self.tuning_name,
            "model": dict(self.model),
            "om": self.om_file.name,
            "target": {
                "soc_version": target.soc_version,
                "core_num": target.core_num,
                "cpu_model": target.cpu_model,
                "features": list(target.features),
            },
            "versions": dict(self.versions),
            "seconds": round(self.seconds, 1),
            "phase_seconds": dict(self.phases),
            "baseline": f"onnxruntime, {self.optimizations}, same threads",
            **count_members(rows, self.seconds),
            "performance_improvement": improvement_text(self.speedup),
            **({"written_as": str(self.written_as)} if self.written_as is not None else {}),
            **speed_members(self),
            "pairs": validation.estimate.pairs,
            "memory": memory_to_json(validation.memory),
            "machine": machine_to_json(validation.comparison.measurement),
            "improvement_percent": round(improvement_percent(self.speedup), 2),
            "max_abs_err": finite_or_none(validation.comparison.deviation.max_abs_err),
            "rounding_steps": validation.comparison.deviation.note or None,
            **self.own_members(rows),
            "repo": {
                outcome.value: sum(row["outcome"] == outcome.value for row in rows)
                for outcome in RepoOutcome
            },
            f"{self.job.subject}s": rows,
            "reuse": reuse_to_json(self.reuse),
        }


def check_search(context: ModeContext) -> None:
    """Refuse an odd seed and an unknown search.

    Raises:
        OptionError: one of them is.
    """
    search, seed = context.settings.search, context.settings.seed
    if not 0 <= seed <= LARGEST_SEED:
        raise OptionError("--seed", "no seed", got=seed, expected=f"0 to {LARGEST_SEED}")
    if search not in SEARCHES:
        raise OptionError("--search", "unknown search", got=search, expected=" or ".join(SEARCHES))


def run_model(
    context: ModeContext,
    job: JobType,
    *,
    report_type: type[R],
    to_json: Callable[[R], Sequence[Any]],
    tune: Callable[[TuneContext, LiveReport[R]], T],
) -> T:
    """Tune a model in one mode, with AOE's result file on disk from the first moment on.

    Args:
        context: Options and surroundings of the run.
        job: The mode.
        report_type: Class of the mode's report.
        to_json: Gives a report as its file has it.
        tune: Case of the mode: finds its tasks, tunes them, validates the model, writes results.
            Where it fails, the report says so.

    Raises:
        AoeError: the model cannot be run at all, or a result cannot be written.
    """
    log, jobs = ProgressLog(), context.settings.job_types
    progress = LoggedProgress(context.progress, log)
    with open_tune_context(replace(context, progress=progress), job) as tuning:
        places, tuning = tuning.places, replace(tuning, log=log)
        if places.reports_stay:
            many = context.one_of_many
            _open_log(tuning, job, is_last=job == jobs[-1] and (many is None or many.is_last))
        if context.settings.study is not None and not context.settings.lookup_only:
            tuning = replace(tuning, study=_open_study(tuning, context.settings.study, context.cwd))
        report = LiveReport(
            report_type(
                tuning_name=places.tuning_name,
                streams=tuning.subject.streams,
                is_throughput=tuning.settings.target_metric is TargetMetric.THROUGHPUT,
            ),
            lambda report: write_report(places.result_file, to_json(report), places.report),
            tuning.time.stopwatch,
        )
        report.update()
        try:
            if tuning.settings.shape_range is None:  # else that is chosen in the middle of it
                if not _is_known_right(context.earlier):
                    leave_out_what_is_wrong(tuning)
                tuning = with_faster_form(tuning, context.earlier)
            found = tune(tuning, report)
            _tell_overrun(tuning)
            log.end(TuningResult.SUCCESSFUL.value, **_log_figures(found))
            return found
        except KeyboardInterrupt:
            if report.value.is_proven:
                improved = improvement_text(report.value.speedup)
                what = f"ended early: {places.om_file} is proven, {improved} faster"
                context.progress.warn(what)
            raise
        except Exception as error:
            log.end(TuningResult.FAILED.value)
            report.update(result=TuningResult.FAILED)
            if (told := _about_the_file(error, tuning)) is not None:
                raise told from error
            raise
        finally:
            log.end(TuningResult.INCOMPLETE.value)  # of a mode that has ended, nothing happens


def _open_log(tuning: TuneContext, job: JobType, *, is_last: bool) -> None:
    """Begin the log of a mode beside its reports, and tell others on this machine where it is."""
    places, most = tuning.places, tuning.settings.max_tuning_count
    file = places.results / progress_name(places.result_file.name)
    facts = {
        "tuning_name": places.tuning_name,
        "mode": job,
        "is_last": is_last,
        "limit_s": tuning.time.stopwatch.limit_s,
        "max_trials": None if most is None else int(tuning.trials.left(most)),
    }
    tuning.log.open(file, facts, tuning.progress.warn)
    with suppress(OSError):  # on a full disk it is found by its folder alone
        (tuning.scratch / POINTER).write_text(str(file.resolve()))


def _open_study(tuning: TuneContext, place: str, cwd: Path) -> StudyWriter:
    """Return the writer of studies, and tell how to look at them."""
    name, target = tuning.places.tuning_name, tuning.machine.runner.target
    study = StudyWriter(
        place,
        cwd,
        run=name,
        facts={"model": tuning.subject.model.name, "soc_version": target.soc_version},
        warn=tuning.progress.warn,
    )
    tuning.progress.step(f"optuna-dashboard {study.source} shows the searches")
    return study


def _log_figures(found: object) -> dict[str, float | None]:
    """Return the figures of the whole model that the log of a mode ends with.

    A model that stays as it is has no interval, one that was only looked up no figure of the tuned
    model.
    """
    if not isinstance(found, ModelTuning):
        return {}
    names: tuple[str, ...] = ("baseline_ms",)
    if not found.validation.is_changed:
        names += ("tuned_ms", "speedup")
    elif found.validation.is_measured:
        names += ("tuned_ms", "speedup", "speedup_low", "speedup_high")
    figures = speed_members(found)
    return {name: figures[name] for name in names if name in figures}


def _is_known_right(earlier: Sequence[object]) -> bool:
    """True if an earlier mode of the run has found nothing wrong with ONNX Runtime's own form."""
    found = [one.optimizations for one in earlier if isinstance(one, ModelTuning)]
    return str(ALL_OPTIMIZATIONS) in found


def _about_the_file(error: Exception, tuning: TuneContext) -> RunError | None:
    """Return ONNX Runtime's refusal of the model under the name of its file; None for others.

    What it is given is a model in memory, or a file of this run.
    """
    if type(error) is not RunError:
        return None
    if error.where != "model" and not error.where.startswith(str(tuning.scratch)):
        return None
    path = tuning.subject.model.path
    return RunError(
        f"--{'om' if path.suffix == '.om' else 'model'}={path}",
        error.problem,
        got=error.got,
        expected=error.expected,
        hint=error.hint or None,
    )


def _tell_overrun(tuning: TuneContext) -> None:
    """Say what took the time of a run that has gone on for longer than its limit."""
    limit_s, took_s = tuning.time.stopwatch.limit_s, tuning.time.stopwatch.elapsed_s()
    if limit_s is None or not beyond_limit(tuning.time.stopwatch).is_over():
        return
    phases = sorted(tuning.time.phases.seconds().items(), key=lambda item: -item[1])
    parts = [f"{seconds:.0f} s {name}" for name, seconds in phases if round(seconds)]
    waited_s = tuning.machine.runner.turns.waited_s
    waited = f", {waited_s:.0f} s of all waiting for other runs" if round(waited_s) else ""
    tuning.progress.warn(
        f"took {took_s:.0f} s with a time limit of {limit_s:g} s: {', '.join(parts)}{waited}; "
        "what is begun is finished, and a busy machine takes longer for it"
    )


def run_facts(tuning: TuneContext) -> dict[str, Any]:
    """Return the members of `ModelTuning` that the context knows; its run ends now."""
    model = tuning.subject.model
    return {
        "model": {"name": model.name, "path": str(model.path), "sha256": model.sha256},
        "target": tuning.machine.runner.target,
        "versions": tuning.machine.versions,
        "bank": tuning.banks.journal.bank.root,
        "places": tuning.places,
        "seconds": tuning.time.stopwatch.elapsed_s(),
        "phases": tuning.time.phases.seconds(),
        "streams": tuning.subject.streams,
        "damaged": tuning.banks.damaged,
        "bank_failure": tuning.banks.spare.failure,
        "metric": tuning.settings.target_metric,
        "optimizations": str(marked(model.proto)),
        "written_as": tuning.subject.written_as,
    }


def whole_model_ms(validation: ValidationResult[Any], streams: int) -> float | None:
    """Return the time of the untuned model as result files have it, in ms; None if not measured.

    Of several streams it is the time from one run to the next: what one stream takes alone is
    another figure.
    """
    if streams > 1 and not validation.is_measured:
        return None
    found_us = validation.comparison.measurement.baseline_latency_us
    return found_us / 1e3 if found_us > NOT_TIMED_US else None


def _whole_model_members(result: ModelTuning[Any]) -> dict[str, float | None]:
    """Return the times of both models, or how often they run in a second."""
    if result.metric is TargetMetric.LATENCY:
        return {
            "baseline_ms": round(result.baseline_ms, 4),
            "tuned_ms": round(result.tuned_ms, 4),
        }
    before_ms = whole_model_ms(result.validation, result.streams)
    return {
        "baseline_runs_per_s": rounded(before_ms and runs_per_s(before_ms)),
        "tuned_runs_per_s": rounded(before_ms and runs_per_s(before_ms / result.speedup)),
    }


def speed_members(result: ModelTuning[Any]) -> dict[str, Any]:
    """Return the figures of the whole model; one that keeps nothing is the one it was."""
    estimate, unchanged = result.validation.estimate, not result.validation.is_changed
    return {
        "damaged_bank_files": list(map(str, result.damaged)),
        **metric_members(result.streams, is_throughput=result.metric is TargetMetric.THROUGHPUT),
        "unchanged": unchanged,
        **_whole_model_members(result),
        "speedup": round(result.speedup, 4),
        "speedup_low": 1.0 if unchanged else round(estimate.low, 4),
        "speedup_high": 1.0 if unchanged else round(estimate.high, 4),
    }


def count_members(rows: Sequence[Mapping[str, Any]], seconds: float) -> dict[str, Any]:
    """Return the members at the head of a summary, for other tools.

    Args:
        rows: Of operators and subgraphs.
        seconds: Duration.

    Source: AOE documentation, summary of a tuning.
    """
    gained = [
        (row["speedup"] or 1.0, str(row.get("op_name") or row["places"][0]))
        for row in rows
        if row["in_model"]
    ]
    gained.sort(key=lambda item: (-item[0], item[1]))
    return {
        "total_ops": len(rows),
        "tuned_ops": len(gained),
        "tuning_time": f"{round(seconds)}s",
        "top_improved_ops": [
            {"op": name, "improvement": improvement_text(speedup)}
            for speedup, name in gained[:_MOST_IMPROVED]
        ],
    }


def task_members(tuned: TunedTask, *, in_model: bool) -> dict[str, Any]:
    """Return the members of a task in the summary that all kinds have."""
    return {
        "before_us": rounded(tuned.before_us),
        "after_us": rounded(tuned.after_us),
        "speedup": rounded(tuned.speedup),
        "recalled": tuned.is_recalled,
        "outcome": tuned.outcome.value,
        "reason": tuned.reason,
        "in_model": in_model,
    }


def trial_members(measurement: Measurement) -> dict[str, Any]:
    """Return the members of a candidate's measurement."""
    return {
        "outcome": measurement.outcome.value,
        "speedup": rounded(measurement.speedup if measurement.is_correct else None),
        "detail": measurement.detail,
    }


def rounded(value: float | None) -> float | None:
    """Return a figure as reports have it."""
    return round(value, 4) if value is not None else None


_FILE = "summary.json"
_SCHEMA = "aoe.summary/1"
_OF_SUBGRAPHS = ("undecided_subgraphs", "subgraphs_without_options")
"""Counts that only subgraph tuning has."""
_Summary = Mapping[str, Any]


def write_run_summary(modes: Sequence[ModeResult]) -> None:
    """Write `summary.json` beside the results of the modes of a run that tune a model file.

    Args:
        modes: Those that are done, in their order; without one on a model file nothing is written.

    Raises:
        OutputError: it cannot be written.
    """
    done = [mode for mode in modes if isinstance(mode, ModelTuning)]
    if done:
        write_json(done[-1].places.results / _FILE, run_summary(done))


def run_summary(modes: Sequence[ModelTuning[Any]]) -> dict[str, Any]:
    """Return the whole run in figures.

    Args:
        modes: Those that are done, one at least.
    """
    parts = [mode.summary() for mode in modes]
    names = [f"{mode.job.subject}s" for mode in modes]
    last = parts[-1]
    seconds = sum(mode.seconds for mode in modes)
    rows = [row for name, part in zip(names, parts, strict=True) for row in part[name]]
    return {
        **last,
        "schema": last["schema"] if len(parts) == 1 else _SCHEMA,
        "seconds": round(seconds, 1),
        # a file that one mode has set aside is not there for the next one
        "damaged_bank_files": [
            *dict.fromkeys(one for part in parts for one in part["damaged_bank_files"])
        ],
        **count_members(rows, seconds),
        "repo": _added(part["repo"] for part in parts),
        **{name: _joined(parts, name) for name in names},
        **{name: part[name] for part in parts for name in _OF_SUBGRAPHS if name in part},
        "reuse": _reuse([part["reuse"] for part in parts if part["reuse"] is not None]),
        "left_to_onnxruntime": _joined(parts, "left_to_onnxruntime"),
        "modes": [_mode_row(mode, part) for mode, part in zip(modes, parts, strict=True)],
    }


def _joined(parts: Sequence[_Summary], name: str) -> list[Any] | None:
    """Return a list of all modes that have it, None if none has."""
    found = [part[name] for part in parts if name in part]
    return [item for items in found for item in items] if found else None


def _added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def _reuse(found: Sequence[_Summary]) -> dict[str, Any] | None:
    """Return the reuse of all modes together, None for a run without an earlier result."""
    if not found:
        return None
    return {
        "base": found[0]["base"],
        "counts": {
            kind.value: sum(one["counts"][kind.value] for one in found) for kind in ReuseKind
        },
        "parts": [part for one in found for part in one["parts"]],
    }


def _mode_row(mode: ModelTuning[Any], part: _Summary) -> dict[str, Any]:
    """Return the row of a mode: its counts, and the speed of the model after it."""
    return {
        "mode": mode.job,
        "result_file": mode.result_file.name,
        "seconds": round(mode.seconds, 1),
        "phase_seconds": dict(mode.phases),
        **count_members(part[f"{mode.job.subject}s"], mode.seconds),
        "repo": part["repo"],
        **speed_members(mode),
    }
