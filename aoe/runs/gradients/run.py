"""Gradient tuning (GDAT): how gradients are grouped for all-reduce. The page to read first.

A record is used as it is if it holds in the cluster (`looking_up.py`). In another cluster the
recorded gradient times are kept and all-reduce is measured; with REPEAT_TUNE both are measured.
`OUTCOMES` has what becomes of the record; where no grouping is better than the default, the default
is used. An earlier unsatisfied search in the same cluster is believed, unless a time limit cut it
short and there is more time now.

Where the user allows sums in 16 bits, the grouping that was found is the default of a second
tuning, whose candidates are groupings in 16 bits. So compression is in use only if it beats the
best that changes no result, and only after the sums themselves were compared (`TOLERANCE`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from aoe.bank.records.gradient import GradientVerdict, StoredGradients
from aoe.bank.stored import OUTCOMES, BankState
from aoe.errors import AoeError, EndedEarlyError, OptionError
from aoe.gradients.compression import TOLERANCE, Compression
from aoe.gradients.cost import CostModel, choose_cost, described_cost
from aoe.gradients.segmentation import Segmentation
from aoe.gradients.trace import GradientTrace
from aoe.gradients.training import CompressedTraining, Training, TrainingProgram
from aoe.measurement import SpeedupEstimate
from aoe.results.files import RepoOutcome, TuningResult
from aoe.results.gradients import CompressionReport, GdatReport
from aoe.results.progress_log import ProgressLog
from aoe.runs.gradients.result import GdatResult, TunedGradients
from aoe.runs.gradients.watched import log_result, logged, with_study, write_study
from aoe.settings import lock_path
from aoe.tasks.gradients.bench import (
    GdatSettings,
    TrainingBench,
    busy_words,
    checked_loops,
    find_places,
    measuring_together,
    on_first,
    open_bench,
)
from aoe.tasks.gradients.candidates import GdatTrial, gdat_candidates
from aoe.tasks.gradients.looking_up import look_up
from aoe.tasks.gradients.measuring import GdatSearch, search, show_timelines
from aoe.tuner.live_report import LiveReport, Stopwatch, start_stopwatch
from aoe.tuner.mode import ModeContext, TargetMetric, training_command
from aoe.tuner.progress import LoggedProgress, Progress
from aoebank import Event

T = TypeVar("T")

_MIB = 1 << 20
_WAY_OUT = "let it train longer"


def check(context: ModeContext) -> None:
    """Refuse a model file, and too few loops; see `Mode.check`."""
    _program(context)
    checked_loops(context.settings.run_loop)
    if context.settings.target_metric is not TargetMetric.LATENCY:
        raise OptionError(
            "target_metric",
            "gradient tuning makes a training step shorter, and nothing runs beside it",
            got=context.settings.target_metric.value,
            expected=TargetMetric.LATENCY.value,
            hint="leave it out: a shorter step is more steps in a second, too",
        )


def run(context: ModeContext) -> TunedGradients:
    """Run a training program and tune its gradients on the way; see `Mode.run`."""
    settings = GdatSettings(
        loops=checked_loops(context.settings.run_loop),
        repeat_tune=context.settings.repeat_tune,
        tuning_time_limit_s=context.settings.tuning_time_limit_s,
        accept_busy=context.settings.accept_busy,
        compression=context.settings.allow_compression,
        study=context.settings.study,
    )

    def tune(training: Training) -> TunedGradients:
        return tune_training(
            training,
            settings,
            output=context.settings.output or context.settings.work_path,
            env=context.env,
            cwd=context.cwd,
            progress=context.progress,
            now=context.now,
            stopwatch=start_stopwatch(context.clock, settings.tuning_time_limit_s),
        )

    is_open = settings.tuning_time_limit_s is None
    limit = ", or give --tuning_time_limit" if is_open else ""
    tuned, exit_code = run_program(_program(context), tune, shorter=limit)
    return replace(tuned, exit_code=exit_code)


def run_program(
    program: TrainingProgram, tune: Callable[[Training], T], *, shorter: str = ""
) -> tuple[T, int]:
    """Run a program to its end; one that is over too soon says what helps.

    Args:
        program: The program; see `TrainingProgram.run`.
        tune: Is given its training.
        shorter: What else helps than a longer training: the end of the hint.

    Raises:
        RunError: the program failed, or ended before there was enough to tune with.
    """
    try:
        return program.run(tune)
    except EndedEarlyError as error:
        told = EndedEarlyError(
            error.where,
            error.problem,
            expected=error.expected,
            hint=error.hint or _WAY_OUT + shorter,
        )
        told.exit_code = error.exit_code
        raise told from error


def tune_training(
    training: Training,
    settings: GdatSettings,
    *,
    output: Path | None,
    env: Mapping[str, str],
    cwd: Path,
    progress: Progress,
    now: datetime,
    stopwatch: Stopwatch,
) -> TunedGradients:
    """Tune the gradients of a training that runs; every process of its group calls this.

    Args:
        training: The run.
        settings: What is tried, and how long.
        output: Folder of the result file; None for the work path.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        progress: Told what happens, in the first process.
        now: Time the run is named after.
        stopwatch: Of the run.

    Raises:
        AoeError: a step failed, or a result cannot be written; every process raises.
        AoebankError: the bank cannot be used; every process raises.
    """
    places = on_first(training, lambda: find_places(training, output, env=env, cwd=cwd, now=now))
    log = ProgressLog()
    told = LoggedProgress(progress, log)
    bench = open_bench(training, settings, places, progress=told, stopwatch=stopwatch)
    with logged(log, bench, places):
        bench = with_study(bench, places, cwd)
        with measuring_together(training, lock_path(env), bench.progress.warn):
            result = _compressed_too(bench, group_gradients(bench))
        log_result(log, bench, result)
    return TunedGradients(
        result=result,
        bank_file=bench.bank.file,
        result_file=places.result_file,
        is_first=training.is_first,
        bank_failure=bench.spare.failure,
    )


def group_gradients(bench: TrainingBench) -> GdatResult:
    """Look up, record, compute, measure, decide, write, apply.

    Raises:
        AoeError: a step failed, or a result cannot be written.
        AoebankError: the bank cannot be used.
    """
    training, known = bench.training, look_up(bench)
    stored = known.stored
    if known.is_used and stored is not None:
        return _reuse(bench, stored, known.why)
    if known.is_default_best:
        return _finish(bench, RepoOutcome.UNSATISFIED, known.why, None, None)
    before = training.usage()
    training.look_at_default()
    trace = _trace(bench, None if known.is_afresh else stored)
    cost = _cost(bench)
    candidates = gdat_candidates(
        trace,
        cost,
        training.default if training.is_default(training.default) else None,
        stored=stored,
        grid_mib=bench.settings.grid_mib,
        compression=training.compression,
    )
    found = search(bench, candidates, trace, cost, before)
    busy = busy_words(bench, before)
    bench.report.update(busy=busy)
    if bench.study is not None:
        write_study(bench, candidates, found)
    state = BankState.HIT if stored is not None else BankState.MISS
    outcome = OUTCOMES[state, found.winner is not None]
    if found.winner is not None or found.is_complete:
        on_first(training, lambda: _store(bench, outcome, trace, cost, found, busy))
    return _conclude(bench, outcome, trace, cost, found)


def _compressed_too(bench: TrainingBench, plain: GdatResult) -> GdatResult:
    """Return the result with what 16 bits bring on top of it, where they are allowed."""
    compression = bench.settings.compression
    if compression is None:
        return plain
    training = compressed_training(bench, compression, plain.segmentation)
    if training is None:
        return replace(plain, report=bench.report.value)
    try:
        compressed = group_gradients(compressed_bench(bench, training))
    except AoeError:
        training.leave_alone()
        raise
    return replace(plain, report=bench.report.value, compressed=compressed)


def _program(context: ModeContext) -> TrainingProgram:
    program = context.settings.model
    if isinstance(program, Path):
        raise OptionError(
            "--job_type",
            "gradient tuning needs a training script and runs alone",
            hint=training_command(program, context.settings.job_types),
        )
    return program


def _reuse(bench: TrainingBench, stored: StoredGradients, reason: str) -> GdatResult:
    if stored.cost is not None:
        bench.report.update(cost=stored.cost)
        show_timelines(bench, stored.trace, stored.cost, stored.segmentation, measured=False)
    result = _finish(bench, RepoOutcome.RESERVED, reason, stored.segmentation, None)
    return replace(result, stored_speedup=stored.speedup, stored_conditions=stored.conditions)


# ---- record and compute ----


def _trace(bench: TrainingBench, stored: StoredGradients | None) -> GradientTrace:
    """Return the recorded times, from the bank where they fit."""
    training, progress, loops = bench.training, bench.progress, bench.settings.loops
    if stored is not None and training.order_by(stored.trace):
        progress.step("gradient times are in the bank, of another cluster")
        return stored.trace
    progress.step(f"recording {loops} backward passes")
    trace = training.record(loops)
    progress.step(
        f"{len(trace)} gradients, {trace.total_bytes / _MIB:.1f} MiB, "
        f"backward {trace.backward_end_us / 1e3:.1f} ms"
    )
    return trace


def _cost(bench: TrainingBench) -> CostModel:
    bench.progress.step("measuring all-reduce")
    cost = choose_cost(bench.training.cost_samples())
    bench.report.update(cost=cost)
    bench.progress.step(described_cost(cost))
    return cost


# ---- settle, write, apply ----


def _store(
    bench: TrainingBench,
    outcome: RepoOutcome,
    trace: GradientTrace,
    cost: CostModel,
    found: GdatSearch,
    busy: str,
) -> None:
    training, winner = bench.training, found.winner
    verdict = GradientVerdict(
        event=Event(outcome.value),
        world_size=training.world_size,
        backend=training.backend,
        cost=cost,
        segmentation=winner.candidate.segmentation if winner else None,
        origin=winner.candidate.origin if winner else None,
        inflation=winner.candidate.inflation if winner else 1.0,
        estimate=winner.estimate if winner else None,
        baseline_us=winner.measurement.baseline_us if winner else (),
        tuned_us=winner.measurement.tuned_us if winner else (),
        step_us=winner.measurement.latency_us if winner else found.default_step_us,
        time_limit_s=bench.settings.tuning_time_limit_s if found.is_cut else None,
        search=_facts(training, winner, busy),
    )
    if winner is not None:
        bench.bank.save(training.model_hash, trace, verdict)
    else:
        # the cluster's own verdict; a record of another cluster stays as it is
        failure = replace(verdict, event=Event.UNSATISFIED)
        bench.bank.note(training.model_hash, failure, trace)


def _facts(training: Training, winner: GdatTrial | None, busy: str) -> dict[str, str | float]:
    """Return further members of the side-car line."""
    facts: dict[str, str | float] = {"busy": busy} if busy else {}
    if winner is not None:
        facts["candidate"] = winner.candidate.name
    if training.compression is not None:
        facts |= {"summed_in": training.compression.type_name, "tolerance": TOLERANCE}
    return facts


def _conclude(
    bench: TrainingBench,
    outcome: RepoOutcome,
    trace: GradientTrace,
    cost: CostModel,
    found: GdatSearch,
) -> GdatResult:
    winner = found.winner
    segmentation = winner.candidate.segmentation if winner else None
    before, after = show_timelines(bench, trace, cost, segmentation, measured=True)
    bench.training.apply(segmentation)
    if winner is None:
        return _finish(bench, outcome, _nothing_found(found), None, None)
    bench.report.update(
        before=replace(before, step_us=winner.measurement.baseline_latency_us),
        after=replace(after, step_us=winner.measurement.latency_us),
    )
    return _finish(bench, outcome, winner.candidate.name, segmentation, winner.estimate)


def _nothing_found(found: GdatSearch) -> str:
    least = found.verdict.least_gain
    if least is None:
        return "no grouping beats the default"
    return (
        f"no grouping beats the default; one of {least:.2f}x would have been found in four of "
        "five searches"
    )


def _finish(
    bench: TrainingBench,
    outcome: RepoOutcome,
    reason: str,
    segmentation: Segmentation | None,
    estimate: SpeedupEstimate | None,
) -> GdatResult:
    bench.report.update(outcome=outcome, estimate=estimate, result=TuningResult.SUCCESSFUL)
    return GdatResult(
        outcome=outcome,
        reason=reason,
        segmentation=segmentation,
        estimate=estimate,
        report=bench.report.value,
        steps=bench.training.steps,
    )


def compressed_training(
    bench: TrainingBench, compression: Compression, base: Segmentation | None
) -> CompressedTraining | None:
    """Return the training with sums in 16 bits, None where they may not be used; it is told why.

    Args:
        bench: Of the training in full; its report says what was found.
        compression: What the user allows.
        base: Grouping in use.
    """
    training = bench.training.compressed(compression, base)
    problem, deviation = training.problem(), None
    if problem is None:
        deviation = training.deviation()
        bench.progress.step(
            f"summed in {compression.type_name}, gradients differ by {deviation:.2%}, "
            f"at most {TOLERANCE:.0%} is allowed"
        )
        if not deviation <= TOLERANCE:
            problem = (
                f"gradients would differ by {deviation:.2%}, which is more than {TOLERANCE:.0%}"
            )
    report = CompressionReport(
        compression=compression,
        tolerance=TOLERANCE,
        deviation=deviation if deviation is not None and math.isfinite(deviation) else None,
        problem=problem or "",
    )
    bench.report.update(compression=report)
    if problem is not None:
        bench.progress.warn(f"{compression.type_name} is not used: {problem}")
        return None
    return training


def compressed_bench(bench: TrainingBench, training: CompressedTraining) -> TrainingBench:
    """Return the bench of a training in 16 bits, whose report is a part of the other's."""

    def publish(report: GdatReport) -> None:
        found = bench.report.value.compression
        assert found is not None
        bench.report.update(compression=replace(found, tuning=report))

    empty = replace(
        bench.report.value,
        modelhash=str(training.model_hash),
        result=TuningResult.INCOMPLETE,
        outcome=None,
        cost=None,
        before=None,
        after=None,
        estimate=None,
        candidates=(),
        compression=None,
    )
    return replace(bench, training=training, report=LiveReport(empty, publish, bench.stopwatch))
