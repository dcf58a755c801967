"""`aoe plan`: what a tuning would do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoe.cli.command_options import OPTIONS
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
    base_result: Path | None,
    job_type: Annotated[
        str,
        replace(
            OPTIONS["job_type"],
            help="1 (or sgat) = subgraphs, 2 (or opat) = operators, or both: sgat,opat; "
            "4 (or gdat) = gradients of a training.",
        ),
    ],
    framework: int,
    weight: Path | None,
    input_shape: Annotated[
        list[str] | None,
        replace(
            OPTIONS["input_shape"],
            help='Shapes of inputs the model leaves open: "name:1,3,224,224;other:1,16"; with '
            "LEAST~LARGEST for a range.",
        ),
    ] = None,
    shapes_from: Path | None,
    custom_ops_library: list[Path] | None,
    soc_version: str | None,
    aicore_num: Annotated[
        int | None, replace(OPTIONS["aicore_num"], unset="all usable ones")
    ] = None,
    trials: int,
    script: Path | None,
    script_argument: list[str] | None,
    loss_name: str | None,
    world: int | None,
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
    from aoe.runs.configuration.resolving import configure_call, settings_of
    from aoe.tuner.registry import parse_job_types

    jobs, shown = parse_job_types(job_type), not quiet and not as_json
    is_training = script is not None or JobType.GDAT in jobs
    work = Work.SCRIPT if script is not None else Work.MODEL if is_training else Work.ALONE
    refuse_unused(context, work)
    options = dict(context.params)
    found = given_configuration(context, None) if is_training else configure_call(options)
    settings = settings_of(model or Path(), options, found)
    if settings.shape_cases:
        raise OptionError(
            "--input_shape", "one shape is planned at a time", got=settings.shape_cases[1]
        )
    if is_training:
        progress = gradient_progress(shown=shown)
        program = observed_program(
            jobs,
            script=script,
            arguments=script_argument or (),
            model=model,
            loss_name=loss_name,
            framework=framework,
            weight=weight,
            input_shape=settings.input_shape,
            world=world,
            tell=progress.step,
        )
        with answering_alone(as_json=as_json):
            settings = replace(settings, model=program, job_types=jobs)
            planned = _planned(settings, progress, context)
        return PlanReport(plan=planned) if is_first_process() else 0
    if model is None:
        raise OptionError("MODEL", "nothing to plan", hint="aoe plan M.onnx")
    with shown_progress(shown=shown) as progress:
        return PlanReport(plan=_planned(settings, progress, context))


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
