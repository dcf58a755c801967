"""Parameters of functions as typer takes them: both programs make their commands from functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from inspect import Parameter
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, get_args, get_origin

import typer

from aoebank.parameters.param import Completes, Param

_NO_TABLE: Mapping[str, Param] = MappingProxyType({})


def command_parameters(
    function: Callable[..., Any], table: Mapping[str, Param] = _NO_TABLE
) -> Iterator[Parameter]:
    """Yield the parameters that the command line takes, each with its `Param` as annotation.

    Args:
        function: Its annotations are texts, those of such parameters `Annotated[type, Param]`.
        table: Options by name: a parameter of that name has its type and default there.
    """
    names = import_module(function.__module__).__dict__
    for parameter in inspect.signature(function).parameters.values():
        hint = parameter.annotation
        if isinstance(hint, str) and hint.startswith("Annotated["):
            known = eval(hint, names)
            param: Param = known.__metadata__[0]
            kind = param.kind or _without_none(known.__origin__)
            yield parameter.replace(annotation=replace(param, kind=kind))
        elif parameter.name in table:
            yield parameter.replace(annotation=table[parameter.name], default=None)


def _without_none(hint: Any) -> Any:
    kinds = [one for one in get_args(hint) if one is not NoneType]
    return kinds[0] if isinstance(hint, UnionType) else hint


def as_option(parameter: Parameter) -> Parameter:
    """Return a parameter that has a `Param` for its annotation as typer takes it."""
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
    told: dict[str, Any] = {"metavar": param.metavar, "help": param.text or None}
    if param.completes is not None:
        told["autocompletion"] = _completion_of(param.completes)
    told |= {"min": param.least, "max": param.most, "hidden": param.hidden}
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


def _completion_of(
    completes: Completes | tuple[str, ...],
) -> Callable[[typer.Context, str], list[str]]:
    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        if not isinstance(completes, Completes):
            return [word for word in completes if word.startswith(incomplete)]
        from aoebank.parameters.completion import candidates  # at a TAB only

        return candidates(completes, ctx.params, incomplete)

    return complete
