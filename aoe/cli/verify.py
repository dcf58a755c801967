"""`aoe verify`: measure records of a bank again on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from aoe.cli.command_options import COMMAND_OPTIONS
from aoe.cli.errors import engine_of
from aoe.cli.options import (
    InputShapeOption,
    JsonFlag,
    LossNameOption,
    QuietFlag,
    ScriptArguments,
    SeedOption,
    SocVersionOption,
    Work,
    finish,
    flag,
    given_configuration,
    given_inputs,
    is_given,
    read_calibration,
    refuse_unused,
    with_parameters,
)
from aoe.errors import OptionError
from aoe.tuner.mode import TuneSettings
from aoebank import BankNotFoundError

OF_MODELS = (
    *("shapes_from", "input_files", "input_sets", "out_nodes", "custom_ops_library"),
    *("precision_mode", "modify_mixlist", "accuracy", "calibration", "strict_fp32"),
    *("kernel_memory", "config", "output"),
)
"""Options that say how a whole model is judged, by name in the table."""


@with_parameters(COMMAND_OPTIONS[name] for name in OF_MODELS)
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
            help="Model to judge whole, without a search, and to measure subgraphs in, ONNX or "
            "tuned (.om); several times for several.",
        ),
    ] = None,
    job_type: Annotated[
        str,
        typer.Option(
            "--job_type",
            "-j",
            metavar="MODE",
            help="Judge models as a run of this mode: 2 (or opat), or 1,2 (or sgat,opat).",
        ),
    ] = "2",
    input_shape: InputShapeOption = None,
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
    undecided: Annotated[
        bool,
        typer.Option(
            "--undecided",
            help="Measure no record: only what a busy machine left undecided, and the models of "
            "--model.",
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
    **of_models: Any,
) -> None:
    """Measure records of a bank again on this machine: do they still hold?"""
    work = Work.SCRIPT if script is not None else Work.MODEL if loss_name else Work.ALONE
    refuse_unused(context, work)
    _refuse_without_model(context, model if work is Work.ALONE else None)
    if bank is not None and not bank.is_dir():
        raise BankNotFoundError(
            "no such bank", path=bank, hint="aoebank resolve --explain shows where banks are"
        )
    if work is not Work.ALONE:
        _verify_gradients(
            bank,
            script=script,
            arguments=script_argument or (),
            models=model or (),
            loss_name=loss_name,
            input_shape=_one_shape(input_shape),
            world=world,
            dry_run=dry_run,
            seed=seed,
            shown=not quiet,
            as_json=as_json,
        )
        return
    from aoe.cli.progress import shown_progress
    from aoe.report.verify import VerifiedBankReport
    from aoe.runs.verify_bank import verify

    how = _how(context, {"input_shape": input_shape, **of_models})
    with shown_progress(shown=not quiet and not as_json) as progress:
        result = verify(
            bank,
            models=model or (),
            sample=sample,
            stale_only=stale_only,
            worst=worst,
            only_undecided=undecided,
            soc_version=soc_version,
            core_num=aicore_num,
            seed=seed,
            accept_busy=how.accept_busy,  # a file may have said so, which counts more
            how=how,
            dry_run=dry_run,
            progress=progress,
            engine=engine_of(context),
        )
    report = VerifiedBankReport(result=result)
    finish(report, as_json=as_json)
    raise typer.Exit(report.exit_code)


def _how(context: typer.Context, options: Mapping[str, Any]) -> TuneSettings:
    """Return the settings models are run with: those of a tuning with the same options."""
    from aoe.runs.configuration.resolving import settings_of

    return settings_of(
        Path(),
        options,
        given_configuration(context, options["config"]).check(),
        inputs=given_inputs(options["input_files"], options["input_sets"]),
        calibration=read_calibration(options["calibration"]),
    )


def _refuse_without_model(context: typer.Context, models: Sequence[Path] | None) -> None:
    """Refuse options of whole models where no model is given.

    Raises:
        OptionError: one is.
    """
    for name in () if models else ("job_type", *OF_MODELS):
        if is_given(context, name):
            option = COMMAND_OPTIONS[name].option
            raise OptionError(
                option, "it says how a model is judged", hint="--model=FILE, or leave it out"
            )


def _one_shape(texts: Sequence[str] | None) -> str | None:
    """Return the shapes of a model that is trained, None if they are not said.

    Raises:
        OptionError: there are several.
    """
    if texts is not None and len(texts) > 1:
        raise OptionError("--input_shape", "a model is trained with one shape", got=texts[1])
    return next(iter(texts or ()), None)


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
    from aoe.runs.gradients.verify import verify_program

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
