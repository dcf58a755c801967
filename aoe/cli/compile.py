"""`aoe compile`, and `aoe-atc`: a model and a bank in, an `.om` file out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from aoe.cli.command_options import OPTIONS
from aoe.cli.errors import engine_of
from aoe.cli.options import run_settings
from aoe.errors import OptionError
from aoe.folders.scratch import ScratchFolder
from aoe.results.files import BANK_FOLDER, bank_of_results
from aoe.runs.configuration.option import Option
from aoe.settings import environment, with_bank
from aoe.tuner.mode import CacheMode, JobType, TuneSettings
from aoe.tuner.parts import EngineParts
from aoebank import say


def compile_model(
    context: typer.Context,
    *,
    model: Annotated[Path, OPTIONS["model"]],
    output: Annotated[Path, Option(metavar="NAME", help="The .om file; .om may be left out.")],
    options: Mapping[str, Any],
    op_bank_path: Annotated[
        Path | None,
        Option(flags=("--op_bank_path",), metavar="DIR", help="Bank; default is as for tuning."),
    ] = None,
    mdl_bank_path: Annotated[
        Path | None,
        Option(
            flags=("--mdl_bank_path",),
            metavar="DIR",
            help="Bank of subgraphs; the same as --op_bank_path.",
        ),
    ] = None,
    op_compiler_cache_mode: Annotated[
        CacheMode,
        Option(
            flags=("--op_compiler_cache_mode",),
            help="Take compiled kernels and keep new ones (enable), neither (disable), or compile "
            "anew and keep (force).",
        ),
    ] = CacheMode.ENABLE,
    op_compiler_cache_dir: Annotated[
        Path | None,
        Option(
            flags=("--op_compiler_cache_dir",),
            metavar="DIR",
            help="Where compiled kernels are; a directory of tuning results is the bank, too.",
        ),
    ] = None,
    aoe_mode: Annotated[
        str | None,
        Option(
            flags=("--aoe_mode",),
            metavar="MODE",
            help="Tune first: 1 (or sgat), 2 (or opat), or both.",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        Option(metavar="DIR", help="Leave the reports of the run there; else there are none."),
    ] = None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Convert a model with what a bank has for it; nothing is tried or measured.

    Raises:
        OptionError: options that cannot be meant together.
        AoeError: the model cannot be converted.
        AoebankError: the bank cannot be used.
    """
    from aoe.cli.tune_command import run_tuning
    from aoe.runs.configuration.resolving import configure, configure_call

    engine, om_file = engine_of(context), _named_om(output)
    if aoe_mode is None:  # tuning makes a bank that is missing
        _check_banks({"--op_bank_path": op_bank_path, "--mdl_bank_path": mdl_bank_path})
    with ScratchFolder("reports") as scratch, ScratchFolder("bank") as made:
        bank = _bank(op_bank_path, mdl_bank_path, op_compiler_cache_dir, made)
        if bank == made and aoe_mode is not None:
            raise OptionError(
                "--op_compiler_cache_dir",
                "a directory of results without a bank, which tuning needs",
                got=op_compiler_cache_dir,
                hint="name a bank with --op_bank_path, or leave --aoe_mode out",
            )
        env: Mapping[str, str] = environment()
        if bank is not None and aoe_mode is not None:
            env = with_bank(env, bank)
        elif bank is not None:  # which has to be there
            env = {**env, "TUNE_BANK_PATH": str(bank.resolve())}
        cache = {
            "op_compiler_cache_mode": op_compiler_cache_mode,
            "op_compiler_cache_dir": op_compiler_cache_dir,
        }
        # what only looks up reads no variable of tuning
        found = (
            configure_call(options)
            if aoe_mode is None
            else configure(options, env=environment(), cwd=Path.cwd())
        )
        settings = run_settings(model, {**options, **cache}, found)
        settings = replace(
            settings,
            job_types=_looked_up(env, settings, engine)
            if aoe_mode is None
            else _tuned_first(aoe_mode),
            output=om_file,
            reports=scratch if reports is None else reports,
            reports_stay=reports is not None,
            lookup_only=aoe_mode is None,
            bank_made_of=op_compiler_cache_dir if bank == made else None,
        )
        run_tuning(settings, as_json=as_json, shown=not quiet, env=env, engine=engine)
    return 0


