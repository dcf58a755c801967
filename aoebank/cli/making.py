"""Commands made from the public functions behind them, as the rows of `VERBS` say."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import reduce
from importlib import import_module
from inspect import Parameter
from typing import Annotated, Any, get_origin

import typer

from aoebank.cli.loading import HelpfulGroup
from aoebank.cli.options import AsJson, finish
from aoebank.cli.verbs import GROUPS, VERBS, Verb
from aoebank.errors import UsageError
from aoebank.parameters.param import Param
from aoebank.report.output import Report, say, write_error, write_text

_FORMATS = ["text", "json"]


def load_verb(name: str) -> Any:
    """Return the function of a command as typer takes it, or the `typer.Typer` of a group."""
    if name not in GROUPS:
        return _command(VERBS[name])
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
            group.command(member)(_command(verb))
    return group


def _command(verb: Verb) -> Callable[..., int]:
    """Return the function typer calls: parameters of the public function, then the report's."""
    function = _load(verb.function)
    called = _load(verb.calls) if verb.calls else function
    taken = {one.name: one for one in _parameters(function)}
    options = {**taken, **{name: _extra(name, param) for name, param in _extras(verb)}}

    def command(context: typer.Context, as_json: bool, **given: Any) -> int:
        values = {name: _value(options[name], value) for name, value in given.items()}

        def call(**changed: Any) -> Any:
            arguments = _bound(function, {**{name: values[name] for name in taken}, **changed})
            return called(*arguments.args, **arguments.kwargs)

        page = _page(verb, values, as_json=as_json)
        made = _result(verb, call, {**values, "as_json": as_json})
        if isinstance(made, int):
            return made
        if verb.bank and values["root"] is None and not as_json:
            say(f"bank: {reduce(getattr, verb.bank.split('.'), made)}")
        if page is None:
            is_json = as_json or values.get("output") == "json"
            return finish(context, made, as_json=is_json)
        write_text(page(made))
        if made.error is not None:
            write_error(made.error)
        return int(made.exit_code)

    ordered = [*dict.fromkeys([*verb.order, *options])]
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
            *(_as_option(options[name]) for name in ordered),
            Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
        ]
    )
    command.__doc__ = f"{verb.summary}\n\n{verb.details}".strip()
    return command


def _page(
    verb: Verb, values: Mapping[str, Any], *, as_json: bool
) -> Callable[[Report], str] | None:
    """Return the renderer of the format that was asked for; None for text and JSON.

    Raises:
        UsageError: JSON is asked for too.
    """
    form = "html" if values.get("html") else values.get("output", "text")
    if form not in verb.pages:
        return None
    if as_json:
        got = "--html" if values.get("html") else f"--format {form}"
        raise UsageError("two formats asked for", where="--json", got=f"{got} too")
    render: Callable[[Report], str] = _load(verb.pages[form])
    return render


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
        formats = _enumeration([*_FORMATS, *verb.pages])
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


def _parameters(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Yield the parameters the command line takes, each with its `Param` as annotation."""
    names = import_module(function.__module__).__dict__
    for parameter in inspect.signature(function).parameters.values():
        hint = parameter.annotation
        if isinstance(hint, str) and hint.startswith("Annotated["):
            yield parameter.replace(annotation=eval(hint, names).__metadata__[0])


def _bound(function: Callable[..., Any], values: Mapping[str, Any]) -> inspect.BoundArguments:
    """Return the arguments of a public function that the command line gave.

    Raises:
        UsageError: an option that has to be given is not.
    """
    for parameter in _parameters(function):
        if parameter.annotation.expected and not values[parameter.name]:
            expected = parameter.annotation.expected
            raise UsageError(f"--{parameter.name}: not given", expected=expected)
    bound = inspect.BoundArguments(inspect.signature(function), OrderedDict())
    names = bound.signature.parameters
    bound.arguments.update({name: values[name] for name in names if name in values})
    return bound


def _as_option(parameter: Parameter) -> Parameter:
    """Return a parameter as typer takes it."""
    param: Param = parameter.annotation
    if param.expected:
        parameter = parameter.replace(default="")
    if param.default is not Parameter.empty:
        parameter = parameter.replace(default=param.default)
    is_needed = parameter.default is Parameter.empty
    is_list = get_origin(param.kind) is list
    if parameter.kind is Parameter.VAR_POSITIONAL:
        is_needed = param.is_needed
    default = None if is_list else parameter.default
    kind = param.kind | None if not is_needed and default is None else param.kind
    told: dict[str, Any] = {"metavar": param.metavar, "help": param.help}
    told |= {"min": param.least, "max": param.most}
    if not is_needed:
        told["show_default"] = default not in (None, "")
    if param.is_argument:
        info: Any = typer.Argument(**told)
    else:
        info = typer.Option(*(param.flags or (f"--{parameter.name.replace('_', '-')}",)), **told)
    return Parameter(
        parameter.name,
        Parameter.KEYWORD_ONLY,
        default=Parameter.empty if is_needed else default,
        annotation=Annotated[kind, info],
    )


def _value(parameter: Parameter, value: Any) -> Any:
    """Return the value for the function: no list is an empty one."""
    is_list = get_origin(parameter.annotation.kind) is list
    return () if is_list and value is None else value
