"""`aoe verify`: measure records of a bank again on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import (
    JsonFlag,
    QuietFlag,
    SeedOption,
    SocVersionOption,
    finish,
)


def command(
    context: typer.Context,
    bank: Annotated[
        Path | None,
        typer.Argument(metavar="[BANK]", help="Root of the bank; default is as for tuning."),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="Model whose subgraphs are measured, ONNX or tuned (.om); several times for "
            "several.",
        ),
    ] = None,
    input_shape: Annotated[
        str | None,
        typer.Option(
            "--input_shape",
            metavar="SHAPES",
            help='Shapes of inputs the models leave open: "name:1,3,224,224;other:1,16".',
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option("--sample", min=1, metavar="N", help="Only so many, drawn with --seed."),
    ] = None,
    stale_only: Annotated[
        bool,
        typer.Option(
            "--stale-only", help="Only those measured in another environment (aoebank stale)."
        ),
    ] = False,
    worst: Annotated[
        bool,
        typer.Option(
            "--worst", help="Smallest recorded gain first; with --sample only the N smallest."
        ),
    ] = False,
    soc_version: SocVersionOption = None,
    aicore_num: Annotated[
        int | None,
        typer.Option(
            "--aicore_num",
            min=1,
            metavar="N",
            help="Records for so many cores; default is all usable ones.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure, but write nothing into the bank.")
    ] = False,
    seed: SeedOption = 0,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure records of a bank again on this machine: do they still hold?"""
    from aoe.cli.progress import shown_progress
    from aoe.report.verify import VerifiedBankReport
    from aoe.tuning.verify.run import verify

    with shown_progress(shown=not quiet and not as_json) as progress:
        result = verify(
            bank,
            models=model or (),
            input_shape=input_shape,
            sample=sample,
            stale_only=stale_only,
            worst=worst,
            soc_version=soc_version,
            core_num=aicore_num,
            seed=seed,
            dry_run=dry_run,
            progress=progress,
            engine=engine_of(context),
        )
    report = VerifiedBankReport(result=result)
    finish(report, as_json=as_json)
    raise typer.Exit(report.exit_code)
