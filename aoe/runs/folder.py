"""Tune every model of a directory: one bank, one report each, and what is broken stops no other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from aoe.entry.folder import FoundModel
from aoe.errors import ERRORS_OF_A_MODEL, AoeError, OptionError
from aoe.execute.workers.pool_on_demand import PoolOnDemand
from aoe.results.files import (
    TuningResult,
    basic_section,
    read_reports,
    repo_summary,
    result_name,
    timestamp_of,
    write_report,
)
from aoe.runs.run import TuneResult, tune_with
from aoe.settings import work_path
from aoe.tuner.mode import OneOfMany, TrialCount, TuneSettings, limits_of_part
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoe.tuner.progress import Progress
from aoebank import SpareBank

OpenProgress = Callable[[], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOfFolder:
    """Result of one model of a directory."""

    path: Path  # Its file, or its own directory
    report: str  # Its key in the result file
    result: TuneResult | None  # What tuning gave, None if it failed
    error: AoeError | None  # Why it failed, None if it did not
    seconds: float  # How long it took


def tune_folder(
    settings: TuneSettings,
    models: Sequence[FoundModel],
    *,
    env: Mapping[str, str],
    cwd: Path,
    progress: OpenProgress,
    now: datetime,
    engine: EngineParts = REAL_ENGINE,
) -> Iterator[ModelOfFolder]:
    """Tune models one after another, and yield what became of each when it is done.

    A workload that several of them compute is tuned for the first and found in the bank by the
    others. The time limit is for all: a model gets its part of what the ones before left.

    Args:
        settings: Options of the run; the model, its framework and its weights are replaced.
        models: What to tune, in this order.
        env: Environment variables.
        cwd: Directory relative paths are taken from.
        progress: Opens the display of one model.
        now: Time the run is named after.
        engine: Runner, device, clock and what else of the engine may be replaced.

    Raises:
        AoeError: about more than one model: an option, the target, a place to write.
        AoebankError: the bank cannot be used.
    """
    if settings.output is not None and settings.output.suffix == ".om":
        raise OptionError(
            "--output",
            "one file cannot take several tuned models",
            got=settings.output,
            expected="a directory",
        )
    stamp, folders = timestamp_of(now), _folders(models)
    spare, trials = SpareBank(), TrialCount()
    start = engine.clock()
    with PoolOnDemand(engine.open_remote_pool) as remote_pools:
        for number, model in enumerate(models):
            among = OneOfMany(
                report=f"report_{stamp}_{number + 1}",
                folder=folders[number],
                is_last=number + 1 == len(models),
            )
            begun = engine.clock()
            own = replace(
                limits_of_part(settings, spent_s=begun - start, number=number, parts=len(models)),
                model=model.path,
                framework=model.framework,
                weight=model.weight,
            )
            result, error = None, None
            with progress() as shown:
                shown.step(f"model {number + 1} of {len(models)}: {model.path.name}")
                try:
                    result = tune_with(
                        own,
                        env=env,
                        cwd=cwd,
                        progress=shown,
                        now=now,
                        one_of_many=among,
                        remote_pools=remote_pools,
                        spare=spare,
                        trials=trials,
                        engine=engine,
                    )
                except ERRORS_OF_A_MODEL as failure:
                    error = failure
                    shown.warn(f"{model.path.name} is not tuned: {failure}")
            seconds = engine.clock() - begun
            if error is not None:
                _report_failure(own, env, cwd, among, f"{model.path.stem}_{stamp}", seconds)
            yield ModelOfFolder(
                path=model.path, report=among.report, result=result, error=error, seconds=seconds
            )


def _folders(models: Sequence[FoundModel]) -> list[str]:
    """Return a name for each model's own folder: the stem, or the whole name where two share it."""
    stems = [model.path.stem for model in models]
    return [
        stem if stems.count(stem) == 1 else model.path.name
        for stem, model in zip(stems, models, strict=True)
    ]


def _report_failure(
    settings: TuneSettings,
    env: Mapping[str, str],
    cwd: Path,
    among: OneOfMany,
    tuning_name: str,
    seconds: float,
) -> None:
    """Give a model that failed before it could be reported the report of a failed tuning."""
    stamp = among.report.split("_")[1]
    output = None if settings.output is None else cwd / settings.output
    here = cwd / (settings.work_path or "") if output is None else cwd
    folder = work_path(env, here, output)
    for job in settings.job_types:
        file = folder / result_name(job, stamp, os.getpid())
        if among.report in read_reports(file):
            continue
        failed = {
            f"{job}_tuning_result": TuningResult.FAILED.value,
            "repo_summary": repo_summary(()),
        }
        basic = basic_section(tuning_name, seconds, TuningResult.FAILED)
        write_report(file, [basic, {job.upper(): failed}], among.report)
