"""Gradient tuning as others see it while it runs: the log for `aoe watch`, the study of Optuna.

A training is one task, and its groupings are the trials. The first process writes for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from aoe.folders.scratch import ScratchFolder
from aoe.measurement import Measurement
from aoe.results.files import TuningResult
from aoe.results.progress_log import POINTER, ProgressLog, TaskLine, progress_name
from aoe.runs.gradients.result import GdatResult
from aoe.schedule.space import Knob
from aoe.tasks.gradients.bench import TrainingBench, TrainingPlaces
from aoe.tasks.gradients.candidates import GdatCandidate
from aoe.tasks.gradients.measuring import GdatSearch
from aoe.tuner.mode import JobType
from aoe.tuner.study import StudyWriter
from aoebank import plural, size_text


def task_line(bench: TrainingBench) -> TaskLine:
    """Return the training as the one task of its run."""
    training = bench.training
    sizes = training.sizes_bytes
    computes = (
        f"all-reduce of {plural(len(sizes), 'gradient')}, {size_text(sum(sizes))}, "
        f"{training.world_size} processes over {training.backend}"
    )
    return TaskLine(key=str(training.model_hash), name=training.model_name, computes=computes)


@contextmanager
def logged(log: ProgressLog, bench: TrainingBench, places: TrainingPlaces) -> Iterator[None]:
    """Write the log of a run beside its result file for a `with` block."""
    if not bench.training.is_first:
        yield
        return
    file = places.result_file.with_name(progress_name(places.result_file.name))
    facts = {
        "tuning_name": places.tuning_name,
        "mode": JobType.GDAT,
        "is_last": True,
        "limit_s": bench.settings.tuning_time_limit_s,
    }
    log.open(file, facts, bench.progress.warn)
    task = task_line(bench)
    log.plan([task])
    log.begin(task.key, bench.settings.race.rounds_max)
    try:
        with ScratchFolder("run") as scratch:
            with suppress(OSError):  # on a full disk it is found by its folder alone
                (Path(scratch) / POINTER).write_text(str(file.resolve()))
            yield
    except Exception:
        log.end(TuningResult.FAILED.value)
        raise
    finally:
        log.end(TuningResult.INCOMPLETE.value)  # of a run that has ended, nothing happens


def log_result(log: ProgressLog, bench: TrainingBench, result: GdatResult) -> None:
    """Note what became of the training, and the end of its run."""
    if not bench.training.is_first:
        return
    estimate, before, after = result.estimate, result.report.before, result.report.after
    figures = {} if estimate is None else {"speedup": estimate.median}
    if estimate is not None:
        figures |= {"speedup_low": estimate.low, "speedup_high": estimate.high}
    task = task_line(bench)
    log.task(task.key, outcome=result.outcome.value, reason=result.reason, **figures)
    for name, grouping in (("baseline_ms", before), ("tuned_ms", after)):
        if grouping is not None and grouping.step_us is not None:
            figures[name] = grouping.step_us / 1e3
    log.end(TuningResult.SUCCESSFUL.value, **figures)


def with_study(bench: TrainingBench, places: TrainingPlaces, cwd: Path) -> TrainingBench:
    """Return the bench with a writer of studies, if one is wanted; the first process has it."""
    place, training = bench.settings.study, bench.training
    if place is None or not training.is_first:
        return bench
    study = StudyWriter(
        place,
        cwd,
        run=places.tuning_name,
        facts={"model": training.model_name, "soc_version": training.soc_version},
        warn=bench.progress.warn,
    )
    bench.progress.step(f"optuna-dashboard {study.source} shows the groupings")
    return replace(bench, study=study)


def write_study(
    bench: TrainingBench, candidates: Sequence[GdatCandidate], found: GdatSearch
) -> None:
    """Write the groupings that were measured as trials."""
    assert bench.study is not None
    race = found.verdict.race
    measured = [
        (race.measurement(number), one)
        for number, one in enumerate(candidates, start=1)
        if race.times_us[number]
    ]
    if not measured:
        return
    trials: list[tuple[Mapping[str, int | str], Measurement]] = [
        ({"grouping": one.name, "segments": len(one.segmentation)}, measurement)
        for measurement, one in measured
    ]
    knobs = [
        Knob("grouping", tuple(dict.fromkeys(one.name for _, one in measured))),
        Knob("segments", tuple(sorted({len(one.segmentation) for _, one in measured}))),
    ]
    won = found.winner.candidate.name if found.winner is not None else "the default stays"
    bench.study.write(task_line(bench), trials, knobs, won)
