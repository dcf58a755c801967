"""The command `aoebank`: global options, and commands made of the public functions behind them.

The rows of `VERBS` name the functions; a function's signature has its options.
"""

from __future__ import annotations

import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from importlib import import_module
from inspect import Parameter
from typing import Annotated, Any, get_origin

import typer

from aoebank.errors import UsageError
from aoebank.parameters.command import as_option, command_parameters
from aoebank.parameters.param import DOCUMENTS, Param
from aoebank.program import CommandGroup, HelpfulCommand, HelpfulGroup, Program, run_program
from aoebank.report.documents import Form, Pages, asked_documents, emit
from aoebank.report.output import ColorMode, Report, say
from aoebank.verbs import EXAMPLES, GROUPS, NOTES, OWN_OUTPUT, SECTIONS, VERBS, Verb

# what each is for, in a line
COMMANDS: dict[str, str] = {
    name: GROUPS[name] if name in GROUPS else VERBS[name].summary
    for name in dict.fromkeys(place.partition(" ")[0] for place in VERBS)
}
EXIT_DRIVER = 129  # git reads more than 128 as: not merged; 2 to 4 would mean conflicts


# ---- the program ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What the options before the command decided."""

    color: ColorMode = ColorMode.AUTO
    debug: bool = False


class _Commands(CommandGroup):
    summaries = COMMANDS
    sections = SECTIONS
    examples = EXAMPLES
    notes = NOTES

    @classmethod
    def load(cls, name: str) -> Any:
        """Return the function of a command, or the `typer.Typer` of a group of commands."""
        return load(name)


app = typer.Typer(
    name="aoebank",
    cls=_Commands,
    subcommand_metavar="COMMAND [ARGS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback()
def start(
    context: typer.Context,
    color: Annotated[
        ColorMode, typer.Option("--color", help="Colour the text; see also NO_COLOR.")
    ] = ColorMode.AUTO,
    debug: Annotated[bool, typer.Option("--debug", help="Print tracebacks.")] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version.",
            is_eager=True,
            callback=lambda asked: _print_version(asked),
        ),
    ] = False,
) -> None:
    """Manage tuning knowledge banks: find, check, read and compare them."""
    context.obj = Session(color=color, debug=debug)


def _print_version(asked: bool) -> None:
    if asked:
        from aoebank import __version__

        print(f"aoebank {__version__}")
        raise typer.Exit


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = _spread(sys.argv[1:] if argv is None else argv)
    if not arguments or _is_group_alone(arguments):
        return run_program(PROGRAM, [*arguments, "--help"]) or UsageError.exit_code
    code = run_program(PROGRAM, arguments)
    return EXIT_DRIVER if code > 1 and _verb(arguments) == "merge-driver" else code


def _spread(arguments: Sequence[str]) -> list[str]:
    """Return arguments with `--fix=order,text` as what it stands for.

    Typer knows no option that may have a value and need not.
    """
    spread: list[str] = []
    for number, word in enumerate(arguments):
        if word == "--":
            return [*spread, *arguments[number:]]
        option, _, classes = word.partition("=")
        if option == "--fix" and classes:
            spread += ["--fix", *(f"--fix-class={name}" for name in classes.split(","))]
        else:
            spread.append(word)
    return spread


def _is_group_alone(arguments: Sequence[str]) -> bool:
    """True if a group of commands is named, and none of them."""
    return arguments[-1] in GROUPS and _verb(arguments) == arguments[-1]


def _verb(arguments: Sequence[str]) -> str:
    """Return the name of the command, of one in a group as in `git-check`."""
    place = next((n for n, word in enumerate(arguments) if word in COMMANDS), None)
    if place is None:
        return "error"
    verb = arguments[place]
    group = load(verb)
    if not isinstance(group, typer.Typer):
        return verb
    members = {command.name for command in group.registered_commands}
    member = next((word for word in arguments[place + 1 :] if word in members), None)
    return f"{verb}-{member}" if member else verb


PROGRAM = Program(
    name="aoebank",
    app=app,
    schema=lambda arguments: f"aoebank.{_verb(arguments)}/1",
    takes_output=lambda arguments: _verb(arguments) not in OWN_OUTPUT,
    takes_format=lambda arguments: _verb(arguments) != "git-install",  # there it is that of banks
)


# ---- a command of a row ----


