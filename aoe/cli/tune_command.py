"""`aoe --model=...`: tune a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from aoe.cli.options import finish
from aoe.settings import environment
from aoe.tuner.mode import TuneSettings
from aoe.tuner.parts import REAL_ENGINE, EngineParts

if TYPE_CHECKING:
    from aoe.runs.run import TuneResult


def run_tuning(
    settings: TuneSettings,
    *,
    as_json: bool,
    shown: bool,
    details: bool = False,
    env: Mapping[str, str] | None = None,
    engine: EngineParts = REAL_ENGINE,
) -> TuneResult:
    """Tune, show progress, print what every mode gave.

    Args:
        settings: Options of the run.
        as_json: True for one document.
        shown: False for no progress.
        details: True to tell every rule that is tried, too.
        env: Stands in for the process's environment.
        engine: What is tuned with.

    Raises:
        typer.Exit: all is written and told, but the bank took no more at some time.
    """
    from aoe.cli.progress import shown_progress
    from aoe.report.tuning import tune_report
    from aoe.runs.run import tune_with

    with shown_progress(
        shown=shown and not as_json,
        details=details,
        limit_s=settings.tuning_time_limit_s,
        looks_up=settings.lookup_only,
    ) as progress:
        tuned = tune_with(
            settings,
            env=environment() if env is None else env,
            cwd=Path.cwd(),
            progress=progress,
            now=datetime.now(UTC),
            engine=engine,
        )
    code = finish(tune_report(result=tuned), as_json=as_json)
    if code:
        raise typer.Exit(code)
    return tuned


def run_folder(
    settings: TuneSettings,
    *,
    as_json: bool,
    shown: bool,
    details: bool = False,
    engine: EngineParts = REAL_ENGINE,
) -> None:
    """Tune every model of a directory, show progress, print what became of each.

    A directory that is a model itself, such as a dump, is tuned as one.

    Raises:
        ModelNotFoundError: no such directory, or no model in it.
    """
    from aoe.cli.progress import shown_progress
    from aoe.entry.folder import find_models
    from aoe.report.folder import FolderReport
    from aoe.runs.folder import tune_folder

    folder = settings.model
    assert isinstance(folder, Path)
    models = find_models(folder)
    if models[0].path == folder:
        only = replace(settings, framework=models[0].framework)
        run_tuning(only, as_json=as_json, shown=shown, details=details, engine=engine)
        return
    done = tune_folder(
        settings,
        models,
        env=environment(),
        cwd=Path.cwd(),
        progress=partial(
            shown_progress,
            shown=shown and not as_json,
            details=details,
            looks_up=settings.lookup_only,
        ),
        now=datetime.now(UTC),
        engine=engine,
    )
    code = finish(FolderReport(folder=folder, models=tuple(done)), as_json=as_json)
    if code:
        raise typer.Exit(code)
