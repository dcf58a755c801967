"""Commands that are made from the functions they call: a row says which report shows the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from inspect import Parameter
from typing import Annotated, Any, get_origin

import typer

from aoebank.api.parameters import Param
from aoebank.cli.options import AsJson, finish
from aoebank.errors import UsageError
from aoebank.report.output import say


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """A command by the function behind it.

    Attributes:
        function: Module of `aoebank.api` and name.
        report: Module of `aoebank.report` and name of the class that shows the result.
        member: Member of the report that has the result.
        options: Further members, with the option each has the value of.
        constants: Further members with one value.
        bank: Where the result has the root of the bank, told if nobody named it; empty: nowhere.
        extra: Options of the command alone, for its report.
        if_json: Parameter of the function that is true for `--json`; empty for none.
        calls: Function that is called in the place of `function`, with the same parameters.
    """

    function: str
    report: str
    member: str = "result"
    options: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    bank: str = ""
    extra: Mapping[str, Param] = field(default_factory=dict)
    if_json: str = ""
    calls: str = ""


_DRY = {"is_dry_run": "dry_run"}
VERBS: Mapping[str, Verb] = {
    "merge": Verb(
        function="merging:merge",
        calls="merging:merge_or_settle",
        report="merge.run:merge_report",
        options={**_DRY, "is_verbose": "verbose"},
        extra={"verbose": Param(help="Name every file that was written.")},
        if_json="verbose",
    ),
    "fmt": Verb(
        function="checking:fmt",
        report="changing.fmt:FormatReport",
        member="outcomes",
        options={"is_check": "check", "has_diff": "diff"},
        extra={"diff": Param(help="Show the difference, line by line.")},
    ),
    "convert": Verb(function="shipping:convert", report="shipping.convert:ConvertReport"),
    "pack": Verb(function="shipping:pack", report="shipping.pack:PackReport"),
    "prune": Verb(function="editing:prune", report="changing.prune:PruneReport", options=_DRY),
    "edit": Verb(function="editing:edit", report="changing.edit:EditReport", options=_DRY),
    "restore": Verb(
        function="versions:restore", report="history.restore:RestoreReport", bank="plan.root"
    ),
    "revert": Verb(
        function="versions:revert", report="history.restore:RevertReport", bank="plan.root"
    ),
    "snapshot": Verb(
        function="versions:snapshot", report="history.snapshot:SnapshotReport", bank="root"
    ),
    "tag": Verb(function="versions:tag", report="history.tag:TagReport", bank="root"),
    "blame": Verb(function="versions:blame", report="history.blame:BlameReport", bank="root"),
    "stats": Verb(
        function="reading:stats",
        report="reading.query:QueryReport",
        constants={"schema": "aoebank.stats/1"},
    ),
    "query": Verb(function="reading:query", report="reading.query:QueryReport"),
    "show": Verb(function="reading:show", report="reading.show:ShowReport"),
    "ls": Verb(function="reading:list_bank", report="reading.ls:ListReport"),
    "hits": Verb(function="reading:hits", report="reading.hits:HitsReport"),
    "quarantine add": Verb(
        function="quarantine:quarantine_add",
        report="quarantine:QuarantineReport",
        constants={"schema": "aoebank.quarantine-add/1"},
    ),
    "quarantine rm": Verb(
        function="quarantine:quarantine_remove",
        report="quarantine:QuarantineReport",
        constants={"schema": "aoebank.quarantine-rm/1"},
    ),
    "git install": Verb(
        function="git:git_install",
        report="git.install:InstallReport",
        member="plan",
        options=_DRY,
    ),
    "git uninstall": Verb(
        function="git:git_uninstall",
        report="git.install:InstallReport",
        member="plan",
        options=_DRY,
        constants={"verb": "uninstall"},
    ),
    "git check": Verb(
        function="git:git_check",
        report="git.install:CheckReport",
        options={"are_conflicts_only": "conflicts"},
    ),
    "stale": Verb(function="checking:stale", report="reading.stale:StaleReport"),
}


def verb_command(name: str, summary: str) -> Callable[..., int]:
    """Return the function of a command, as typer takes it.

    Args:
        name: In `VERBS`.
        summary: First line of its help.
    """
    verb = VERBS[name]
    function = _load("api", verb.function)
    taken = {one.name: one for one in _parameters(function)}
    called = _load("api", verb.calls) if verb.calls else function
    extra = [
        Parameter(one, Parameter.KEYWORD_ONLY, default=False, annotation=param)
        for one, param in verb.extra.items()
    ]

    def command(context: typer.Context, as_json: bool, **given: Any) -> int:
        values = {one: _value(taken[one], given[one]) for one in taken}
        for one, value in values.items():
            if taken[one].annotation.expected and not value:
                raise UsageError(f"--{one}: not given", expected=taken[one].annotation.expected)
        values |= {verb.if_json: as_json} if verb.if_json else {}
        arguments: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is Parameter.VAR_POSITIONAL:
                arguments += values.pop(parameter.name)
            elif parameter.kind is Parameter.POSITIONAL_OR_KEYWORD and parameter.name in values:
                arguments.append(values.pop(parameter.name))
        result = called(*arguments, **values)
        if verb.bank and given.get("root") is None and not as_json:
            say(f"bank: {reduce(getattr, verb.bank.split('.'), result)}")
        members = {name: given[option] for name, option in verb.options.items()}
        report = _load("report", verb.report)
        shown = report(**{verb.member: result}, **members, **verb.constants)
        return finish(context, shown, as_json=as_json)

    own = [
        Parameter("context", Parameter.KEYWORD_ONLY, annotation=typer.Context),
        *map(_as_option, (*taken.values(), *extra)),
        Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=AsJson),
    ]
    command.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    command.__doc__ = summary
    return command


def _load(package: str, place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"aoebank.{package}.{module}"), name)


def _parameters(function: Callable[..., Any]) -> Iterator[Parameter]:
    """Yield the parameters the command line takes, each with its `Param` as annotation."""
    names = import_module(function.__module__).__dict__
    for parameter in inspect.signature(function).parameters.values():
        hint = parameter.annotation
        if isinstance(hint, str) and hint.startswith("Annotated["):
            param = eval(hint, names).__metadata__[0]
            yield parameter.replace(annotation=param)


def _as_option(parameter: Parameter) -> Parameter:
    """Return a parameter as typer takes it."""
    param: Param = parameter.annotation
    if param.expected:
        parameter = parameter.replace(default="")
    is_needed = parameter.default is Parameter.empty
    is_list = get_origin(param.kind) is list
    if parameter.kind is Parameter.VAR_POSITIONAL:
        is_needed = param.is_needed
    default = None if is_list else parameter.default
    kind = param.kind | None if not is_needed and default is None else param.kind
    told: dict[str, Any] = {"metavar": param.metavar, "help": param.help, "min": param.least}
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
    """Return what the function is given: no list is an empty one."""
    is_list = get_origin(parameter.annotation.kind) is list
    return () if is_list and value is None else value


def add_members(group: typer.Typer, name: str, **summaries: str) -> None:
    """Add commands of a group that are made from their functions, with their summaries."""
    for member, summary in summaries.items():
        group.command(member)(verb_command(f"{name} {member}", summary))
