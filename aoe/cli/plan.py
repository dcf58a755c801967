"""`aoe plan`: what a tuning would do."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import (
    BaseResultOption,
    FrameworkOption,
    InputShapeOption,
    JsonFlag,
    OperatorsOption,
    QuietFlag,
    SocVersionOption,
    TrialsOption,
    WeightOption,
    finish,
)
from aoe.errors import OptionError
from aoe.settings import environment
from aoe.tuning.mode import ModeContext, TuneSettings


def command(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Model file.")],
    base_result: BaseResultOption = None,
    job_type: Annotated[
        str,
        typer.Option(
            "--job_type",
            "-j",
            metavar="MODE",
            help="1 (or sgat) = subgraphs, 2 (or opat) = operators, or both: sgat,opat.",
        ),
    ] = "2",
    framework: FrameworkOption = 5,
    weight: WeightOption = None,
    input_shape: InputShapeOption = None,
    custom_ops_library: OperatorsOption = None,
    soc_version: SocVersionOption = None,
    aicore_num: Annotated[
        int | None,
        typer.Option(
            "--aicore_num",
            min=1,
            metavar="N",
            help="Cores to tune for; default is all usable ones.",
        ),
    ] = None,
    trials: TrialsOption = 24,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what tuning a model would reuse, tune again, tune anew and drop."""
    from aoe.cli.progress import shown_progress
    from aoe.report.reuse import PlanReport
    from aoe.tuning.cases.given import given_cases
    from aoe.tuning.planning.model import plan_model
    from aoe.tuning.registry import parse_job_types

    given = given_cases(input_shape or ())
    if given["shape_cases"]:
        raise OptionError(
            "--input_shape", "one shape is planned at a time", got=given["shape_cases"][1]
        )
    settings = TuneSettings(
        model=model,
        framework=framework,
        weight=weight,
        job_types=parse_job_types(job_type),
        **given,
        operators=tuple(custom_ops_library or ()),
        soc_version=soc_version,
        core_num=aicore_num,
        trials=trials,
        base_result=base_result,
    )
    with shown_progress(shown=not quiet and not as_json) as progress:
        plan = plan_model(
            ModeContext(
                settings=settings,
                env=environment(),
                cwd=Path.cwd(),
                progress=progress,
                now=datetime.now(UTC),
                engine=engine_of(context),
            )
        )
    finish(PlanReport(plan=plan), as_json=as_json)