def load(name: str) -> Any:
    """Return the function of a command as typer takes it, or the `typer.Typer` of a group."""
    if name not in GROUPS:
        return _command(name, VERBS[name])
    group = typer.Typer(
        cls=HelpfulGroup,
        help=GROUPS[name],
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
    )
    for place, verb in VERBS.items():
        family, _, member = place.partition(" ")
        if family == name:
            group.command(member, cls=HelpfulCommand)(_command(place, verb))
    return group


def _command(called: str, verb: Verb) -> Callable[..., int]:
    """Return the function typer calls: parameters of the public function, then the report's."""
    function = _load(verb.function)
    callee = _load(verb.calls) if verb.calls else function
    taken = {one.name: one for one in command_parameters(function)}
    options = {**taken, **{name: _extra(name, param) for name, param in _extras(verb)}}

    documents = {
        name: param
        for name, param in DOCUMENTS.items()
        if name != "document_file" or called not in OWN_OUTPUT
    }

    def command(context: typer.Context, **given: Any) -> int:
        asked = asked_documents()
        values = {name: _value(options[name], given[name]) for name in options}

        def call(**changed: Any) -> Any:
            arguments = _bound(function, {**{name: values[name] for name in taken}, **changed})
            return callee(*arguments.args, **arguments.kwargs)

        made = _result(verb, call, {**values, "as_json": asked.has(Form.JSON)})
        if isinstance(made, int):
            return made
        if verb.bank and values["root"] is None and asked.printed != Form.JSON:
            say(f"bank: {reduce(getattr, verb.bank.split('.'), made)}")
        return _finish(context, made, verb)

    ordered = [*dict.fromkeys([*verb.order, *options])]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(as_option(options[name]) for name in ordered),
            *(as_option(_extra(name, param)) for name, param in documents.items()),
        ]
    )
    command.__doc__ = f"{verb.summary}\n\n{verb.details}".strip()
    return command


def _result(verb: Verb, call: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Return the report on a call, or the exit code of a command that has written by itself."""
    if verb.show:
        return _load(verb.show)(call, given)
    result = call(**({verb.if_json: True} if verb.if_json and given["as_json"] else {}))
    members = {name: given[option] for name, option in verb.options.items()}
    return _load(verb.report)(**{verb.member: result}, **members, **verb.constants)


def _extras(verb: Verb) -> Iterator[tuple[str, Param]]:
    """Yield the options of the command alone; `output` is its format."""
    yield from verb.extra.items()
    if verb.format_help:
        formats = _enumeration([*dict.fromkeys([*Form, *verb.pages])])
        default, told = formats("text"), verb.format_help
        yield "output", Param(kind=formats, flags=("--format",), default=default, help=told)


def _enumeration(words: Sequence[str]) -> Any:
    """Return the type of an option that is one of several words."""
    make: Any = StrEnum
    return make("OutputFormat", {word.upper(): word for word in words})


def _extra(name: str, param: Param) -> Parameter:
    default = Parameter.empty if param.is_argument else False
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=param)


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"aoebank.{module}"), name)


def _bound(function: Callable[..., Any], values: Mapping[str, Any]) -> inspect.BoundArguments:
    """Return the arguments of a public function that the command line gave.

    Raises:
        UsageError: an option that has to be given is not.
    """
    for parameter in command_parameters(function):
        if parameter.annotation.expected and not values[parameter.name]:
            expected = parameter.annotation.expected
            raise UsageError(f"--{parameter.name}: not given", expected=expected)
    bound = inspect.BoundArguments(inspect.signature(function), OrderedDict())
    names = bound.signature.parameters
    bound.arguments.update({name: values[name] for name in names if name in values})
    return bound


def _value(parameter: Parameter, value: Any) -> Any:
    """Return the value for the function: no list is an empty one."""
    is_list = get_origin(parameter.annotation.kind) is list
    return () if is_list and value is None else value


def _finish(context: typer.Context, report: Report, verb: Verb) -> int:
    """Write a report the way this call asked for; return the exit code."""
    from aoebank.storage.readers.environment import current_environment

    session = context.find_object(Session) or Session()
    asked = asked_documents()
    pages: Pages = {form: _load(place) for form, place in verb.pages.items() if asked.has(form)}
    return emit(
        report,
        as_json=asked.printed == Form.JSON,
        color=session.color,
        no_color=bool(current_environment().get("NO_COLOR")),
        pages=pages,
    )
