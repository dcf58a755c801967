"""`aoe plan`: what a tuning would do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import (
    BaseResultOption,
    FrameworkOption,
    JsonFlag,
    LossNameOption,
    OperatorsOption,
    QuietFlag,
    ScriptArguments,
    ScriptOption,
    ShapesFromOption,
    SocVersionOption,
    TrialsOption,
    WeightOption,
    Work,
    WorldOption,
    finish,
    flag,
    given_configuration,
    refuse_unused,
)
from aoe.errors import OptionError
from aoe.settings import environment
from aoe.tuner.mode import JobType, ModeContext, TuneSettings
from aoe.tuner.progress import Progress

if TYPE_CHECKING:
    from aoe.runs.planning import TuningPlan


def command(
    context: typer.Context,
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Model file; none with --script.")
    ] = None,
    base_result: BaseResultOption = None,
    job_type: Annotated[
        str,
        typer.Option(
            "--job_type",
            "-j",
            metavar="MODE",
            help="1 (or sgat) = subgraphs, 2 (or opat) = operators, or both: sgat,opat; "
            "4 (or gdat) = gradients of a training.",
        ),
    ] = "2",
    framework: FrameworkOption = 5,
    weight: WeightOption = None,
    input_shape: Annotated[
        list[str] | None,
        flag(
            "input_shape",
            help='Shapes of inputs the model leaves open: "name:1,3,224,224;other:1,16"; with '
            "LEAST~LARGEST for a range.",
        ),
    ] = None,
    shapes_from: ShapesFromOption = None,
    custom_ops_library: OperatorsOption = None,
    soc_version: SocVersionOption = None,
    aicore_num: Annotated[int | None, flag("aicore_num", unset="all usable ones")] = None,
    trials: TrialsOption = 24,
    script: ScriptOption = None,
    script_argument: ScriptArguments = None,
    loss_name: LossNameOption = None,
    world: WorldOption = None,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what tuning a model would reuse, tune again, tune anew and drop."""
    from aoe.cli.gdat_command import (
        answering_alone,
        gradient_progress,
        is_first_process,
        observed_program,
    )
    from aoe.cli.progress import shown_progress
    from aoe.report.reuse import PlanReport
    from aoe.runs.configuration.resolving import configured
    from aoe.runs.given_cases import given_cases
    from aoe.tuner.registry import parse_job_types

    jobs, shown = parse_job_types(job_type), not quiet and not as_json
    is_training = script is not None or JobType.GDAT in jobs
    work = Work.SCRIPT if script is not None else Work.MODEL if is_training else Work.ALONE
    refuse_unused(context, work)
    given = given_cases(input_shape or (), log=shapes_from)
    if given["shape_cases"]:
        raise OptionError(
            "--input_shape", "one shape is planned at a time", got=given["shape_cases"][1]
        )
    settings = TuneSettings(
        model=model or Path(),
        framework=framework,
        weight=weight,
        job_types=jobs,
        **given,
        operators=tuple(custom_ops_library or ()),
        soc_version=soc_version,
        core_num=aicore_num,
        trials=trials,
        base_result=base_result,
    )
    if is_training:
        settings = configured(settings, given_configuration(context, None))
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
            plan = _planned(settings, progress, context)
        if is_first_process():
            finish(PlanReport(plan=plan), as_json=as_json)
        return
    if model is None:
        raise OptionError("MODEL", "nothing to plan", hint="aoe plan M.onnx")
    with shown_progress(shown=shown) as progress:
        plan = _planned(settings, progress, context)
    finish(PlanReport(plan=plan), as_json=as_json)


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
