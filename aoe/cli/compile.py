"""`aoe compile`, and `aoe-atc`: a model and a bank in, an `.om` file out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from aoe.cli.errors import engine_of
from aoe.cli.options import (
    AccuracyOption,
    BatchSizesOption,
    CalibrationOption,
    CoresOption,
    DynamicDimsOption,
    FrameworkOption,
    ImageSizesOption,
    InputFiles,
    InputSets,
    InputShapeOption,
    JsonFlag,
    MixListOption,
    OperatorsOption,
    OutNodesOption,
    PrecisionModeOption,
    QuietFlag,
    ShapesFromOption,
    SocVersionOption,
    StrictOption,
    WeightOption,
    given_inputs,
    given_precision,
)
from aoe.errors import OptionError
from aoe.folders.scratch import ScratchFolder
from aoe.results.files import BANK_FOLDER, bank_of_results
from aoe.settings import environment, with_bank
from aoe.tuner.mode import CacheMode, JobType, TuneSettings
from aoe.tuner.parts import EngineParts
from aoebank import say


def command(
    context: typer.Context,
    model: Annotated[Path, typer.Option("--model", "-m", metavar="FILE", help="Model file.")],
    output: Annotated[
        Path, typer.Option("--output", metavar="NAME", help="The .om file; .om may be left out.")
    ],
    framework: FrameworkOption = 5,
    weight: WeightOption = None,
    input_shape: InputShapeOption = None,
    shapes_from: ShapesFromOption = None,
    dynamic_batch_size: BatchSizesOption = None,
    dynamic_image_size: ImageSizesOption = None,
    dynamic_dims: DynamicDimsOption = None,
    out_nodes: OutNodesOption = None,
    custom_ops_library: OperatorsOption = None,
    inputs: InputFiles = None,
    input_sets: InputSets = None,
    soc_version: SocVersionOption = None,
    aicore_num: CoresOption = None,
    precision_mode: PrecisionModeOption = None,
    modify_mixlist: MixListOption = None,
    accuracy: AccuracyOption = None,
    calibration: CalibrationOption = None,
    strict_fp32: StrictOption = False,
    op_bank_path: Annotated[
        Path | None,
        typer.Option("--op_bank_path", metavar="DIR", help="Bank; default is as for tuning."),
    ] = None,
    mdl_bank_path: Annotated[
        Path | None,
        typer.Option(
            "--mdl_bank_path",
            metavar="DIR",
            help="Bank of subgraphs; the same as --op_bank_path.",
        ),
    ] = None,
    op_compiler_cache_mode: Annotated[
        CacheMode,
        typer.Option(
            "--op_compiler_cache_mode",
            help="Take compiled kernels and keep new ones (enable), neither (disable), or compile "
            "anew and keep (force).",
        ),
    ] = CacheMode.ENABLE,
    op_compiler_cache_dir: Annotated[
        Path | None,
        typer.Option(
            "--op_compiler_cache_dir",
            metavar="DIR",
            help="Where compiled kernels are; a directory of tuning results is the bank, too.",
        ),
    ] = None,
    aoe_mode: Annotated[
        str | None,
        typer.Option(
            "--aoe_mode", metavar="MODE", help="Tune first: 1 (or sgat), 2 (or opat), or both."
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            "--reports",
            metavar="DIR",
            help="Leave the reports of the run there; else there are none.",
        ),
    ] = None,
    quiet: QuietFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Convert a model with what a bank has for it; nothing is tried or measured."""
    from aoe.cli.tune_command import run_tuning
    from aoe.entry.outputs import parse_out_nodes
    from aoe.runs.given_cases import given_cases

    engine = engine_of(context)
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
        cases = given_cases(
            input_shape or (),
            batch_size=dynamic_batch_size,
            image_size=dynamic_image_size,
            dims=dynamic_dims,
            log=shapes_from,
        )
        settings = TuneSettings(
            model=model,
            framework=framework,
            weight=weight,
            job_types=_looked_up(
                env, soc_version, engine, is_range=cases["shape_range"] is not None
            )
            if aoe_mode is None
            else _tuned_first(aoe_mode),
            **cases,
            out_nodes=parse_out_nodes(out_nodes),
            operators=tuple(custom_ops_library or ()),
            inputs=given_inputs(inputs, input_sets),
            output=output if output.suffix == ".om" else output.with_name(f"{output.name}.om"),
            reports=scratch if reports is None else reports,
            reports_stay=reports is not None,
            soc_version=soc_version,
            core_num=aicore_num,
            precision=given_precision(
                precision_mode,
                modify_mixlist,
                strict=strict_fp32,
                accuracy=accuracy,
                calibration=calibration,
            ),
            lookup_only=aoe_mode is None,
            cache_mode=op_compiler_cache_mode,
            cache_dir=op_compiler_cache_dir,
            bank_made_of=op_compiler_cache_dir if bank == made else None,
        )
        run_tuning(settings, as_json=as_json, shown=not quiet, env=env, engine=engine)


def _looked_up(
    env: Mapping[str, str], soc_version: str | None, engine: EngineParts, *, is_range: bool
) -> tuple[JobType, ...]:
    """Return the modes that look up: those whose tasks the bank may know for the target.

    Modes for fixed shapes alone look nothing up for a range.
    """
    from aoe.bank.operators import bank_root
    from aoe.tuner.registry import KINDS
    from aoe.tuner.reuse.earlier import looked_up_kinds
    from aoebank import Bank

    _, target = engine.resolve_target(soc_version, None)
    kinds = looked_up_kinds(Bank(bank_root(env, Path.cwd(), writes=False)), target.soc_version)
    return tuple(job for job in kinds if KINDS[job].range_mode or not is_range)


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
