"""`aoe verify`: measure records of a bank again on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aoe.cli.command_options import COMMAND_OPTIONS, OPTIONS
from aoe.cli.commands import JUDGING
from aoe.cli.errors import engine_of
from aoe.cli.options import (
    Work,
    given_configuration,
    is_given,
    refuse_unused,
    run_settings,
)
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoebank import BankNotFoundError

if TYPE_CHECKING:
    from aoebank import Report


def verify_bank(
    context: typer.Context,
    bank: Annotated[
        Path | None,
        Option(
            is_argument=True,
            metavar="[BANK]",
            help="Root of the bank, or a directory of results; default is as for tuning.",
        ),
    ] = None,
    *,
    model: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE",
            help="Model to judge whole, without a search, and to measure subgraphs in, ONNX or "
            "tuned (.om); several times for several.",
        ),
    ] = None,
    job_type: Annotated[
        str,
        replace(
            OPTIONS["job_type"],
            help="Judge models as a run of this mode: 2 (or opat), or 1,2 (or sgat,opat).",
        ),
    ],
    input_shape: list[str] | None,
    sample: Annotated[
        int | None,
        Option(least=1, metavar="N", help="Only so many records, drawn with --seed."),
    ] = None,
    stale_only: Annotated[
        bool, Option(help="Only records measured in another environment (aoebank stale).")
    ] = False,
    worst: Annotated[
        bool,
        Option(help="Records of the smallest gain first; with --sample only the N smallest."),
    ] = False,
    undecided: Annotated[
        bool,
        Option(
            help="Measure no record: only what a busy machine left undecided, and the models of "
            "--model.",
        ),
    ] = False,
    soc_version: str | None,
    aicore_num: Annotated[
        int | None,
        replace(
            OPTIONS["aicore_num"], unset="all usable ones; records for another number are left out"
        ),
    ] = None,
    script: Annotated[
        Path | None,
        replace(
            OPTIONS["script"],
            help="Measure the gradients of this training instead; all that follows is passed to "
            "it.",
        ),
    ] = None,
    script_argument: list[str] | None,
    loss_name: str | None,
    world: Annotated[
        int | None, replace(OPTIONS["world"], unset="what the bank's records had, else 2")
    ] = None,
    dry_run: Annotated[bool, Option(help="Measure, but write nothing into the bank.")] = False,
    seed: int,
    quiet: bool,
    as_json: bool,
    options: Mapping[str, Any],
) -> Report | int:
    """Measure records of a bank again on this machine.

    Raises:
        OptionError: options that cannot be meant together.
        AoeError: see `aoe.verify`.
        AoebankError: the bank cannot be used.
    """
    work = Work.SCRIPT if script is not None else Work.MODEL if loss_name else Work.ALONE
    if script is not None and is_given(context, "job_type"):
        raise OptionError(
            "--job_type",
            "in a script its gradients are measured; regions of a training need no script",
            got=job_type,
            hint="aoe verify DIR, with the directory of the training's results or its bank",
        )
    refuse_unused(context, work)
    _refuse_without_model(context, model if work is Work.ALONE else None)
    if bank is not None and not bank.is_dir():
        raise BankNotFoundError(
            "no such bank", path=bank, hint="aoebank resolve --explain shows where banks are"
        )
    if work is not Work.ALONE:
        if model is not None and len(model) > 1:
            raise OptionError("--model", "one model is trained at a time", got=model[1])
        trained = {
            "script": script,
            "script_argument": script_argument,
            "model": next(iter(model or ()), None),
            "loss_name": loss_name,
            "input_shape": _one_shape(input_shape),
            "world": world,
            "seed": seed,
        }
        return _verified_gradients(bank, trained, quiet=quiet, as_json=as_json, dry_run=dry_run)
    from aoe.cli.progress import shown_progress
    from aoe.report.verify import VerifiedBankReport
    from aoe.runs.verify_bank import verify

    found = given_configuration(context, options["config"]).check()
    how = run_settings(Path(), {"input_shape": input_shape, **options}, found)
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
    return VerifiedBankReport(result=result)


def _refuse_without_model(context: typer.Context, models: Sequence[Path] | None) -> None:
    """Refuse options of whole models where no model is given.

    Raises:
        OptionError: one is.
    """
    for name in () if models else ("job_type", *JUDGING):
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


def _verified_gradients(
    bank: Path | None, options: Mapping[str, Any], *, quiet: bool, as_json: bool, dry_run: bool
) -> Report | int:
    """Measure what a bank has of a training again; the first process of its group prints."""
    from aoe.cli.gdat_command import answering_alone, gradient_progress, observed_program
    from aoe.report.verify import VerifiedBankReport
    from aoe.runs.gradients.verify import verify_program

    progress = gradient_progress(shown=not quiet and not as_json)
    program = observed_program(options, bank=bank, as_recorded=True, on_event=progress.step)
    with answering_alone(as_json=as_json):
        result = verify_program(program, bank, dry_run=dry_run, progress=progress)
    return 0 if result is None else VerifiedBankReport(result=result)
