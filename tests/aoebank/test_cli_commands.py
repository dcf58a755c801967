"""Library = command: each command calls a public function that has its options by their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator

import pytest
import typer

import aoebank
from aoebank.cli import COMMANDS, load

# the functions behind a command, where they are not one of its name
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "ls": ("list_bank",),
    "validate": ("validate", "fix"),
    "merge": ("merge", "settle"),
    "log": ("log", "verify_history"),
    "report": ("overview",),
    "git verify-merge": ("git_verify_merge",),
    "quarantine rm": ("quarantine_remove",),
}
# how to print, and when to exit with 1
TELLING = {
    "diff": {"output", "stat", "has_all", "fail_on_regression", "skip_broken"},
    "fmt": {"diff"},
    "git verify-merge": {"output"},
    "log": {"verify"},  # a function of its own
    "merge": {"verbose"},
    "merge-driver": {"marker_size"},  # git passes it, nothing uses it
    "resolve": {"explain"},
    "unpack": {"output"},  # another way to write DIR
    "validate": {"output", "fail_on", "strict", "statistics", "notes", "has_each", "fix"},
}


def _commands() -> Iterator[tuple[str, Callable[..., int]]]:
    for name in COMMANDS:
        command = load(name)
        if not isinstance(command, typer.Typer):
            yield name, command
            continue
        for member in command.registered_commands:
            assert member.callback is not None
            yield f"{name} {member.name}", member.callback


def _names(command: str) -> tuple[str, ...]:
    return FUNCTIONS.get(command, (command.replace(" ", "_").replace("-", "_"),))


CALLS = list(_commands())


@pytest.mark.parametrize(("name", "command"), CALLS, ids=[name for name, _ in CALLS])
def test_every_option_of_a_command_is_a_parameter_of_its_function(
    name: str, command: Callable[..., int]
) -> None:
    options = set(inspect.signature(command).parameters) - {"context", *aoebank.DOCUMENTS}
    functions = [getattr(aoebank, function) for function in _names(name)]
    taken = {word for function in functions for word in inspect.signature(function).parameters}
    assert options - TELLING.get(name, set()) <= taken


def test_every_verb_is_behind_a_command() -> None:
    verbs = {
        name
        for name in aoebank.__all__
        if getattr(getattr(aoebank, name), "__module__", "").endswith(".api")
    }
    assert verbs == {function for name, _ in CALLS for function in _names(name)}
