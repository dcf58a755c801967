"""Options shared by commands: same noun, same flag everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from aoe.cli.command_options import COMMAND_OPTIONS, OPTIONS
from aoe.cli.commands import COMMANDS
from aoe.errors import OptionError
from aoe.runs.configuration.option import Option
from aoe.runs.configuration.options import SETTINGS
from aoe.settings import environment
from aoebank import DOCUMENTS, Report, as_option, asked_documents, command_parameters, emit, say

if TYPE_CHECKING:
    from aoe.ort.inputs import InputSet
    from aoe.profiling.run import ProfileSettings
    from aoe.runs.configuration.resolving import RunConfiguration
    from aoe.tuner.mode import TuneSettings

F = TypeVar("F", bound=Callable[..., Any])


def with_parameters(rows: Iterable[Option]) -> Callable[[F], F]:
    """Return a decorator for a command that takes options of the table as `**options`."""

    def decorated(command: F) -> F:
        known = signature(command, eval_str=True)
        own = [one for one in known.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
        every = [*own, *(as_option(_parameter(row)) for row in rows)]
        command.__signature__ = known.replace(parameters=every)  # type: ignore[attr-defined]
        return command

    return decorated


def _parameter(row: Option) -> Parameter:
    return Parameter(row.name, Parameter.KEYWORD_ONLY, default=None, annotation=row)


def load_command(name: str) -> Callable[..., int]:
    """Return the function of a command as typer takes it; it returns the exit code.

    Parameters of its row's function are its options; `options` stands for several of them,
    `context` is given if it asks for that.
    """
    row = COMMANDS[name]
    module, _, member = row.function.partition(":")
    function = getattr(import_module(f"aoe.cli.{module}"), member)
    has = signature(function).parameters
    rows = [OPTIONS[one] if isinstance(one, str) else one for one in row.options]
    group = [*map(_parameter, rows)]
    table = {**OPTIONS, "options": Option()}
    declared = [one for one in command_parameters(function, table) if one.name not in DOCUMENTS]
    parameters = [
        *(one for own in declared for one in (group if own.name == "options" else (own,))),
        *(_parameter(OPTIONS[one]) for one in DOCUMENTS if one in row.documents),
    ]

    def command(context: typer.Context, **given: Any) -> int:
        values = {
            **given,
            "as_json": prints_json(given),
            "context": context,
            "options": {one.name: given[one.name] for one in rows},
        }
        made = function(**{one: value for one, value in values.items() if one in has})
        return made if isinstance(made, int) else finish(made, as_json=bool(values["as_json"]))

    context = Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context)
    command.__signature__ = Signature([context, *map(as_option, parameters)])  # type: ignore[attr-defined]
    command.__doc__ = f"{row.help or row.summary}\n\n{row.details}".strip()
    return command


def prints_json(options: Mapping[str, Any]) -> bool:
    """True if standard output takes one JSON document."""
    return options["as_json"] is not None


_LOG_LEVELS = ("debug", "info", "warning", "error", "null")
_TELLING = ("debug", "info")


def tells_all(log: str | None) -> bool:
    """True if a level of `--log` asks for details.

    Raises:
        OptionError: it is no level.
    """
    if log is not None and log not in _LOG_LEVELS:
        raise OptionError("--log", "no level", got=log, expected=" or ".join(_LOG_LEVELS))
    return log in _TELLING


def check_tuned_model(om: Path | None) -> None:
    """Refuse a path of `--om` that is no tuned model by its name.

    Raises:
        OptionError: it ends in something else than `.om`.
    """
    if om is not None and om.suffix != ".om":
        raise OptionError(
            "--om",
            "no tuned model",
            got=om,
            expected="an .om file of an earlier run",
            hint=f"aoe --model={om} tunes a model, aoe --model_path={om} a directory of them",
        )


def given_configuration(context: typer.Context, config: Path | None) -> RunConfiguration:
    """Return every setting of a command line, its file, the environment and the defaults.

    Raises:
        OptionError: a file cannot be read.
    """
    from aoe.runs.configuration.resolving import configure

    given = {name: context.params[name] for name in SETTINGS if is_given(context, name)}
    return configure(given, env=environment(), cwd=Path.cwd(), config=config)


def read_calibration(directory: Path | None) -> tuple[InputSet, ...]:
    """Return the input sets of `--calibration`; none without it.

    Raises:
        OptionError: the directory has none, or cannot be read.
    """
    if directory is None:
        return ()
    from aoe.ort.inputs import read_input_sets

    return read_input_sets(directory, "--calibration")


def refuse_gradients(options: Mapping[str, Any]) -> None:
    """Refuse options of gradient tuning in a run of another mode."""
    of_models = "it is for gradient tuning of a model file"
    what = {
        "loss_name": of_models,
        "world": of_models,
        "allow_compression": "it is for gradient tuning",
    }
    for name, why in what.items():
        if options[name] is not None:
            raise OptionError(
                COMMAND_OPTIONS[name].option,
                why,
                got=options[name],
                hint="aoe --job_type=4 --model=M.onnx --loss_name=NAME",
            )


def warn_of_subgraph_options(options: Mapping[str, Any]) -> None:
    """Say which options of subgraph tuning are given in a run without it."""
    for name in ("nonhomo_split", "tune_optimization_level", "anonymous"):
        row = COMMAND_OPTIONS[name]
        if options[name] != row.initial:
            say(
                f"warning: {row.option} changes nothing here: "
                "it is for subgraph tuning (--job_type=1, or 1,2)"
            )


class Work(StrEnum):
    """What a command that may run a training works on, in words."""

    ALONE = "what runs without a training"
    MODEL = "the training of a model file"
    SCRIPT = "a training script"
    SCRIPT_OPERATORS = "the operators of a training script"


_WORK_WITH: Mapping[str, Sequence[Work]] = {
    **dict.fromkeys(("shapes_from", "custom_ops_library"), (Work.ALONE,)),
    "base_result": (Work.ALONE, Work.SCRIPT_OPERATORS),
    **dict.fromkeys(("soc_version", "aicore_num", "trials"), (Work.ALONE,)),
    **dict.fromkeys(("sample", "stale_only", "worst", "undecided"), (Work.ALONE,)),
    **dict.fromkeys(
        (
            *("input_files", "input_sets", "out_nodes", "precision_mode", "modify_mixlist"),
            *("accuracy", "calibration", "strict_fp32", "kernel_memory", "config", "output"),
        ),
        (Work.ALONE,),
    ),
    **dict.fromkeys(("framework", "weight", "input_shape", "seed"), (Work.ALONE, Work.MODEL)),
    "loss_name": (Work.MODEL,),
    "world": (Work.MODEL, Work.SCRIPT),
}
"""What the options are for, by name of the parameter; those that are not here are for all."""


def refuse_unused(context: typer.Context, work: Work) -> None:
    """Refuse options a command would pass over: what it tells would not be what was asked.

    Args:
        context: The call.
        work: What it works on.

    Raises:
        OptionError: an option is given that is for something else.
    """
    for option in context.command.params:
        name = option.name or ""
        works = _WORK_WITH.get(name, (work,))
        if work not in works and is_given(context, name):
            value = context.params[name]
            raise OptionError(
                option.opts[0],
                f"it is for {' or '.join(works)}",
                got=value[0] if isinstance(value, list) else value,
                expected=f"options for {work}",
                hint="leave it out",
            )


def is_given(context: typer.Context, name: str) -> bool:
    """True if an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def given_inputs(files: list[str] | None, directory: Path | None) -> tuple[InputSet, ...]:
    """Return the input sets of `--input` and `--inputs`; none for made-up inputs.

    Raises:
        OptionError: both are given, or one cannot be meant.
    """
    if not files and directory is None:
        return ()
    from aoe.ort.inputs import parse_inputs, read_input_sets

    if directory is None:
        return parse_inputs(files or ())
    if files:
        raise OptionError("--inputs", "given together with --input", got=files[0])
    return read_input_sets(directory)


