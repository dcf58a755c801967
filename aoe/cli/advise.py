"""`aoe advise`: what loses time in a model, why, and which actions were shown to help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.options import (
    CoresOption,
    FrameworkOption,
    InputFiles,
    InputSets,
    JsonFlag,
    OneShapeOption,
    OperatorsOption,
    SeedOption,
    WeightOption,
    finish,
    given_inputs,
)
from aoe.settings import environment
from aoebank import say


def command(
    model: Annotated[Path, typer.Argument(help="A model file, or an .om.", show_default=False)],
    most: Annotated[
        int,
        typer.Option(
            "--most", min=0, metavar="N", help="Edits tried, those about most lost time first."
        ),
    ] = 12,
    tune_ops_file: Annotated[
        Path | None,
        typer.Option(
            "--tune_ops_file",
            metavar="FILE",
            help="Write the operators worth tuning, as AOE reads them.",
        ),
    ] = None,
    framework: FrameworkOption = 5,
    weight: WeightOption = None,
    input_shape: OneShapeOption = None,
    custom_ops_library: OperatorsOption = None,
    inputs: InputFiles = None,
    input_sets: InputSets = None,
    aicore_num: CoresOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, metavar="N", help="Profiled runs per thread count.")
    ] = 10,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --tune_ops_file: write nothing, say what would be."),
    ] = False,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
) -> None:
    """Say what loses time in a model, why, and which actions help: each is tried first."""
    from aoe.advice.run import advise_file
    from aoe.profiling.run import ProfileSettings
    from aoe.report.advice.text import AdviceReport
    from aoe.results.files import write_json

    settings = ProfileSettings(
        model=model,
        framework=framework,
        weight=weight,
        input_shape=input_shape,
        operators=tuple(custom_ops_library or ()),
        inputs=given_inputs(inputs, input_sets),
        seed=seed,
        threads=aicore_num,
        runs=runs,
        counts=False,
        fusion=True,
        env=environment(),
    )
    advice = advise_file(settings, most=most, tell=say)
    if tune_ops_file is not None and not dry_run:
        write_json(tune_ops_file, {"tune_ops_name": list(advice.worth_tuning)})
    written = () if tune_ops_file is None else (tune_ops_file,)
    finish(AdviceReport(advice=advice, written=written, is_dry_run=dry_run), as_json=as_json)
