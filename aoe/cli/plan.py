"""`aoe plan`: what a tuning would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import Work, given_configuration, refuse_unused
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoe.settings import environment
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.progress import Progress

if TYPE_CHECKING:
    from aoe.runs.planning import TuningPlan
    from aoebank import Report


def plan(
    context: typer.Context,
    model: Annotated[
        Path | None,
        Option(is_argument=True, metavar="[MODEL]", help="Model file; none with --script."),
    ] = None,
    *,
    options: Mapping[str, Any],
    quiet: bool,
    as_json: bool,
) -> Report | int:
    """Show what tuning a model would reuse, tune again, tune anew and drop.

    Raises:
        OptionError: options that cannot be meant together.
        AoeError: the model cannot be read, or its training cannot be run.
        AoebankError: the bank cannot be used.
    """
    from aoe.cli.gdat_command import (
        answering_alone,
        gradient_progress,
        is_first_process,
        observed_program,
    )
    from aoe.cli.progress import shown_progress
    from aoe.report.reuse import PlanReport
    from aoe.runs.configuration.resolving import settings_of
    from aoe.tuner.registry import parse_job_types

    jobs, shown = parse_job_types(options["job_type"]), not quiet and not as_json
    if options["script"] is not None and jobs == (JobType.OPAT,):
        return _planned_training(context, model, options, as_json=as_json)
    is_training = options["script"] is not None or JobType.GDAT in jobs
    work = Work.MODEL if is_training else Work.ALONE
    refuse_unused(context, Work.SCRIPT if options["script"] is not None else work)
    settings = settings_of(model or Path(), options, given_configuration(context, None))
    if settings.shape_cases:
        raise OptionError(
            "--input_shape", "one shape is planned at a time", got=settings.shape_cases[1]
        )
    if is_training:
        progress = gradient_progress(shown=shown)
        trained = {**options, "model": model, "input_shape": settings.input_shape}
        program = observed_program(trained, jobs, on_event=progress.step)
        with answering_alone(as_json=as_json):
            settings = replace(settings, model=program, job_types=jobs)
            planned = _planned(settings, progress, context)
        return PlanReport(plan=planned) if is_first_process() else 0
    if model is None:
        raise OptionError("MODEL", "nothing to plan", hint="aoe plan M.onnx")
    with shown_progress(shown=shown) as progress:
        return PlanReport(plan=_planned(settings, progress, context))


def _planned_training(
    context: typer.Context, model: Path | None, options: Mapping[str, Any], *, as_json: bool
) -> Report | int:
    """Plan the operators of a training script, which runs in this process for a few steps.

    Raises:
        OptionError: options that cannot be meant together.
        AoeError: the script fails, or trains no module.
        EngineNotInstalledError: there is no PyTorch.
    """
    from aoe.cli.gdat_command import answering_alone, checked_training_script, is_first_process
    from aoe.report.reuse import PlanReport

    script = checked_training_script(options["script"], model)
    refuse_unused(context, Work.SCRIPT_OPERATORS)
    from aoe.torch.scripts.planning import plan_script

    with answering_alone(as_json=as_json):
        planned = plan_script(
            script,
            tuple(options["script_argument"] or ()),
            env=environment(),
            cwd=Path.cwd(),
            base_result=options["base_result"],
        )
    return PlanReport(plan=planned) if is_first_process() else 0


def _planned(settings: TuneSettings, progress: Progress, context: typer.Context) -> TuningPlan:
    from aoe.runs.planning import plan_model

    return plan_model(
        ModeContext(
            settings=settings,
            env=environment(),
            cwd=Path.cwd(),
            progress=progress,
            now=datetime.now(UTC),
            engine=engine_of(context),
        )
    )