def run_settings(model: Path, options: Mapping[str, Any], found: RunConfiguration) -> TuneSettings:
    """Return the settings of a run from the options of a command, by name in the table.

    Raises:
        OptionError: one cannot be meant.
    """
    from aoe.runs.configuration.resolving import settings_of

    return settings_of(
        model,
        options,
        found,
        inputs=given_inputs(options["input_files"], options["input_sets"]),
        calibration=read_calibration(options["calibration"]),
    )


def profile_settings(model: Path, options: Mapping[str, Any], **of_command: Any) -> ProfileSettings:
    """Return the settings of a profile from its options, by name in the table."""
    from aoe.profiling.run import ProfileSettings

    return ProfileSettings(
        model=model,
        framework=options["framework"],
        weight=options["weight"],
        input_shape=options["one_shape"],
        operators=tuple(options["custom_ops_library"] or ()),
        trusted=options["require_signature"],
        inputs=given_inputs(options["input_files"], options["input_sets"]),
        seed=options["seed"],
        threads=options["aicore_num"],
        env=environment(),
        **of_command,
    )


def finish(report: Report, *, as_json: bool) -> int:
    """Write a report the way this call asked for; return the exit code."""
    no_color = bool(environment().get("NO_COLOR"))
    pages = {"html": _page} if asked_documents().has("html") else {}
    return emit(report, as_json=as_json, no_color=no_color, indent=None, pages=pages)


def _page(report: Report) -> str:
    from aoe.report.documents import render_report

    return render_report(report)
