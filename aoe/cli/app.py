"""The `aoe` command: options tune a model, sub-commands use the result."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import typer

from aoe.cli.cann import (
    ascend_target,
    hand_over,
    hand_over_to_atc,
    warnings_of,
    without_atc_only,
    without_elsewhere,
)
from aoe.cli.command_options import COMMAND_OPTIONS
from aoe.cli.commands import (
    COMMANDS,
    EXAMPLES,
    NOTES,
    OPTION_SECTIONS,
    SECTIONS,
    command_place,
)
from aoe.cli.ending import QuickEnd
from aoe.cli.errors import engine_of, run_app
from aoe.cli.gdat_command import refuse_inference_options, split_script, tune_training
from aoe.cli.options import (
    check_tuned_model,
    finish,
    given_configuration,
    is_given,
    load_command,
    prints_json,
    refuse_gradients,
    run_settings,
    tells_all,
    warn_of_subgraph_options,
    with_parameters,
)
from aoe.errors import OptionError
from aoe.settings import environment, parse_switch
from aoe.tuner.mode import JobType
from aoe.tuner.parts import REAL_ENGINE, EngineParts
from aoebank import JSON_PRINTED, CommandGroup, say


class _Commands(CommandGroup):
    summaries: ClassVar = {name: row.summary for name, row in COMMANDS.items()}
    sections = SECTIONS
    option_sections = OPTION_SECTIONS
    examples = EXAMPLES
    notes = NOTES

    @classmethod
    def load(cls, name: str) -> Any:
        """Return the function of a command as typer takes it."""
        return load_command(name)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take options of CANN's AOE out, and give `--json` to the command it stands before.

        A job for an Ascend processor is CANN's as a whole, tuning and `compile`.
        """
        if ctx.resilient_parsing:  # a line that is being typed in a shell, which asks for words
            typed: list[str] = super().parse_args(ctx, args)
            return typed
        place = command_place(args)
        soc_version = ascend_target(args[:place])
        if soc_version is not None and place == len(args):
            ctx.exit(hand_over(args, soc_version))
        own, warnings = without_elsewhere(args[:place])
        command = args[place:]
        if command[:1] == ["compile"]:
            soc_version = ascend_target(command[1:])
            if soc_version is not None:
                ctx.exit(hand_over_to_atc(command[1:], soc_version))
            words, more = without_atc_only(command[1:])
            command, warnings = ["compile", *words], [*warnings, *more]
        for text in warnings:
            say(f"warning: {text}")
        if command and JSON_PRINTED in own:
            own.remove(JSON_PRINTED)
            command.append(JSON_PRINTED)
        rest: list[str] = super().parse_args(ctx, [*own, *command])
        return rest

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Name the option for a model that stands in the place of a command.

        Raises:
            OptionError: one does.
        """
        word = args[0]
        is_model = Path(word).exists() or Path(word).suffix in (".onnx", ".om")
        if word not in COMMANDS and is_model and not ctx.resilient_parsing:
            raise OptionError(
                "aoe", "no command", got=word, hint=f"aoe {_option_of(Path(word))}={word}"
            )
        return super().resolve_command(ctx, args)


def _option_of(model: Path) -> str:
    if model.is_dir():
        return "--model_path"
    return "--om" if model.suffix == ".om" else "--model"


app = typer.Typer(
    name="aoe",
    cls=_Commands,
    help="Tune a model for the hardware it runs on, and remember what was learned. "
    "Without a command, the options tune a model; the commands work with the results.",
    subcommand_metavar="[COMMAND ...]",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
@with_parameters(COMMAND_OPTIONS.values())
def tune(context: typer.Context, **options: Any) -> None:
    """Tune a model for this machine: `aoe --model=M.onnx --job_type=2 --output=DIR`."""
    if context.invoked_subcommand is not None:
        return
    if options["version"]:
        _print_versions(as_json=prints_json(options))
        return
    for text in warnings_of(environment()):
        say(f"warning: {text}")
    progress_bar = parse_switch("--progress_bar", options["progress_bar"], default=True)
    how: dict[str, Any] = {
        "as_json": prints_json(options),
        "shown": progress_bar and not options["quiet"],
    }
    found = given_configuration(context, options["config"]).check()
    chosen = _one_of({f"--{name}": options[name] for name in ("model", "model_path", "om")})
    check_tuned_model(options["om"])
    if options["script"] is not None or JobType.GDAT in found.job_types:
        refuse_inference_options(options)
        tune_training(options, found, **how)
        return
    refuse_gradients(options)
    if JobType.SGAT not in found.job_types:
        warn_of_subgraph_options(options)
    if chosen is None:
        raise OptionError(
            "aoe", "no model given", hint="aoe --model=M.onnx --output=DIR, or --help"
        )
    from aoe.cli.tune_command import run_folder, run_tuning
    from aoe.tuner.registry import other_mode

    if options["model"] is None:
        options["framework"] = None
    settings = run_settings(chosen, options, found)
    if is_given(context, "job_type"):
        settings = replace(settings, job_note=other_mode(options["job_type"]))
    run = run_tuning if options["model_path"] is None else run_folder
    run(
        settings,
        **how,
        details=tells_all(options["log"]) and not options["quiet"],
        engine=engine_of(context),
    )


def _one_of(options: Mapping[str, Path | None]) -> Path | None:
    """Return the one path that is given, None if there is none.

    Raises:
        OptionError: there are two.
    """
    given = [(name, path) for name, path in options.items() if path is not None]
    if len(given) > 1:
        (first, _), (second, got), *_ = given
        raise OptionError(second, f"given together with {first}", got=got)
    return given[0][1] if given else None


def _print_versions(*, as_json: bool) -> None:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    from aoe.report.answers import VersionReport

    versions: dict[str, str | None] = {}
    for name in ("aoebank", "onnxruntime", "halide", "onnx"):
        try:
            versions[name] = installed(name)
        except PackageNotFoundError:
            versions[name] = None
    finish(VersionReport(versions=versions), as_json=as_json)


def atc_main(arguments: Sequence[str] | None = None) -> None:
    """Run `aoe compile` and exit with its code: the console script `aoe-atc`.

    Args:
        arguments: After the name of the program; None for those of this process.
    """
    words = map(_spelled, sys.argv[1:] if arguments is None else arguments)
    sys.exit(run_app(app, ["compile", *words], called="aoe-atc"))


def _spelled(word: str) -> str:
    """Return an option of atc as it is spelled here: `-soc-version=x` is `--soc_version=x` there.

    Source: ATC documentation, overview of options.
    """
    name, equals, value = word.partition("=")
    if not re.fullmatch(r"--?[A-Za-z][A-Za-z0-9_-]{2,}", name):
        return word
    return f"--{name.lstrip('-').replace('-', '_')}{equals}{value}"


def main(arguments: Sequence[str] | None = None, *, engine: EngineParts = REAL_ENGINE) -> None:
    """Run the command line and exit with its code.

    Args:
        arguments: After the name of the program; None for those of this process.
        engine: What commands tune with.
    """
    if arguments is not None:
        sys.exit(run_app(app, split_script(arguments), engine=engine))
    ending = QuickEnd()
    ending.code = run_app(app, split_script(sys.argv[1:]), engine=engine)
    sys.exit(ending.code)