def _named_om(output: Path) -> Path:
    """Return the `.om` file of a name, which may leave the ending out.

    Raises:
        OptionError: it is no name of a file.
    """
    if output.name in ("", ".."):
        raise OptionError("--output", "no name of a file", got=output, expected="NAME or NAME.om")
    return output if output.suffix == ".om" else output.with_name(f"{output.name}.om")


def _looked_up(
    env: Mapping[str, str], settings: TuneSettings, engine: EngineParts
) -> tuple[JobType, ...]:
    """Return the modes that look up: those whose tasks the bank may know for the target.

    Modes for fixed shapes alone look nothing up for a range.
    """
    from aoe.bank.operators import custom_banks
    from aoe.tuner.registry import KINDS
    from aoe.tuner.reuse.earlier import looked_up_kinds
    from aoebank import Bank

    _, target = engine.resolve_target(settings.soc_version, None)
    roots = custom_banks(env, Path.cwd(), writes=False).roots
    known = {job for root in roots for job in looked_up_kinds(Bank(root), target.soc_version)}
    kinds = (job for job in KINDS if job in known)
    return tuple(job for job in kinds if KINDS[job].range_mode or settings.shape_range is None)


def _tuned_first(aoe_mode: str) -> tuple[JobType, ...]:
    """Return the modes that tune first."""
    from aoe.tuner.registry import KINDS, other_mode, parse_job_types

    jobs = parse_job_types(aoe_mode, "--aoe_mode")
    for job in jobs:
        if not KINDS[job].earlier:
            raise OptionError("--aoe_mode", f"{job.subject}s are no part of a model", got=aoe_mode)
    words = ", then ".join(job.words for job in jobs)
    say(f"--aoe_mode={aoe_mode}: {words}{other_mode(aoe_mode, '--aoe_mode')}")
    return jobs


def _check_banks(named: Mapping[str, Path | None]) -> None:
    """Refuse a bank that cannot be used, under the name of its option.

    Raises:
        OptionError: no directory, or one this user may not read and search.
    """
    for option, path in named.items():
        if path is not None and not path.is_dir():
            problem = "not a directory" if path.exists() else "no such directory"
            raise OptionError(option, problem, got=path, expected="root of a bank")
        if path is not None and not os.access(path, os.R_OK | os.X_OK):
            raise OptionError(
                option,
                "may not be used",
                got=path,
                expected="permission to read and search it",
                hint=f"chmod u+rx {path}",
            )


def _bank(
    operators: Path | None, subgraphs: Path | None, cache: Path | None, made: Path
) -> Path | None:
    """Return the bank that is meant, None for that of the environment.

    Args:
        operators: That of `--op_bank_path`.
        subgraphs: That of `--mdl_bank_path`.
        cache: Folder of kernels, which may be one of results.
        made: Empty folder, for the bank of results that have none: reports tell its records too.

    Raises:
        OptionError: there are two.
    """
    if operators is not None and subgraphs is not None and operators != subgraphs:
        raise OptionError(
            "--mdl_bank_path",
            "another bank than --op_bank_path; both kinds of records are in one",
            got=subgraphs,
            expected=str(operators),
        )
    named = operators or subgraphs
    if named is None and cache is not None:
        named = _bank_of(cache, made)
    if named is not None and named not in (operators, subgraphs):
        which = "what its reports tell of records" if named == made else "its bank"
        say(f"{cache} is a directory of results: {which} is used")
    return named


def _bank_of(folder: Path, made: Path) -> Path | None:
    """Return the bank of a folder of results, or the one made of its reports; None for no such."""
    from aoe.tuner.reuse.earlier import earlier_tasks, has_results, open_earlier

    named = bank_of_results(folder)
    if named is not None:
        return named
    if has_results(folder):
        return open_earlier(folder, made).bank.root
    if (folder / "summary.json").is_file():
        folders = (BANK_FOLDER, *(kind.DETAILS for kind in earlier_tasks().values()))
        raise OptionError(
            "--op_compiler_cache_dir",
            "a directory of results that have no record",
            got=folder,
            expected=f"a folder of kernels, or results with {'/ or '.join(folders)}/",
        )
    return None
