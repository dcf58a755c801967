"""`aoe verify`: measure records of a bank again on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import (
    JsonFlag,
    LossNameOption,
    QuietFlag,
    ScriptArguments,
    SeedOption,
    SocVersionOption,
    Work,
    finish,
    flag,
    refuse_unused,
)
from aoe.errors import OptionError


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
        typer.Option(
            "--sample", min=1, metavar="N", help="Only so many records, drawn with --seed."
        ),
    ] = None,
    stale_only: Annotated[
        bool,
        typer.Option(
            "--stale-only", help="Only records measured in another environment (aoebank stale)."
        ),
    ] = False,
    worst: Annotated[
        bool,
        typer.Option(
            "--worst", help="Records of the smallest gain first; with --sample only the N smallest."
        ),
    ] = False,
    soc_version: SocVersionOption = None,
    aicore_num: Annotated[
        int | None,
        flag("aicore_num", unset="all usable ones; records for another number are left out"),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(
            "--script",
            metavar="TRAIN.py",
            help="Measure the gradients of this training instead; all that follows is passed to "
            "it.",
        ),
    ] = None,
    script_argument: ScriptArguments = None,
    loss_name: LossNameOption = None,
    world: Annotated[int | None, flag("world", unset="what the bank's records had, else 2")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Measure, but write nothing into the bank.")
    ] = False,
    seed: SeedOption = 0,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Measure records of a bank again on this machine: do they still hold?"""
    work = Work.SCRIPT if script is not None else Work.MODEL if loss_name else Work.ALONE
    refuse_unused(context, work)
    if work is not Work.ALONE:
        _verify_gradients(
            bank,
            script=script,
            arguments=script_argument or (),
            models=model or (),
            loss_name=loss_name,
            input_shape=input_shape,
            world=world,
            dry_run=dry_run,
            seed=seed,
            shown=not quiet,
            as_json=as_json,
        )
        return
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


def _verify_gradients(
    bank: Path | None,
    *,
    script: Path | None,
    arguments: Sequence[str],
    models: Sequence[Path],
    loss_name: str | None,
    input_shape: str | None,
    world: int | None,
    dry_run: bool,
    seed: int,
    shown: bool,
    as_json: bool,
) -> None:
    """Measure what a bank has of a training again; the first process of its group prints."""
    from aoe.cli.gdat_command import answering_alone, gradient_progress, observed_program
    from aoe.report.verify import VerifiedBankReport
    from aoe.tuning.verify.gradients import verify_program

    if len(models) > 1:
        raise OptionError("--model", "one model is trained at a time", got=models[1])
    progress = gradient_progress(shown=shown and not as_json)
    program = observed_program(
        script=script,
        arguments=arguments,
        model=next(iter(models), None),
        loss_name=loss_name,
        input_shape=input_shape,
        world=world,
        bank=bank,
        as_recorded=True,
        seed=seed,
        tell=progress.step,
    )
    with answering_alone(as_json=as_json):
        result = verify_program(program, bank, dry_run=dry_run, progress=progress)
    if result is not None:
        report = VerifiedBankReport(result=result)
        finish(report, as_json=as_json)
        raise typer.Exit(report.exit_code)
